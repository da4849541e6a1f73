/* Byte ranges over HTTP and HTTPS, several in flight, delivered in order through a fixed set of buffers.
 *
 * The caller says what it will read (http_announce), then reads it (http_read) in that order. A thread of the
 * client requests the announced bytes ahead, in pieces of one buffer each, and retries what fails on the way
 * from where it stopped. Nothing is believed: a response must be 206 with exactly the range that was asked
 * for, of a file with the size and entity tag that it had at first, uncompressed, and of one revision of the
 * repository.
 *
 * A client and its files belong to one thread at a time. Requests read proxies from the environment, as
 * libcurl does. Errors name the host and the file, never the whole address: signed addresses are secrets. */
#ifndef IO_HTTP_H
#define IO_HTTP_H

#include "base/err.h"

#define HTTP_HEAD_BYTES      (64u << 10) /* what a probe asks for, and keeps */
#define HTTP_TAG_BYTES       136
#define HTTP_COMMIT_BYTES    41 /* 40 hexadecimal digits */
#define HTTP_CONNECTIONS_MAX 32
#define HTTP_REDIRECTS_MAX   5

struct http_client;

/* A zeroed member asks for its default. */
struct http_options {
    const char *token;           /* NULL: none. Sent to the files' own addresses only, never after a redirect
                                    to another host */
    const char *ca_file;         /* certificates to trust: a file of them, or a directory as OpenSSL reads it;
                                    NULL: the system's */
    uint32_t connections;        /* requests in flight: 4 */
    uint64_t buffer_bytes;       /* all buffers together: 24 MiB */
    uint32_t head_bytes;         /* HTTP_HEAD_BYTES; a piece is a multiple of it */
    uint32_t connect_ms;         /* 30 s */
    uint32_t stall_ms;           /* a transfer below 1 KiB/s for this long is given up: 60 s */
    uint32_t whole_ms;           /* longest time of one request: 15 min */
    uint32_t attempts;           /* in a row without progress: 5 */
    uint32_t backoff_ms;         /* pause after the first failure, doubled up to 16 times this: 1 s */
    uint32_t retry_after_max_ms; /* longest wait that a server may ask for: 1 h */
    const volatile int *cancel;  /* may be NULL; looked at while waiting */
};

/* What is known of one file, from its first response on. Allocated zeroed by the caller, `name` and `url`
 * filled in; http_file_release() frees what the client added. */
struct http_file {
    const char *name; /* for messages */
    const char *url;
    /* filled by http_probe */
    bool known, absent;
    uint64_t bytes;
    unsigned char *head; /* the first head_bytes bytes, what the probe brought */
    size_t head_bytes;
    char tag[HTTP_TAG_BYTES];        /* entity tag where redirects ended, "" without one */
    char linked_tag[HTTP_TAG_BYTES]; /* X-Linked-ETag of the hub, "" without one */
    char *direct;                    /* where redirects ended, on another host; NULL */
};

void http_file_release(struct http_file *file);

sluice_status http_open(struct http_client **client, const struct http_options *options, sluice_error *err);
void http_close(struct http_client *client); /* NULL is fine */

/* Ask for the beginning of a file that is not known yet. A file that is not there becomes known and absent;
 * what was announced is forgotten. */
sluice_status http_probe(struct http_client *client, struct http_file *file, sluice_error *err);

/* Reads inside [offset, offset + bytes) of a known file will follow, in the order of the announcements,
 * ascending; bytes between reads are dropped. The file must live until they are read or forgotten. */
sluice_status http_announce(struct http_client *client, struct http_file *file, uint64_t offset,
                            uint64_t bytes, sluice_error *err);

/* Exactly n bytes. A read that was not announced forgets what was. */
sluice_status http_read(struct http_client *client, struct http_file *file, uint64_t offset, void *buffer,
                        size_t n, sluice_error *err);

/* Forget what was announced, end what is in flight, and give the buffers' pages back. */
void http_forget(struct http_client *client);

/* The one revision (X-Repo-Commit) of every response so far, "" when no server named one. */
const char *http_commit(const struct http_client *client);
/* From now on another revision is refused. */
void http_expect_commit(struct http_client *client, const char *commit);

#endif
