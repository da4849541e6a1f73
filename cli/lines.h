/* Lines typed by a person or piped in. On a terminal libedit edits them and keeps a history file in the XDG
 * state directory; otherwise they are read as they come, without a prompt. */
#ifndef CLI_LINES_H
#define CLI_LINES_H

#include "out.h"

struct lines;

enum line_outcome {
    LINE_TEXT,
    LINE_END,         /* end of input: Ctrl-D */
    LINE_ABANDONED,   /* Ctrl-C with something typed: the line is thrown away */
    LINE_INTERRUPTED, /* Ctrl-C with nothing typed */
    LINE_FAILED,      /* told */
};

struct lines *lines_open(void);
bool lines_interactive(const struct lines *lines);
/* One line without its end; a backslash at the end of a line joins the next one. `text` is emptied first. */
enum line_outcome lines_read(struct lines *lines, struct text *text);
/* Saves the history. */
void lines_close(struct lines *lines);

#endif
