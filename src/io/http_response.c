#include "io/http_response.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- header lines ---- */

static bool read_u64(const char **text, uint64_t *value)
{
    const char *p = *text;
    uint64_t v = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        unsigned digit = (unsigned)(*p - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = 10 * v + digit;
    }
    if (p == *text)
        return false;
    *text = p;
    *value = v;
    return true;
}

/* "bytes 0-99/1234", or, of a range that cannot be had, "bytes * /1234" without the space. */
static void take_range(struct http_response *r, const char *value)
{
    const char *p = value;
    r->has_range = r->unsatisfied = false;
    if (strncasecmp(p, "bytes ", 6) != 0)
        return;
    p += 6;
    if (strncmp(p, "*/", 2) == 0) {
        p += 2;
        r->unsatisfied = read_u64(&p, &r->total) && *p == '\0';
        return;
    }
    bool ok = read_u64(&p, &r->first) && *p++ == '-' && read_u64(&p, &r->last) && *p++ == '/' &&
              read_u64(&p, &r->total) && *p == '\0';
    r->has_range = ok && r->first <= r->last && r->last < r->total;
}

/* The tag without its quotes; a weak one loses its mark, since bytes are compared anyway. */
static void take_tag(char tag[HTTP_TAG_BYTES], const char *value)
{
    if (strncmp(value, "W/", 2) == 0)
        value += 2;
    size_t n = strlen(value);
    if (n >= 2 && value[0] == '"' && value[n - 1] == '"') {
        value++;
        n -= 2;
    }
    (void)snprintf(tag, HTTP_TAG_BYTES, "%.*s", n < HTTP_TAG_BYTES ? (int)n : HTTP_TAG_BYTES - 1, value);
}

static void take_field(struct http_response *r, const char *name, const char *value)
{
    if (strcasecmp(name, "content-range") == 0)
        take_range(r, value);
    else if (strcasecmp(name, "content-length") == 0)
        r->has_length = read_u64(&value, &r->length) && *value == '\0';
    else if (strcasecmp(name, "content-encoding") == 0)
        (void)snprintf(r->encoding, sizeof r->encoding, "%s", value);
    else if (strcasecmp(name, "etag") == 0)
        take_tag(r->tag, value);
    else if (strcasecmp(name, "x-linked-etag") == 0)
        take_tag(r->linked_tag, value);
    else if (strcasecmp(name, "x-repo-commit") == 0)
        (void)snprintf(r->commit, sizeof r->commit, "%s", value);
}

static void start_step(struct http_response *r, const char *line)
{
    /* What the hub says about a file stands beside its redirect; the rest belongs to one step. */
    struct http_response next = {0};
    if (r->status >= 300 && r->status < 400) {
        memcpy(next.linked_tag, r->linked_tag, sizeof next.linked_tag);
        memcpy(next.commit, r->commit, sizeof next.commit);
    }
    const char *space = strchr(line, ' ');
    uint64_t status = 0;
    if (space) {
        const char *p = space + 1;
        if (read_u64(&p, &status) && status < 1000)
            next.status = (int)status;
    }
    *r = next;
}

void http_response_line(struct http_response *r, const char *bytes, size_t n)
{
    char line[1024]; /* what is longer is none of the fields that matter */
    while (n > 0 &&
           (bytes[n - 1] == '\r' || bytes[n - 1] == '\n' || bytes[n - 1] == ' ' || bytes[n - 1] == '\t'))
        n--;
    if (n == 0 || n >= sizeof line || memchr(bytes, '\0', n))
        return;
    memcpy(line, bytes, n);
    line[n] = '\0';
    if (strncmp(line, "HTTP/", 5) == 0) {
        start_step(r, line);
        return;
    }
    char *colon = strchr(line, ':');
    if (!colon)
        return;
    *colon++ = '\0';
    take_field(r, line, colon + strspn(colon, " \t"));
}

/* ---- judging ---- */

static bool is_retryable(int status)
{
    static const int STATUSES[] = {408, 425, 429, 500, 502, 503, 504};
    for (size_t i = 0; i < sizeof STATUSES / sizeof *STATUSES; i++)
        if (status == STATUSES[i])
            return true;
    return false;
}

#define REFUSE(...) ((void)err_set(err, __VA_ARGS__), HTTP_REFUSE)

