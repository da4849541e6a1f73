/* A model hub on loopback that misbehaves on demand. It serves DIR/FILE as /OWNER/NAME/resolve/REVISION/FILE,
 * keeps connections open, and answers ranges. A fault strikes requests [from, from + count) counted over all
 * connections, redirected ones included.
 *
 * One thread accepts, one serves each connection; httpd_stop() ends them all. */
#ifndef UNIT_SUPPORT_HTTPD_H
#define UNIT_SUPPORT_HTTPD_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum httpd_fault {
    HTTPD_GOOD,
    HTTPD_WHOLE,     /* 200 with the whole file */
    HTTPD_OTHER,     /* 206 with another range than asked for */
    HTTPD_SHORT,     /* closes after half of the body */
    HTTPD_SHORT_END, /* announces no length, sends half, ends well */
    HTTPD_LONG,      /* announces no length, sends more */
    HTTPD_LENGTH,    /* announces another length than the range has */
    HTTPD_STALL,     /* headers, then nothing */
    HTTPD_DRIP,      /* a byte at a time */
    HTTPD_RESET,     /* the connection is reset in the middle of the body */
    HTTPD_CLOSE,     /* closes without an answer */
    HTTPD_GARBAGE,   /* what is not HTTP */
    HTTPD_429,       /* with Retry-After: 0 */
    HTTPD_503,       /* with Retry-After: 1 */
    HTTPD_WAIT,      /* 429 that asks for a day */
    HTTPD_500,
    HTTPD_403,
    HTTPD_404,
    HTTPD_416,
    HTTPD_TAG,    /* another entity tag */
    HTTPD_COMMIT, /* another revision */
    HTTPD_NAMELESS /* a revision that is no commit */,
    HTTPD_GZIP,    /* Content-Encoding: gzip */
    HTTPD_CORRUPT, /* one bit of the body is wrong */
    HTTPD_LOOP,    /* redirects to itself */
    HTTPD_FAULTS
};

struct httpd {
    const char *dir, *commit; /* commit NULL: none is named */
    struct httpd *next_host;  /* redirect everything there; NULL: serve */
    bool digests;             /* X-Linked-ETag: SHA-256 of the file, from DIR/FILE.sha256 */
    const char *token;        /* requests must carry it; NULL: they must carry none */
    _Atomic int fault;
    _Atomic unsigned from, count;
    _Atomic unsigned requests, struck, refused, peak, active;
    _Atomic uint64_t body_bytes, largest;
    _Atomic int pause_us; /* before each body */
    /* Answers behind a file's beginning wait until so many requests have been served at once; 0: none waits
     */
    _Atomic unsigned together;
    _Atomic bool ready; /* of httpd_fork() */
    uint16_t port;
    int listener;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    int sockets[64]; /* under the lock: open connections */
    unsigned n_threads;
    bool stopping;
};

struct httpd_connection {
    struct httpd *server;
    int fd;
};

static inline bool httpd_send(int fd, const void *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t put = send(fd, (const char *)bytes + done, n - done, MSG_NOSIGNAL);
        if (put <= 0)
            return false;
        done += (size_t)put;
    }
    return true;
}

static inline void httpd_sleep_ms(long ms)
{
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&pause, NULL);
}

/* Wait until the other side has gone or the server stops. */
static inline void httpd_hang(struct httpd *s, int fd)
{
    char byte;
    (void)s;
    while (recv(fd, &byte, 1, 0) > 0)
        continue;
}

static inline void httpd_reset(int fd)
{
    struct linger hard = {1, 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
}

static inline unsigned char *httpd_file(const char *dir, const char *name, size_t *n)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        (void)close(fd);
        return NULL;
    }
    unsigned char *bytes = malloc((size_t)st.st_size + 1);
    *n = 0;
    while (bytes && *n < (size_t)st.st_size) {
        ssize_t got = read(fd, bytes + *n, (size_t)st.st_size - *n);
        if (got <= 0)
            break;
        *n += (size_t)got;
    }
    (void)close(fd);
    if (bytes)
        bytes[*n] = '\0';
    return bytes;
}

struct httpd_request {
    char path[512], file[256];
    bool has_range, authorized;
    size_t first, last;
};

