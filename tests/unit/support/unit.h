/* What unit tests share: cmocka with what it needs, checks of a sluice_error, and a directory of one's own.
 */
#ifndef UNIT_SUPPORT_UNIT_H
#define UNIT_SUPPORT_UNIT_H

#include "base/err.h"
#include "io/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h> /* after the headers above, which it needs and does not include */

/* `call` must end with `wanted`, leaving a sentence in `err` that contains `words`. */
#define assert_fails(call, wanted, err, words)                                                               \
    do {                                                                                                     \
        (err).detail[0] = '\0';                                                                              \
        assert_int_equal((call), (wanted));                                                                  \
        assert_int_equal((err).status, (wanted));                                                            \
        if (!strstr((err).detail, (words)))                                                                  \
            fail_msg("\"%s\" does not contain \"%s\"", (err).detail, (words));                               \
    } while (0)

#define assert_ok(call, err)                                                                                 \
    do {                                                                                                     \
        if ((call) != SLUICE_OK)                                                                             \
            fail_msg("%s failed: %s", #call, (err).detail);                                                  \
    } while (0)

#define TEMP_PATH_BYTES 256

/* A new directory, under TMPDIR or /tmp. */
static inline void temp_dir(char path[TEMP_PATH_BYTES])
{
    const char *root = getenv("TMPDIR");
    int n = snprintf(path, TEMP_PATH_BYTES, "%s/sluice-unit-XXXXXX", root ? root : "/tmp");
    assert_in_range(n, 1, TEMP_PATH_BYTES - 1);
    assert_non_null(mkdtemp(path));
}

static inline void temp_dir_remove(const char *path)
{
    assert_int_equal(file_remove_tree(path, NULL), SLUICE_OK);
}

/* DIR/NAME, in a buffer that the caller owns. */
static inline const char *temp_name(char out[TEMP_PATH_BYTES], const char *dir, const char *name)
{
    int n = snprintf(out, TEMP_PATH_BYTES, "%s/%s", dir, name);
    assert_in_range(n, 1, TEMP_PATH_BYTES - 1);
    return out;
}

/* Sanitizers, valgrind and emulators run some tests at a fraction of their size. */
static inline unsigned long scaled(unsigned long full, unsigned long brief)
{
    return getenv("SLUICE_TEST_SHORT") ? brief : full;
}

#endif
