/* The window of announced bytes: spans are cut into pieces, a piece lives in one slot of a ring, its request
 * runs on the client's thread. The reader takes bytes from the oldest slot as they arrive and frees it when
 * its transfer has ended well, so a piece that ends badly after its last byte is still noticed. */
#include "io/http.h"

#include "base/clock.h"
#include "base/mem.h"
#include "io/http_response.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS_SPARE = 2, STALL_BYTES_PER_S = 1024, PROGRESS_BYTES = 64 << 10, HOST_BYTES = 128 };
#define NS_PER_MS UINT64_C(1000000)

struct span {
    struct http_file *file;
    uint64_t offset, bytes;
};

struct slot {
    struct http_client *client;
    /* set with the lock held, before the transfer starts */
    struct http_file *file;
    uint64_t offset;
    bool probe;
    unsigned char *buffer;
    /* under the lock */
    size_t bytes, received, taken;
    bool done, failed;
    sluice_error error;
    /* of the client's thread alone */
    CURL *easy;
    struct curl_slist *fields;
    char *target; /* the address of this attempt */
    bool direct;  /* it is file->direct */
    bool running, judged;
    enum http_verdict verdict;
    unsigned attempts;
    size_t mark; /* received when the attempt began */
    uint64_t not_before_ns, checked_ns;
    size_t checked; /* received at checked_ns */
    struct http_response response;
    sluice_error why; /* of this attempt */
    char curl_error[CURL_ERROR_SIZE];
};

struct http_client {
    struct http_options o;
    char *authorization; /* a header line, or NULL */
    char *ca_file;
    bool ca_is_dir;
    pthread_t thread;
    bool started;
    CURLM *multi;
    unsigned char *buffers;
    size_t buffers_bytes, piece_bytes;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* all below under the lock */
    bool stop, forget;
    char commit[HTTP_COMMIT_BYTES];
    struct span *spans;
    size_t n_spans, spans_cap;
    size_t cut;       /* span that the next piece comes from */
    uint64_t cut_at;  /* offset of that piece */
    size_t reading;   /* span that the reader is in */
    uint64_t read_at; /* offset of its next byte */
    struct slot *slots;
    size_t n_slots, first, used; /* ring */
    uint64_t jitter;
};

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_status;

static void curl_start(void)
{
    curl_status = curl_global_init(CURL_GLOBAL_DEFAULT);
}

void http_file_release(struct http_file *file)
{
    mem_free(file->head);
    mem_free(file->direct);
    file->head = NULL;
    file->direct = NULL;
    file->known = false;
}

/* "scheme://host:port" of an address. False for one that cannot be parsed. */
static bool host_of(const char *url, char host[HOST_BYTES])
{
    CURLU *u = curl_url();
    char *scheme = NULL, *name = NULL, *port = NULL;
    bool ok = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_HOST, &name, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK;
    if (ok) {
        int n = snprintf(host, HOST_BYTES, "%s://%s:%s", scheme, name, port);
        ok = n > 0 && n < HOST_BYTES;
    }
    curl_free(scheme);
    curl_free(name);
    curl_free(port);
    curl_url_cleanup(u);
    return ok;
}

static const char *host_text(const struct slot *s, char host[HOST_BYTES])
{
    char *at = NULL;
    if (curl_easy_getinfo(s->easy, CURLINFO_EFFECTIVE_URL, &at) != CURLE_OK || !at || !host_of(at, host))
        (void)snprintf(host, HOST_BYTES, "the server");
    return host;
}

/* ---- callbacks of a transfer ---- */

static size_t on_header(char *line, size_t size, size_t n, void *user)
{
    struct slot *s = user;
    (void)size; /* 1 */
    http_response_line(&s->response, line, n);
    return n;
}

