#include "base/poly1305.h"

#include "base/ascii.h"
#include "base/fault.h"

#include <openssl/evp.h>
#include <string.h>

enum { TAG_BYTES = 16 };

static EVP_MAC_CTX *new_context(void)
{
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "POLY1305", NULL);
    EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac);
    EVP_MAC_free(mac); /* the context holds it */
    return ctx;
}

sluice_status poly1305_open(struct poly1305 *p, const unsigned char key[POLY1305_KEY_BYTES],
                            sluice_error *err)
{
    EVP_MAC_CTX *ctx = fault_hit(FAULT_ALLOC) ? NULL : new_context();
    p->ctx = ctx;
    if (!ctx)
        return err_memory(err, 0, "a Poly1305 state");
    if (EVP_MAC_init(ctx, key, POLY1305_KEY_BYTES, NULL) != 1) {
        EVP_MAC_CTX_free(ctx);
        p->ctx = NULL;
        return err_set(err, SLUICE_E_UNSUPPORTED, "libcrypto offers no Poly1305");
    }
    return SLUICE_OK;
}

void poly1305_update(struct poly1305 *p, const void *bytes, size_t n)
{
    (void)EVP_MAC_update(p->ctx, bytes, n);
}

void poly1305_close(struct poly1305 *p, char hex[POLY1305_HEX_BYTES])
{
    if (!p->ctx)
        return;
    unsigned char tag[TAG_BYTES] = {0};
    size_t n;
    (void)EVP_MAC_final(p->ctx, tag, &n, sizeof tag);
    EVP_MAC_CTX_free(p->ctx);
    p->ctx = NULL;
    ascii_put_hex(tag, sizeof tag, hex);
}

bool poly1305_is_hex(const char *text)
{
    return strspn(text, "0123456789abcdef") == POLY1305_HEX_BYTES - 1 && text[POLY1305_HEX_BYTES - 1] == '\0';
}
