/* Poly1305 (RFC 8439) through OpenSSL's libcrypto: a 16-byte tag of a message under a key that is used for
 * one message only. It runs about nine times as fast as SHA-256 and finds every accidental change: with a key
 * that the change does not depend on, it misses one in 2^80 or fewer for messages below 64 MiB. It is no
 * protection against who knows the key. */
#ifndef BASE_POLY1305_H
#define BASE_POLY1305_H

#include "base/err.h"

#define POLY1305_KEY_BYTES 32
#define POLY1305_HEX_BYTES 33 /* of a tag, with the NUL */

struct poly1305 {
    void *ctx; /* EVP_MAC_CTX */
};

sluice_status poly1305_open(struct poly1305 *p, const unsigned char key[POLY1305_KEY_BYTES],
                            sluice_error *err);
void poly1305_update(struct poly1305 *p, const void *bytes, size_t n);
/* Ends and releases; `hex` is lower case. Also after a failed open, when it writes nothing. */
void poly1305_close(struct poly1305 *p, char hex[POLY1305_HEX_BYTES]);
/* True for 32 lower-case hexadecimal digits and nothing else. */
bool poly1305_is_hex(const char *text);

#endif
