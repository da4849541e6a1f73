/* A hub's repository as a source: BASE/OWNER/NAME/resolve/REVISION/FILE, byte ranges of it. */
#include "base/ascii.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/http.h"
#include "store/paths.h"
#include "store/source.h"

#include <stdio.h>
#include <string.h>

enum { FILES_MAX = 8192 };

struct hub_file {
    struct http_file http;
    char *name, *url;
};

struct hub_source {
    struct source source;
    struct http_client *client;
    char *base, *repo, *revision;
    struct hub_file **files; /* each its own block: the client keeps pointers */
    size_t n_files, files_cap;
};

/* ---- names ---- */

static bool is_name_part(const char *text, size_t n)
{
    bool ok = n > 0 && n <= 96 && text[0] != '.' && text[0] != '-';
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        ok = ok && (ascii_is_alnum(c) || c == '-' || c == '_' || c == '.');
    }
    return ok;
}

static sluice_status check_repo(const char *repo, sluice_error *err)
{
    const char *slash = repo ? strchr(repo, '/') : NULL;
    if (!slash || !is_name_part(repo, (size_t)(slash - repo)) || !is_name_part(slash + 1, strlen(slash + 1)))
        return err_set(err, SLUICE_E_ARGUMENT, "\"%.120s\" is no repository; give OWNER/NAME",
                       repo ? repo : "");
    return SLUICE_OK;
}

static sluice_status check_base(const char *base, sluice_error *err)
{
    bool secure = strncmp(base, "https://", 8) == 0, plain = strncmp(base, "http://", 7) == 0;
    const char *host = base + (secure ? 8 : 7);
    if ((!secure && !plain) || !*host || *host == '/' || strpbrk(base, "?#@ \t\r\n\\"))
        return err_set(err, SLUICE_E_ARGUMENT,
                       "\"%.120s\" is no base address; give https://HOST, or http://HOST for a mirror", base);
    return SLUICE_OK;
}

/* Everything but letters, digits and "-._~" escaped; `keep` is kept too. */
static bool put_escaped(struct str *s, const char *text, char keep)
{
    bool ok = true;
    for (const char *p = text; *p && ok; p++) {
        bool plain = ascii_is_alnum(*p) || strchr("-._~", *p) || *p == keep;
        ok = plain ? str_putc(s, *p) : str_printf(s, "%%%02X", (unsigned char)*p);
    }
    return ok;
}

static char *file_url(const struct hub_source *h, const char *file)
{
    struct str s = {0};
    bool ok = str_printf(&s, "%s/%s/resolve/", h->base, h->repo) && put_escaped(&s, h->revision, '\0') &&
              str_putc(&s, '/') && put_escaped(&s, file, '/');
    if (ok)
        return str_take(&s);
    str_free(&s);
    return NULL;
}

/* A token must not cross a network in the clear. */
static bool may_carry_token(const char *base)
{
    static const char *const LOCAL[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};
    if (strncmp(base, "https://", 8) == 0)
        return true;
    for (size_t i = 0; i < sizeof LOCAL / sizeof *LOCAL; i++) {
        size_t n = strlen(LOCAL[i]);
        if (strncmp(base, LOCAL[i], n) == 0 && (base[n] == '\0' || base[n] == ':' || base[n] == '/'))
            return true;
    }
    return false;
}

/* ---- files ---- */

static void drop_file(struct hub_file *f)
{
    http_file_release(&f->http);
    mem_free(f->name);
    mem_free(f->url);
    mem_free(f);
}

static sluice_status add_file(struct hub_source *h, const char *file, struct hub_file **out,
                              sluice_error *err)
{
    void *items = h->files;
    if (h->n_files >= FILES_MAX)
        return err_set(err, SLUICE_E_FORMAT, "%s has more than %d files", h->repo, FILES_MAX);
    if (!mem_grow(&items, &h->files_cap, h->n_files + 1, sizeof *h->files))
        return err_memory(err, h->n_files * sizeof *h->files, "the file list");
    h->files = items;
    struct hub_file *f = mem_calloc(1, sizeof *f);
    if (f) {
        f->name = mem_strdup(file);
        f->url = file_url(h, file);
    }
    if (!f || !f->name || !f->url) {
        if (f)
            drop_file(f);
        return err_memory(err, sizeof *f, "a file's address");
    }
    f->http.name = f->name;
    f->http.url = f->url;
    h->files[h->n_files++] = f;
    *out = f;
    return SLUICE_OK;
}

/* The file, known: present or absent. */
static sluice_status find(struct source *source, const char *file, struct hub_file **out, sluice_error *err)
{
    struct hub_source *h = source->state;
    *out = NULL;
    if (!path_stays_inside(file))
        return err_set(err, SLUICE_E_FORMAT,
                       "the file name \"%.120s\" leaves the repository; only names inside it are read", file);
    for (size_t i = 0; i < h->n_files && !*out; i++)
        if (strcmp(h->files[i]->name, file) == 0)
            *out = h->files[i];
    if (!*out)
        TRY(add_file(h, file, out, err));
    return http_probe(h->client, &(*out)->http, err);
}

static sluice_status find_present(struct source *source, const char *file, struct http_file **out,
                                  sluice_error *err)
{
    struct hub_source *h = source->state;
    struct hub_file *f;
    *out = NULL;
    TRY(find(source, file, &f, err));
    if (f->http.absent)
        return err_set(err, SLUICE_E_IO, "%s at revision %s has no %s", h->repo, h->revision, file);
    *out = &f->http;
    return SLUICE_OK;
}

/* ---- the interface ---- */

