#include "interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static volatile int flag;
static _Atomic(sluice_session *) current;

static void on_interrupt(int signal_number)
{
    if (flag != 0) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
        return;
    }
    flag = 1;
    sluice_session *session = atomic_load(&current);
    if (session != NULL)
        sluice_session_cancel(session);
}

void interrupt_catch(void)
{
    struct sigaction action = {.sa_handler = on_interrupt}, before;
    /* A shell starts background jobs of a script with the signal ignored, and means it. */
    if (sigaction(SIGINT, NULL, &before) == 0 && before.sa_handler == SIG_IGN)
        return;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

const volatile int *interrupt_flag(void)
{
    return &flag;
}

bool interrupted(void)
{
    return flag != 0;
}

void interrupt_session(sluice_session *session)
{
    atomic_store(&current, session);
    if (session != NULL && flag != 0)
        sluice_session_cancel(session);
}

void interrupt_clear(void)
{
    flag = 0;
    sluice_session *session = atomic_load(&current);
    if (session != NULL)
        sluice_session_uncancel(session);
}