/* Judge once the headers of the last step are there. */
static void judge(struct slot *s)
{
    struct http_client *c = s->client;
    char host[HOST_BYTES];
    if (s->judged)
        return;
    s->judged = true;
    pthread_mutex_lock(&c->lock);
    uint64_t offset = s->offset + s->received, bytes = s->bytes - s->received;
    s->verdict = http_response_judge(&s->response, s->file, host_text(s, host), s->probe, offset, bytes,
                                     c->commit, &s->why);
    if (s->verdict == HTTP_ACCEPT) {
        if (s->response.commit[0])
            memcpy(c->commit, s->response.commit, sizeof c->commit); /* judged: 40 digits and a NUL */
        if (s->probe)
            s->bytes = s->response.status == 416 ? 0 : (size_t)(s->response.last + 1);
    }
    pthread_mutex_unlock(&c->lock);
}

static size_t on_body(char *bytes, size_t size, size_t n, void *user)
{
    struct slot *s = user;
    struct http_client *c = s->client;
    char host[HOST_BYTES];
    (void)size; /* 1 */
    judge(s);
    if (s->verdict != HTTP_ACCEPT)
        return 0;
    size_t have = s->received; /* only this thread changes it */
    if (n > s->bytes - have) {
        s->verdict = HTTP_REFUSE;
        (void)err_set(&s->why, SLUICE_E_FORMAT,
                      "%s sends more of %s than the %zu bytes that were asked for; use another server",
                      host_text(s, host), s->file->name, s->bytes);
        return 0;
    }
    memcpy(s->buffer + have, bytes, n); /* nobody reads past `received` */
    pthread_mutex_lock(&c->lock);
    s->received = have + n;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return n;
}

/* ---- one attempt ---- */

static void end_attempt(struct slot *s)
{
    if (s->running)
        (void)curl_multi_remove_handle(s->client->multi, s->easy);
    curl_easy_cleanup(s->easy);
    curl_slist_free_all(s->fields);
    mem_free(s->target);
    s->easy = NULL;
    s->fields = NULL;
    s->target = NULL;
    s->running = false;
}

static bool add_field(struct slot *s, const char *line)
{
    struct curl_slist *more = curl_slist_append(s->fields, line);
    if (more)
        s->fields = more;
    return more != NULL;
}

static bool set_up(struct slot *s)
{
    struct http_client *c = s->client;
    CURL *e = s->easy;
    char range[64];
    bool secure = strncmp(s->target, "https:", 6) == 0;
    uint64_t from = s->offset + s->received;
    (void)snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)from,
                   (unsigned long long)(s->offset + s->bytes - 1));
    bool ok = add_field(s, "Accept-Encoding: identity");
    /* libcurl drops this line itself where a redirect leaves the host. */
    if (ok && c->authorization && !s->direct)
        ok = add_field(s, c->authorization);
#define SET(option, value) ok = ok && curl_easy_setopt(e, option, value) == CURLE_OK
    SET(CURLOPT_URL, s->target);
    SET(CURLOPT_RANGE, range);
    SET(CURLOPT_HTTPHEADER, s->fields);
    SET(CURLOPT_USERAGENT, "sluice/" SLUICE_VERSION);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 1L);
    SET(CURLOPT_MAXREDIRS, (long)HTTP_REDIRECTS_MAX);
    /* An address given as http is the user's own choice; from https nothing leads back to it. */
    SET(CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)c->o.connect_ms);
    SET(CURLOPT_TIMEOUT_MS, (long)c->o.whole_ms);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_BUFFERSIZE, 256L << 10);
    SET(CURLOPT_ERRORBUFFER, s->curl_error);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, s);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, s);
    SET(CURLOPT_PRIVATE, s);
    if (c->ca_file)
        SET(c->ca_is_dir ? CURLOPT_CAPATH : CURLOPT_CAINFO, c->ca_file);
    if (c->ca_file && c->ca_is_dir) /* the system's file would be trusted beside it */
        SET(CURLOPT_CAINFO, NULL);
