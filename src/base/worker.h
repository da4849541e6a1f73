/* One thread that does jobs in the order they are given, so that their giver can go on. A job is a number;
 * the first that fails ends the work: later ones are dropped, and its error goes to the giver at the next
 * call.
 *
 * A worker has one giver at a time. Jobs see what the giver wrote before giving them, and the giver sees what
 * they wrote once worker_drain() returns. */
#ifndef BASE_WORKER_H
#define BASE_WORKER_H

#include "base/err.h"

#include <pthread.h>

typedef sluice_status (*worker_fn)(void *user, size_t job, sluice_error *err);

#define WORKER_ROOM_MAX 64

/* Zero it to start. */
struct worker {
    worker_fn fn;
    void *user;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started;
    /* under the lock */
    size_t jobs[WORKER_ROOM_MAX], first, n, room;
    bool stop;
    sluice_error error; /* of the job that failed */
};

/* `room`: jobs that may wait, the one that runs included; 1 to WORKER_ROOM_MAX. */
sluice_status worker_start(struct worker *worker, size_t room, worker_fn fn, void *user, sluice_error *err);
/* Waits while there is no room. Returns the error of an earlier job. */
sluice_status worker_give(struct worker *worker, size_t job, sluice_error *err);
/* Waits until every job is done or one has failed. */
sluice_status worker_drain(struct worker *worker, sluice_error *err);
/* Drains, and ends the thread. A zeroed one is fine. */
void worker_stop(struct worker *worker);

#endif
