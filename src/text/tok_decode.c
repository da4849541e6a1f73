#include "base/ascii.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/tok_internal.h"

#include <string.h>

/* A decoder chain becomes a table: the bytes that every token stands for, worked out at open, so that
 * streaming copies. What depends on neighbours stays for the stream: incomplete UTF-8, the first token, the
 * start of the text. */

struct build {
    struct norm_op ops[TOK_OPS_MAX]; /* Replace and Strip of single tokens */
    struct strip {
        char content[5];
        size_t start, stop;
    } strips[TOK_OPS_MAX];
    size_t n;
    bool byte_fallback, byte_level, fused;
    struct decoder *d;
    sluice_error *err;
};

static sluice_status refuse(struct build *b, const char *type, const char *why)
{
    return err_set(b->err, SLUICE_E_UNSUPPORTED, TOK_FILE ": decoder \"%s\" %s is not supported", type, why);
}

static sluice_status next_op(struct build *b, struct norm_op **op)
{
    if (b->n == TOK_OPS_MAX)
        return err_set(b->err, SLUICE_E_UNSUPPORTED, TOK_FILE " has more than %d decoders", TOK_OPS_MAX);
    *op = &b->ops[b->n++];
    return SLUICE_OK;
}

static sluice_status read_replace(struct build *b, const json_t *spec)
{
    const char *content;
    struct norm_op *op = NULL;
    if (b->fused || b->byte_fallback)
        return refuse(b, "Replace", "behind ByteFallback or Fuse");
    TRY(json_need_string(spec, "content", &content, TOK_FILE, b->err));
    TRY(next_op(b, &op));
    op->kind = NORM_REPLACE;
    op->content_bytes = strlen(content);
    op->content = mem_strdup(content);
    if (!op->content)
        return err_memory(b->err, op->content_bytes, TOK_FILE);
    return matcher_from_json(&op->matcher, json_object_get(spec, "pattern"), "decoder Replace", b->err);
}

static sluice_status read_strip(struct build *b, const json_t *spec)
{
    char content[5];
    uint32_t start, stop;
    TRY(tok_char(spec, "content", content, b->err));
    TRY(json_need_u32(spec, "start", 0, UINT32_MAX, &start, TOK_FILE, b->err));
    TRY(json_need_u32(spec, "stop", 0, UINT32_MAX, &stop, TOK_FILE, b->err));
    if (b->fused) {
        if (stop || b->d->strip_max)
            return refuse(b, "Strip", "of the end of a text, or twice,");
        memcpy(b->d->strip, content, sizeof content);
        b->d->strip_max = start;
        return SLUICE_OK;
    }
    if (b->byte_fallback)
        return refuse(b, "Strip", "between ByteFallback and Fuse");
    struct norm_op *op = NULL;
    TRY(next_op(b, &op));
    op->kind = NORM_STRIP;
    struct strip *strip = &b->strips[b->n - 1];
    memcpy(strip->content, content, sizeof content);
    strip->start = start;
    strip->stop = stop;
    return SLUICE_OK;
}

static sluice_status read_fallback(struct build *b, const json_t *spec)
{
    (void)spec;
    if (b->fused)
        return refuse(b, "ByteFallback", "behind Fuse");
    b->byte_fallback = true;
    return SLUICE_OK;
}

static sluice_status read_fuse(struct build *b, const json_t *spec)
{
    (void)spec;
    b->fused = true;
    return SLUICE_OK;
}

static sluice_status read_bytelevel(struct build *b, const json_t *spec)
{
    (void)spec;
    if (b->fused || b->byte_fallback)
        return refuse(b, "ByteLevel", "behind ByteFallback or Fuse");
    b->byte_level = b->fused = true;
    return SLUICE_OK;
}

static sluice_status read_metaspace(struct build *b, const json_t *spec)
{
    enum pre_scheme scheme;
    bool split;
    if (b->n || b->byte_fallback || b->fused || b->d->join != DECODE_PLAIN)
        return refuse(b, "Metaspace", "together with others");
    TRY(metaspace_fields(spec, b->d->replacement, &scheme, &split, b->err));
    struct norm_op *op = NULL;
    TRY(next_op(b, &op));
    op->kind = NORM_REPLACE;
    op->content = mem_strdup(" ");
    op->content_bytes = 1;
    if (!op->content)
        return err_memory(b->err, 1, TOK_FILE);
    if (scheme != SCHEME_NEVER)
        b->d->join = DECODE_METASPACE;
    return matcher_literal(&op->matcher, b->d->replacement, strlen(b->d->replacement), "decoder Metaspace",
                           b->err);
}

static const struct decode_type {
    const char *name;
    sluice_status (*read)(struct build *b, const json_t *spec);
} DECODE_TYPES[] = {
    {"Replace", read_replace}, {"ByteFallback", read_fallback}, {"Fuse", read_fuse},
    {"Strip", read_strip},     {"ByteLevel", read_bytelevel},   {"Metaspace", read_metaspace},
};

