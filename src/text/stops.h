/* Stop strings across token boundaries: text that could still become a stop string is held back, so no prefix
 * of one ever leaks. */
#ifndef TEXT_STOPS_H
#define TEXT_STOPS_H

#include "base/err.h"
#include "base/str.h"

#define STOPS_MAX      16
#define STOP_BYTES_MAX 1024

struct stops {
    size_t n;
    struct str texts[STOPS_MAX];
    struct str held;
};

/* SLUICE_E_ARGUMENT for an empty stop string, too many or too long. */
sluice_status stops_open(struct stops *stops, const char *const *texts, size_t n, sluice_error *err);
void stops_close(struct stops *stops);
/* Feed text; final text is appended to out. *hit becomes the index of the stop string that was completed
 * (the earliest in the text; of those that start together the first listed), or -1. After a hit feed nothing.
 */
sluice_status stops_feed(struct stops *stops, const char *text, size_t n, struct str *out, int *hit,
                         sluice_error *err);
/* No more text: what is held back is final. */
sluice_status stops_finish(struct stops *stops, struct str *out, sluice_error *err);

#endif
