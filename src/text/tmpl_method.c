/* Methods of strings, lists and dicts. What would change a value is not there, as in Jinja's immutable
 * sandbox. */
#include "base/utf8.h"
#include "text/tmpl_internal.h"
#include "text/unicode.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

/* ---- strings ---- */

/* Text that comes into a string; into HTML escaped. */
static sluice_status put_escaped(struct call *c, struct builder *b, bool safe, const struct value *text)
{
    struct value put = *text;
    if (safe)
        TRY(value_escape(c->r, text, &put));
    return builder_value(b, &put);
}

static sluice_status method_strip(struct call *c)
{
    TRY(call_need_string(c, c->self, "strip"));
    return call_strip(c, c->self, true, true);
}

static sluice_status method_lstrip(struct call *c)
{
    TRY(call_need_string(c, c->self, "lstrip"));
    return call_strip(c, c->self, true, false);
}

static sluice_status method_rstrip(struct call *c)
{
    TRY(call_need_string(c, c->self, "rstrip"));
    return call_strip(c, c->self, false, true);
}

static sluice_status method_upper(struct call *c)
{
    TRY(call_need_string(c, c->self, "upper"));
    return call_change_case(c, c->self, UPPER);
}

static sluice_status method_lower(struct call *c)
{
    TRY(call_need_string(c, c->self, "lower"));
    return call_change_case(c, c->self, LOWER);
}

static sluice_status method_capitalize(struct call *c)
{
    TRY(call_need_string(c, c->self, "capitalize"));
    return call_change_case(c, c->self, CAPITALIZE);
}

static sluice_status method_replace(struct call *c)
{
    struct value with = c->args[1];
    bool safe = c->self->safe;
    TRY(call_need_string(c, c->self, "replace"));
    TRY(call_need_string(c, &with, "replace"));
    if (safe)
        TRY(value_escape(c->r, &with, &c->args[1]));
    TRY(call_replace(c, c->self));
    c->out->safe = safe;
    return SLUICE_OK;
}

/* A string or any of a tuple of strings. */
static sluice_status affix(struct call *c, bool start)
{
    TRY(call_need_string(c, c->self, start ? "startswith" : "endswith"));
    const struct value_text *text = &c->self->as.text;
    const struct value *list = &c->args[0], *one = list;
    size_t n = 1;
    bool found = false;
    if (list->kind == VALUE_LIST && list->as.list->shape == SHAPE_TUPLE) {
        one = list->as.list->v;
        n = list->as.list->n;
    }
    for (size_t i = 0; i < n && !found; i++) {
        TRY(call_need_string(c, &one[i], start ? "startswith" : "endswith"));
        const struct value_text *part = &one[i].as.text;
        size_t at = start || part->n > text->n ? 0 : text->n - part->n;
        found = part->n <= text->n && (part->n == 0 || memcmp(text->p + at, part->p, part->n) == 0);
    }
    return call_give(c, value_bool(found));
}

static sluice_status method_startswith(struct call *c)
{
    return affix(c, true);
}

static sluice_status method_endswith(struct call *c)
{
    return affix(c, false);
}

/* Runs of white space separate, and none at the ends. */
static sluice_status split_space(struct call *c, int64_t left)
{
    const struct value_text *text = &c->self->as.text;
    struct value space = {.kind = VALUE_ABSENT};
    for (size_t at = 0; at < text->n;) {
        size_t start = at, end;
        uint32_t cp;
        while (start < text->n) {
            size_t used = utf8_decode(text->p + start, text->n - start, &cp, NULL);
            if (!call_strips(cp, &space))
                break;
            start += used;
        }
        for (end = start; end < text->n && left != 0;) {
            size_t used = utf8_decode(text->p + end, text->n - end, &cp, NULL);
            if (call_strips(cp, &space))
                break;
            end += used;
        }
        if (left == 0) /* the rest, with the white space behind it */
            end = text->n;
        struct value part = call_cut(c->self, start, end);
        if (end > start)
            TRY(value_list_add(c->r, c->out->as.list, &part));
        left -= left > 0;
        at = end > start ? end : text->n;
    }
    return SLUICE_OK;
}

