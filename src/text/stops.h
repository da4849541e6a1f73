/* Stop strings across token boundaries: text that could still become a stop string is held back, so no prefix
 * of one ever leaks. The result does not depend on how the text is cut into feeds. */
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
    unsigned short *failure[STOPS_MAX]; /* of each prefix: its longest border */
    size_t matched[STOPS_MAX];          /* bytes of each stop string that the text ends with */
};

/* SLUICE_E_ARGUMENT for a stop string that is empty, too long or not UTF-8, and for too many. */
sluice_status stops_open(struct stops *stops, const char *const *texts, size_t n, sluice_error *err);
void stops_close(struct stops *stops);
/* Feed text; final text is appended to out. *hit becomes the index of the stop string that was completed, or
 * -1: the one whose last byte comes first, for nothing is waited for then; of those that end together the
 * longest, of equal ones the first listed. After a hit feed nothing. */
sluice_status stops_feed(struct stops *stops, const char *text, size_t n, struct str *out, int *hit,
                         sluice_error *err);
/* No more text: what is held back is final. */
sluice_status stops_finish(struct stops *stops, struct str *out, sluice_error *err);

#endif
