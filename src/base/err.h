/* Errors: a coarse code is returned, a precise sentence is left in the caller's struct sluice_error.
 *
 * The detail names the thing, the limit and the next step: "layer_03.bin is 1024 bytes, the layout needs
 * 131072; install again with --overwrite". Only cli/ prints it. Every function accepts err == NULL. A
 * detail that is too long is cut at a character. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "sluice.h"

/* Return early with whatever `call` returned. */
#define TRY(call)                                                                                            \
    do {                                                                                                     \
        sluice_status try_status_ = (call);                                                                  \
        if (try_status_ != SLUICE_OK)                                                                        \
            return try_status_;                                                                              \
    } while (0)

/* As TRY, for functions with one exit: needs a `sluice_status status` and a label `out`. */
#define TRY_OUT(call)                                                                                        \
    do {                                                                                                     \
        status = (call);                                                                                     \
        if (status != SLUICE_OK)                                                                             \
            goto out;                                                                                        \
    } while (0)

/* Record a failure and return its status. */
sluice_status err_set(sluice_error *err, sluice_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As err_set, with ": " and the text of `errnum` appended; ENOSPC and EDQUOT say so in words. */
sluice_status err_errno(sluice_error *err, int errnum, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "text: " before the detail that is there already. `status` becomes the error's and is returned. */
sluice_status err_prefix(sluice_error *err, sluice_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The one sentence for a failed allocation of `bytes` for `what`. */
sluice_status err_memory(sluice_error *err, size_t bytes, const char *what);

/* The analyzer sees one file at a time, and would take it that these may return SLUICE_OK. */
#ifdef __clang_analyzer__
#define err_set(err, status, ...)    (err_set((err), (status), __VA_ARGS__), (status))
#define err_prefix(err, status, ...) (err_prefix((err), (status), __VA_ARGS__), (status))
#define err_errno(err, errnum, ...)  (err_errno((err), (errnum), __VA_ARGS__), SLUICE_E_IO)
#define err_memory(err, bytes, what) (err_memory((err), (bytes), (what)), SLUICE_E_MEMORY)
#endif

#endif