static sluice_status read_spec(struct build *b, const json_t *spec)
{
    const char *type = NULL;
    TRY(tok_type(spec, "decoder", &type, b->err));
    if (strcmp(type, "Sequence") == 0) {
        json_t *list;
        TRY(json_need_array(spec, "decoders", &list, TOK_FILE, b->err));
        for (size_t i = 0; i < json_array_size(list); i++)
            TRY(read_spec(b, json_array_get(list, i)));
        return SLUICE_OK;
    }
    for (size_t i = 0; i < sizeof DECODE_TYPES / sizeof *DECODE_TYPES; i++)
        if (strcmp(type, DECODE_TYPES[i].name) == 0)
            return DECODE_TYPES[i].read(b, spec);
    return err_set(b->err, SLUICE_E_UNSUPPORTED, TOK_FILE ": decoder \"%s\" is not supported", type);
}

/* ---- one token ---- */

/* The byte of "<0xHH>", or -1. */
static int fallback_byte(const char *p, size_t n)
{
    if (n != 6 || memcmp(p, "<0x", 3) != 0 || p[5] != '>')
        return -1;
    int high = ascii_hex(p[3]), low = ascii_hex(p[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static void strip_token(const struct strip *strip, struct str *text)
{
    size_t unit = strlen(strip->content), head = 0;
    for (size_t i = 0; i < strip->start && text->len - head >= unit; i++, head += unit)
        if (memcmp(text->p + head, strip->content, unit) != 0)
            break;
    for (size_t i = 0; i < strip->stop && text->len - head >= unit; i++, text->len -= unit)
        if (memcmp(text->p + text->len - unit, strip->content, unit) != 0)
            break;
    text->len -= head;
    memmove(text->p, text->p + head, text->len);
    text->p[text->len] = '\0';
}

/* Bytes of a byte-level spelling. One character outside the alphabet, and it is plain text. */
static bool append_bytes(struct str *out, const char *p, size_t n)
{
    size_t before = out->len;
    if (!str_reserve(out, n))
        return false;
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        at += utf8_decode(p + at, n - at, &cp, NULL);
        int byte = bytelevel_byte(cp);
        if (byte < 0) {
            out->len = before;
            return str_append(out, p, n);
        }
        out->p[out->len++] = (char)byte;
    }
    return true;
}

struct decode_work {
    struct regex_run run;
    struct marked_text text, spare;
};

static sluice_status decode_token(struct build *b, const char *p, size_t n, struct decode_work *w,
                                  struct str *pool)
{
    str_clear(&w->text.text);
    if (!str_append(&w->text.text, p, n))
        return err_memory(b->err, n, TOK_FILE);
    for (size_t i = 0; i < b->n; i++) {
        if (b->ops[i].kind == NORM_STRIP) {
            strip_token(&b->strips[i], &w->text.text);
        } else {
            struct norm_chain one = {&b->ops[i], 1};
            TRY(norm_apply(&one, &w->run, &w->text, &w->spare, false, b->err));
        }
    }
    const struct str *text = &w->text.text;
    int byte = b->byte_fallback ? fallback_byte(text->p, text->len) : -1;
    bool ok;
    if (byte >= 0)
        ok = str_putc(pool, (char)byte);
    else if (b->byte_level)
        ok = append_bytes(pool, text->p, text->len);
    else
        ok = str_append(pool, text->p, text->len);
    return ok ? SLUICE_OK : err_memory(b->err, pool->len, TOK_FILE);
}

static sluice_status build_table(struct build *b, const struct tokenizer *t)
{
    const struct vocab *v = &t->vocab;
    struct str pool = {0};
    struct decode_work w = {0};
    sluice_status status = SLUICE_OK;
    /* Added tokens with `normalized` are decoded from their normalized spelling. */
    uint32_t *entry = mem_calloc(v->n_ids, sizeof *entry);
    b->d->offset = mem_alloc(((size_t)v->n_ids + 1) * sizeof *b->d->offset);
    if (!entry || !b->d->offset) {
        status = err_memory(b->err, v->n_ids * sizeof *entry, TOK_FILE);
        goto out;
    }
    for (size_t i = 0; i < t->normalized.n; i++)
        entry[t->normalized.v[i].id] = (uint32_t)i + 1;
    for (uint32_t id = 0; id < v->n_ids; id++) {
        size_t n;
        const char *text = vocab_text(v, id, &n);
        b->d->offset[id] = (uint32_t)pool.len;
        if (entry[id]) {
            const struct added_entry *e = &t->normalized.v[entry[id] - 1];
            TRY_OUT(decode_token(b, e->text, e->bytes, &w, &pool));
        } else if (text) {
            TRY_OUT(decode_token(b, text, n, &w, &pool));
        }
        if (pool.len >= UINT32_MAX) {
            status = err_set(b->err, SLUICE_E_FORMAT, TOK_FILE ": the tokens decode to more than 4 GiB");
            goto out;
        }
    }
    b->d->offset[v->n_ids] = (uint32_t)pool.len;
    b->d->pool = str_take(&pool);
    if (!b->d->pool)
        status = err_memory(b->err, 1, TOK_FILE);
out:
    mem_free(entry);
    regex_run_close(&w.run);
    str_free(&w.text.text);
    str_free(&w.spare.text);
    str_free(&pool);
    return status;
}

sluice_status decoder_open(struct decoder *d, const json_t *spec, const struct tokenizer *tokenizer,
                           sluice_error *err)
{
    struct build *b = mem_calloc(1, sizeof *b);
    if (!b)
        return err_memory(err, sizeof *b, TOK_FILE);
    b->d = d;
    b->err = err;
    sluice_status status = SLUICE_OK;
    if (!spec || json_is_null(spec))
        d->join = DECODE_SPACED;
    else
        status = read_spec(b, spec);
    if (status == SLUICE_OK)
        status = build_table(b, tokenizer);
    for (size_t i = 0; i < b->n; i++) {
        matcher_close(&b->ops[i].matcher);
        mem_free(b->ops[i].content);
    }
    mem_free(b);
    return status;
}

void decoder_close(struct decoder *d)
{
    mem_free(d->pool);
    mem_free(d->offset);
}

/* ---- streams ---- */

void tok_stream_open(struct tok_stream *stream, const struct tokenizer *tokenizer, bool show_control)
{
    memset(stream, 0, sizeof *stream);
    stream->tokenizer = tokenizer;
    stream->show_control = show_control;
    stream->strip_left = tokenizer->decoder.strip_max;
}

void tok_stream_close(struct tok_stream *stream)
{
    str_free(&stream->held);
    str_free(&stream->out);
}

/* Append one final character, unless it is stripped from the start of the text. */
static void emit(struct tok_stream *stream, const char *p, size_t n)
{
    const char *strip = stream->tokenizer->decoder.strip;
    if (stream->strip_left) {
        if (strlen(strip) == n && memcmp(strip, p, n) == 0) {
            stream->strip_left--;
            return;
        }
        stream->strip_left = 0;
    }
    memcpy(stream->out.p + stream->out.len, p, n);
    stream->out.len += n;
    stream->out.p[stream->out.len] = '\0';
}

/* Move the first n held bytes out; each invalid sequence becomes one U+FFFD. */
static sluice_status flush(struct tok_stream *stream, size_t n, sluice_error *err)
{
    struct str *held = &stream->held;
    if (!str_reserve(&stream->out, 3 * n))
        return err_memory(err, 3 * n, "decoded text");
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        int valid;
        size_t used = utf8_decode(held->p + at, n - at, &cp, &valid);
        emit(stream, valid ? held->p + at : UTF8_REPLACEMENT_BYTES, valid ? used : 3);
        at += used;
    }
    held->len -= n;
    memmove(held->p, held->p + n, held->len);
    return SLUICE_OK;
}

/* The first token of a Metaspace text loses its replacement characters instead of turning them to spaces. */
static bool hold_first(struct tok_stream *stream, const char *p, size_t n)
{
    const char *mark = stream->tokenizer->decoder.replacement;
    size_t unit = strlen(mark);
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        size_t used = utf8_decode(p + at, n - at, &cp, NULL);
        if ((used != unit || memcmp(p + at, mark, unit) != 0) && !str_append(&stream->held, p + at, used))
            return false;
        at += used;
    }
    return true;
}

