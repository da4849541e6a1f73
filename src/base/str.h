/* A growable byte string. Zero it to start: struct str s = {0}. `p` is NUL-terminated whenever it is not
 * NULL; the content may hold NULs. A failed append leaves the string as it was and returns false. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct str {
    char *p;
    size_t len, cap;
};

void str_free(struct str *s);
void str_clear(struct str *s); /* keeps the memory */
bool str_reserve(struct str *s, size_t extra);
bool str_append(struct str *s, const char *bytes, size_t n);
bool str_puts(struct str *s, const char *text);
bool str_putc(struct str *s, char c);
bool str_printf(struct str *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool str_vprintf(struct str *s, const char *format, va_list args);
/* Hand the buffer over (never NULL unless out of memory) and start anew. */
char *str_take(struct str *s);

#endif
