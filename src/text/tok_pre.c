#include "base/mem.h"
#include "base/utf8.h"
#include "text/tok_internal.h"

#include <string.h>

/* ---- byte-level alphabet ---- */

/* Bytes that print stand for themselves; the other 68 are U+0100 onwards in order. */
static bool prints(uint32_t c)
{
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

uint32_t bytelevel_code(unsigned char byte)
{
    if (prints(byte))
        return byte;
    uint32_t hidden = 0;
    for (uint32_t c = 0; c < byte; c++)
        hidden += !prints(c);
    return 0x100 + hidden;
}

int bytelevel_byte(uint32_t cp)
{
    if (cp < 0x100)
        return prints(cp) ? (int)cp : -1;
    if (cp > 0x143)
        return -1;
    uint32_t hidden = cp - 0x100;
    for (int c = 0; c < 0x100; c++)
        if (!prints((uint32_t)c) && hidden-- == 0)
            return c;
    return -1;
}

/* ---- reading ---- */

#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
/* The regex crate's \w has Join_Control too. */
#define WORDS_PATTERN "[\\w\\u200C\\u200D]+|[^\\w\\s\\u200C\\u200D]+"

static sluice_status add_op(struct pre_chain *chain, enum pre_kind kind, struct pre_op **op,
                            sluice_error *err)
{
    if (chain->n == TOK_OPS_MAX)
        return err_set(err, SLUICE_E_UNSUPPORTED, TOK_FILE " has more than %d pre-tokenizers", TOK_OPS_MAX);
    *op = &chain->ops[chain->n++];
    (*op)->kind = kind;
    return SLUICE_OK;
}

static sluice_status read_behavior(const json_t *spec, enum pre_behavior *behavior, sluice_error *err)
{
    static const char *const NAMES[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                        "Contiguous"};
    const char *name;
    TRY(json_need_string(spec, "behavior", &name, TOK_FILE, err));
    for (int i = 0; i < 5; i++) {
        if (strcmp(name, NAMES[i]) == 0) {
            *behavior = (enum pre_behavior)i;
            return SLUICE_OK;
        }
    }
    return err_set(err, SLUICE_E_UNSUPPORTED, TOK_FILE ": split behavior \"%s\" is not supported", name);
}

static sluice_status add_regex(struct pre_chain *chain, const char *pattern, enum pre_behavior behavior,
                               bool invert, sluice_error *err)
{
    struct pre_op *op = NULL;
    TRY(add_op(chain, PRE_SPLIT, &op, err));
    op->behavior = behavior;
    op->invert = invert;
    op->matcher.kind = MATCH_REGEX;
    return regex_open(&op->matcher.regex, pattern, strlen(pattern), TOK_FILE ": pre_tokenizer", err);
}

static sluice_status add_class(struct pre_chain *chain, bool (*in_class)(uint32_t),
                               enum pre_behavior behavior, sluice_error *err)
{
    struct pre_op *op = NULL;
    TRY(add_op(chain, PRE_SPLIT, &op, err));
    op->behavior = behavior;
    op->matcher.kind = MATCH_CLASS;
    op->matcher.in_class = in_class;
    return SLUICE_OK;
}

static sluice_status add_char(struct pre_chain *chain, const char *text, enum pre_behavior behavior,
                              sluice_error *err)
{
    struct pre_op *op = NULL;
    TRY(add_op(chain, PRE_SPLIT, &op, err));
    op->behavior = behavior;
    return matcher_literal(&op->matcher, text, strlen(text), "pre_tokenizer", err);
}

static sluice_status read_split(struct pre_chain *chain, const json_t *spec, sluice_error *err)
{
    struct pre_op *op = NULL;
    TRY(add_op(chain, PRE_SPLIT, &op, err));
    TRY(read_behavior(spec, &op->behavior, err));
    TRY(tok_bool(spec, "invert", false, &op->invert, err));
    return matcher_from_json(&op->matcher, json_object_get(spec, "pattern"), "pre_tokenizer Split", err);
}

static sluice_status read_bytelevel(struct pre_chain *chain, const json_t *spec, sluice_error *err)
{
    struct pre_op *op = NULL;
    bool prefix, regex;
    TRY(json_need_bool(spec, "add_prefix_space", &prefix, TOK_FILE, err));
    TRY(tok_bool(spec, "use_regex", true, &regex, err));
    if (prefix)
        TRY(add_op(chain, PRE_PREFIX_SPACE, &op, err));
    if (regex)
        TRY(add_regex(chain, GPT2_PATTERN, BEHAVE_ISOLATED, false, err));
    return add_op(chain, PRE_BYTES, &op, err);
}

sluice_status metaspace_fields(const json_t *spec, char replacement[5], enum pre_scheme *scheme, bool *split,
                               sluice_error *err)
{
    static const char *const NAMES[] = {"always", "first", "never"};
    bool prefix;
    TRY(tok_char(spec, "replacement", replacement, err));
    TRY(tok_bool(spec, "split", true, split, err));
    TRY(tok_bool(spec, "add_prefix_space", true, &prefix, err));
    *scheme = prefix ? SCHEME_ALWAYS : SCHEME_NEVER;
    if (!json_has(spec, "prepend_scheme"))
        return SLUICE_OK;
    const char *name;
    TRY(json_need_string(spec, "prepend_scheme", &name, TOK_FILE, err));
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, NAMES[i]) == 0) {
            *scheme = (enum pre_scheme)i;
            return prefix || *scheme == SCHEME_NEVER
                       ? SLUICE_OK
                       : err_set(err, SLUICE_E_FORMAT,
                                 TOK_FILE ": add_prefix_space false contradicts prepend_scheme \"%s\"", name);
        }
    }
    return err_set(err, SLUICE_E_UNSUPPORTED, TOK_FILE ": prepend_scheme \"%s\" is not supported", name);
}

