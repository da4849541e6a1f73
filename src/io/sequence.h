/* Read a part of a file from front to back at the drive's speed: large blocks, several in flight, handed over
 * in order, direct where the file system takes it. Nothing stays in the page cache. */
#ifndef IO_SEQUENCE_H
#define IO_SEQUENCE_H

#include "base/err.h"

#define SEQUENCE_BYTES (4u << 20) /* of memory that is in flight */

/* Gets each block in turn; anything but SLUICE_OK ends the reading and is returned. */
typedef sluice_status sequence_fn(void *user, const unsigned char *bytes, size_t n, sluice_error *err);

/* Read [begin, end) of fd. With `into`, the bytes land there, at their distance from `begin`; it is aligned
 * to 4096 and has room for the length rounded up to 4096. Without, they pass through a buffer of
 * SEQUENCE_BYTES. Direct reads need a `begin` that is a multiple of 4096. The descriptor's flags are as
 * before afterwards; no one else may use it meanwhile. An early end of the file is SLUICE_E_FORMAT; `name` is
 * for messages. */
sluice_status sequence_read(int fd, const char *name, uint64_t begin, uint64_t end, unsigned char *into,
                            sequence_fn *fn, void *user, sluice_error *err);

#endif