static sluice_status hub_size(struct source *source, const char *file, uint64_t *bytes, sluice_error *err)
{
    struct http_file *f;
    TRY(find_present(source, file, &f, err));
    *bytes = f->bytes;
    return SLUICE_OK;
}

static sluice_status hub_exists(struct source *source, const char *file, bool *there, sluice_error *err)
{
    struct hub_file *f;
    *there = false;
    if (!path_stays_inside(file))
        return SLUICE_OK;
    TRY(find(source, file, &f, err));
    *there = !f->http.absent;
    return SLUICE_OK;
}

static sluice_status hub_read(struct source *source, const char *file, uint64_t offset, void *buffer,
                              size_t n, sluice_error *err)
{
    struct hub_source *h = source->state;
    struct http_file *f;
    TRY(find_present(source, file, &f, err));
    return http_read(h->client, f, offset, buffer, n, err);
}

static sluice_status hub_identity(struct source *source, const char *file, char text[SOURCE_IDENTITY_BYTES],
                                  sluice_error *err)
{
    struct http_file *f;
    TRY(find_present(source, file, &f, err));
    /* The hub's own tag stays the same wherever its redirects lead. */
    const char *tag = f->linked_tag[0] ? f->linked_tag : f->tag;
    (void)snprintf(text, SOURCE_IDENTITY_BYTES, "%llu bytes, %.100s", (unsigned long long)f->bytes, tag);
    return SLUICE_OK;
}

/* Of large files the hub's tag is the SHA-256; others have tags of other forms. */
static sluice_status hub_digest(struct source *source, const char *file, char hex[SHA256_HEX_BYTES],
                                sluice_error *err)
{
    struct http_file *f;
    TRY(find_present(source, file, &f, err));
    hex[0] = '\0';
    if (sha256_is_hex(f->linked_tag))
        memcpy(hex, f->linked_tag, SHA256_HEX_BYTES);
    return SLUICE_OK;
}

static sluice_status hub_announce(struct source *source, const char *file, uint64_t offset, uint64_t bytes,
                                  sluice_error *err)
{
    struct hub_source *h = source->state;
    struct http_file *f;
    TRY(find_present(source, file, &f, err));
    if (offset + bytes <= f->head_bytes)
        return SLUICE_OK; /* read from memory */
    return http_announce(h->client, f, offset, bytes, err);
}

static void hub_close(struct source *source)
{
    struct hub_source *h = source->state;
    http_close(h->client);
    for (size_t i = 0; i < h->n_files; i++)
        drop_file(h->files[i]);
    mem_free(h->files);
    mem_free(h->base);
    mem_free(h->repo);
    mem_free(h->revision);
    mem_free(h);
}

/* ---- open ---- */

static bool is_commit(const char *revision)
{
    return strlen(revision) == HTTP_COMMIT_BYTES - 1 &&
           strspn(revision, "0123456789abcdef") == HTTP_COMMIT_BYTES - 1;
}

/* Which commit the revision is; from then on every address names the commit, so that a branch that moves
 * during the install cannot mix two revisions. */
static sluice_status resolve(struct hub_source *h, sluice_error *err)
{
    if (is_commit(h->revision))
        http_expect_commit(h->client, h->revision);
    struct hub_file *f;
    TRY(find(&h->source, "config.json", &f, err));
    if (f->http.absent)
        return err_set(err, SLUICE_E_IO,
                       "%s has no config.json at revision %s; it is not a model in Hugging Face's layout, or "
                       "the name or the revision is wrong",
                       h->repo, h->revision);
    const char *commit = http_commit(h->client);
    if (commit[0] && strcmp(commit, h->revision) != 0) {
        char *resolved = mem_strdup(commit);
        if (!resolved)
            return err_memory(err, strlen(commit), "a revision");
        mem_free(h->revision);
        h->revision = resolved;
        drop_file(h->files[--h->n_files]); /* its address names the branch */
    }
    h->source.revision = h->revision;
    return SLUICE_OK;
}

static sluice_status open_client(struct hub_source *h, const struct hub_options *o, sluice_error *err)
{
    struct http_options limits = *o->limits;
    if (!may_carry_token(h->base))
        limits.token = NULL;
    TRY(http_open(&h->client, &limits, err));
    return resolve(h, err);
}

sluice_status source_open_hub(struct source **source, const struct hub_options *o, sluice_error *err)
{
    const char *base = o->base_url ? o->base_url : HUB_DEFAULT_URL;
    const char *revision = o->revision ? o->revision : "main";
    *source = NULL;
    TRY(check_repo(o->repo, err));
    TRY(check_base(base, err));
    if (!path_stays_inside(revision))
        return err_set(err, SLUICE_E_ARGUMENT, "\"%.120s\" is no revision; give a commit, a tag or a branch",
                       revision);
    struct hub_source *h = mem_calloc(1, sizeof *h);
    if (!h)
        return err_memory(err, sizeof *h, "a source");
    size_t length = strlen(base);
    while (base[length - 1] == '/')
        length--;
    h->base = mem_strndup(base, length);
    h->repo = mem_strdup(o->repo);
    h->revision = mem_strdup(revision);
    h->source = (struct source){.state = h,
                                .name = h->repo,
                                .size = hub_size,
                                .exists = hub_exists,
                                .read = hub_read,
                                .identity = hub_identity,
                                .digest = hub_digest,
                                .announce = hub_announce,
                                .close = hub_close};
    sluice_status status =
        h->base && h->repo && h->revision ? open_client(h, o, err) : err_memory(err, length, "a source");
    if (status != SLUICE_OK) {
        hub_close(&h->source);
        return status;
    }
    *source = &h->source;
    return SLUICE_OK;
}