/* False when the connection ended. */
static inline bool httpd_receive(const struct httpd *s, int fd, struct httpd_request *r)
{
    char text[8192];
    size_t n = 0;
    while (n + 1 < sizeof text) {
        ssize_t got = recv(fd, text + n, sizeof text - 1 - n, 0);
        if (got <= 0)
            return false;
        n += (size_t)got;
        text[n] = '\0';
        if (strstr(text, "\r\n\r\n"))
            break;
    }
    *r = (struct httpd_request){0};
    if (sscanf(text, "GET %511s HTTP/1.1", r->path) != 1)
        return false;
    const char *range = strstr(text, "Range: bytes="), *token = strstr(text, "Authorization: Bearer ");
    char *end = NULL;
    r->first = range ? strtoul(range + 13, &end, 10) : 0;
    r->has_range = end && *end == '-';
    r->last = r->has_range ? strtoul(end + 1, NULL, 10) : 0;
    r->authorized = s->token ? token && strncmp(token + 22, s->token, strlen(s->token)) == 0 : !token;
    const char *at = strstr(r->path, "/resolve/");
    at = at ? strchr(at + 9, '/') : NULL;
    (void)snprintf(r->file, sizeof r->file, "%.255s", at ? at + 1 : "");
    return true;
}

/* The headers that all good answers share. */
static inline size_t httpd_common(struct httpd *s, const struct httpd_request *r, int fault, char *out,
                                  size_t room)
{
    size_t n = 0;
    const char *commit = s->commit;
    if (fault == HTTPD_COMMIT)
        commit = "ffffffffffffffffffffffffffffffffffffffff";
    if (fault == HTTPD_NAMELESS)
        commit = "main";
    if (commit)
        n += (size_t)snprintf(out + n, room - n, "X-Repo-Commit: %s\r\n", commit);
    n += (size_t)snprintf(out + n, room - n, "ETag: \"%s-%s\"\r\n", fault == HTTPD_TAG ? "changed" : "tag",
                          r->file);
    if (s->digests) {
        char name[300];
        size_t bytes;
        (void)snprintf(name, sizeof name, "%s.sha256", r->file);
        unsigned char *hex = httpd_file(s->dir, name, &bytes);
        if (hex && bytes >= 64)
            n += (size_t)snprintf(out + n, room - n, "X-Linked-ETag: \"%.64s\"\r\n", (const char *)hex);
        free(hex);
    }
    return n;
}

static inline bool httpd_plain(int fd, const char *status, const char *fields)
{
    char out[1024];
    int n = snprintf(out, sizeof out, "HTTP/1.1 %s\r\n%sContent-Length: 0\r\n\r\n", status, fields);
    return httpd_send(fd, out, (size_t)n);
}

static inline bool httpd_chunks(int fd, const unsigned char *bytes, size_t n)
{
    char line[32];
    int k = snprintf(line, sizeof line, "%zx\r\n", n);
    return httpd_send(fd, line, (size_t)k) && httpd_send(fd, bytes, n) && httpd_send(fd, "\r\n0\r\n\r\n", 7);
}

/* A 206 and its body, as the fault wants it. False ends the connection. */
static inline bool httpd_range(struct httpd *s, int fd, const struct httpd_request *r, int fault,
                               unsigned char *bytes, size_t total)
{
    char out[2048], common[512];
    size_t last = r->last < total ? r->last : total - 1, n = last - r->first + 1, shown = r->first;
    unsigned char *body = bytes + r->first;
    common[httpd_common(s, r, fault, common, sizeof common)] = '\0';
    if (fault == HTTPD_WHOLE) {
        int k = snprintf(out, sizeof out, "HTTP/1.1 200 OK\r\n%sContent-Length: %zu\r\n\r\n", common, total);
        return httpd_send(fd, out, (size_t)k) && httpd_send(fd, bytes, total);
    }
    if (fault == HTTPD_OTHER)
        shown++, last++, total++;
    bool chunked = fault == HTTPD_SHORT_END || fault == HTTPD_LONG;
    int k =
        snprintf(out, sizeof out, "HTTP/1.1 206 Partial Content\r\n%sContent-Range: bytes %zu-%zu/%zu\r\n%s",
                 common, shown, last, total, fault == HTTPD_GZIP ? "Content-Encoding: gzip\r\n" : "");
    k += chunked ? snprintf(out + k, sizeof out - (size_t)k, "Transfer-Encoding: chunked\r\n\r\n")
                 : snprintf(out + k, sizeof out - (size_t)k, "Content-Length: %zu\r\n\r\n",
                            fault == HTTPD_LENGTH ? n + 7 : n);
    if (!httpd_send(fd, out, (size_t)k))
        return false;
    if (n > atomic_load(&s->largest))
        atomic_store(&s->largest, n);
    atomic_fetch_add(&s->body_bytes, n);
    switch (fault) {
    case HTTPD_SHORT:
        (void)httpd_send(fd, body, n / 2);
        return false;
    case HTTPD_RESET:
        (void)httpd_send(fd, body, n / 2);
        httpd_reset(fd);
        return false;
    case HTTPD_SHORT_END:
        return httpd_chunks(fd, body, n / 2 + 1 < n ? n / 2 + 1 : n);
    case HTTPD_LONG: {
        unsigned char *more = calloc(1, n + 9);
        bool ok = more != NULL;
        if (ok)
            memcpy(more, body, n);
        ok = ok && httpd_chunks(fd, more, n + 9);
        free(more);
        return ok;
    }
    case HTTPD_STALL:
        httpd_hang(s, fd);
        return false;
    case HTTPD_DRIP:
        for (size_t i = 0; i < n; i++) {
            if (!httpd_send(fd, body + i, 1))
                return false;
            httpd_sleep_ms(2);
        }
        return true;
    case HTTPD_CORRUPT:
        body[n / 2] ^= 4;
        return httpd_send(fd, body, n);
    default:
        return httpd_send(fd, body, n);
    }
}

