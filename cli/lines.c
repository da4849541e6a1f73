#include "lines.h"

#include "input.h"
#include "interrupt.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

enum { HISTORY_LINES = 1000, CONTROL_E = 5 };

struct lines {
    EditLine *editor; /* NULL: plain reading */
    History *history;
    char history_path[PATH_MAX]; /* empty: no place for it */
    bool continued;              /* the prompt of a joined line */
    bool typed;                  /* something was on the line when Ctrl-C came */
    bool leaving;                /* on the way to the end of an abandoned line */
    bool prompt_on_error;        /* a person types, but standard output is no terminal */
    char *plain;
    size_t plain_bytes;
};

/* Set by signals that change the terminal while a line is being edited. */
static volatile sig_atomic_t resized, resumed;

static void on_terminal_signal(int signal_number)
{
    if (signal_number == SIGWINCH)
        resized = 1;
    else
        resumed = 1;
}

/* ---- the history file ---- */

static bool make_directory(const char *path)
{
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

static bool join(char out[PATH_MAX], const char *directory, const char *name)
{
    int wrote = snprintf(out, PATH_MAX, "%s/%s", directory, name);
    return wrote > 0 && wrote < PATH_MAX;
}

/* $XDG_STATE_HOME/sluice, or ~/.local/state/sluice with the directories that are missing. */
static bool state_directory(char out[PATH_MAX])
{
    static const char *const steps[] = {".local", "state", "sluice"};
    char parent[PATH_MAX];
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state != NULL && state[0] == '/')
        return make_directory(state) && join(out, state, "sluice") && make_directory(out);
    if (home == NULL || home[0] != '/' || strlen(home) >= sizeof parent)
        return false;
    memcpy(parent, home, strlen(home) + 1);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (!join(out, parent, steps[i]) || !make_directory(out))
            return false;
        memcpy(parent, out, strlen(out) + 1);
    }
    return true;
}

static void load_history(struct lines *lines)
{
    char directory[PATH_MAX];
    HistEvent event;
    lines->history = history_init();
    if (lines->history == NULL)
        return;
    history(lines->history, &event, H_SETSIZE, HISTORY_LINES);
    history(lines->history, &event, H_SETUNIQUE, 1);
    el_set(lines->editor, EL_HIST, history, lines->history);
    if (!state_directory(directory) || !join(lines->history_path, directory, "chat_history")) {
        lines->history_path[0] = '\0';
        return;
    }
    /* Missing at the first start. */
    history(lines->history, &event, H_LOAD, lines->history_path);
}

/* Beside and renamed, so that two chats that end together leave one whole history. */
static void save_history(struct lines *lines)
{
    char beside[PATH_MAX];
    HistEvent event;
    if (lines->history == NULL || lines->history_path[0] == '\0')
        return;
    int wrote = snprintf(beside, sizeof beside, "%s.%ld", lines->history_path, (long)getpid());
    if (wrote < 0 || (size_t)wrote >= sizeof beside)
        return;
    mode_t before = umask(077);
    bool saved =
        history(lines->history, &event, H_SAVE, beside) >= 0 && rename(beside, lines->history_path) == 0;
    umask(before);
    if (!saved) {
        notice("The history could not be saved to %s: %s", lines->history_path, strerror(errno));
        unlink(beside);
    }
}

/* ---- editing ---- */

static char *prompt_text(EditLine *editor)
{
    static char first[] = "> ", next[] = ". ";
    struct lines *lines = NULL;
    el_get(editor, EL_CLIENTDATA, &lines);
    return lines->continued ? next : first;
}

static void answer_terminal_signals(EditLine *editor)
{
    if (resized) {
        resized = 0;
        el_resize(editor);
    }
    if (resumed) {
        resumed = 0;
        el_set(editor, EL_PREP_TERM, 1);
        el_set(editor, EL_REFRESH);
    }
}

/* Our own reader, because libedit's restarts a read that Ctrl-C has ended. */
static int read_character(EditLine *editor, wchar_t *out)
{
    struct lines *lines = NULL;
    mbstate_t state = {0};
    el_get(editor, EL_CLIENTDATA, &lines);
    for (;;) {
        char byte;
        /* After CONTROL_E there is nothing to wait for. */
        ssize_t got = lines->leaving ? -1 : read(STDIN_FILENO, &byte, 1);
        if (interrupted()) {
            const LineInfo *line = el_line(editor);
            lines->typed = line->lastchar > line->buffer;
            if (line->cursor < line->lastchar && !lines->leaving) {
                /* Go to the end of the text first, or what follows would be printed over it. */
                lines->leaving = true;
                *out = CONTROL_E;
                return 1;
            }
            return -1;
        }
        if (got < 0 && errno == EINTR) {
            answer_terminal_signals(editor);
            continue;
        }
        if (got <= 0)
            return (int)got;
        size_t used = mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-2)
            continue;
        if (used == (size_t)-1)
            *out = 0xFFFD;
        return 1;
    }
}

