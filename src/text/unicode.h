/* Code-point classes and normal forms, defined as the Rust standard library and its regex crate define them,
 * because that is what Hugging Face tokenizers uses. No state; thread-safe. Text must be valid UTF-8. */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include "base/str.h"

#include <stdint.h>

bool uni_is_space(uint32_t cp);   /* the property White_Space */
bool uni_is_numeric(uint32_t cp); /* general categories Nd, Nl, No */
bool uni_is_word(uint32_t cp);    /* Alphabetic, M, Nd, Pc, Join_Control */
bool uni_is_punct(uint32_t cp);   /* ASCII punctuation and general category P */

/* Bytes of white space at the start / at the end of a text. */
size_t uni_space_prefix(const char *p, size_t n);
size_t uni_space_suffix(const char *p, size_t n);

/* The last code point of a text of n >= 1 bytes. */
uint32_t uni_last(const char *p, size_t n);

/* Lower case without context; at most two code points. Returns how many. */
size_t uni_lower(uint32_t cp, uint32_t out[2]);

enum uni_form { UNI_NFC, UNI_NFD, UNI_NFKC, UNI_NFKD };

/* Append the normal form of p[0..n) to out. Linear but for the sort of a run of combining marks (n log n).
 * False: no memory; out may then hold a part. */
bool uni_normalize(enum uni_form form, const char *p, size_t n, struct str *out);

#endif
