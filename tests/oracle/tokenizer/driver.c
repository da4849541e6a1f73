/* Runs the tokenizer over many strings, for compare.py.
 *
 *     driver TOKENIZER_JSON encode|plain|decode|show
 *
 * encode (control tokens recognised) and plain (not): records of a little-endian u32 length and that many
 * bytes come in, one line of ids goes out for each. decode and show (control tokens shown): lines of ids come
 * in, such records go out. */
#include "base/mem.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what)
{
    (void)fprintf(stderr, "driver: %s\n", what);
    return 1;
}

static char *read_file(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    struct str text = {0};
    char buffer[65536];
    size_t got;
    while (file && (got = fread(buffer, 1, sizeof buffer, file)) > 0)
        if (!str_append(&text, buffer, got))
            break;
    if (file)
        (void)fclose(file);
    *n = text.len;
    return file ? str_take(&text) : NULL;
}

static int encode(const struct tokenizer *t, bool special)
{
    unsigned char head[4];
    struct str text = {0};
    struct ids ids = {0};
    sluice_error err;
    int rc = 0;
    while (rc == 0 && fread(head, 1, 4, stdin) == 4) {
        size_t n = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
        str_clear(&text);
        if (!str_reserve(&text, n) || fread(text.p, 1, n, stdin) != n) {
            rc = fail("a short record");
            break;
        }
        ids.n = 0;
        if (tok_encode(t, text.p, n, NULL, special, &ids, &err) != SLUICE_OK)
            rc = fail(err.detail);
        for (size_t i = 0; i < ids.n; i++)
            (void)printf("%s%d", i ? " " : "", ids.v[i]);
        (void)putchar('\n');
    }
    str_free(&text);
    mem_free(ids.v);
    return rc;
}

static int decode(const struct tokenizer *t, bool show)
{
    char *line = NULL;
    size_t cap = 0;
    int rc = 0;
    while (rc == 0 && getline(&line, &cap, stdin) > 0) {
        struct tok_stream stream;
        sluice_error err;
        tok_stream_open(&stream, t, show);
        char *p = line, *end;
        for (;; p = end) {
            long id = strtol(p, &end, 10);
            if (end == p)
                break;
            if (tok_stream_push(&stream, (int32_t)id, &err) != SLUICE_OK)
                rc = fail(err.detail);
        }
        if (tok_stream_finish(&stream, &err) != SLUICE_OK)
            rc = fail(err.detail);
        size_t n = stream.out.len;
        unsigned char head[4] = {(unsigned char)n, (unsigned char)(n >> 8), (unsigned char)(n >> 16),
                                 (unsigned char)(n >> 24)};
        (void)fwrite(head, 1, 4, stdout);
        if (n)
            (void)fwrite(stream.out.p, 1, n, stdout);
        tok_stream_close(&stream);
    }
    free(line);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return fail("usage: driver TOKENIZER_JSON encode|plain|decode|show");
    size_t n;
    char *json = read_file(argv[1], &n);
    struct tokenizer *t = NULL;
    sluice_error err;
    if (!json)
        return fail("the tokenizer cannot be read");
    sluice_status status = tok_open(json, n, NULL, 0, &t, &err);
    mem_free(json);
    if (status != SLUICE_OK)
        return fail(err.detail);
    int rc;
    if (strcmp(argv[2], "encode") == 0 || strcmp(argv[2], "plain") == 0)
        rc = encode(t, argv[2][0] == 'e');
    else
        rc = decode(t, strcmp(argv[2], "show") == 0);
    tok_close(t);
    return rc;
}
