/* Ctrl-C. The first one asks the running work to end: it raises the flag that long operations watch and
 * cancels the current session. The second one kills the process as if nothing were caught. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include "sluice.h"

#include <stdbool.h>

/* Install the handler, unless the signal is ignored already. Reads from a terminal or pipe end with EINTR
 * instead of being restarted. */
void interrupt_catch(void);
/* The flag for sluice_watch.cancel. */
const volatile int *interrupt_flag(void);
bool interrupted(void);
/* Which session a Ctrl-C cancels; NULL for none. A Ctrl-C that came before is passed on at once. */
void interrupt_session(sluice_session *session);
/* Forget a Ctrl-C that has been answered, and let the session run again. */
void interrupt_clear(void);

#endif