static sluice_status read_metaspace(struct pre_chain *chain, const json_t *spec, sluice_error *err)
{
    struct pre_op *op = NULL;
    bool split;
    TRY(add_op(chain, PRE_METASPACE, &op, err));
    TRY(metaspace_fields(spec, op->replacement, &op->scheme, &split, err));
    return split ? add_char(chain, op->replacement, BEHAVE_MERGED_WITH_NEXT, err) : SLUICE_OK;
}

static sluice_status read_digits(struct pre_chain *chain, const json_t *spec, sluice_error *err)
{
    bool single;
    TRY(json_need_bool(spec, "individual_digits", &single, TOK_FILE, err));
    return add_class(chain, uni_is_numeric, single ? BEHAVE_ISOLATED : BEHAVE_CONTIGUOUS, err);
}

static sluice_status read_punctuation(struct pre_chain *chain, const json_t *spec, sluice_error *err)
{
    enum pre_behavior behavior = BEHAVE_ISOLATED;
    if (json_has(spec, "behavior"))
        TRY(read_behavior(spec, &behavior, err));
    return add_class(chain, uni_is_punct, behavior, err);
}

static sluice_status read_whitespace(struct pre_chain *chain, const json_t *spec, sluice_error *err)
{
    (void)spec;
    return add_regex(chain, WORDS_PATTERN, BEHAVE_REMOVED, true, err);
}

static sluice_status read_whitespace_split(struct pre_chain *chain, const json_t *spec, sluice_error *err)
{
    (void)spec;
    return add_class(chain, uni_is_space, BEHAVE_REMOVED, err);
}

static sluice_status read_delimiter(struct pre_chain *chain, const json_t *spec, sluice_error *err)
{
    char text[5];
    TRY(tok_char(spec, "delimiter", text, err));
    return add_char(chain, text, BEHAVE_REMOVED, err);
}

static sluice_status read_fixed(struct pre_chain *chain, const json_t *spec, sluice_error *err)
{
    struct pre_op *op = NULL;
    uint32_t length = 5;
    TRY(add_op(chain, PRE_FIXED, &op, err));
    if (json_has(spec, "length"))
        TRY(json_need_u32(spec, "length", 1, UINT32_MAX, &length, TOK_FILE, err));
    op->length = length;
    return SLUICE_OK;
}

static const struct pre_type {
    const char *name;
    sluice_status (*read)(struct pre_chain *chain, const json_t *spec, sluice_error *err);
} PRE_TYPES[] = {
    {"Split", read_split},
    {"ByteLevel", read_bytelevel},
    {"Metaspace", read_metaspace},
    {"Digits", read_digits},
    {"Punctuation", read_punctuation},
    {"Whitespace", read_whitespace},
    {"WhitespaceSplit", read_whitespace_split},
    {"CharDelimiterSplit", read_delimiter},
    {"FixedLength", read_fixed},
};

