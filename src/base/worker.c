#include "base/worker.h"

static void *run(void *user)
{
    struct worker *w = user;
    (void)pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->n == 0 && !w->stop)
            (void)pthread_cond_wait(&w->changed, &w->lock);
        if (w->n == 0)
            break;
        size_t job = w->jobs[w->first];
        sluice_error error = {0};
        sluice_status status = w->error.status;
        if (status == SLUICE_OK) {
            (void)pthread_mutex_unlock(&w->lock);
            status = w->fn(w->user, job, &error);
            (void)pthread_mutex_lock(&w->lock);
            if (status != SLUICE_OK)
                w->error = error;
        }
        w->first = (w->first + 1) % WORKER_ROOM_MAX;
        w->n--;
        (void)pthread_cond_broadcast(&w->changed);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

sluice_status worker_start(struct worker *w, size_t room, worker_fn fn, void *user, sluice_error *err)
{
    *w = (struct worker){.fn = fn, .user = user, .room = room < WORKER_ROOM_MAX ? room : WORKER_ROOM_MAX};
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->changed, NULL);
    int rc = pthread_create(&w->thread, NULL, run, w);
    if (rc != 0) {
        (void)pthread_cond_destroy(&w->changed);
        (void)pthread_mutex_destroy(&w->lock);
        return err_errno(err, rc, "cannot start a thread");
    }
    w->started = true;
    return SLUICE_OK;
}

/* With the lock held. */
static sluice_status result(const struct worker *w, sluice_error *err)
{
    if (w->error.status != SLUICE_OK && err)
        *err = w->error;
    return w->error.status;
}

sluice_status worker_give(struct worker *w, size_t job, sluice_error *err)
{
    (void)pthread_mutex_lock(&w->lock);
    while (w->n == w->room)
        (void)pthread_cond_wait(&w->changed, &w->lock);
    sluice_status status = result(w, err);
    if (status == SLUICE_OK) {
        w->jobs[(w->first + w->n++) % WORKER_ROOM_MAX] = job;
        (void)pthread_cond_broadcast(&w->changed);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return status;
}

sluice_status worker_drain(struct worker *w, sluice_error *err)
{
    (void)pthread_mutex_lock(&w->lock);
    while (w->n > 0)
        (void)pthread_cond_wait(&w->changed, &w->lock);
    sluice_status status = result(w, err);
    (void)pthread_mutex_unlock(&w->lock);
    return status;
}

void worker_stop(struct worker *w)
{
    if (!w->started)
        return;
    (void)pthread_mutex_lock(&w->lock);
    w->stop = true;
    (void)pthread_cond_broadcast(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
    (void)pthread_join(w->thread, NULL);
    (void)pthread_cond_destroy(&w->changed);
    (void)pthread_mutex_destroy(&w->lock);
    w->started = false;
}
