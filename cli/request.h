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

/* Commands take neighbouring rows: all of them, those of thinking, or those that change the prompt. */
#define REQUEST_ROWS_OF(structure, member, words, from, count)                                               \
    {                                                                                                        \
        .title = (words), .rows = request_rows + (from), .n = (count), .base = offsetof(structure, member)   \
    }
#define REQUEST_GROUP(structure, member)                                                                     \
    REQUEST_ROWS_OF(structure, member, "Thinking, tools and the answer's shape", 0, REQUEST_ROWS)
#define THINKING_GROUP(structure, member) REQUEST_ROWS_OF(structure, member, "Thinking", 0, 3)
#define PROMPT_GROUP(structure, member)   REQUEST_ROWS_OF(structure, member, "Thinking and tools", 2, 3)

/* A request without messages, and the texts it borrows from. */
struct request {
    sluice_chat_request chat;
    struct text tools, shape;
};

/* Read the files. Returns an exit code; release with request_free(). */
int request_read(const struct request_flags *flags, struct request *request);
void request_free(struct request *request);

#endif
