/* What an opened store keeps for itself; for gturbo.c, expert_files.c and describe.c only. */
#ifndef STORE_GTURBO_PRIVATE_H
#define STORE_GTURBO_PRIVATE_H

#include "store/gturbo.h"
#include "store/layout.h"
#include "store/manifest.h"
#include "store/resident.h"

#include <pthread.h>
#include <stdatomic.h>

enum copy_state { COPY_UNPROVEN, COPY_READY, COPY_ABSENT };

/* One copy of one layer's file. */
struct layer_copy {
    _Atomic int state; /* the rest may be read once it is COPY_READY */
    int fd;            /* -1 until then */
    bool direct;
};

/* The lock is held while the install's own copy is opened and hashed, so that threads asking for one layer
 * hash it once, and threads asking for different layers do not wait for each other. A mirror's copy has one
 * thread that proves it, and nobody waits for that. */
struct layer_file {
    pthread_mutex_t lock;
    const struct manifest_file *file; /* NULL: a dense layer */
    struct layer_copy copies[GTURBO_COPIES_MAX];
    sluice_error failure; /* what proving it ahead found; told at its next use */
};

struct mirror {
    char *dir;
    atomic_bool dropped;
};

/* A thread that proves layers before their use. */
struct prover {
    struct gturbo *store;
    uint32_t copy;
    pthread_t thread;
};

#define PROVERS_MAX (GTURBO_COPIES_MAX + 3)

struct gturbo_private {
    bool hash; /* full verification */
    bool buffered;
    struct manifest manifest;
    struct layout layout;
    struct resident_index resident;
    const struct stored_tensor **by_name;
    int resident_fd;
    struct layer_file *layer_files;           /* n_layers */
    uint32_t n_layer_files;                   /* initialised locks */
    struct mirror mirrors[GTURBO_COPIES_MAX]; /* by copy; 0 is the install and has no entry */
    uint32_t n_copies;
    struct prover provers[PROVERS_MAX];
    uint32_t n_provers;
    _Atomic uint32_t next_layer; /* of the install's provers */
    atomic_bool stop;
    struct log *log; /* NULL: none */
};

/* expert_files.c */
sluice_status expert_files_list(struct gturbo_private *p, sluice_error *err);
void expert_files_close(struct gturbo_private *p);

#endif