#undef SET
    return ok;
}

static void fail_slot(struct slot *s, const sluice_error *why)
{
    struct http_client *c = s->client;
    pthread_mutex_lock(&c->lock);
    s->error = *why;
    s->failed = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void start_attempt(struct slot *s)
{
    struct http_client *c = s->client;
    s->judged = false;
    s->verdict = HTTP_ACCEPT;
    s->response = (struct http_response){0};
    s->why = (sluice_error){0};
    s->curl_error[0] = '\0';
    s->mark = s->checked = s->received;
    s->checked_ns = clock_ns();
    s->direct = s->file->direct != NULL;
    s->target = mem_strdup(s->direct ? s->file->direct : s->file->url);
    s->easy = s->target ? curl_easy_init() : NULL;
    if (!s->easy || !set_up(s) || curl_multi_add_handle(c->multi, s->easy) != CURLM_OK) {
        end_attempt(s);
        (void)err_memory(&s->why, 0, "an HTTP request");
        fail_slot(s, &s->why);
        return;
    }
    s->running = true;
}

/* ---- the end of an attempt ---- */

static bool is_passing(CURLcode code)
{
    static const CURLcode CODES[] = {
        CURLE_COULDNT_RESOLVE_PROXY, CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT,
        CURLE_OPERATION_TIMEDOUT,    CURLE_RECV_ERROR,           CURLE_SEND_ERROR,
        CURLE_PARTIAL_FILE,          CURLE_GOT_NOTHING,          CURLE_HTTP2,
        CURLE_HTTP2_STREAM,          CURLE_SSL_CONNECT_ERROR,    CURLE_WEIRD_SERVER_REPLY,
    };
    for (size_t i = 0; i < sizeof CODES / sizeof *CODES; i++)
        if (code == CODES[i])
            return true;
    return false;
}

/* A redirect that was remembered may have expired; the file's own address gives a new one. */
static bool drop_direct(struct slot *s)
{
    int status = s->response.status;
    if (!s->direct || status < 400 || status >= 500)
        return false;
    mem_free(s->file->direct);
    s->file->direct = NULL;
    return true;
}

/* Remember where redirects ended, so that the next pieces go there at once. */
static void keep_direct(struct slot *s)
{
    char *at = NULL, from[HOST_BYTES], to[HOST_BYTES];
    if (s->direct || s->file->direct || curl_easy_getinfo(s->easy, CURLINFO_EFFECTIVE_URL, &at) != CURLE_OK ||
        !at || strcmp(at, s->target) == 0 || !host_of(s->target, from) || !host_of(at, to) ||
        strcmp(from, to) == 0)
        return;
    s->file->direct = mem_strdup(at); /* without it every piece is redirected anew */
}

static void keep_identity(struct slot *s)
{
    struct http_file *f = s->file;
    const struct http_response *r = &s->response;
    if (!f->tag[0])
        memcpy(f->tag, r->tag, sizeof f->tag);
    if (!f->linked_tag[0])
        memcpy(f->linked_tag, r->linked_tag, sizeof f->linked_tag);
    if (s->probe) {
        f->bytes = r->total;
        f->known = true;
    }
}

static void succeed(struct slot *s)
{
    struct http_client *c = s->client;
    keep_direct(s);
    pthread_mutex_lock(&c->lock);
    keep_identity(s);
    s->done = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* When to try again, or fail for good. `wait_s`: what the server asked for. */
static void try_again(struct slot *s, uint64_t wait_s)
{
    struct http_client *c = s->client;
    if (s->received - s->mark >= PROGRESS_BYTES)
        s->attempts = 0;
    if (++s->attempts >= c->o.attempts) {
        sluice_error why = s->why;
        fail_slot(s, &why);
        return;
    }
    unsigned doubled = s->attempts - 1 < 4 ? s->attempts - 1 : 4;
    uint64_t pause_ms = (uint64_t)c->o.backoff_ms << doubled;
    c->jitter = c->jitter * 6364136223846793005u + 1442695040888963407u;
    pause_ms += (c->jitter >> 33) % (c->o.backoff_ms / 4 + 1);
    if (wait_s * 1000 > pause_ms)
        pause_ms = wait_s * 1000;
    if (pause_ms > c->o.retry_after_max_ms && wait_s > 0) {
        char host[HOST_BYTES];
        (void)err_set(&s->why, SLUICE_E_IO,
                      "%s asks to wait %llu s before %s is read again, the most is %u s; try again later",
                      host_of(s->file->url, host) ? host : "the server", (unsigned long long)wait_s,
                      s->file->name, c->o.retry_after_max_ms / 1000);
        fail_slot(s, &s->why);
        return;
    }
    s->not_before_ns = clock_ns() + pause_ms * NS_PER_MS;
}

static void tell_curl_error(struct slot *s, CURLcode code)
{
    char host[HOST_BYTES];
    const char *text = s->curl_error[0] ? s->curl_error : curl_easy_strerror(code);
    if (code == CURLE_TOO_MANY_REDIRECTS)
        (void)err_set(&s->why, SLUICE_E_IO, "%s redirects %s more than %d times",
                      host_of(s->file->url, host) ? host : "the server", s->file->name, HTTP_REDIRECTS_MAX);
    else if (code == CURLE_UNSUPPORTED_PROTOCOL && s->response.status / 100 == 3)
        (void)err_set(&s->why, SLUICE_E_IO,
                      "%s redirects %s to an address that is not https, which is refused",
                      host_of(s->file->url, host) ? host : "the server", s->file->name);
    else if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
        (void)err_set(&s->why, SLUICE_E_IO,
                      "%s cannot be trusted (%.200s); when it is a mirror of yours, name the certificates to "
                      "trust in SSL_CERT_FILE",
                      host_text(s, host), text);
    else
        (void)err_set(&s->why, SLUICE_E_IO, "reading %s from %s: %.200s", s->file->name, host_text(s, host),
                      text);
}

static void finish(struct slot *s, CURLcode code)
{
    curl_off_t wait_s = 0;
    if (code == CURLE_OK || code == CURLE_WRITE_ERROR)
        judge(s);
    bool refused = s->judged && s->verdict != HTTP_ACCEPT;
    if (refused && s->probe && (s->response.status == 404 || s->response.status == 410)) {
        s->file->absent = s->file->known = true;
        end_attempt(s);
        fail_slot(s, &s->why);
        return;
    }
    /* A connection that broke after the last byte took nothing away. */
    if (s->judged && !refused && s->received == s->bytes && (code == CURLE_OK || is_passing(code))) {
        succeed(s);
        end_attempt(s);
        return;
    }
    if (!refused) /* a response without a length may end well with less than its range */
        tell_curl_error(s, code == CURLE_OK ? CURLE_PARTIAL_FILE : code);
    if (curl_easy_getinfo(s->easy, CURLINFO_RETRY_AFTER, &wait_s) != CURLE_OK || wait_s < 0)
        wait_s = 0;
    bool again = refused ? s->verdict == HTTP_RETRY || drop_direct(s) : code == CURLE_OK || is_passing(code);
    end_attempt(s);
    if (again)
        try_again(s, (uint64_t)wait_s);
    else
        fail_slot(s, &s->why);
}

static void check_stall(struct slot *s, uint64_t now)
{
    struct http_client *c = s->client;
    uint64_t window = (uint64_t)c->o.stall_ms * NS_PER_MS;
    if (now - s->checked_ns < window)
        return;
    uint64_t least = (uint64_t)c->o.stall_ms * STALL_BYTES_PER_S / 1000;
    if (s->received - s->checked >= (least ? least : 1)) {
        s->checked = s->received;
        s->checked_ns = now;
        return;
    }
    char host[HOST_BYTES];
    (void)err_set(&s->why, SLUICE_E_IO, "%s stalled: less than %d bytes/s of %s in %u s", host_text(s, host),
                  STALL_BYTES_PER_S, s->file->name, c->o.stall_ms / 1000);
    end_attempt(s);
    try_again(s, 0);
}

/* ---- the thread ---- */

static struct slot *slot_at(struct http_client *c, size_t i)
{
    return &c->slots[(c->first + i) % c->n_slots];
}

/* Give announced bytes to free slots. With the lock held. */
static void fill_slots(struct http_client *c)
{
    while (c->used < c->n_slots && c->cut < c->n_spans) {
        const struct span *span = &c->spans[c->cut];
        uint64_t rest = span->offset + span->bytes - c->cut_at;
        size_t n = rest < c->piece_bytes ? (size_t)rest : c->piece_bytes;
        struct slot *s = slot_at(c, c->used++);
        *s = (struct slot){
            .client = c, .buffer = s->buffer, .file = span->file, .offset = c->cut_at, .bytes = n};
        s->probe = !span->file->known;
        c->cut_at += n;
        if (n == rest && ++c->cut < c->n_spans)
            c->cut_at = c->spans[c->cut].offset;
    }
}

static void forget_all(struct http_client *c)
{
    for (size_t i = 0; i < c->used; i++)
        end_attempt(slot_at(c, i));
    c->used = c->first = 0;
    c->n_spans = c->cut = c->reading = 0;
    c->forget = false;
    pthread_cond_broadcast(&c->changed);
}

/* Start what may start; returns the longest time, in ms, until something else may. With the lock held on
 * entry and exit; the reader may free slots at the front meanwhile, so the ring is looked at anew each time.
 */
static int start_ready(struct http_client *c)
{
    uint64_t now = clock_ns(), soonest = now + 100 * NS_PER_MS;
    size_t running = 0;
    for (size_t i = 0; i < c->used; i++)
        running += slot_at(c, i)->running;
    for (size_t i = 0; i < c->used && running < c->o.connections; i++) {
        struct slot *s = slot_at(c, i);
        if (s->running || s->done || s->failed)
            continue;
        if (s->not_before_ns > now) {
            soonest = s->not_before_ns < soonest ? s->not_before_ns : soonest;
            continue;
        }
        pthread_mutex_unlock(&c->lock);
        start_attempt(s);
        pthread_mutex_lock(&c->lock);
        running += s->running;
    }
    return (int)((soonest - now) / NS_PER_MS) + 1;
}

static void collect(struct http_client *c)
{
    int more;
    for (CURLMsg *m; (m = curl_multi_info_read(c->multi, &more));) {
        char *user = NULL;
        if (m->msg != CURLMSG_DONE || curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &user) != CURLE_OK)
            continue;
        finish((struct slot *)(void *)user, m->data.result);
    }
}

static void *run(void *user)
{
    struct http_client *c = user;
    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        int running;
        if (c->forget)
            forget_all(c);
        fill_slots(c);
        int wait_ms = start_ready(c);
        pthread_mutex_unlock(&c->lock);
        (void)curl_multi_perform(c->multi, &running);
        collect(c);
        uint64_t now = clock_ns();
        for (size_t i = 0; i < c->n_slots; i++)
            if (c->slots[i].running)
                check_stall(&c->slots[i], now);
        (void)curl_multi_poll(c->multi, NULL, 0, wait_ms, NULL);
        pthread_mutex_lock(&c->lock);
    }
    forget_all(c);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- open and close ---- */

static void or_default(uint32_t *value, uint32_t standard)
{
    if (*value == 0)
        *value = standard;
}

static void fill_options(struct http_options *o)
{
    or_default(&o->connections, 4);
    or_default(&o->connect_ms, 30000);
    or_default(&o->stall_ms, 60000);
    or_default(&o->whole_ms, 15 * 60000);
    or_default(&o->attempts, 5);
    or_default(&o->backoff_ms, 1000);
    or_default(&o->retry_after_max_ms, 3600000);
    if (o->connections > HTTP_CONNECTIONS_MAX)
        o->connections = HTTP_CONNECTIONS_MAX;
    or_default(&o->head_bytes, HTTP_HEAD_BYTES);
    if (o->buffer_bytes == 0)
        o->buffer_bytes = 24u << 20;
}

/* Told here, by name, rather than by a failing handshake. */
static sluice_status take_certificates(struct http_client *c, sluice_error *err)
{
    struct stat info;
    const char *path = c->o.ca_file;
    c->o.ca_file = NULL;
    if (stat(path, &info) != 0 || access(path, R_OK) != 0)
        return err_errno(err, errno, "cannot read the certificates %.200s that the environment names", path);
    c->ca_is_dir = S_ISDIR(info.st_mode);
    c->ca_file = mem_strdup(path);
    return c->ca_file ? SLUICE_OK : err_memory(err, 0, "a path");
}

static sluice_status allocate(struct http_client *c, sluice_error *err)
{
    c->n_slots = c->o.connections + SLOTS_SPARE;
    size_t piece = (size_t)c->o.buffer_bytes / c->n_slots / c->o.head_bytes * c->o.head_bytes;
    c->piece_bytes = piece < c->o.head_bytes ? c->o.head_bytes : piece;
    c->buffers_bytes = c->piece_bytes * c->n_slots;
    void *map = mmap(NULL, c->buffers_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    c->buffers = map == MAP_FAILED ? NULL : map;
    c->slots = mem_calloc(c->n_slots, sizeof *c->slots);
    if (!c->buffers || !c->slots)
        return err_memory(err, c->buffers_bytes, "the HTTP buffers");
    for (size_t i = 0; i < c->n_slots; i++)
        c->slots[i].buffer = c->buffers + i * c->piece_bytes;
    if (c->o.ca_file)
        TRY(take_certificates(c, err));
    if (c->o.token) {
        static const char PREFIX[] = "Authorization: Bearer ";
        size_t room = sizeof PREFIX + strlen(c->o.token);
        c->authorization = mem_alloc(room);
        if (!c->authorization)
            return err_memory(err, room, "a request");
        (void)snprintf(c->authorization, room, "%s%s", PREFIX, c->o.token);
        c->o.token = NULL;
    }
    c->multi = curl_multi_init();
    if (!c->multi ||
        curl_multi_setopt(c->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)c->o.connections) != CURLM_OK)
        return err_memory(err, 0, "the HTTP client");
    return SLUICE_OK;
}

sluice_status http_open(struct http_client **out, const struct http_options *options, sluice_error *err)
{
    *out = NULL;
    (void)pthread_once(&curl_once, curl_start);
    if (curl_status != CURLE_OK)
        return err_set(err, SLUICE_E_IO, "libcurl does not start: %s", curl_easy_strerror(curl_status));
    struct http_client *c = mem_calloc(1, sizeof *c);
    if (!c)
        return err_memory(err, sizeof *c, "the HTTP client");
    c->o = *options;
    fill_options(&c->o);
    c->jitter = clock_ns();
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    sluice_status status = allocate(c, err);
    if (status == SLUICE_OK) {
        int rc = pthread_create(&c->thread, NULL, run, c);
        c->started = rc == 0;
        if (rc != 0)
            status = err_errno(err, rc, "cannot start the HTTP thread");
    }
    if (status != SLUICE_OK) {
        http_close(c);
        return status;
    }
    *out = c;
    return SLUICE_OK;
}

void http_close(struct http_client *c)
{
    if (!c)
        return;
    if (c->started) {
        pthread_mutex_lock(&c->lock);
        c->stop = true;
        pthread_mutex_unlock(&c->lock);
        (void)curl_multi_wakeup(c->multi);
        (void)pthread_join(c->thread, NULL);
    }
    if (c->multi)
        (void)curl_multi_cleanup(c->multi);
    if (c->buffers)
        (void)munmap(c->buffers, c->buffers_bytes);
    (void)pthread_cond_destroy(&c->changed);
    (void)pthread_mutex_destroy(&c->lock);
    mem_free(c->authorization);
    mem_free(c->ca_file);
    mem_free(c->slots);
    mem_free(c->spans);
    mem_free(c);
}

const char *http_commit(const struct http_client *client)
{
    return client->commit;
}

void http_expect_commit(struct http_client *c, const char *commit)
{
    pthread_mutex_lock(&c->lock);
    (void)snprintf(c->commit, sizeof c->commit, "%s", commit);
    pthread_mutex_unlock(&c->lock);
}

/* ---- reading ---- */

static bool is_cancelled(const struct http_client *c)
{
    return c->o.cancel && *c->o.cancel;
}

/* Wait for a change, a tenth of a second at most: a cancel comes without one. With the lock held. */
static void await_change(struct http_client *c)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 100 * (long)NS_PER_MS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    (void)pthread_cond_timedwait(&c->changed, &c->lock, &until);
}