static sluice_status method_split(struct call *c)
{
    int64_t left = -1;
    TRY(call_need_string(c, c->self, "split"));
    TRY(value_list_new(c->r, 0, c->out));
    TRY(tmpl_step(c->r, c->self->as.text.n / 16));
    TRY(call_need_integer(c, 1, -1, &left));
    if (c->args[0].kind == VALUE_ABSENT || c->args[0].kind == VALUE_NONE)
        return split_space(c, left);
    TRY(call_need_string(c, &c->args[0], "split"));
    const struct value_text *text = &c->self->as.text, *separator = &c->args[0].as.text;
    if (separator->n == 0)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "split needs a separator that is not empty");
    size_t at = 0;
    for (;;) {
        const char *hit =
            left != 0 && at < text->n ? memmem(text->p + at, text->n - at, separator->p, separator->n) : NULL;
        size_t end = hit ? (size_t)(hit - text->p) : text->n;
        struct value part = call_cut(c->self, at, end);
        TRY(value_list_add(c->r, c->out->as.list, &part));
        if (!hit)
            return SLUICE_OK;
        at = end + separator->n;
        left -= left > 0;
    }
}

static sluice_status need_dict(struct call *c, const char *what)
{
    if (c->self->kind == VALUE_DICT)
        return SLUICE_OK;
    return tmpl_fail(c->r, SLUICE_E_FORMAT, "%s needs a dict, not %s", what, value_type(c->self));
}

static sluice_status view(struct call *c)
{
    c->out->as.list->shape = SHAPE_VIEW;
    return SLUICE_OK;
}

static sluice_status method_items(struct call *c)
{
    TRY(need_dict(c, "items"));
    TRY(call_pairs(c));
    return view(c);
}

static sluice_status method_keys(struct call *c)
{
    TRY(need_dict(c, "keys"));
    TRY(call_list(c));
    return view(c);
}

static sluice_status method_values(struct call *c)
{
    TRY(need_dict(c, "values"));
    const struct value_dict *dict = c->self->as.dict;
    TRY(value_list_new(c->r, dict->n, c->out));
    for (size_t i = 0; i < dict->n; i++)
        TRY(value_list_add(c->r, c->out->as.list, &dict->values[i]));
    return view(c);
}

static sluice_status method_get(struct call *c)
{
    struct value *found = NULL;
    TRY(need_dict(c, "get"));
    TRY(value_dict_get(c->r, c->self->as.dict, &c->args[0], &found));
    if (found)
        return call_give(c, *found);
    return call_give(c, c->args[1].kind != VALUE_ABSENT ? c->args[1]
                                                        : (struct value){.kind = VALUE_NONE, .own = true});
}

static sluice_status method_copy(struct call *c)
{
    if (c->self->kind == VALUE_LIST)
        return call_list(c);
    const struct value_dict *dict = c->self->as.dict;
    TRY(value_dict_new(c->r, c->out));
    for (size_t i = 0; i < dict->n; i++)
        TRY(value_dict_append(c->r, c->out->as.dict, &dict->keys[i], &dict->values[i]));
    return SLUICE_OK;
}