static inline bool httpd_redirect(struct httpd *s, int fd, const struct httpd_request *r, uint16_t port,
                                  bool loop)
{
    char fields[1200], common[512];
    common[httpd_common(s, r, HTTPD_GOOD, common, sizeof common)] = '\0';
    /* Another name for loopback is another host. */
    (void)snprintf(fields, sizeof fields, "%sLocation: http://%s:%u%s\r\n", common,
                   loop ? "127.0.0.1" : "localhost", port, r->path);
    return httpd_plain(fd, "302 Found", fields);
}

static inline bool httpd_answer(struct httpd *s, int fd, const struct httpd_request *r, int fault)
{
    static const struct {
        int fault;
        const char *status, *fields;
    } PLAIN[] = {
        {HTTPD_429, "429 Too Many Requests", "Retry-After: 0\r\n"},
        {HTTPD_503, "503 Service Unavailable", "Retry-After: 1\r\n"},
        {HTTPD_WAIT, "429 Too Many Requests", "Retry-After: 86400\r\n"},
        {HTTPD_500, "500 Internal Server Error", ""},
        {HTTPD_403, "403 Forbidden", ""},
        {HTTPD_404, "404 Not Found", ""},
        {HTTPD_416, "416 Range Not Satisfiable", "Content-Range: bytes */3\r\n"},
    };
    for (size_t i = 0; i < sizeof PLAIN / sizeof *PLAIN; i++)
        if (PLAIN[i].fault == fault)
            return httpd_plain(fd, PLAIN[i].status, PLAIN[i].fields);
    if (fault == HTTPD_CLOSE)
        return false;
    if (fault == HTTPD_GARBAGE)
        return httpd_send(fd, "SSH-2.0-nonsense\r\n\r\n", 20) && false;
    if (fault == HTTPD_LOOP)
        return httpd_redirect(s, fd, r, s->port, true);
    if (!r->authorized) {
        atomic_fetch_add(&s->refused, 1);
        return httpd_plain(fd, "401 Unauthorized", "");
    }
    if (s->next_host)
        return httpd_redirect(s, fd, r, s->next_host->port, false);
    size_t total = 0;
    unsigned char *bytes = httpd_file(s->dir, r->file, &total);
    bool more;
    if (!bytes)
        more = httpd_plain(fd, "404 Not Found", "");
    else if (!r->has_range)
        more = httpd_plain(fd, "400 Bad Request", "");
    else if (r->first >= total) {
        char fields[64];
        (void)snprintf(fields, sizeof fields, "Content-Range: bytes */%zu\r\n", total);
        more = httpd_plain(fd, "416 Range Not Satisfiable", fields);
    } else
        more = httpd_range(s, fd, r, fault, bytes, total);
    free(bytes);
    return more;
}

/* What befalls this request: the strike's fault, where it is among the first `count` that can suffer it from
 * number `from` on. */
static inline int httpd_next_fault(struct httpd *s, const struct httpd_request *r)
{
    pthread_mutex_lock(&s->lock);
    const unsigned number = atomic_fetch_add(&s->requests, 1) + 1;
    int fault = atomic_load(&s->fault);
    const bool due = number >= atomic_load(&s->from) && atomic_load(&s->struck) < atomic_load(&s->count);
    /* The beginning of a file may be that of one without a digest. */
    if (!due || (fault == HTTPD_CORRUPT && r->first == 0))
        fault = HTTPD_GOOD;
    else
        atomic_fetch_add(&s->struck, 1);
    pthread_mutex_unlock(&s->lock);
    return fault;
}