static sluice_status add_spec(struct pre_chain *chain, const json_t *spec, sluice_error *err)
{
    const char *type = NULL;
    TRY(tok_type(spec, "pre_tokenizer", &type, err));
    if (strcmp(type, "Sequence") == 0) {
        json_t *list;
        TRY(json_need_array(spec, "pretokenizers", &list, TOK_FILE, err));
        for (size_t i = 0; i < json_array_size(list); i++)
            TRY(add_spec(chain, json_array_get(list, i), err));
        return SLUICE_OK;
    }
    for (size_t i = 0; i < sizeof PRE_TYPES / sizeof *PRE_TYPES; i++)
        if (strcmp(type, PRE_TYPES[i].name) == 0)
            return PRE_TYPES[i].read(chain, spec, err);
    return err_set(err, SLUICE_E_UNSUPPORTED, TOK_FILE ": pre_tokenizer \"%s\" is not supported", type);
}

sluice_status pre_open(struct pre_chain *chain, const json_t *spec, sluice_error *err)
{
    if (!spec || json_is_null(spec))
        return SLUICE_OK;
    chain->ops = mem_calloc(TOK_OPS_MAX, sizeof *chain->ops);
    if (!chain->ops)
        return err_memory(err, TOK_OPS_MAX * sizeof *chain->ops, TOK_FILE);
    return add_spec(chain, spec, err);
}

void pre_close(struct pre_chain *chain)
{
    for (size_t i = 0; i < chain->n; i++)
        matcher_close(&chain->ops[i].matcher);
    mem_free(chain->ops);
}

/* ---- applying ---- */

static bool add_piece(struct pieces *pieces, size_t at, size_t bytes, bool first)
{
    if (bytes == 0)
        return true;
    if (!mem_grow((void **)&pieces->v, &pieces->cap, pieces->n + 1, sizeof *pieces->v))
        return false;
    pieces->v[pieces->n++] = (struct piece){at, bytes, first};
    return true;
}

static bool add_span(struct pre_work *w, size_t at, size_t end, bool match)
{
    if (!mem_grow((void **)&w->spans, &w->cap_spans, w->n_spans + 1, sizeof *w->spans))
        return false;
    w->spans[w->n_spans++] = (struct span){at, end, match};
    return true;
}

/* Cover text with spans that match and spans between. */
static sluice_status find_spans(const struct pre_op *op, struct regex_run *run, const char *text, size_t n,
                                struct pre_work *w, sluice_error *err)
{
    struct match_walk walk = {0};
    size_t done = 0;
    w->n_spans = 0;
    for (;;) {
        bool found;
        size_t start, end;
        TRY(matcher_next(&op->matcher, run, &walk, text, n, &found, &start, &end, err));
        if (!found)
            break;
        if ((start > done && !add_span(w, done, start, op->invert)) || !add_span(w, start, end, !op->invert))
            return err_memory(err, n, "splitting a text");
        done = end;
    }
    if (done < n && !add_span(w, done, n, op->invert))
        return err_memory(err, n, "splitting a text");
    return SLUICE_OK;
}

/* Merge spans in place as the behavior says; spans that go away become empty. */
static void merge_spans(struct span *v, size_t n, enum pre_behavior behavior)
{
    bool previous = false;
    switch (behavior) {
    case BEHAVE_ISOLATED:
        break;
    case BEHAVE_REMOVED:
        for (size_t i = 0; i < n; i++)
            if (v[i].match)
                v[i].end = v[i].at;
        break;
    case BEHAVE_MERGED_WITH_NEXT:
        for (size_t i = n; i-- > 0;) {
            bool match = v[i].match;
            if (match && !previous && i + 1 < n) {
                v[i].end = v[i + 1].end;
                v[i + 1].end = v[i + 1].at;
            }
            previous = match;
        }
        break;
    case BEHAVE_MERGED_WITH_PREVIOUS:
    case BEHAVE_CONTIGUOUS:
        for (size_t i = 0; i < n; i++) {
            bool match = v[i].match;
            bool joins = behavior == BEHAVE_CONTIGUOUS ? match == previous : match && !previous;
            if (joins && i > 0) {
                v[i].at = v[i - 1].at;
                v[i - 1].end = v[i - 1].at;
            }
            previous = match;
        }
        break;
    }
}

static sluice_status apply_split(const struct pre_op *op, struct regex_run *run, struct pre_work *w,
                                 sluice_error *err)
{
    struct pieces *from = &w->now, *to = &w->next;
    for (size_t i = 0; i < from->n; i++) {
        struct piece piece = from->v[i];
        TRY(find_spans(op, run, from->text.p + piece.at, piece.bytes, w, err));
        merge_spans(w->spans, w->n_spans, op->behavior);
        for (size_t k = 0; k < w->n_spans; k++) {
            struct span span = w->spans[k];
            if (!add_piece(to, piece.at + span.at, span.end - span.at, piece.first && span.at == 0))
                return err_memory(err, from->text.len, "splitting a text");
        }
    }
    struct str text = from->text;
    from->text = to->text;
    to->text = text;
    return SLUICE_OK;
}

