/* The models directory, and names in place of paths: $SLUICE_HOME/models, or $XDG_DATA_HOME/sluice/models, or
 * ~/.local/share/sluice/models. A model NAME is NAME.gturbo there. */
#ifndef CLI_MODELS_H
#define CLI_MODELS_H

#include "cli.h"

#include <limits.h>

#define MODEL_SUFFIX ".gturbo"

/* False where the environment names no home, or a path is too long. */
bool models_dir(char dir[PATH_MAX]);
/* The same, made with its parents. Prints why it cannot be. */
bool models_make_dir(char dir[PATH_MAX]);
/* DIR/NAME.gturbo; NAME may be OWNER/NAME and may end in ".gturbo" already. */
bool models_path(const char *name, char path[PATH_MAX]);

/* The install that an argument means: a path that exists, or has a slash and nothing of its last part in the
 * models directory, is itself; a name of the models directory is its path. */
const char *models_find(const char *given, char path[PATH_MAX]);

/* Replace the operands of a command that name installs by paths; they are copied and live until the program
 * ends. Returns the first name that means nothing, or NULL. */
const char *models_resolve(const struct command *command, void *options);

/* A copy that lives until the program ends. */
const char *models_keep(const char *path);

#endif
