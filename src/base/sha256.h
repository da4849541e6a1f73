/* SHA-256 through OpenSSL's libcrypto. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include "base/err.h"

#define SHA256_BYTES     32
#define SHA256_HEX_BYTES 65 /* with the NUL */

struct sha256 {
    void *ctx; /* EVP_MD_CTX */
};

sluice_status sha256_open(struct sha256 *h, sluice_error *err);
void sha256_update(struct sha256 *h, const void *bytes, size_t n);
void sha256_update_u64(struct sha256 *h, uint64_t value); /* little-endian, for length prefixes */
/* Ends and releases; `hex` is lower case. Also after a failed open, when it writes nothing. */
void sha256_close(struct sha256 *h, char hex[SHA256_HEX_BYTES]);
/* The same with the digest itself, which is all zeros after a failed open. */
void sha256_end(struct sha256 *h, unsigned char digest[SHA256_BYTES]);
/* One call for a buffer. */
sluice_status sha256_hex(const void *bytes, size_t n, char hex[SHA256_HEX_BYTES], sluice_error *err);
/* True for 64 lower-case hexadecimal digits and nothing else. */
bool sha256_is_hex(const char *text);

#endif
