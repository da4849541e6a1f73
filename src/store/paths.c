#include "store/paths.h"

#include <string.h>

bool path_stays_inside(const char *path)
{
    size_t length = strlen(path);
    if (length == 0 || length > PATH_NAME_BYTES_MAX)
        return false;
    const char *part = path;
    for (size_t i = 0; i <= length; i++) {
        char c = path[i];
        if (c != '/' && c != '\0') {
            if ((unsigned char)c < 0x20 || c == 0x7F || c == '\\')
                return false;
            continue;
        }
        size_t n = (size_t)(path + i - part);
        if (n == 0 || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        part = path + i + 1;
    }
    return true;
}

bool path_is_plain(const char *name)
{
    return path_stays_inside(name) && !strchr(name, '/');
}