/* From the right: at most maxsplit cuts, else as split. */
static sluice_status method_rsplit(struct call *c)
{
    int64_t left;
    TRY(call_need_integer(c, 1, -1, &left));
    if (left < 0 || c->args[0].kind != VALUE_STRING)
        return left < 0 ? method_split(c)
                        : tmpl_fail(c->r, SLUICE_E_UNSUPPORTED, "rsplit with maxsplit needs a separator");
    const struct value_text *text = &c->self->as.text, *separator = &c->args[0].as.text;
    struct value parts;
    size_t end = text->n;
    if (separator->n == 0)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "rsplit needs a separator that is not empty");
    TRY(value_list_new(c->r, 0, &parts));
    TRY(tmpl_step(c->r, text->n / 16));
    for (size_t at = end; left > 0 && at >= separator->n;) {
        if (memcmp(text->p + at - separator->n, separator->p, separator->n) != 0) {
            at--;
            continue;
        }
        struct value part = call_cut(c->self, at, end);
        TRY(value_list_add(c->r, parts.as.list, &part));
        at -= separator->n;
        end = at;
        left--;
    }
    struct value first = call_cut(c->self, 0, end);
    TRY(value_list_add(c->r, parts.as.list, &first));
    TRY(value_list_new(c->r, parts.as.list->n, c->out));
    for (size_t i = parts.as.list->n; i-- > 0;)
        TRY(value_list_add(c->r, c->out->as.list, &parts.as.list->v[i]));
    return SLUICE_OK;
}

/* Python's line ends. */
static size_t line_end(const char *p, size_t n)
{
    uint32_t cp;
    size_t used = utf8_decode(p, n, &cp, NULL);
    if (cp == '\r')
        return n > 1 && p[1] == '\n' ? 2 : 1;
    bool ends = (cp >= '\n' && cp <= '\f') || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
                cp == 0x2029;
    return ends ? used : 0;
}

sluice_status tmpl_lines(struct render *r, const struct value *string, bool keep_ends, struct value *out)
{
    const struct value_text *text = &string->as.text;
    size_t start = 0;
    TRY(value_list_new(r, 0, out));
    TRY(tmpl_step(r, text->n / 16));
    for (size_t at = 0; at < text->n;) {
        size_t end = line_end(text->p + at, text->n - at);
        if (end) {
            struct value line = call_cut(string, start, at + (keep_ends ? end : 0));
            TRY(value_list_add(r, out->as.list, &line));
            at += end;
            start = at;
        } else {
            uint32_t cp;
            at += utf8_decode(text->p + at, text->n - at, &cp, NULL);
        }
    }
    struct value rest = call_cut(string, start, text->n);
    return start < text->n ? value_list_add(r, out->as.list, &rest) : SLUICE_OK;
}

static sluice_status method_splitlines(struct call *c)
{
    return tmpl_lines(c->r, c->self, value_truth(&c->args[0]), c->out);
}

static int64_t characters(const char *p, size_t n)
{
    int64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)p[i] & 0xC0) != 0x80;
    return count;
}

/* Byte offset of the first or last occurrence, or -1. */
static sluice_status locate(struct call *c, bool last, int64_t *at)
{
    const struct value_text *text = &c->self->as.text, *part = &c->args[0].as.text;
    TRY(call_need_string(c, &c->args[0], "find"));
    TRY(tmpl_step(c->r, text->n / 16));
    *at = -1;
    for (size_t from = 0; from <= text->n && part->n <= text->n - from;) {
        const char *hit = part->n ? memmem(text->p + from, text->n - from, part->p, part->n) : text->p + from;
        if (!hit)
            break;
        *at = hit - text->p;
        if (!last)
            break;
        from = (size_t)*at + 1;
        TRY(tmpl_step(c->r, 1));
    }
    return SLUICE_OK;
}

static sluice_status find(struct call *c, bool last, bool must)
{
    int64_t at;
    TRY(locate(c, last, &at));
    if (at < 0 && must)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "index: the text is not there");
    return call_give(c, value_int(at < 0 ? -1 : characters(c->self->as.text.p, (size_t)at), false));
}

static sluice_status method_find(struct call *c)
{
    return find(c, false, false);
}

static sluice_status method_rfind(struct call *c)
{
    return find(c, true, false);
}