/* libedit needs to know that bytes are UTF-8, also where the environment names no locale. */
static void choose_encoding(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

static bool open_editor(struct lines *lines)
{
    choose_encoding();
    lines->editor = el_init("sluice", stdin, stdout, stderr);
    if (lines->editor == NULL)
        return false;
    el_set(lines->editor, EL_CLIENTDATA, lines);
    el_set(lines->editor, EL_PROMPT, prompt_text);
    el_set(lines->editor, EL_EDITOR, "emacs");
    el_set(lines->editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(lines->editor, EL_GETCFN, read_character);
    load_history(lines);
    el_source(lines->editor, NULL);
    struct sigaction action = {.sa_handler = on_terminal_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGWINCH, &action, NULL);
    sigaction(SIGCONT, &action, NULL);
    return true;
}

struct lines *lines_open(void)
{
    struct lines *lines = must_realloc(NULL, 1, sizeof *lines);
    *lines = (struct lines){0};
    bool terminal = isatty(STDIN_FILENO);
    if (!(terminal && isatty(STDOUT_FILENO) && open_editor(lines)))
        lines->prompt_on_error = terminal;
    return lines;
}

bool lines_interactive(const struct lines *lines)
{
    return lines->editor != NULL || lines->prompt_on_error;
}

/* ---- reading ---- */

static enum line_outcome read_edited(struct lines *lines, struct text *text)
{
    int n = 0;
    lines->typed = lines->leaving = false;
    const char *line = el_gets(lines->editor, &n);
    if (interrupted()) {
        out_text("\n", 1);
        out_flush();
        return lines->typed ? LINE_ABANDONED : LINE_INTERRUPTED;
    }
    if (line == NULL || n <= 0) {
        out_text("\n", 1);
        return LINE_END;
    }
    text_add(text, line, strlen(line));
    return LINE_TEXT;
}

static enum line_outcome read_plain(struct lines *lines, struct text *text)
{
    if (lines->prompt_on_error)
        fputs(lines->continued ? ". " : "> ", stderr);
    ssize_t n = getline(&lines->plain, &lines->plain_bytes, stdin);
    if (interrupted())
        return LINE_INTERRUPTED;
    if (n < 0) {
        if (feof(stdin))
            return LINE_END;
        fail("cannot read standard input: %s", strerror(errno));
        return LINE_FAILED;
    }
    if (memchr(lines->plain, '\0', (size_t)n) != NULL) {
        fail("standard input holds a NUL byte and is no text; give UTF-8 lines");
        return LINE_FAILED;
    }
    text_add(text, lines->plain, (size_t)n);
    return LINE_TEXT;
}

static void remember(struct lines *lines, const struct text *text)
{
    HistEvent event;
    if (lines->history != NULL && text->n > 0)
        history(lines->history, &event, H_ENTER, text->bytes);
}

enum line_outcome lines_read(struct lines *lines, struct text *text)
{
    text->n = 0;
    lines->continued = false;
    for (;;) {
        enum line_outcome outcome =
            lines->editor != NULL ? read_edited(lines, text) : read_plain(lines, text);
        if (outcome == LINE_INTERRUPTED && lines->continued)
            outcome = LINE_ABANDONED;
        if (outcome == LINE_END && lines->continued)
            break;
        if (outcome != LINE_TEXT)
            return outcome;
        input_cut_line_end(text);
        if (text->n == 0 || text->bytes[text->n - 1] != '\\')
            break;
        text->bytes[text->n - 1] = '\n';
        lines->continued = true;
        if (text->n > INPUT_MAX_BYTES) {
            fail("the question is larger than %zu MiB, the most that is read", INPUT_MAX_BYTES >> 20);
            return LINE_FAILED;
        }
    }
    lines->continued = false;
    remember(lines, text);
    return LINE_TEXT;
}

void lines_close(struct lines *lines)
{
    if (lines == NULL)
        return;
    save_history(lines);
    if (lines->editor != NULL)
        el_end(lines->editor);
    if (lines->history != NULL)
        history_end(lines->history);
    free(lines->plain);
    free(lines);
}