static sluice_status apply_fixed(const struct pre_op *op, struct pre_work *w, sluice_error *err)
{
    struct pieces *from = &w->now, *to = &w->next;
    for (size_t i = 0; i < from->n; i++) {
        struct piece piece = from->v[i];
        for (size_t at = 0; at < piece.bytes;) {
            size_t end = at;
            uint32_t cp;
            for (size_t k = 0; k < op->length && end < piece.bytes; k++)
                end += utf8_decode(from->text.p + piece.at + end, piece.bytes - end, &cp, NULL);
            if (!add_piece(to, piece.at + at, end - at, piece.first && at == 0))
                return err_memory(err, from->text.len, "splitting a text");
            at = end;
        }
    }
    struct str text = from->text;
    from->text = to->text;
    to->text = text;
    return SLUICE_OK;
}

/* ---- steps that change the text of every piece ---- */

static bool map_bytes(const char *p, size_t n, struct str *out)
{
    if (!str_reserve(out, 2 * n))
        return false;
    char codes[256][2];
    unsigned char sizes[256];
    memset(sizes, 0, sizeof sizes);
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)p[i];
        if (sizes[byte] == 0) {
            char code[4];
            sizes[byte] = (unsigned char)utf8_encode(bytelevel_code(byte), code);
            memcpy(codes[byte], code, 2);
        }
        memcpy(out->p + out->len, codes[byte], 2);
        out->len += sizes[byte];
    }
    out->p[out->len] = '\0';
    return true;
}

static bool map_metaspace(const struct pre_op *op, const char *p, size_t n, bool first, struct str *out)
{
    size_t mark = strlen(op->replacement);
    bool starts = p[0] == ' ' || (n >= mark && memcmp(p, op->replacement, mark) == 0);
    bool wants = op->scheme == SCHEME_ALWAYS || (op->scheme == SCHEME_FIRST && first);
    if (wants && !starts && !str_append(out, op->replacement, mark))
        return false;
    for (size_t at = 0; at < n;) {
        const char *space = memchr(p + at, ' ', n - at);
        size_t plain = space ? (size_t)(space - (p + at)) : n - at;
        if (!str_append(out, p + at, plain) || (space && !str_append(out, op->replacement, mark)))
            return false;
        at += plain + (space != NULL);
    }
    return true;
}

static bool map_piece(const struct pre_op *op, const char *p, size_t n, bool first, struct str *out)
{
    if (op->kind == PRE_BYTES)
        return map_bytes(p, n, out);
    if (op->kind == PRE_METASPACE)
        return map_metaspace(op, p, n, first, out);
    return (p[0] == ' ' || str_putc(out, ' ')) && str_append(out, p, n);
}

static sluice_status apply_map(const struct pre_op *op, struct pre_work *w, sluice_error *err)
{
    struct pieces *from = &w->now, *to = &w->next;
    str_clear(&to->text);
    for (size_t i = 0; i < from->n; i++) {
        struct piece piece = from->v[i];
        size_t at = to->text.len;
        if (!map_piece(op, from->text.p + piece.at, piece.bytes, piece.first, &to->text) ||
            !add_piece(to, at, to->text.len - at, piece.first))
            return err_memory(err, from->text.len, "splitting a text");
    }
    return SLUICE_OK;
}

sluice_status pre_apply(const struct pre_chain *chain, struct regex_run *run, const char *text, size_t n,
                        bool first, struct pre_work *w, sluice_error *err)
{
    w->now.n = 0;
    str_clear(&w->now.text);
    if (!str_append(&w->now.text, text, n) || !add_piece(&w->now, 0, n, first))
        return err_memory(err, n, "splitting a text");
    for (size_t i = 0; i < chain->n; i++) {
        const struct pre_op *op = &chain->ops[i];
        w->next.n = 0;
        if (op->kind == PRE_SPLIT)
            TRY(apply_split(op, run, w, err));
        else if (op->kind == PRE_FIXED)
            TRY(apply_fixed(op, w, err));
        else
            TRY(apply_map(op, w, err));
        struct pieces swap = w->now;
        w->now = w->next;
        w->next = swap;
    }
    return SLUICE_OK;
}

void pre_work_close(struct pre_work *w)
{
    str_free(&w->now.text);
    str_free(&w->next.text);
    mem_free(w->now.v);
    mem_free(w->next.v);
    mem_free(w->spans);
    memset(w, 0, sizeof *w);
}
