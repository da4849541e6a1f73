#include "base/mem.h"
#include "base/utf8.h"
#include "text/tok_internal.h"

#include <string.h>

/* ---- matchers ---- */

sluice_status matcher_literal(struct matcher *m, const char *text, size_t n, const char *where,
                              sluice_error *err)
{
    memset(m, 0, sizeof *m);
    if (n == 0)
        return err_set(err, SLUICE_E_UNSUPPORTED, TOK_FILE ": an empty pattern in %s is not supported",
                       where);
    m->kind = MATCH_LITERAL;
    m->text = mem_strndup(text, n);
    m->text_bytes = n;
    return m->text ? SLUICE_OK : err_memory(err, n, TOK_FILE);
}

sluice_status matcher_from_json(struct matcher *m, const json_t *pattern, const char *where,
                                sluice_error *err)
{
    memset(m, 0, sizeof *m);
    const json_t *string = json_object_get(pattern, "String"), *regex = json_object_get(pattern, "Regex");
    if (json_is_string(string))
        return matcher_literal(m, json_string_value(string), json_string_length(string), where, err);
    if (!json_is_string(regex))
        return err_set(err, SLUICE_E_FORMAT, TOK_FILE ": %s needs a \"pattern\" with String or Regex", where);
    m->kind = MATCH_REGEX;
    char name[64];
    (void)snprintf(name, sizeof name, TOK_FILE ": %s", where);
    return regex_open(&m->regex, json_string_value(regex), json_string_length(regex), name, err);
}

void matcher_close(struct matcher *m)
{
    mem_free(m->text);
    regex_close(m->regex);
}

/* Empty matches as Oniguruma's iterator has them: one right behind the last match does not count. */
static sluice_status next_regex(const struct matcher *m, struct regex_run *run, struct match_walk *walk,
                                const char *text, size_t n, bool *found, size_t *start, size_t *end,
                                sluice_error *err)
{
    while (walk->at <= n) {
        TRY(regex_find(m->regex, run, text, n, walk->at, found, start, end, err));
        if (!*found)
            return SLUICE_OK;
        if (*start != *end || !walk->any || walk->last_end != *end) {
            walk->at = walk->last_end = *end;
            walk->any = true;
            return SLUICE_OK;
        }
        uint32_t cp;
        walk->at += walk->at < n ? utf8_decode(text + walk->at, n - walk->at, &cp, NULL) : 1;
    }
    *found = false;
    return SLUICE_OK;
}

sluice_status matcher_next(const struct matcher *m, struct regex_run *run, struct match_walk *walk,
                           const char *text, size_t n, bool *found, size_t *start, size_t *end,
                           sluice_error *err)
{
    *found = false;
    if (n == 0) /* not even for a pattern that matches nothing */
        return SLUICE_OK;
    if (m->kind == MATCH_REGEX)
        return next_regex(m, run, walk, text, n, found, start, end, err);
    if (m->kind == MATCH_LITERAL) {
        const char *hit = walk->at < n ? memmem(text + walk->at, n - walk->at, m->text, m->text_bytes) : NULL;
        if (hit) {
            *found = true;
            *start = (size_t)(hit - text);
            walk->at = *end = *start + m->text_bytes;
        }
        return SLUICE_OK;
    }
    while (walk->at < n && !*found) {
        uint32_t cp;
        *start = walk->at;
        walk->at += utf8_decode(text + walk->at, n - walk->at, &cp, NULL);
        *end = walk->at;
        *found = m->in_class(cp);
    }
    return SLUICE_OK;
}

/* ---- reading ---- */

sluice_status tok_type(const json_t *spec, const char *part, const char **type, sluice_error *err)
{
    const json_t *value = json_object_get(spec, "type");
    if (!json_is_string(value))
        return err_set(err, SLUICE_E_FORMAT, TOK_FILE ": a %s without a \"type\"", part);
    *type = json_string_value(value);
    return SLUICE_OK;
}

sluice_status tok_bool(const json_t *spec, const char *key, bool fallback, bool *out, sluice_error *err)
{
    *out = fallback;
    return json_has(spec, key) ? json_need_bool(spec, key, out, TOK_FILE, err) : SLUICE_OK;
}

sluice_status tok_char(const json_t *spec, const char *key, char out[5], sluice_error *err)
{
    const char *text;
    uint32_t cp;
    TRY(json_need_string(spec, key, &text, TOK_FILE, err));
    size_t n = strlen(text);
    if (n == 0 || utf8_decode(text, n, &cp, NULL) != n)
        return err_set(err, SLUICE_E_FORMAT, TOK_FILE ": \"%s\" must be one character", key);
    memcpy(out, text, n + 1);
    return SLUICE_OK;
}

static sluice_status read_content(struct norm_op *op, const json_t *spec, const char *key, sluice_error *err)
{
    const char *text;
    TRY(json_need_string(spec, key, &text, TOK_FILE, err));
    op->content_bytes = strlen(text);
    op->content = mem_strdup(text);
    return op->content ? SLUICE_OK : err_memory(err, op->content_bytes, TOK_FILE);
}

