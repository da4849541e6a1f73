#include "base/str.h"

#include "base/check.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

void str_free(struct str *s)
{
    mem_free(s->p);
    memset(s, 0, sizeof *s);
}

void str_clear(struct str *s)
{
    s->len = 0;
    if (s->p)
        s->p[0] = '\0';
}

bool str_reserve(struct str *s, size_t extra)
{
    size_t need;
    if (!size_add(s->len, extra, &need) || !size_add(need, 1, &need))
        return false;
    void *p = s->p;
    if (!mem_grow(&p, &s->cap, need, 1))
        return false;
    s->p = p;
    s->p[s->len] = '\0';
    return true;
}

bool str_append(struct str *s, const char *bytes, size_t n)
{
    if (!str_reserve(s, n))
        return false;
    if (n)
        memcpy(s->p + s->len, bytes, n);
    s->len += n;
    s->p[s->len] = '\0';
    return true;
}

bool str_puts(struct str *s, const char *text)
{
    return str_append(s, text, strlen(text));
}

bool str_putc(struct str *s, char c)
{
    return str_append(s, &c, 1);
}

bool str_vprintf(struct str *s, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    bool ok = n >= 0 && str_reserve(s, (size_t)n);
    if (ok) {
        (void)vsnprintf(s->p + s->len, (size_t)n + 1, format, again);
        s->len += (size_t)n;
    }
    va_end(again);
    return ok;
}

bool str_printf(struct str *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bool ok = str_vprintf(s, format, args);
    va_end(args);
    return ok;
}

char *str_take(struct str *s)
{
    if (!s->p && !str_reserve(s, 0))
        return NULL;
    char *p = s->p;
    memset(s, 0, sizeof *s);
    return p;
}
