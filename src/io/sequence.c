#include "io/sequence.h"

#include "base/mem.h"
#include "io/reads.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { BLOCKS = 4, BLOCK_BYTES = SEQUENCE_BYTES / BLOCKS, DIRECT_ALIGN = 4096 };

struct sequence {
    struct reads *reads;
    struct read_request blocks[BLOCKS];
    int fd;
    const char *name;
    uint64_t begin, end, next; /* next: offset of the next block to ask for */
    unsigned char *into;       /* NULL: through `ring` */
    unsigned char *ring;
};

static size_t block_bytes(const struct sequence *s, uint64_t at)
{
    return s->end - at < BLOCK_BYTES ? (size_t)(s->end - at) : BLOCK_BYTES;
}

static void ask(struct sequence *s, size_t i)
{
    struct read_request *r = &s->blocks[i], *one = r;
    size_t n = block_bytes(s, s->next);
    /* A direct read asks for whole sectors; the file's end cuts it short. */
    *r = (struct read_request){.fd = s->fd,
                               .buffer = s->into ? s->into + (s->next - s->begin) : s->ring + i * BLOCK_BYTES,
                               .bytes = (n + DIRECT_ALIGN - 1) / DIRECT_ALIGN * DIRECT_ALIGN,
                               .offset = s->next};
    s->next += n;
    reads_submit(s->reads, &one, 1);
}

static sluice_status take(struct sequence *s, uint64_t at, size_t i, sequence_fn *fn, void *user,
                          sluice_error *err)
{
    struct read_request *r = &s->blocks[i];
    size_t n = block_bytes(s, at);
    (void)reads_wait(s->reads, r, NULL);
    if (r->errnum)
        return err_errno(err, r->errnum, "reading %zu bytes at %llu of %s", n, (unsigned long long)at,
                         s->name);
    if (r->got < n)
        return err_set(err, SLUICE_E_FORMAT, "%s ends early: %zu bytes at %llu were wanted, %zu are there",
                       s->name, n, (unsigned long long)at, r->got);
    TRY(fn(user, r->buffer, n, err));
    /* Cached bytes would be charged to the memory budget, and are not needed again. */
    (void)posix_fadvise(s->fd, (off_t)at, (off_t)n, POSIX_FADV_DONTNEED);
    return SLUICE_OK;
}

static sluice_status run(struct sequence *s, sequence_fn *fn, void *user, sluice_error *err)
{
    for (size_t i = 0; i < BLOCKS && s->next < s->end; i++)
        ask(s, i);
    for (uint64_t at = s->begin; at < s->end;) {
        size_t i = (at - s->begin) / BLOCK_BYTES % BLOCKS, n = block_bytes(s, at);
        TRY(take(s, at, i, fn, user, err));
        at += n;
        if (s->next < s->end)
            ask(s, i);
    }
    return SLUICE_OK;
}

/* O_DIRECT where it works: some file systems refuse the flag, others only the reads. And without O_NONBLOCK:
 * a ring would answer EAGAIN on file systems that can only block. */
static void choose_mode(int fd, int flags, uint64_t begin)
{
    _Alignas(DIRECT_ALIGN) unsigned char probe[DIRECT_ALIGN];
    flags &= ~O_NONBLOCK;
    bool direct = begin % DIRECT_ALIGN == 0 && fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
    if (!direct || (pread(fd, probe, sizeof probe, (off_t)begin) < 0 && errno == EINVAL))
        (void)fcntl(fd, F_SETFL, flags);
}

sluice_status sequence_read(int fd, const char *name, uint64_t begin, uint64_t end, unsigned char *into,
                            sequence_fn *fn, void *user, sluice_error *err)
{
    struct sequence s = {.fd = fd, .name = name, .begin = begin, .end = end, .next = begin, .into = into};
    struct arena arena = {0};
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return err_errno(err, errno, "cannot examine %s", name);
    if (!into)
        TRY(arena_open(&arena, NULL, SEQUENCE_BYTES, "reading ahead", err));
    s.ring = arena.base;
    choose_mode(fd, flags, begin);
    sluice_status status = reads_open(&s.reads, &(struct reads_options){.depth = BLOCKS}, err);
    if (status == SLUICE_OK)
        status = run(&s, fn, user, err);
    reads_close(s.reads); /* before the memory that reads may still be filling */
    if (fcntl(fd, F_SETFL, flags) != 0 && status == SLUICE_OK)
        status = err_errno(err, errno, "cannot change the mode of %s", name);
    arena_close(&arena);
    return status;
}
