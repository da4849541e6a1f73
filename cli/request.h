/* Flags of a chat request: tools, thinking, the answer's shape; and the files they name, read. */
#ifndef CLI_REQUEST_H
#define CLI_REQUEST_H

#include "flags.h"
#include "out.h"

enum reasoning_view { REASONING_FOLD = 0, REASONING_SHOW, REASONING_HIDE };

struct request_flags {
    const char *tools, *tool_choice;
    sluice_thinking thinking;
    uint32_t thinking_tokens;
    enum reasoning_view reasoning;
    const char *json_schema, *grammar;
    bool json_object;
};

enum { REQUEST_ROWS = 8 };
extern const struct flag request_rows[REQUEST_ROWS];

#define REQUEST_GROUP(structure, member)                                                                     \
    {                                                                                                        \
        .title = "Tools, thinking and the answer's shape", .rows = request_rows, .n = REQUEST_ROWS,          \
        .base = offsetof(structure, member)                                                                  \
    }

/* A request without messages, and the texts it borrows from. */
struct request {
    sluice_chat_request chat;
    struct text tools, shape;
};

/* Read the files. Returns an exit code; release with request_free(). */
int request_read(const struct request_flags *flags, struct request *request);
void request_free(struct request *request);

#endif