/* With the lock held. */
static void forget_and_wait(struct http_client *c)
{
    if (c->n_spans == 0 && c->used == 0)
        return;
    c->forget = true;
    (void)curl_multi_wakeup(c->multi);
    while (c->forget)
        await_change(c);
    (void)madvise(c->buffers, c->buffers_bytes, MADV_DONTNEED);
}

void http_forget(struct http_client *c)
{
    pthread_mutex_lock(&c->lock);
    forget_and_wait(c);
    pthread_mutex_unlock(&c->lock);
}

/* With the lock held. */
static sluice_status announce(struct http_client *c, struct http_file *file, uint64_t offset, uint64_t bytes,
                              sluice_error *err)
{
    if (bytes == 0)
        return SLUICE_OK;
    void *items = c->spans;
    if (!mem_grow(&items, &c->spans_cap, c->n_spans + 1, sizeof *c->spans))
        return err_memory(err, c->n_spans * sizeof *c->spans, "the list of ranges");
    c->spans = items;
    c->spans[c->n_spans] = (struct span){file, offset, bytes};
    if (c->cut == c->n_spans)
        c->cut_at = offset;
    if (c->reading == c->n_spans)
        c->read_at = offset;
    c->n_spans++;
    (void)curl_multi_wakeup(c->multi);
    return SLUICE_OK;
}

