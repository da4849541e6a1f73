/* UTF-8 as RFC 3629 has it: no surrogates, no overlong forms, nothing above U+10FFFF. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT       0xFFFDu
#define UTF8_REPLACEMENT_BYTES "\xEF\xBF\xBD"

/* Decode one code point from n >= 1 bytes. Returns the bytes consumed; on an invalid sequence *cp is
 * UTF8_REPLACEMENT and the maximal valid prefix (at least 1 byte) is consumed, as the Unicode standard
 * recommends. *valid (may be NULL) tells the two apart. */
size_t utf8_decode(const char *p, size_t n, uint32_t *cp, int *valid);

/* Encode; returns 1..4. cp must be a scalar value. */
size_t utf8_encode(uint32_t cp, char out[4]);

/* Length of the longest prefix that does not end inside a sequence which further bytes could complete. The
 * rest (0..3 bytes) is worth waiting for. */
size_t utf8_complete_prefix(const char *p, size_t n);

/* Length of the longest valid prefix. */
size_t utf8_valid_prefix(const char *p, size_t n);

#endif