static sluice_status method_index(struct call *c)
{
    if (c->self->kind == VALUE_STRING)
        return find(c, false, true);
    for (size_t i = 0; i < c->self->as.list->n; i++) {
        bool equal = false;
        TRY(value_equal(c->r, &c->self->as.list->v[i], &c->args[0], &equal));
        if (equal)
            return call_give(c, value_int((int64_t)i, false));
    }
    return tmpl_fail(c->r, SLUICE_E_FORMAT, "index: the item is not there");
}

static sluice_status method_count(struct call *c)
{
    int64_t n = 0;
    if (c->self->kind == VALUE_LIST) {
        for (size_t i = 0; i < c->self->as.list->n; i++) {
            bool equal = false;
            TRY(value_equal(c->r, &c->self->as.list->v[i], &c->args[0], &equal));
            n += equal;
        }
        return call_give(c, value_int(n, false));
    }
    const struct value_text *text = &c->self->as.text, *part = &c->args[0].as.text;
    TRY(call_need_string(c, &c->args[0], "count"));
    TRY(tmpl_step(c->r, text->n / 16));
    if (part->n == 0)
        return call_give(c, value_int(characters(text->p, text->n) + 1, false));
    for (size_t at = 0; at < text->n;) {
        const char *hit = memmem(text->p + at, text->n - at, part->p, part->n);
        if (!hit)
            break;
        n++;
        at = (size_t)(hit - text->p) + part->n;
    }
    return call_give(c, value_int(n, false));
}

static sluice_status method_join(struct call *c)
{
    struct value_list *items = NULL;
    struct builder b = {.r = c->r};
    TRY(value_iterate(c->r, &c->args[0], &items));
    TRY(builder_add(&b, "", NULL, true, 0));
    for (size_t i = 0; i < items->n; i++) {
        TRY(call_need_string(c, &items->v[i], "join"));
        if (i)
            TRY(builder_value(&b, c->self));
        TRY(put_escaped(c, &b, c->self->safe, &items->v[i]));
    }
    return call_give(c, builder_done(&b, c->self->safe));
}

/* Upper case at the start of every run of letters, lower elsewhere. */
static sluice_status method_title(struct call *c)
{
    struct builder b = {.r = c->r};
    const struct value_text *text = &c->self->as.text;
    bool inside = false;
    TRY(builder_add(&b, "", NULL, true, 0));
    for (size_t at = 0; at < text->n;) {
        uint32_t cp;
        char bytes[4];
        size_t used = utf8_decode(text->p + at, text->n - at, &cp, NULL);
        utf8proc_int32_t one = (utf8proc_int32_t)cp;
        size_t made = utf8_encode((uint32_t)(inside ? utf8proc_tolower(one) : utf8proc_totitle(one)), bytes);
        TRY(builder_add(&b, bytes, NULL, text->marks ? text->marks[at] != 0 : c->self->own, made));
        inside = utf8proc_category(one) <= UTF8PROC_CATEGORY_LO && utf8proc_category(one) != 0;
        at += used;
    }
    return call_give(c, builder_done(&b, c->self->safe));
}

/* ---- is… ---- */

static bool is_alpha(uint32_t cp)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)cp);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

static bool is_decimal(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_ND;
}