sluice_status http_announce(struct http_client *c, struct http_file *file, uint64_t offset, uint64_t bytes,
                            sluice_error *err)
{
    pthread_mutex_lock(&c->lock);
    sluice_status status = announce(c, file, offset, bytes, err);
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* Whether the next bytes of the window reach `offset` of the file and hold n from there. A span that was read
 * to its end, or whose rest nobody wants, is left behind first. */
static bool in_window(const struct http_client *c, const struct http_file *file, uint64_t offset, size_t n)
{
    if (c->reading >= c->n_spans)
        return false;
    const struct span *span = &c->spans[c->reading];
    uint64_t end = span->offset + span->bytes;
    return span->file == file && offset >= c->read_at && offset < end && n <= end - offset;
}

static void leave_finished_span(struct http_client *c)
{
    const struct span *span = &c->spans[c->reading];
    if (c->read_at == span->offset + span->bytes && ++c->reading < c->n_spans)
        c->read_at = c->spans[c->reading].offset;
}

/* Take up to n bytes of the oldest slot, waiting for them; buffer NULL drops them. With the lock held. */
static sluice_status take_some(struct http_client *c, unsigned char *buffer, uint64_t n, size_t *took,
                               sluice_error *err)
{
    for (;;) {
        struct slot *s = &c->slots[c->first];
        if (is_cancelled(c))
            return err_set(err, SLUICE_E_CANCELLED, "cancelled while waiting for the server");
        if (c->used > 0 && s->failed && s->taken == s->received) {
            if (err)
                *err = s->error;
            return s->error.status;
        }
        size_t ready = c->used > 0 ? s->received - s->taken : 0;
        /* The last byte stays until the transfer has ended: more than asked for may still follow. */
        if (ready > 0 && s->received == s->bytes && !s->done)
            ready--;
        if (ready > 0) {
            *took = ready < n ? ready : (size_t)n;
            size_t at = s->taken;
            pthread_mutex_unlock(&c->lock);
            if (buffer)
                memcpy(buffer, s->buffer + at, *took);
            pthread_mutex_lock(&c->lock);
            s->taken += *took;
            c->read_at += *took;
            if (s->taken == s->bytes) {
                c->first = (c->first + 1) % c->n_slots;
                c->used--;
                (void)curl_multi_wakeup(c->multi);
            }
            return SLUICE_OK;
        }
        await_change(c);
    }
}

static sluice_status read_window(struct http_client *c, struct http_file *file, uint64_t offset,
                                 unsigned char *buffer, size_t n, sluice_error *err)
{
    if (c->forget || !in_window(c, file, offset, n)) {
        forget_and_wait(c);
        TRY(announce(c, file, offset, n, err));
    }
    size_t took = 0;
    while (c->read_at < offset)
        TRY(take_some(c, NULL, offset - c->read_at, &took, err));
    while (n > 0) {
        TRY(take_some(c, buffer, n, &took, err));
        buffer += took;
        n -= took;
    }
    leave_finished_span(c);
    return SLUICE_OK;
}

sluice_status http_read(struct http_client *c, struct http_file *file, uint64_t offset, void *buffer,
                        size_t n, sluice_error *err)
{
    if (n == 0)
        return SLUICE_OK;
    if (!file->known || file->absent || offset > file->bytes || n > file->bytes - offset)
        return err_set(err, SLUICE_E_FORMAT, "%s ends early: %zu bytes at %llu were wanted, it has %llu",
                       file->name, n, (unsigned long long)offset, (unsigned long long)file->bytes);
    if (offset + n <= file->head_bytes) {
        memcpy(buffer, file->head + offset, n);
        return SLUICE_OK;
    }
    pthread_mutex_lock(&c->lock);
    sluice_status status = read_window(c, file, offset, buffer, n, err);
    pthread_mutex_unlock(&c->lock);
    return status;
}

static sluice_status await_probe(struct http_client *c, struct http_file *file, sluice_error *err)
{
    for (;;) {
        struct slot *s = &c->slots[c->first];
        if (is_cancelled(c))
            return err_set(err, SLUICE_E_CANCELLED, "cancelled while waiting for the server");
        if (c->used > 0 && s->failed) {
            if (!file->absent && err)
                *err = s->error;
            return file->absent ? SLUICE_OK : s->error.status;
        }
        if (c->used > 0 && s->done) {
            file->head = mem_alloc(s->bytes);
            if (!file->head) {
                file->known = false;
                return err_memory(err, s->bytes, file->name);
            }
            memcpy(file->head, s->buffer, s->bytes);
            file->head_bytes = s->bytes;
            return SLUICE_OK;
        }
        await_change(c);
    }
}

sluice_status http_probe(struct http_client *c, struct http_file *file, sluice_error *err)
{
    if (file->known)
        return SLUICE_OK;
    pthread_mutex_lock(&c->lock);
    forget_and_wait(c);
    sluice_status status = announce(c, file, 0, c->o.head_bytes, err);
    if (status == SLUICE_OK)
        status = await_probe(c, file, err);
    forget_and_wait(c);
    pthread_mutex_unlock(&c->lock);
    return status;
}
