/* tokenizer.json, then behind a NUL a text to encode and decode. */
#include "base/mem.h"
#include "require.h"
#include "text/tok_internal.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* Plain text must not become a control token; the unknown token and bytes stand for text. */
static void check_plain(const struct tokenizer *t, const struct ids *ids)
{
    for (size_t i = 0; i < ids->n; i++) {
        const char *text = tok_text(t, ids->v[i]);
        require(text != NULL);
        require(!tok_is_control(t, ids->v[i]) || (uint32_t)ids->v[i] == t->bpe.unk ||
                strncmp(text, "<0x", 3) == 0);
    }
}

static void decode(const struct tokenizer *t, const struct ids *ids, bool show)
{
    struct tok_stream stream;
    tok_stream_open(&stream, t, show);
    for (size_t i = 0; i < ids->n; i++)
        require(tok_stream_push(&stream, ids->v[i], NULL) == SLUICE_OK);
    require(tok_stream_finish(&stream, NULL) == SLUICE_OK);
    tok_stream_close(&stream);
}

static void use(const struct tokenizer *t, const char *text, size_t n)
{
    struct ids plain = {0}, whole = {0}, mixed = {0}, none = {0};
    unsigned char *trusted = mem_calloc(2, n);
    if (!trusted)
        return;
    for (size_t i = 0; i < n; i++)
        trusted[n + i] = (unsigned char)text[i] & 1;
    if (tok_encode(t, text, n, NULL, false, &plain, NULL) == SLUICE_OK) {
        check_plain(t, &plain);
        decode(t, &plain, false);
        /* No trust anywhere is the same thing said by bytes. */
        require(tok_encode(t, text, n, trusted, true, &none, NULL) == SLUICE_OK);
        require(none.n == plain.n &&
                (plain.n == 0 || memcmp(none.v, plain.v, plain.n * sizeof *plain.v) == 0));
    }
    if (tok_encode(t, text, n, NULL, true, &whole, NULL) == SLUICE_OK)
        decode(t, &whole, true);
    if (tok_encode(t, text, n, trusted + n, false, &mixed, NULL) == SLUICE_OK)
        decode(t, &mixed, true);
    mem_free(plain.v);
    mem_free(whole.v);
    mem_free(mixed.v);
    mem_free(none.v);
    mem_free(trusted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
    size_t json_bytes = cut ? (size_t)(cut - data) : size;
    struct tokenizer *t = NULL;
    sluice_error err;
    if (tok_open((const char *)data, json_bytes, NULL, 0, &t, &err) != SLUICE_OK) {
        require(t == NULL && err.detail[0] != '\0');
        return 0;
    }
    static const char DEFAULT[] = "a <bos>\xC3\xA9 \xFFthe  b\n12 [x] \xE2\x96\x81";
    if (cut)
        use(t, (const char *)cut + 1, size - json_bytes - 1);
    else
        use(t, DEFAULT, sizeof DEFAULT - 1);
    tok_close(t);
    return 0;
}
