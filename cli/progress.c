#include "progress.h"

#include "interrupt.h"
#include "out.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TERMINAL_INTERVAL_S 0.1
#define PLAIN_INTERVAL_S    10.0
#define JSON_INTERVAL_S     1.0

/* A line without its end stands on the terminal, of whichever operation runs. */
static atomic_bool drawn;

static double seconds_between(const struct timespec *from, const struct timespec *to)
{
    return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_nsec - from->tv_nsec) / 1e9;
}

static void start_phase(struct progress *p, const sluice_progress *report, const struct timespec *now)
{
    snprintf(p->phase, sizeof p->phase, "%s", report->phase);
    p->phase_start = p->last_draw = *now;
    p->phase_start_bytes = report->done_bytes;
}

static void draw(struct progress *p, const sluice_progress *report, double elapsed)
{
    char done[HUMAN_BYTES], total[HUMAN_BYTES], rate[HUMAN_BYTES], left[HUMAN_BYTES], sure[HUMAN_BYTES];
    /* What a resume or a cache had already done is no measure of the speed. */
    double speed = elapsed > 0 ? (double)(report->done_bytes - p->phase_start_bytes) / elapsed : 0;
    uint64_t remaining =
        report->total_bytes > report->done_bytes ? report->total_bytes - report->done_bytes : 0;
    double percent =
        report->total_bytes > 0 ? 100.0 * (double)report->done_bytes / (double)report->total_bytes : 0.0;
    fprintf(stderr, "%s%s: %.0f %%, %s of %s, %s/s", p->terminal ? "\r\033[K" : "", p->phase, percent,
            human_bytes(report->done_bytes, done), human_bytes(report->total_bytes, total),
            human_bytes((uint64_t)speed, rate));
    if (report->verified_bytes > 0)
        fprintf(stderr, ", %s verified", human_bytes(report->verified_bytes, sure));
    if (speed > 0)
        fprintf(stderr, ", %s left", human_time((double)remaining / speed, left));
    if (!p->terminal)
        fputc('\n', stderr);
    fflush(stderr);
    atomic_store(&drawn, p->terminal);
}

static void draw_json(const struct progress *p, const sluice_progress *report, double elapsed)
{
    double speed = elapsed > 0 ? (double)(report->done_bytes - p->phase_start_bytes) / elapsed : 0;
    double left =
        report->total_bytes > report->done_bytes ? (double)(report->total_bytes - report->done_bytes) : 0;
    fprintf(stderr,
            "{\"phase\":\"%s\",\"done_bytes\":%" PRIu64 ",\"total_bytes\":%" PRIu64
            ",\"verified_bytes\":%" PRIu64 ",\"bytes_per_second\":%.0f,\"seconds_left\":",
            p->phase, report->done_bytes, report->total_bytes, report->verified_bytes, speed);
    if (speed > 0)
        fprintf(stderr, "%.0f}\n", left / speed);
    else
        fputs("null}\n", stderr);
    fflush(stderr);
}

static double interval_of(const struct progress *p)
{
    return p->json ? JSON_INTERVAL_S : p->terminal ? TERMINAL_INTERVAL_S : PLAIN_INTERVAL_S;
}

static void on_progress(void *user, const sluice_progress *report)
{
    struct progress *p = user;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (strncmp(p->phase, report->phase, sizeof p->phase - 1) != 0 ||
        report->done_bytes < p->phase_start_bytes) {
        start_phase(p, report, &now);
        return;
    }
    if (seconds_between(&p->last_draw, &now) < interval_of(p))
        return;
    p->last_draw = now;
    if (p->json)
        draw_json(p, report, seconds_between(&p->phase_start, &now));
    else
        draw(p, report, seconds_between(&p->phase_start, &now));
}

sluice_watch progress_watch(struct progress *progress, bool quiet)
{
    *progress = (struct progress){.quiet = quiet, .terminal = isatty(STDERR_FILENO)};
    return (sluice_watch){
        .progress = quiet ? NULL : on_progress, .user = progress, .cancel = interrupt_flag()};
}

sluice_watch progress_watch_json(struct progress *progress, bool quiet)
{
    sluice_watch watch = progress_watch(progress, quiet);
    progress->json = true;
    return watch;
}

void progress_end(void)
{
    if (!atomic_exchange(&drawn, false))
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
}
