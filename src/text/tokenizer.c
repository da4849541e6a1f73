#include "text/tokenizer.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "text/tok_internal.h"

#include <malloc.h>
#include <string.h>

/* ---- opening ---- */

static sluice_status refuse_option(const json_t *model, const char *key, sluice_error *err)
{
    const json_t *value = json_object_get(model, key);
    bool off = !value || json_is_null(value) || (json_is_string(value) && json_string_length(value) == 0) ||
               (json_is_number(value) && json_number_value(value) == 0.0);
    return off ? SLUICE_OK
               : err_set(err, SLUICE_E_UNSUPPORTED, TOK_FILE ": the model's \"%s\" is not supported", key);
}

static sluice_status open_model(struct tokenizer *t, const struct tok_document *document, sluice_error *err)
{
    json_t *model, *vocab, *merges;
    const json_t *root = document->root;
    const json_t *added = json_object_get(root, "added_tokens");
    TRY(json_need_object(root, "model", &model, TOK_FILE, err));
    if (json_has(model, "type")) {
        const char *type;
        TRY(json_need_string(model, "type", &type, TOK_FILE, err));
        if (strcmp(type, "BPE") != 0)
            return err_set(err, SLUICE_E_UNSUPPORTED,
                           TOK_FILE ": a model of type \"%s\" is not supported, only BPE is", type);
    }
    if (added && !json_is_null(added) && !json_is_array(added))
        return err_set(err, SLUICE_E_FORMAT, TOK_FILE ": \"added_tokens\" must be an array");
    TRY(refuse_option(model, "dropout", err));
    TRY(refuse_option(model, "continuing_subword_prefix", err));
    TRY(refuse_option(model, "end_of_word_suffix", err));
    TRY(tok_bool(model, "byte_fallback", false, &t->bpe.byte_fallback, err));
    TRY(tok_bool(model, "fuse_unk", false, &t->bpe.fuse_unk, err));
    TRY(tok_bool(model, "ignore_merges", false, &t->bpe.ignore_merges, err));
    TRY(json_need_object(model, "vocab", &vocab, TOK_FILE, err));
    TRY(json_need_array(model, "merges", &merges, TOK_FILE, err));
    TRY(vocab_open(&t->vocab, vocab, added, err));
    t->flags = mem_calloc(t->vocab.n_ids, 1);
    if (!t->flags)
        return err_memory(err, t->vocab.n_ids, TOK_FILE);
    TRY(added_flags(&t->vocab, added, t->flags, err));
    vocab_index(&t->vocab, t->flags);
    t->bpe.unk = TOK_NONE;
    if (json_has(model, "unk_token")) {
        const char *unk;
        TRY(json_need_string(model, "unk_token", &unk, TOK_FILE, err));
        t->bpe.unk = vocab_find(&t->vocab, unk, strlen(unk));
        if (t->bpe.unk == TOK_NONE || !vocab_in_model(&t->vocab, t->bpe.unk))
            return err_set(err, SLUICE_E_FORMAT, TOK_FILE ": unk_token \"%s\" is not in the vocabulary", unk);
    }
    return tok_document_merges(document, &t->vocab, t->flags, err);
}

static sluice_status open_chains(struct tokenizer *t, const json_t *root, sluice_error *err)
{
    TRY(norm_open(&t->norm, json_object_get(root, "normalizer"), err));
    TRY(pre_open(&t->pre, json_object_get(root, "pre_tokenizer"), err));
    TRY(added_open(&t->raw, &t->vocab, t->flags, false, &t->norm, err));
    TRY(added_open(&t->normalized, &t->vocab, t->flags, true, &t->norm, err));
    for (size_t i = 0; i < t->normalized.n; i++)
        t->normalized_control |= (t->flags[t->normalized.v[i].id] & TOK_CONTROL) != 0;
    return decoder_open(&t->decoder, json_object_get(root, "decoder"), t, err);
}

/* A post-processor matters here for one thing: the token it puts first. *first stays NULL without one. */
static sluice_status read_post(const json_t *post, const char **first, sluice_error *err)
{
    const char *type;
    if (!post || json_is_null(post))
        return SLUICE_OK;
    TRY(tok_type(post, "post_processor", &type, err));
    if (strcmp(type, "Sequence") == 0) {
        json_t *list;
        TRY(json_need_array(post, "processors", &list, TOK_FILE, err));
        for (size_t i = 0; i < json_array_size(list); i++)
            TRY(read_post(json_array_get(list, i), first, err));
        return SLUICE_OK;
    }
    if (strcmp(type, "ByteLevel") == 0)
        return SLUICE_OK; /* trims offsets only */
    if (strcmp(type, "TemplateProcessing") != 0)
        return err_set(err, SLUICE_E_UNSUPPORTED, TOK_FILE ": post_processor \"%s\" is not supported", type);
    const json_t *item = json_array_get(json_object_get(post, "single"), 0);
    const json_t *special = json_object_get(item, "SpecialToken");
    if (special)
        TRY(json_need_string(special, "id", first, TOK_FILE, err));
    return SLUICE_OK;
}

