/* Progress of long operations on standard error: one line that is drawn over on a terminal, with rate and
 * time left; elsewhere a plain line every ten seconds, so that logs stay short; or JSON. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "sluice.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct progress {
    bool quiet, terminal, json;
    char phase[32]; /* of the last report; a new phase starts the rate anew */
    uint64_t phase_start_bytes;
    struct timespec phase_start, last_draw;
};

/* Nothing is shown when quiet. The watch also ends the operation at Ctrl-C. `progress` must outlive it. */
sluice_watch progress_watch(struct progress *progress, bool quiet);
/* The same as lines of JSON on standard error, one a second, for programs. */
sluice_watch progress_watch_json(struct progress *progress, bool quiet);
/* Call before anything else is printed, from any thread: clears the line. In the middle of an operation it is
 * drawn again with the next report. */
void progress_end(void);

#endif
