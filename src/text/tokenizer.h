/* tokenizer.json: text to ids and back, as Hugging Face tokenizers computes it.
 *
 * Supported: BPE with byte fallback (Gemma) and byte-level BPE (Qwen, DeepSeek); normalizers, pre-tokenizers,
 * added tokens and decoders that those files use; anything else is refused by name. Immutable after open and
 * shareable by threads. Merging uses a heap: n log n time and constant stack. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "base/err.h"
#include "base/str.h"

#define TOKENIZER_JSON_BYTES_MAX ((size_t)64 << 20)

struct tokenizer;

/* config_json (tokenizer_config.json) may be NULL: it names the BOS token and whether one is added. */
sluice_status tok_open(const char *tokenizer_json, size_t tokenizer_bytes, const char *config_json,
                       size_t config_bytes, struct tokenizer **tokenizer, sluice_error *err);
void tok_close(struct tokenizer *tokenizer);

struct ids {
    int32_t *v; /* mem_alloc */
    size_t n, cap;
};

/* A control token is an added token that is special or looks like markup: <…>, […], or a name behind < or ｜.
 *
 * Append the ids of text (not the BOS). `trusted` has one byte per byte of text, or is NULL with `special`
 * deciding for the whole text: a control token is recognised only where all of its bytes are trusted.
 * Everything between recognised added tokens is normalized and split as one text, so trust never changes the
 * ids of plain text.
 */
sluice_status tok_encode(const struct tokenizer *tokenizer, const char *text, size_t text_bytes,
                         const unsigned char *trusted, bool special, struct ids *ids, sluice_error *err);

uint32_t tok_vocab(const struct tokenizer *tokenizer); /* highest id + 1 */
int32_t tok_bos(const struct tokenizer *tokenizer);    /* -1: none */
bool tok_adds_bos(const struct tokenizer *tokenizer);
const char *tok_text(const struct tokenizer *tokenizer, int32_t id); /* spelling, or NULL */
bool tok_is_control(const struct tokenizer *tokenizer, int32_t id);
/* Says the file, and decoding hides it unless control tokens are shown. */
bool tok_is_hidden(const struct tokenizer *tokenizer, int32_t id);
/* What the token adds to a text that it does not start; NULL: there is no such token. Not NUL-terminated. */
const char *tok_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *n);
int32_t tok_find(const struct tokenizer *tokenizer, const char *spelling); /* -1: none */

/* Streaming decode. The whole stream equals Hugging Face's decode(skip_special_tokens = not show_control)
 * wherever the tokens' bytes are valid UTF-8; a maximal invalid sequence becomes one U+FFFD, where Hugging
 * Face's byte fallback writes one for every byte of the run, valid neighbours included. Hidden are the tokens
 * that the file calls special: <think> and the like are control tokens and still text to show. An id without
 * a token prints nothing. */
struct tok_stream {
    const struct tokenizer *tokenizer;
    bool show_control;
    bool started;
    uint32_t strip_left; /* characters that the decoder may still take off the start */
    struct str held;     /* bytes that are not complete UTF-8 so far */
    struct str out;
};
void tok_stream_open(struct tok_stream *stream, const struct tokenizer *tokenizer, bool show_control);
/* Text that became final is appended to stream->out. */
sluice_status tok_stream_push(struct tok_stream *stream, int32_t id, sluice_error *err);
sluice_status tok_stream_finish(struct tok_stream *stream, sluice_error *err);
void tok_stream_close(struct tok_stream *stream);

#endif
