/* How fast a file can be read in one way: engine, mode, depth, block size. Reads whole blocks at random
 * offsets for a given time and drops its own pages from the page cache, so that the drive is measured and not
 * the memory. One thread. */
#ifndef IO_PROBE_H
#define IO_PROBE_H

#include "base/mem.h"
#include "io/reads.h"

struct probe_way {
    sluice_io engine; /* not SLUICE_IO_AUTO */
    bool direct;
    uint32_t depth;
    size_t block_bytes; /* a multiple of 4096 */
};

struct probe_result {
    uint64_t bytes, ns, cpu_ns; /* cpu_ns: of this process, in user and kernel */
};

/* Measure for about `ns`. `arena` holds depth * block_bytes, aligned to 4096. `file_bytes` is at least one
 * block. SLUICE_E_UNSUPPORTED: the engine or direct reads are refused here. */
sluice_status probe_file(const char *path, uint64_t file_bytes, const struct probe_way *way, uint64_t ns,
                         unsigned char *memory, struct probe_result *result, sluice_error *err);

#endif
