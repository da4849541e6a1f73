#include "io/probe.h"

#include "base/clock.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t cpu_ns(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000u;
}

/* A walk over all blocks in an order that looks random to the drive and meets none twice: multiples of a step
 * that has no common divisor with their number. */
struct walk {
    uint64_t blocks, step, at;
};

static uint64_t divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static struct walk walk_over(uint64_t blocks)
{
    struct walk walk = {.blocks = blocks, .step = (uint64_t)((double)blocks * 0.6180339887) + 1};
    while (divisor(walk.step, blocks) != 1)
        walk.step++;
    walk.at = clock_ns() / 1000 % blocks;
    return walk;
}

static void ask(struct reads *reads, struct read_request *r, struct walk *walk, uint64_t *left)
{
    walk->at = (walk->at + walk->step) % walk->blocks;
    r->offset = walk->at * r->bytes;
    (*left)--;
    reads_submit(reads, &r, 1);
}

static sluice_status read_for(struct reads *reads, int fd, const char *path, uint64_t file_bytes,
                              const struct probe_way *way, uint64_t ns, unsigned char *memory,
                              struct probe_result *result, sluice_error *err)
{
    struct read_request requests[READS_DEPTH_MAX];
    struct walk walk = walk_over(file_bytes / way->block_bytes);
    uint64_t left = walk.blocks, begin = clock_ns(), cpu = cpu_ns();
    uint32_t depth = way->depth < walk.blocks ? way->depth : (uint32_t)walk.blocks, flying = depth;
    sluice_status status = SLUICE_OK;
    for (uint32_t i = 0; i < depth; i++) {
        requests[i] = (struct read_request){
            .fd = fd, .buffer = memory + i * way->block_bytes, .bytes = way->block_bytes};
        ask(reads, &requests[i], &walk, &left);
    }
    for (uint32_t i = 0; flying > 0; i = (i + 1) % depth) {
        struct read_request *r = &requests[i];
        if (r->fd < 0)
            continue;
        (void)reads_wait(reads, r, NULL);
        if (r->errnum && status == SLUICE_OK)
            status = err_errno(err, r->errnum, "reading %s", path);
        result->bytes += r->got;
        if (status == SLUICE_OK && left > 0 && clock_ns() - begin < ns) {
            ask(reads, r, &walk, &left);
            continue;
        }
        r->fd = -1;
        flying--;
    }
    result->ns = clock_ns() - begin;
    result->cpu_ns = cpu_ns() - cpu;
    return status;
}

sluice_status probe_file(const char *path, uint64_t file_bytes, const struct probe_way *way, uint64_t ns,
                         unsigned char *memory, struct probe_result *result, sluice_error *err)
{
    *result = (struct probe_result){0};
    int fd;
    TRY(file_open_read(path, &fd, NULL, err));
    struct reads *reads = NULL;
    sluice_status status = SLUICE_OK;
    int flags = fcntl(fd, F_GETFL) & ~O_NONBLOCK;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    /* Cached reads of experts are random: readahead would fetch what nobody wants. */
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    if (fcntl(fd, F_SETFL, way->direct ? flags | O_DIRECT : flags) != 0 ||
        (way->direct && pread(fd, memory, 4096, 0) < 0 && errno == EINVAL))
        TRY_OUT(err_set(err, SLUICE_E_UNSUPPORTED, "the file system of %s has no direct reads", path));
    TRY_OUT(reads_open(&reads, &(struct reads_options){.engine = way->engine, .depth = way->depth}, err));
    status = read_for(reads, fd, path, file_bytes, way, ns, memory, result, err);
out:
    reads_close(reads);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    (void)close(fd);
    return status;
}