#define CONFIG_FILE "tokenizer_config.json"

static sluice_status read_bos(struct tokenizer *t, const json_t *root, const json_t *config,
                              sluice_error *err)
{
    const char *bos = NULL;
    TRY(read_post(json_object_get(root, "post_processor"), &bos, err));
    t->adds_bos = bos != NULL;
    const json_t *named = json_object_get(config, "bos_token");
    if (json_is_object(named))
        named = json_object_get(named, "content");
    if (json_is_string(named))
        bos = json_string_value(named);
    if (json_has(config, "add_bos_token"))
        TRY(json_need_bool(config, "add_bos_token", &t->adds_bos, CONFIG_FILE, err));
    t->bos = bos ? tok_find(t, bos) : -1;
    if (t->adds_bos && t->bos < 0)
        return err_set(err, SLUICE_E_FORMAT,
                       "a beginning-of-sequence token is to be added, but \"%s\" is not in " TOK_FILE,
                       bos ? bos : "bos_token");
    return SLUICE_OK;
}

static sluice_status open_all(struct tokenizer *t, const struct tok_document *document, const json_t *config,
                              sluice_error *err)
{
    const json_t *root = document->root;
    if (!json_is_object(root))
        return err_set(err, SLUICE_E_FORMAT, TOK_FILE " is not a JSON object");
    TRY(open_model(t, document, err));
    TRY(open_chains(t, root, err));
    return read_bos(t, root, config, err);
}

sluice_status tok_open(const char *tokenizer_json, size_t tokenizer_bytes, const char *config_json,
                       size_t config_bytes, struct tokenizer **tokenizer, sluice_error *err)
{
    *tokenizer = NULL;
    struct tok_document document = {0};
    json_t *config = NULL;
    sluice_status status = SLUICE_OK;
    struct tokenizer *t = mem_calloc(1, sizeof *t);
    if (!t)
        return err_memory(err, sizeof *t, TOK_FILE);
    if (tokenizer_bytes > TOKENIZER_JSON_BYTES_MAX || config_bytes > TOKENIZER_JSON_BYTES_MAX) {
        status = err_set(err, SLUICE_E_FORMAT, TOK_FILE " or its configuration is longer than %zu bytes",
                         TOKENIZER_JSON_BYTES_MAX);
        goto out;
    }
    if (config_json)
        TRY_OUT(json_parse_big(config_json, config_bytes, CONFIG_FILE, &config, err));
    TRY_OUT(tok_document_open(&document, tokenizer_json, tokenizer_bytes, err));
    TRY_OUT(open_all(t, &document, config, err));
    *tokenizer = t;
    t = NULL;
out:
    tok_document_close(&document);
    json_decref(config);
    tok_close(t);
#ifdef __GLIBC__
    /* The JSON tree of a large vocabulary is a million small blocks: give their pages back. */
    if (tokenizer_bytes > 1 << 20)
        (void)malloc_trim(0);
#endif
    return status;
}

void tok_close(struct tokenizer *t)
{
    if (!t)
        return;
    decoder_close(&t->decoder);
    added_close(&t->raw);
    added_close(&t->normalized);
    pre_close(&t->pre);
    norm_close(&t->norm);
    vocab_close(&t->vocab);
    mem_free(t->flags);
    mem_free(t);
}

/* ---- looking up ---- */

uint32_t tok_vocab(const struct tokenizer *t)
{
    return t->vocab.n_ids;
}

int32_t tok_bos(const struct tokenizer *t)
{
    return t->bos;
}

bool tok_adds_bos(const struct tokenizer *t)
{
    return t->adds_bos;
}

const char *tok_text(const struct tokenizer *t, int32_t id)
{
    size_t n;
    return id < 0 ? NULL : vocab_text(&t->vocab, (uint32_t)id, &n);
}

bool tok_is_control(const struct tokenizer *t, int32_t id)
{
    return tok_text(t, id) && (t->flags[id] & TOK_CONTROL);
}

bool tok_is_hidden(const struct tokenizer *t, int32_t id)
{
    return tok_text(t, id) && (t->flags[id] & TOK_SPECIAL);
}

const char *tok_bytes(const struct tokenizer *t, int32_t id, size_t *n)
{
    *n = 0;
    if (!tok_text(t, id))
        return NULL;
    *n = t->decoder.offset[id + 1] - t->decoder.offset[id];
    return t->decoder.pool + t->decoder.offset[id];
}

int32_t tok_find(const struct tokenizer *t, const char *spelling)
{
    uint32_t id = vocab_find(&t->vocab, spelling, strlen(spelling));
    return id == TOK_NONE ? -1 : (int32_t)id;
}

/* ---- encoding ---- */

struct encode {
    const struct tokenizer *t;
    bool special;
    struct ids *ids;
    struct regex_run run;
    struct marked_text clean, text, spare;
    struct pre_work pre;
    struct bpe_work bpe;
    sluice_error *err;
};

