/* What a server answered, read from its header lines, and whether that is what was asked for. No I/O: the
 * transfers are http.c's. */
#ifndef IO_HTTP_RESPONSE_H
#define IO_HTTP_RESPONSE_H

#include "io/http.h"

struct http_response {
    int status;
    bool has_range, has_length;
    uint64_t first, last, total; /* Content-Range; an unsatisfied range has a total only */
    bool unsatisfied;
    uint64_t length;
    char encoding[32];
    char tag[HTTP_TAG_BYTES];
    /* of any step of a chain of redirects */
    char linked_tag[HTTP_TAG_BYTES];
    char commit[HTTP_COMMIT_BYTES + 1]; /* one more than a good one, so that a longer one shows */
};

enum http_verdict { HTTP_ACCEPT, HTTP_RETRY, HTTP_REFUSE };

/* Take one header line (with or without its line end). A status line starts the next step. */
void http_response_line(struct http_response *response, const char *line, size_t n);

/* Judge a response to a request for bytes [offset, offset + bytes) of a file; a probe asks from 0 and takes
 * fewer. HTTP_REFUSE and HTTP_RETRY leave a sentence in *err. `host` is for messages. */
enum http_verdict http_response_judge(const struct http_response *response, const struct http_file *file,
                                      const char *host, bool probe, uint64_t offset, uint64_t bytes,
                                      const char *commit, sluice_error *err);

#endif
