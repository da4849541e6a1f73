#include "out.h"

#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *command_name;
static int write_errno; /* of the first failed write to standard output */

void out_set_command(const char *name)
{
    command_name = name;
}

/* ---- standard output ---- */

static bool keep(bool wrote)
{
    if (!wrote && write_errno == 0)
        write_errno = errno != 0 ? errno : EIO;
    return write_errno == 0;
}

bool out_text(const char *text, size_t bytes)
{
    return keep(fwrite(text, 1, bytes, stdout) == bytes);
}

bool out_print(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int wrote = vfprintf(stdout, format, values);
    va_end(values);
    return keep(wrote >= 0);
}

bool out_flush(void)
{
    return keep(fflush(stdout) == 0);
}

bool out_json(json_t *value)
{
    if (value == NULL) {
        fail("out of memory");
        exit(EXIT_FAILED);
    }
    /* Nine digits give a float back exactly. */
    bool wrote =
        json_dumpf(value, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0 && putchar('\n') != EOF;
    json_decref(value);
    return keep(wrote);
}

int out_finish(int code)
{
    out_flush();
    if (write_errno == 0)
        return code;
    /* A reader that has had enough (head, less) is no news to anybody. */
    if (write_errno != EPIPE)
        fail("cannot write to standard output: %s", strerror(write_errno));
    return EXIT_FAILED;
}

/* ---- standard error ---- */

static void start_failure(void)
{
    fprintf(stderr, command_name != NULL ? "sluice %s: " : "sluice: ", command_name);
}

void notice_text(const char *text, size_t bytes)
{
    fwrite(text, 1, bytes, stderr);
}

void notice(const char *format, ...)
{
    va_list values;
    flockfile(stderr); /* the engine's threads tell things too */
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    funlockfile(stderr);
}

void fail(const char *format, ...)
{
    va_list values;
    start_failure();
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
}

int fail_usage(const char *format, ...)
{
    va_list values;
    start_failure();
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fprintf(stderr, "; see \"sluice help%s%s\"\n", command_name != NULL ? " " : "",
            command_name != NULL ? command_name : "");
    return EXIT_USAGE;
}

int fail_suggest(const char *suggestion, const char *format, ...)
{
    va_list values;
    start_failure();
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fprintf(stderr, "; did you mean %s?\n", suggestion);
    return EXIT_USAGE;
}

int fail_error(const sluice_error *error)
{
    if (error->status == SLUICE_E_CANCELLED) {
        fail("interrupted");
        return EXIT_INTERRUPTED;
    }
    fail("%s", error->detail[0] != '\0' ? error->detail : sluice_status_text(error->status));
    return error->status == SLUICE_E_ARGUMENT ? EXIT_USAGE : EXIT_FAILED;
}

/* ---- memory ---- */

void *must_realloc(void *memory, size_t n, size_t size)
{
    void *grown = reallocarray(memory, n > 0 ? n : 1, size);
    if (grown == NULL) {
        fail("out of memory");
        exit(EXIT_FAILED);
    }
    return grown;
}

char *must_copy(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(must_realloc(NULL, bytes, 1), text, bytes);
}

void text_add(struct text *text, const char *bytes, size_t n)
{
    if (text->cap - text->n <= n) {
        size_t cap = text->cap + text->cap / 2;
        if (n > SIZE_MAX / 4 || cap > SIZE_MAX / 2) {
            fail("out of memory");
            exit(EXIT_FAILED);
        }
        text->cap = cap > text->n + n + 64 ? cap : text->n + n + 64;
        text->bytes = must_realloc(text->bytes, text->cap, 1);
    }
    if (n > 0)
        memcpy(text->bytes + text->n, bytes, n);
    text->n += n;
    text->bytes[text->n] = '\0';
}

void text_free(struct text *text)
{
    free(text->bytes);
    *text = (struct text){0};
}

/* ---- for people ---- */

const char *human_bytes(uint64_t bytes, char out[HUMAN_BYTES])
{
    static const struct {
        unsigned shift;
        int digits;
        const char *unit;
    } units[] = {{40, 2, "TiB"}, {30, 2, "GiB"}, {20, 1, "MiB"}, {10, 1, "KiB"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (bytes >> units[i].shift != 0) {
            double value = (double)bytes / (double)((uint64_t)1 << units[i].shift);
            snprintf(out, HUMAN_BYTES, "%.*f %s", units[i].digits, value, units[i].unit);
            return out;
        }
    snprintf(out, HUMAN_BYTES, "%u B", (unsigned)bytes);
    return out;
}

const char *human_time(double seconds, char out[HUMAN_BYTES])
{
    if (!(seconds >= 0) || seconds > 1e9)
        snprintf(out, HUMAN_BYTES, "unknown time");
    else if (seconds < 100)
        snprintf(out, HUMAN_BYTES, "%.2f s", seconds);
    else if (seconds < 6000)
        snprintf(out, HUMAN_BYTES, "%u min %u s", (unsigned)seconds / 60, (unsigned)seconds % 60);
    else
        snprintf(out, HUMAN_BYTES, "%u h %u min", (unsigned)(seconds / 3600), (unsigned)seconds / 60 % 60);
    return out;
}

double seconds_of(uint64_t ns)
{
    return (double)ns / 1e9;
}

double per_second(uint64_t n, uint64_t ns)
{
    return ns == 0 ? 0.0 : (double)n / seconds_of(ns);
}

const char *quote(const char *text, char out[QUOTE_BYTES])
{
    size_t n = 0;
    out[n++] = '"';
    for (const char *p = text; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        /* Room for the longest piece, the dots, the quote and the NUL. */
        if (n + 4 + 3 + 2 > QUOTE_BYTES && (c & 0xC0) != 0x80) {
            memcpy(out + n, "...", 3);
            n += 3;
            break;
        }
        if (c < 0x20 || c == 0x7F)
            n += (size_t)snprintf(out + n, QUOTE_BYTES - n, "\\x%02X", c);
        else
            out[n++] = *p;
    }
    out[n++] = '"';
    out[n] = '\0';
    return out;
}