static sluice_status read_form(struct norm_op *op, const json_t *spec, sluice_error *err)
{
    static const char *const NAMES[] = {"NFC", "NFD", "NFKC", "NFKD"};
    const char *type = NULL;
    TRY(tok_type(spec, "normalizer", &type, err));
    for (int i = 0; i < 4; i++)
        if (strcmp(type, NAMES[i]) == 0)
            op->form = (enum uni_form)i;
    return SLUICE_OK;
}

static sluice_status read_replace(struct norm_op *op, const json_t *spec, sluice_error *err)
{
    TRY(matcher_from_json(&op->matcher, json_object_get(spec, "pattern"), "normalizer Replace", err));
    return read_content(op, spec, "content", err);
}

static sluice_status read_prepend(struct norm_op *op, const json_t *spec, sluice_error *err)
{
    return read_content(op, spec, "prepend", err);
}

static sluice_status read_strip(struct norm_op *op, const json_t *spec, sluice_error *err)
{
    TRY(json_need_bool(spec, "strip_left", &op->left, TOK_FILE, err));
    return json_need_bool(spec, "strip_right", &op->right, TOK_FILE, err);
}

static sluice_status read_nothing(struct norm_op *op, const json_t *spec, sluice_error *err)
{
    (void)op, (void)spec, (void)err;
    return SLUICE_OK;
}

static const struct norm_type {
    const char *name;
    enum norm_kind kind;
    sluice_status (*read)(struct norm_op *op, const json_t *spec, sluice_error *err);
} NORM_TYPES[] = {
    {"NFC", NORM_FORM, read_form},           {"NFD", NORM_FORM, read_form},
    {"NFKC", NORM_FORM, read_form},          {"NFKD", NORM_FORM, read_form},
    {"Replace", NORM_REPLACE, read_replace}, {"Prepend", NORM_PREPEND, read_prepend},
    {"Strip", NORM_STRIP, read_strip},       {"Lowercase", NORM_LOWERCASE, read_nothing},
};

/* Sequences may nest; JSON_DEPTH_MAX bounds the recursion. */
static sluice_status add_spec(struct norm_chain *chain, const json_t *spec, sluice_error *err)
{
    const char *type = NULL;
    TRY(tok_type(spec, "normalizer", &type, err));
    if (strcmp(type, "Sequence") == 0) {
        json_t *list;
        TRY(json_need_array(spec, "normalizers", &list, TOK_FILE, err));
        for (size_t i = 0; i < json_array_size(list); i++)
            TRY(add_spec(chain, json_array_get(list, i), err));
        return SLUICE_OK;
    }
    for (size_t i = 0; i < sizeof NORM_TYPES / sizeof *NORM_TYPES; i++) {
        if (strcmp(type, NORM_TYPES[i].name) != 0)
            continue;
        if (chain->n == TOK_OPS_MAX)
            return err_set(err, SLUICE_E_UNSUPPORTED, TOK_FILE " has more than %d normalizers", TOK_OPS_MAX);
        struct norm_op *op = &chain->ops[chain->n++];
        op->kind = NORM_TYPES[i].kind;
        return NORM_TYPES[i].read(op, spec, err);
    }
    return err_set(err, SLUICE_E_UNSUPPORTED, TOK_FILE ": normalizer \"%s\" is not supported", type);
}

sluice_status norm_open(struct norm_chain *chain, const json_t *spec, sluice_error *err)
{
    if (!spec || json_is_null(spec))
        return SLUICE_OK;
    chain->ops = mem_calloc(TOK_OPS_MAX, sizeof *chain->ops);
    if (!chain->ops)
        return err_memory(err, TOK_OPS_MAX * sizeof *chain->ops, TOK_FILE);
    return add_spec(chain, spec, err);
}

void norm_close(struct norm_chain *chain)
{
    for (size_t i = 0; i < chain->n; i++) {
        matcher_close(&chain->ops[i].matcher);
        mem_free(chain->ops[i].content);
    }
    mem_free(chain->ops);
}

/* ---- applying: each step reads `in` and appends to `out` ---- */

struct step {
    const struct norm_op *op;
    struct regex_run *run;
    const char *text;
    const unsigned char *marks; /* NULL: nobody asks */
    size_t n;
    struct marked_text *out;
    sluice_error *err;
};

static bool all_marked(const unsigned char *marks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!marks[i])
            return false;
    return true;
}

static bool append_marks(struct step *s, unsigned char mark, size_t n)
{
    struct str *marks = &s->out->marks;
    if (!s->marks)
        return true;
    if (!str_reserve(marks, n))
        return false;
    memset(marks->p + marks->len, mark, n);
    marks->len += n;
    return true;
}