static inline void *httpd_serve(void *user)
{
    struct httpd_connection *c = user;
    struct httpd *s = c->server;
    struct httpd_request r;
    while (httpd_receive(s, c->fd, &r)) {
        const int fault = httpd_next_fault(s, &r);
        unsigned active = atomic_fetch_add(&s->active, 1) + 1;
        if (active > atomic_load(&s->peak))
            atomic_store(&s->peak, active);
        for (int i = 0; r.first > 0 && i < 1000 && atomic_load(&s->peak) < atomic_load(&s->together); i++)
            httpd_sleep_ms(1);
        if (atomic_load(&s->pause_us) > 0)
            (void)usleep((useconds_t)atomic_load(&s->pause_us));
        bool more = httpd_answer(s, c->fd, &r, fault);
        atomic_fetch_sub(&s->active, 1);
        if (!more)
            break;
    }
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < sizeof s->sockets / sizeof *s->sockets; i++)
        if (s->sockets[i] == c->fd)
            s->sockets[i] = -1;
    (void)close(c->fd);
    s->n_threads--;
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
    free(c);
    return NULL;
}

static inline bool httpd_admit(struct httpd *s, int fd)
{
    bool admitted = false;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; !s->stopping && !admitted && i < sizeof s->sockets / sizeof *s->sockets; i++)
        if (s->sockets[i] < 0) {
            struct httpd_connection *c = malloc(sizeof *c);
            pthread_t thread;
            if (!c)
                break;
            *c = (struct httpd_connection){s, fd};
            s->sockets[i] = fd;
            admitted = pthread_create(&thread, NULL, httpd_serve, c) == 0;
            if (admitted) {
                (void)pthread_detach(thread);
                s->n_threads++;
            } else {
                s->sockets[i] = -1;
                free(c);
                break;
            }
        }
    pthread_mutex_unlock(&s->lock);
    return admitted;
}

static inline void *httpd_accept(void *user)
{
    struct httpd *s = user;
    for (int fd; (fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
        int one = 1;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (!httpd_admit(s, fd))
            (void)close(fd);
    }
    return NULL;
}

/* Set the members that configure it first. Aborts where no loopback socket is to be had. */
static inline void httpd_start(struct httpd *s)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof at;
    for (size_t i = 0; i < sizeof s->sockets / sizeof *s->sockets; i++)
        s->sockets[i] = -1;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->idle, NULL);
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->listener < 0 || bind(s->listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(s->listener, 64) != 0 || getsockname(s->listener, (struct sockaddr *)&at, &length) != 0 ||
        pthread_create(&s->thread, NULL, httpd_accept, s) != 0)
        abort();
    s->port = ntohs(at.sin_port);
}

static inline void httpd_stop(struct httpd *s)
{
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    (void)shutdown(s->listener, SHUT_RDWR);
    for (size_t i = 0; i < sizeof s->sockets / sizeof *s->sockets; i++)
        if (s->sockets[i] >= 0)
            (void)shutdown(s->sockets[i], SHUT_RDWR);
    while (s->n_threads > 0)
        (void)pthread_cond_wait(&s->idle, &s->lock);
    pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
    (void)close(s->listener);
    (void)pthread_cond_destroy(&s->idle);
    (void)pthread_mutex_destroy(&s->lock);
}

/* The same in a process of its own, for tests that fork: `s` lies in shared memory. End it with httpd_kill().
 */
static inline pid_t httpd_fork(struct httpd *s)
{
    pid_t child = fork();
    if (child == 0) {
        httpd_start(s);
        atomic_store(&s->ready, true);
        for (;;)
            (void)pause();
    }
    while (child > 0 && !atomic_load(&s->ready))
        httpd_sleep_ms(1);
    return child;
}

static inline void httpd_kill(pid_t server)
{
    (void)kill(server, SIGKILL);
    (void)waitpid(server, NULL, 0);
}

/* From the next request on, `count` requests after `skip` good ones are struck. */
static inline void httpd_strike(struct httpd *s, int fault, unsigned skip, unsigned count)
{
    atomic_store(&s->count, 0);
    atomic_store(&s->struck, 0);
    atomic_store(&s->fault, fault);
    atomic_store(&s->from, atomic_load(&s->requests) + 1 + skip);
    atomic_store(&s->count, count);
}

#endif