static bool is_alnum(uint32_t cp)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)cp);
    return is_alpha(cp) || (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

static bool is_space(uint32_t cp)
{
    struct value absent = {.kind = VALUE_ABSENT};
    return call_strips(cp, &absent);
}

/* Every character, and at least one. */
static sluice_status all(struct call *c, bool (*is)(uint32_t cp))
{
    const struct value_text *text = &c->self->as.text;
    bool yes = text->n > 0;
    TRY(tmpl_step(c->r, text->n / 16));
    for (size_t at = 0; at < text->n && yes;) {
        uint32_t cp;
        at += utf8_decode(text->p + at, text->n - at, &cp, NULL);
        yes = is(cp);
    }
    return call_give(c, value_bool(yes));
}

static sluice_status method_isalpha(struct call *c)
{
    return all(c, is_alpha);
}

static sluice_status method_isdigit(struct call *c)
{
    return all(c, is_decimal);
}

static sluice_status method_isalnum(struct call *c)
{
    return all(c, is_alnum);
}

static sluice_status method_isspace(struct call *c)
{
    return all(c, is_space);
}

static sluice_status method_islower(struct call *c)
{
    return tmpl_call_named(c->r, CALL_TEST, "lower", c->self, NULL, 0, c->out);
}

static sluice_status method_isupper(struct call *c)
{
    return tmpl_call_named(c->r, CALL_TEST, "upper", c->self, NULL, 0, c->out);
}

/* ---- parts ---- */

static sluice_status remove_affix(struct call *c, bool start)
{
    const struct value_text *text = &c->self->as.text, *part = &c->args[0].as.text;
    TRY(call_need_string(c, &c->args[0], start ? "removeprefix" : "removesuffix"));
    size_t at = start ? 0 : text->n - part->n;
    if (part->n == 0 || part->n > text->n || memcmp(text->p + at, part->p, part->n) != 0)
        return call_give(c, *c->self);
    return call_give(c, start ? call_cut(c->self, part->n, text->n) : call_cut(c->self, 0, at));
}

static sluice_status method_removeprefix(struct call *c)
{
    return remove_affix(c, true);
}

static sluice_status method_removesuffix(struct call *c)
{
    return remove_affix(c, false);
}

static sluice_status partition(struct call *c, bool last)
{
    int64_t at;
    struct value empty = value_string("", 0, true), parts[3] = {empty, empty, empty};
    TRY(locate(c, last, &at));
    if (at < 0) {
        parts[last ? 2 : 0] = *c->self;
    } else {
        size_t cut = (size_t)at, end = cut + c->args[0].as.text.n;
        parts[0] = call_cut(c->self, 0, cut);
        parts[1] = c->args[0];
        parts[2] = call_cut(c->self, end, c->self->as.text.n);
    }
    TRY(value_list_new(c->r, 3, c->out));
    c->out->as.list->shape = SHAPE_TUPLE;
    for (size_t i = 0; i < 3; i++) {
        parts[i].safe = c->self->safe;
        TRY(value_list_add(c->r, c->out->as.list, &parts[i]));
    }
    return SLUICE_OK;
}

static sluice_status method_partition(struct call *c)
{
    return partition(c, false);
}

static sluice_status method_rpartition(struct call *c)
{
    return partition(c, true);
}

/* left and right: shares of the padding, in halves. */
static sluice_status pad(struct call *c, bool left, bool right, const char *with)
{
    int64_t width, n = characters(c->self->as.text.p, c->self->as.text.n);
    struct value fill = value_string(with, 1, true);
    struct builder b = {.r = c->r};
    TRY(call_need_integer(c, 0, 0, &width));
    if (c->n_args > 1 && c->args[1].kind == VALUE_STRING)
        fill = c->args[1];
    int64_t missing = width > n ? width - n : 0;
    int64_t before = left && right ? missing / 2 + (missing & width & 1) : left ? missing : 0;
    size_t sign = with[0] == '0' && c->self->as.text.n && strchr("+-", c->self->as.text.p[0]) ? 1 : 0;
    struct value head = call_cut(c->self, 0, sign), rest = call_cut(c->self, sign, c->self->as.text.n);
    TRY(builder_value(&b, &head));
    for (int64_t i = 0; i < before; i++) {
        TRY(tmpl_step(c->r, 1));
        TRY(builder_value(&b, &fill));
    }
    TRY(builder_value(&b, &rest));
    for (int64_t i = before; i < missing; i++) {
        TRY(tmpl_step(c->r, 1));
        TRY(builder_value(&b, &fill));
    }
    return call_give(c, builder_done(&b, c->self->safe));
}

static sluice_status method_ljust(struct call *c)
{
    return pad(c, false, true, " ");
}

static sluice_status method_rjust(struct call *c)
{
    return pad(c, true, false, " ");
}

static sluice_status method_center(struct call *c)
{
    return pad(c, true, true, " ");
}

static sluice_status method_zfill(struct call *c)
{
    return pad(c, true, false, "0");
}

/* ---- formatting ---- */

/* One value behind %: s, d, i, r are told apart no further than chat templates need. */
static sluice_status put_percent(struct call *c, struct builder *b, bool safe, char type, int precision,
                                 const struct value *v)
{
    char number[512];
    struct value text;
    int64_t integer;
    if (type == 's') {
        TRY(value_text_of(c->r, v, &text));
        return put_escaped(c, b, safe, &text);
    }
    if (!value_is_number(v))
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "%%%c needs a number, not %s", type, value_type(v));
    if (type == 'f')
        (void)snprintf(number, sizeof number, "%.*f", precision < 0 ? 6 : precision, value_number(v));
    else
        (void)snprintf(number, sizeof number, "%lld",
                       (long long)(value_integer(v, &integer) ? integer : (int64_t)value_number(v)));
    return builder_add(b, number, NULL, v->own, strlen(number));
}

