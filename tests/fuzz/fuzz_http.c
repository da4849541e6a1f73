/* Header lines of a server, and the judgement of them: the first byte chooses what was asked for. */
#include "io/http_response.h"
#include "require.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    struct http_response r = {0};
    struct http_file file = {.name = "f", .url = "", .known = data[0] & 1, .bytes = 1u + data[1] * 8u};
    bool probe = !file.known;
    uint64_t offset = probe ? 0 : data[2], bytes = 1u + data[3];
    if (file.known)
        memcpy(file.tag, "tag", 4);
    for (size_t at = 4; at < size;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t n = end ? (size_t)(end - data) + 1 - at : size - at;
        http_response_line(&r, (const char *)data + at, n);
        at += n;
    }
    sluice_error err = {0};
    enum http_verdict verdict =
        http_response_judge(&r, &file, "host", probe, offset, bytes,
                            data[0] & 2 ? "0123456789abcdef0123456789abcdef01234567" : "", &err);
    if (verdict != HTTP_ACCEPT && !err.detail[0])
        __builtin_trap();
    /* What http.c relies on: an accepted body is the range that was asked for, or a beginning of it. */
    if (verdict == HTTP_ACCEPT && r.status != 416 &&
        (r.first != offset || r.last - r.first >= bytes || (!probe && r.last - r.first + 1 != bytes)))
        __builtin_trap();
    if (verdict == HTTP_ACCEPT && (strlen(r.tag) >= sizeof r.tag || strlen(r.commit) > 40))
        __builtin_trap();
    return 0;
}
