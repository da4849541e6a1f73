#include "base/sha256.h"

#include "base/ascii.h"
#include "base/fault.h"

#include <openssl/evp.h>
#include <string.h>

sluice_status sha256_open(struct sha256 *h, sluice_error *err)
{
    h->ctx = fault_hit(FAULT_ALLOC) ? NULL : EVP_MD_CTX_new();
    if (!h->ctx)
        return err_memory(err, 0, "a SHA-256 state");
    if (EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(h->ctx);
        h->ctx = NULL;
        return err_set(err, SLUICE_E_UNSUPPORTED, "libcrypto offers no SHA-256");
    }
    return SLUICE_OK;
}

void sha256_update(struct sha256 *h, const void *bytes, size_t n)
{
    (void)EVP_DigestUpdate(h->ctx, bytes, n);
}

void sha256_update_u64(struct sha256 *h, uint64_t value)
{
    unsigned char le[8];
    for (int i = 0; i < 8; i++)
        le[i] = (unsigned char)(value >> (8 * i));
    sha256_update(h, le, sizeof le);
}

void sha256_end(struct sha256 *h, unsigned char digest[SHA256_BYTES])
{
    memset(digest, 0, SHA256_BYTES);
    if (!h->ctx)
        return;
    (void)EVP_DigestFinal_ex(h->ctx, digest, NULL);
    EVP_MD_CTX_free(h->ctx);
    h->ctx = NULL;
}

void sha256_close(struct sha256 *h, char hex[SHA256_HEX_BYTES])
{
    unsigned char digest[SHA256_BYTES];
    if (!h->ctx)
        return;
    sha256_end(h, digest);
    ascii_put_hex(digest, sizeof digest, hex);
}

sluice_status sha256_hex(const void *bytes, size_t n, char hex[SHA256_HEX_BYTES], sluice_error *err)
{
    struct sha256 h;
    TRY(sha256_open(&h, err));
    sha256_update(&h, bytes, n);
    sha256_close(&h, hex);
    return SLUICE_OK;
}

bool sha256_is_hex(const char *text)
{
    return strspn(text, "0123456789abcdef") == 64 && text[64] == '\0';
}