sluice_status call_format(struct call *c, const struct value *format, const struct value *args, size_t n,
                          struct value *out)
{
    const struct value_text *text = &format->as.text;
    struct builder b = {.r = c->r};
    size_t used = 0;
    TRY(builder_add(&b, "", NULL, true, 0));
    for (size_t at = 0; at < text->n; at++) {
        struct value one = call_cut(format, at, at + 1);
        int precision = -1;
        if (text->p[at] != '%') {
            TRY(builder_value(&b, &one));
            continue;
        }
        if (++at + 1 < text->n && text->p[at] == '.' && text->p[at + 1] >= '0' && text->p[at + 1] <= '9') {
            precision = text->p[at + 1] - '0';
            at += 2;
        }
        if (at < text->n && text->p[at] == '%') {
            TRY(builder_value(&b, &one));
            continue;
        }
        if (at >= text->n || !text->p[at] || !strchr("sdif", text->p[at]))
            return tmpl_fail(c->r, SLUICE_E_UNSUPPORTED, "this kind of %%-format is not supported");
        if (used == n)
            return tmpl_fail(c->r, SLUICE_E_FORMAT, "not enough arguments for a %%-format");
        TRY(put_percent(c, &b, format->safe, text->p[at], precision, &args[used++]));
    }
    if (used < n)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "too many arguments for a %%-format");
    *out = builder_done(&b, format->safe);
    return SLUICE_OK;
}

/* The argument that {}, {0} or {name} stands for. */
static sluice_status format_field(struct call *c, const char *name, size_t n, size_t *next,
                                  const struct value **v)
{
    size_t at = 0;
    bool digits = n > 0;
    for (size_t i = 0; i < n; i++) {
        digits &= name[i] >= '0' && name[i] <= '9' && i < 3;
        at = digits ? at * 10 + (size_t)(name[i] - '0') : 0;
    }
    if (n == 0 || digits) {
        at = n == 0 ? (*next)++ : at;
        *v = at < c->n_args && !c->keywords[at] ? &c->args[at] : NULL;
    } else {
        *v = NULL;
        for (size_t i = 0; i < c->n_args; i++)
            if (c->keywords[i] && strlen(c->keywords[i]) == n && memcmp(c->keywords[i], name, n) == 0)
                *v = &c->args[i];
    }
    return *v ? SLUICE_OK
              : tmpl_fail(c->r, SLUICE_E_UNSUPPORTED, "format: {%.*s} is not given, or not supported",
                          n > 40 ? 40 : (int)n, name);
}

