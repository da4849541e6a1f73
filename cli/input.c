#include "input.h"

#include "cli.h"
#include "interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int read_descriptor(int descriptor, const char *name, struct text *text)
{
    char chunk[65536];
    for (;;) {
        ssize_t got = read(descriptor, chunk, sizeof chunk);
        if (interrupted())
            return EXIT_INTERRUPTED;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            fail("cannot read %s: %s", name, strerror(errno));
            return EXIT_FAILED;
        }
        if (got == 0)
            break;
        if (memchr(chunk, '\0', (size_t)got) != NULL) {
            fail("%s holds a NUL byte and is no text; give a UTF-8 text", name);
            return EXIT_FAILED;
        }
        if (text->n + (size_t)got > INPUT_MAX_BYTES) {
            fail("%s is larger than %zu MiB, the most that is read", name, INPUT_MAX_BYTES >> 20);
            return EXIT_FAILED;
        }
        text_add(text, chunk, (size_t)got);
    }
    text_add(text, "", 0);
    return EXIT_DONE;
}

int input_read(const char *path, struct text *text)
{
    *text = (struct text){0};
    bool standard = strcmp(path, "-") == 0;
    int descriptor = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        fail("cannot open %s: %s", path, strerror(errno));
        return EXIT_FAILED;
    }
    int code = read_descriptor(descriptor, standard ? "standard input" : path, text);
    if (!standard)
        close(descriptor);
    if (code != EXIT_DONE)
        text_free(text);
    return code;
}

void input_cut_line_end(struct text *text)
{
    if (text->n > 0 && text->bytes[text->n - 1] == '\n')
        text->bytes[--text->n] = '\0';
    if (text->n > 0 && text->bytes[text->n - 1] == '\r')
        text->bytes[--text->n] = '\0';
}

int input_json(const char *path, json_t **root)
{
    struct text text;
    json_error_t error;
    int code = input_read(path, &text);
    if (code != EXIT_DONE)
        return code;
    *root = json_loadb(text.bytes, text.n, JSON_REJECT_DUPLICATES, &error);
    text_free(&text);
    if (*root != NULL)
        return EXIT_DONE;
    fail("%s: line %d: %s", strcmp(path, "-") == 0 ? "standard input" : path, error.line, error.text);
    return EXIT_FAILED;
}

int input_messages(const char *path, sluice_message **messages, size_t *n_messages)
{
    struct text json;
    sluice_error error;
    int code = input_read(path, &json);
    if (code != EXIT_DONE)
        return code;
    if (sluice_messages_parse(json.bytes, json.n, messages, n_messages, &error) != SLUICE_OK) {
        fail("%s: %s", strcmp(path, "-") == 0 ? "standard input" : path,
             error.detail[0] != '\0' ? error.detail : sluice_status_text(error.status));
        code = EXIT_FAILED;
    }
    text_free(&json);
    return code;
}
