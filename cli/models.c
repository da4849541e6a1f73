#include "models.h"

#include "out.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool format(char out[PATH_MAX], const char *a, const char *b, const char *c)
{
    int n = snprintf(out, PATH_MAX, "%s%s%s", a, b, c);
    return n > 0 && n < PATH_MAX;
}

/* Relative ones count as unset, as the base directory specification has it. */
static const char *absolute_of(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && value[0] == '/' ? value : NULL;
}

bool models_dir(char dir[PATH_MAX])
{
    const char *home = getenv("SLUICE_HOME");
    if (home != NULL && home[0] != '\0')
        return format(dir, home, "/models", "");
    if ((home = absolute_of("XDG_DATA_HOME")) != NULL)
        return format(dir, home, "/sluice/models", "");
    return (home = absolute_of("HOME")) != NULL && format(dir, home, "/.local/share/sluice/models", "");
}

bool models_make_dir(char dir[PATH_MAX])
{
    if (!models_dir(dir)) {
        fail("there is no place for models: set SLUICE_HOME, or give --output");
        return false;
    }
    for (char *slash = strchr(dir + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash != NULL)
            *slash = '\0';
        if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
            fail("cannot make %s: %s; set SLUICE_HOME, or give --output", dir, strerror(errno));
            return false;
        }
        if (slash == NULL)
            return true;
        *slash = '/';
    }
}

bool models_path(const char *name, char path[PATH_MAX])
{
    char dir[PATH_MAX], file[PATH_MAX];
    const char *slash = strrchr(name, '/'), *last = slash != NULL ? slash + 1 : name;
    size_t n = strlen(last), suffix = sizeof MODEL_SUFFIX - 1;
    bool complete = n > suffix && strcmp(last + n - suffix, MODEL_SUFFIX) == 0;
    if (*last == '\0' || *last == '.' || !models_dir(dir) ||
        !format(file, "/", last, complete ? "" : MODEL_SUFFIX))
        return false;
    return format(path, dir, file, "");
}

static bool exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

const char *models_find(const char *given, char path[PATH_MAX])
{
    sluice_model model;
    if (exists(given))
        return given;
    if (models_path(given, path) && exists(path))
        return path;
    /* A repository of the registry is installed under its short name. */
    if (sluice_model_find(given, &model) && models_path(model.name, path) && exists(path))
        return path;
    return given;
}

const char *models_keep(const char *path)
{
    static struct kept {
        struct kept *next;
        char *path;
    } * all;
    struct kept *kept = must_realloc(NULL, 1, sizeof *kept);
    *kept = (struct kept){all, must_copy(path)};
    all = kept;
    return kept->path;
}

const char *models_resolve(const struct command *command, void *options)
{
    const char *unknown = NULL;
    for (size_t i = 0; i < command->n_operands; i++) {
        const char **value = (const char **)(void *)((char *)options + command->operands[i].offset);
        char path[PATH_MAX];
        if (*value == NULL || strcmp(command->operands[i].name, OPERAND_INSTALL) != 0)
            continue;
        const char *found = models_find(*value, path);
        if (found == path)
            *value = models_keep(path);
        else if (strchr(*value, '/') == NULL && !exists(*value))
            unknown = *value;
    }
    return unknown;
}