static bool copy(struct step *s, size_t at, size_t n)
{
    return str_append(&s->out->text, s->text + at, n) &&
           (!s->marks || str_append(&s->out->marks, (const char *)s->marks + at, n));
}

/* New text in place of text[at .. at + n): trusted when all it came from is. */
static bool replace(struct step *s, const char *text, size_t bytes, size_t at, size_t n)
{
    return str_append(&s->out->text, text, bytes) &&
           append_marks(s, s->marks && all_marked(s->marks + at, n), bytes);
}

/* A normal form never reaches over the start of an ASCII character, so the text is cut there: ASCII is copied
 * and marks stay exact outside the runs that change. */
static bool apply_form(struct step *s)
{
    size_t at = 0;
    while (at < s->n) {
        size_t end = at;
        while (end < s->n && (unsigned char)s->text[end] < 0x80)
            end++;
        if (end < s->n && end > at)
            end--; /* the last ASCII character may take the marks that follow */
        if (end > at && !copy(s, at, end - at))
            return false;
        at = end;
        if (at == s->n)
            break;
        end = at + 1;
        while (end < s->n && (unsigned char)s->text[end] >= 0x80)
            end++;
        size_t before = s->out->text.len;
        if (!uni_normalize(s->op->form, s->text + at, end - at, &s->out->text))
            return false;
        size_t made = s->out->text.len - before;
        bool same = made == end - at && memcmp(s->out->text.p + before, s->text + at, made) == 0;
        if (same && s->marks) {
            if (!str_append(&s->out->marks, (const char *)s->marks + at, made))
                return false;
        } else if (!append_marks(s, s->marks && all_marked(s->marks + at, end - at), made)) {
            return false;
        }
        at = end;
    }
    return true;
}

static bool apply_lowercase(struct step *s)
{
    for (size_t at = 0; at < s->n;) {
        uint32_t cp, lower[2];
        size_t used = utf8_decode(s->text + at, s->n - at, &cp, NULL), made = 0;
        size_t count = uni_lower(cp, lower);
        char bytes[8];
        for (size_t i = 0; i < count; i++)
            made += utf8_encode(lower[i], bytes + made);
        if (!replace(s, bytes, made, at, used))
            return false;
        at += used;
    }
    return true;
}

static bool apply_strip(struct step *s)
{
    size_t head = s->op->left ? uni_space_prefix(s->text, s->n) : 0;
    size_t tail = s->op->right ? uni_space_suffix(s->text + head, s->n - head) : 0;
    return copy(s, head, s->n - head - tail);
}

/* What a normalizer puts in front is not the writer's text: it may not complete a control token. */
static bool apply_prepend(struct step *s)
{
    if (s->n == 0)
        return true;
    return str_append(&s->out->text, s->op->content, s->op->content_bytes) &&
           append_marks(s, 0, s->op->content_bytes) && copy(s, 0, s->n);
}

static sluice_status apply_replace(struct step *s)
{
    struct match_walk walk = {0};
    size_t done = 0;
    for (;;) {
        bool found;
        size_t start, end;
        TRY(matcher_next(&s->op->matcher, s->run, &walk, s->text, s->n, &found, &start, &end, s->err));
        if (!found)
            break;
        if (!copy(s, done, start - done) ||
            !replace(s, s->op->content, s->op->content_bytes, start, end - start))
            return err_memory(s->err, s->n, "normalizing a text");
        done = end;
    }
    return copy(s, done, s->n - done) ? SLUICE_OK : err_memory(s->err, s->n, "normalizing a text");
}

sluice_status norm_apply(const struct norm_chain *chain, struct regex_run *run, struct marked_text *text,
                         struct marked_text *spare, bool with_marks, sluice_error *err)
{
    for (size_t i = 0; i < chain->n; i++) {
        str_clear(&spare->text);
        str_clear(&spare->marks);
        struct step s = {.op = &chain->ops[i],
                         .run = run,
                         .text = text->text.p,
                         .marks = with_marks ? (const unsigned char *)text->marks.p : NULL,
                         .n = text->text.len,
                         .out = spare,
                         .err = err};
        bool ok = true;
        switch (s.op->kind) {
        case NORM_FORM:
            ok = apply_form(&s);
            break;
        case NORM_REPLACE:
            TRY(apply_replace(&s));
            break;
        case NORM_PREPEND:
            ok = apply_prepend(&s);
            break;
        case NORM_LOWERCASE:
            ok = apply_lowercase(&s);
            break;
        case NORM_STRIP:
            ok = apply_strip(&s);
            break;
        }
        if (!ok)
            return err_memory(err, s.n, "normalizing a text");
        struct marked_text swap = *text;
        *text = *spare;
        *spare = swap;
        if (text->text.len > TOK_TEXT_MAX)
            return err_set(err, SLUICE_E_ARGUMENT, "the normalized text is longer than %zu bytes",
                           TOK_TEXT_MAX);
    }
    return SLUICE_OK;
}