static enum http_verdict judge_status(const struct http_response *r, const struct http_file *file,
                                      const char *host, sluice_error *err)
{
    if (is_retryable(r->status)) {
        (void)err_set(err, SLUICE_E_IO, "%s answers %d for %s", host, r->status, file->name);
        return HTTP_RETRY;
    }
    switch (r->status) {
    case 200:
        return REFUSE(SLUICE_E_UNSUPPORTED,
                      "%s ignores byte ranges: it answered with the whole of %s; use a server "
                      "that supports ranges, or a local snapshot",
                      host, file->name);
    case 401:
    case 403:
        return REFUSE(SLUICE_E_IO,
                      "%s refuses access to %s (%d): the repository does not exist, or is private "
                      "or gated; accept its terms there and set HF_TOKEN",
                      host, file->name, r->status);
    case 404:
    case 410:
        return REFUSE(SLUICE_E_IO, "%s has no %s (%d)", host, file->name, r->status);
    case 416:
        return REFUSE(SLUICE_E_CORRUPT,
                      "%s says that %s ends before the bytes that were asked for; it changed "
                      "while it was read: start again",
                      host, file->name);
    default:
        return REFUSE(SLUICE_E_IO, "%s answers %d for %s", host, r->status, file->name);
    }
}

static bool commit_is_good(const char *commit)
{
    return strlen(commit) == HTTP_COMMIT_BYTES - 1 &&
           strspn(commit, "0123456789abcdef") == HTTP_COMMIT_BYTES - 1;
}

/* Two tags that are both there differ. */
static bool differs(const char *known, const char *now)
{
    return known[0] && now[0] && strcmp(known, now) != 0;
}

static enum http_verdict judge_identity(const struct http_response *r, const struct http_file *file,
                                        const char *host, const char *commit, sluice_error *err)
{
    if (r->commit[0] && !commit_is_good(r->commit))
        return REFUSE(SLUICE_E_FORMAT, "%s names the revision of %s as \"%.48s\", which is no commit id",
                      host, file->name, r->commit);
    if (differs(commit, r->commit))
        return REFUSE(SLUICE_E_CORRUPT,
                      "%s now serves %s from revision %.12s, not %.12s; the repository moved: "
                      "start again with --discard, or name the revision",
                      host, file->name, r->commit, commit);
    if (file->known && (differs(file->tag, r->tag) || differs(file->linked_tag, r->linked_tag)))
        return REFUSE(SLUICE_E_CORRUPT,
                      "%s changed on %s while it was read (another entity tag); start again "
                      "with --discard",
                      file->name, host);
    return HTTP_ACCEPT;
}

enum http_verdict http_response_judge(const struct http_response *r, const struct http_file *file,
                                      const char *host, bool probe, uint64_t offset, uint64_t bytes,
                                      const char *commit, sluice_error *err)
{
    bool empty = probe && r->status == 416 && r->unsatisfied && r->total == 0;
    if (r->status != 206 && !empty)
        return judge_status(r, file, host, err);
    if (r->encoding[0] && strcasecmp(r->encoding, "identity") != 0)
        return REFUSE(SLUICE_E_UNSUPPORTED,
                      "%s sends %s compressed (%s) though it was asked not to; use another server", host,
                      file->name, r->encoding);
    enum http_verdict identity = judge_identity(r, file, host, commit, err);
    if (identity != HTTP_ACCEPT || empty)
        return identity;
    uint64_t last = offset + bytes - 1;
    bool asked = r->has_range && r->first == offset &&
                 (probe ? r->last == (r->total - 1 < last ? r->total - 1 : last)
                        : r->last == last && r->total == file->bytes);
    if (!asked)
        return REFUSE(SLUICE_E_FORMAT,
                      "%s answered with another byte range of %s than the %llu bytes at %llu that "
                      "were asked for; use another server",
                      host, file->name, (unsigned long long)bytes, (unsigned long long)offset);
    if (r->has_length && r->length != r->last - r->first + 1)
        return REFUSE(
            SLUICE_E_FORMAT, "%s announces %llu bytes for a range of %llu of %s; use another server", host,
            (unsigned long long)r->length, (unsigned long long)(r->last - r->first + 1), file->name);
    return HTTP_ACCEPT;
}
