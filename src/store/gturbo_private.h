/* What an opened store keeps for itself; for gturbo.c and describe.c only. */
#ifndef STORE_GTURBO_PRIVATE_H
#define STORE_GTURBO_PRIVATE_H

#include "store/gturbo.h"
#include "store/layout.h"
#include "store/manifest.h"
#include "store/resident.h"

#include <pthread.h>

/* The lock is held while the file is opened and hashed, so that threads asking for one layer hash it once,
 * and threads asking for different layers do not wait for each other. */
struct layer_file {
    pthread_mutex_t lock;
    const struct manifest_file *file; /* NULL: a dense layer */
    int fd;                           /* -1 until the first use */
};

struct gturbo_private {
    bool hash; /* full verification */
    struct manifest manifest;
    struct layout layout;
    struct resident_index resident;
    const struct stored_tensor **by_name;
    int resident_fd;
    struct layer_file *layer_files; /* n_layers */
    uint32_t n_layer_files;         /* initialised locks */
};

#endif
