/* Names from foreign bytes: a manifest, a layout or a shard index may name files of its own directory only.
 */
#ifndef STORE_PATHS_H
#define STORE_PATHS_H

#include <stdbool.h>

#define PATH_NAME_BYTES_MAX 255

/* True for a relative path that stays inside the directory it is joined to: no empty, "." or ".." component,
 * no backslash or control character, at most PATH_NAME_BYTES_MAX bytes. */
bool path_stays_inside(const char *path);

/* True for such a path of one component. */
bool path_is_plain(const char *name);

#endif