static sluice_status method_format(struct call *c)
{
    const struct value_text *text = &c->self->as.text;
    struct builder b = {.r = c->r};
    size_t next = 0;
    TRY(builder_add(&b, "", NULL, true, 0));
    for (size_t at = 0; at < text->n; at++) {
        struct value one = call_cut(c->self, at, at + 1), field;
        bool brace = text->p[at] == '{' || text->p[at] == '}';
        if (!brace || (at + 1 < text->n && text->p[at + 1] == text->p[at])) {
            at += brace;
            TRY(builder_value(&b, &one));
            continue;
        }
        const char *end = memchr(text->p + at, '}', text->n - at);
        const struct value *v = NULL;
        if (!end || text->p[at] == '}')
            return tmpl_fail(c->r, SLUICE_E_FORMAT, "format: a brace is alone");
        TRY(format_field(c, text->p + at + 1, (size_t)(end - text->p) - at - 1, &next, &v));
        TRY(value_text_of(c->r, v, &field));
        TRY(put_escaped(c, &b, c->self->safe, &field));
        at = (size_t)(end - text->p);
    }
    return call_give(c, builder_done(&b, c->self->safe));
}

/* ---- the table ---- */

#define STRING (1u << VALUE_STRING)
#define LIST   (1u << VALUE_LIST)
#define DICT   (1u << VALUE_DICT)

static const struct callable METHODS[] = {
    {"strip", "chars", method_strip, STRING},
    {"lstrip", "chars", method_lstrip, STRING},
    {"rstrip", "chars", method_rstrip, STRING},
    {"upper", "", method_upper, STRING},
    {"lower", "", method_lower, STRING},
    {"casefold", "", method_lower, STRING},
    {"capitalize", "", method_capitalize, STRING},
    {"title", "", method_title, STRING},
    {"replace", "old!,new!,count", method_replace, STRING},
    {"startswith", "prefix!", method_startswith, STRING},
    {"endswith", "suffix!", method_endswith, STRING},
    {"removeprefix", "prefix!", method_removeprefix, STRING},
    {"removesuffix", "suffix!", method_removesuffix, STRING},
    {"split", "sep,maxsplit", method_split, STRING},
    {"rsplit", "sep,maxsplit", method_rsplit, STRING},
    {"splitlines", "keepends", method_splitlines, STRING},
    {"partition", "sep!", method_partition, STRING},
    {"rpartition", "sep!", method_rpartition, STRING},
    {"find", "sub!", method_find, STRING},
    {"rfind", "sub!", method_rfind, STRING},
    {"index", "sub!", method_index, STRING | LIST},
    {"count", "sub!", method_count, STRING | LIST},
    {"join", "iterable!", method_join, STRING},
    {"format", "*", method_format, STRING},
    {"isalpha", "", method_isalpha, STRING},
    {"isdigit", "", method_isdigit, STRING},
    {"isdecimal", "", method_isdigit, STRING},
    {"isnumeric", "", method_isdigit, STRING},
    {"isalnum", "", method_isalnum, STRING},
    {"isspace", "", method_isspace, STRING},
    {"islower", "", method_islower, STRING},
    {"isupper", "", method_isupper, STRING},
    {"ljust", "width!,fillchar", method_ljust, STRING},
    {"rjust", "width!,fillchar", method_rjust, STRING},
    {"center", "width!,fillchar", method_center, STRING},
    {"zfill", "width!", method_zfill, STRING},
    {"items", "", method_items, DICT},
    {"keys", "", method_keys, DICT},
    {"values", "", method_values, DICT},
    {"get", "key!,default", method_get, DICT},
    {"copy", "", method_copy, LIST | DICT},
};

const struct callable *tmpl_find_method(enum value_kind kind, const char *name)
{
    for (size_t i = 0; i < sizeof METHODS / sizeof *METHODS; i++)
        if ((METHODS[i].kinds >> kind & 1) && strcmp(METHODS[i].name, name) == 0)
            return &METHODS[i];
    return NULL;
}