/* Text without added tokens. */
static sluice_status encode_plain(struct encode *e, const char *text, size_t n, bool first)
{
    const struct tokenizer *t = e->t;
    if (n == 0)
        return SLUICE_OK;
    TRY(pre_apply(&t->pre, &e->run, text, n, first, &e->pre, e->err));
    const struct pieces *pieces = &e->pre.now;
    for (size_t i = 0; i < pieces->n; i++)
        TRY(bpe_encode(&t->vocab, &t->bpe, t->flags, pieces->text.p + pieces->v[i].at, pieces->v[i].bytes,
                       &e->bpe, e->ids, e->err));
    return SLUICE_OK;
}

static sluice_status add_added(struct encode *e, uint32_t id)
{
    struct ids *ids = e->ids;
    if (!mem_grow((void **)&ids->v, &ids->cap, ids->n + 1, sizeof *ids->v))
        return err_memory(e->err, (ids->n + 1) * sizeof *ids->v, "the tokens of a text");
    ids->v[ids->n++] = (int32_t)id;
    return SLUICE_OK;
}

typedef sluice_status (*segment_fn)(struct encode *e, const char *text, const unsigned char *trusted,
                                    size_t n, bool first);

static sluice_status on_plain(struct encode *e, const char *text, const unsigned char *trusted, size_t n,
                              bool first)
{
    (void)trusted;
    return encode_plain(e, text, n, first);
}

/* Cut the added tokens of a set out of text; what lies between goes to `fn`. */
static sluice_status cut(struct encode *e, const struct added_set *set, const char *text,
                         const unsigned char *trusted, size_t n, bool first, segment_fn fn)
{
    struct added_walk walk = {0};
    struct added_match match;
    while (added_next(set, e->t->flags, text, n, trusted, e->special, &walk, &match)) {
        size_t at = walk.taken;
        if (at < match.start)
            TRY(fn(e, text + at, trusted ? trusted + at : NULL, match.start - at, first && at == 0));
        TRY(add_added(e, match.id));
        walk.taken = match.end;
    }
    size_t at = walk.taken;
    return at < n ? fn(e, text + at, trusted ? trusted + at : NULL, n - at, first && at == 0) : SLUICE_OK;
}

/* A stretch without raw added tokens: normalize, then look for the normalized ones. */
static sluice_status on_raw(struct encode *e, const char *text, const unsigned char *trusted, size_t n,
                            bool first)
{
    const struct tokenizer *t = e->t;
    bool with_marks = trusted && t->normalized_control;
    str_clear(&e->text.text);
    str_clear(&e->text.marks);
    if (!str_append(&e->text.text, text, n) ||
        (with_marks && !str_append(&e->text.marks, (const char *)trusted, n)))
        return err_memory(e->err, n, "normalizing a text");
    TRY(norm_apply(&t->norm, &e->run, &e->text, &e->spare, with_marks, e->err));
    const unsigned char *marks = with_marks ? (const unsigned char *)e->text.marks.p : NULL;
    return cut(e, &t->normalized, e->text.text.p, marks, e->text.text.len, first, on_plain);
}

/* Invalid UTF-8 becomes U+FFFD, marked as the bytes it came from. */
static sluice_status clean(struct encode *e, const char *text, const unsigned char *trusted, size_t n)
{
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        char bytes[4];
        size_t used = utf8_decode(text + at, n - at, &cp, NULL), made = utf8_encode(cp, bytes);
        bool ok = str_append(&e->clean.text, bytes, made);
        unsigned char mark = 1;
        for (size_t i = 0; trusted && i < used; i++)
            mark &= trusted[at + i] != 0;
        for (size_t i = 0; trusted && ok && i < made; i++)
            ok = str_putc(&e->clean.marks, (char)mark);
        if (!ok)
            return err_memory(e->err, n, "the tokens of a text");
        at += used;
    }
    return SLUICE_OK;
}

sluice_status tok_encode(const struct tokenizer *t, const char *text, size_t n, const unsigned char *trusted,
                         bool special, struct ids *ids, sluice_error *err)
{
    struct encode e = {.t = t, .special = special, .ids = ids, .err = err};
    sluice_status status = SLUICE_OK;
    size_t before = ids->n;
    if (n > TOK_TEXT_MAX)
        return err_set(err, SLUICE_E_ARGUMENT, "the text is %zu bytes, the limit is %zu", n, TOK_TEXT_MAX);
    if (utf8_valid_prefix(text, n) != n) {
        TRY_OUT(clean(&e, text, trusted, n));
        text = e.clean.text.p;
        n = e.clean.text.len;
        trusted = trusted ? (const unsigned char *)e.clean.marks.p : NULL;
    }
    TRY_OUT(cut(&e, &t->raw, text, trusted, n, true, on_raw));
out:
    if (status != SLUICE_OK)
        ids->n = before;
    regex_run_close(&e.run);
    str_free(&e.clean.text);
    str_free(&e.clean.marks);
    str_free(&e.text.text);
    str_free(&e.text.marks);
    str_free(&e.spare.text);
    str_free(&e.spare.marks);
    pre_work_close(&e.pre);
    bpe_work_close(&e.bpe);
    return status;
}