sluice_status tok_stream_push(struct tok_stream *stream, int32_t id, sluice_error *err)
{
    const struct tokenizer *t = stream->tokenizer;
    const struct decoder *d = &t->decoder;
    size_t n;
    const char *text = id < 0 ? NULL : vocab_text(&t->vocab, (uint32_t)id, &n);
    if (!text || (!stream->show_control && (t->flags[id] & TOK_SPECIAL)))
        return SLUICE_OK;
    bool first = !stream->started, ok = true;
    size_t before = stream->held.len;
    if (d->join == DECODE_SPACED && !first)
        ok = str_putc(&stream->held, ' ');
    if (first && d->join == DECODE_METASPACE)
        ok = hold_first(stream, text, n);
    else if (ok)
        ok = str_append(&stream->held, d->pool + d->offset[id], d->offset[id + 1] - d->offset[id]);
    if (!ok) {
        stream->held.len = before;
        return err_memory(err, n, "decoded text");
    }
    stream->started = true;
    return stream->held.len ? flush(stream, utf8_complete_prefix(stream->held.p, stream->held.len), err)
                            : SLUICE_OK;
}

sluice_status tok_stream_finish(struct tok_stream *stream, sluice_error *err)
{
    return stream->held.len ? flush(stream, stream->held.len, err) : SLUICE_OK;
}
