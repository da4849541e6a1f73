/* sluice list, rm, path and import: what is in the models directory. */
#include "cli.h"
#include "engine.h"
#include "models.h"
#include "out.h"
#include "progress.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- list ---- */

struct list_options {
    bool json;
};

static const struct flag list_rows[] = {
    {.name = "json", .kind = FLAG_BOOL, AT(struct list_options, json, bool), .help = "print one JSON object"},
};

struct names {
    char **items;
    size_t n, cap;
};

static void add_name(struct names *names, const char *file, size_t n)
{
    for (size_t i = 0; i < names->n; i++)
        if (strlen(names->items[i]) == n && strncmp(names->items[i], file, n) == 0)
            return;
    if (names->n == names->cap) {
        names->cap = names->cap * 2 + 16;
        names->items = must_realloc(names->items, names->cap, sizeof *names->items);
    }
    char *name = must_copy(file);
    name[n] = '\0';
    names->items[names->n++] = name;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of installs, finished or not. */
static void collect(const char *dir, struct names *names)
{
    static const char *const ENDS[] = {MODEL_SUFFIX, MODEL_SUFFIX ".partial", MODEL_SUFFIX ".resume.json"};
    DIR *stream = opendir(dir);
    if (stream == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;)
        for (size_t i = 0; i < sizeof ENDS / sizeof *ENDS; i++) {
            size_t n = strlen(entry->d_name), end = strlen(ENDS[i]);
            if (n > end && entry->d_name[0] != '.' && strcmp(entry->d_name + n - end, ENDS[i]) == 0)
                add_name(names, entry->d_name, n - end);
        }
    closedir(stream);
    if (names->n > 1)
        qsort(names->items, names->n, sizeof *names->items, by_name);
}

static const char *condition_text(const sluice_install_state *s)
{
    if (s->condition == SLUICE_INSTALL_COMPLETE)
        return s->verified ? "complete" : "complete, not verified since its files changed";
    return s->busy ? "installing" : "interrupted";
}

static void list_one(const char *name, json_t *list)
{
    char path[PATH_MAX], size[HUMAN_BYTES], done[HUMAN_BYTES];
    sluice_install_state state = {0};
    sluice_error error = {0};
    if (!models_path(name, path))
        return;
    sluice_status status = sluice_install_examine(path, &state, &error);
    const char *text = status == SLUICE_OK ? condition_text(&state) : error.detail;
    if (list != NULL)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:b}", "name", name,
                                              "path", path, "model", state.model_id, "revision",
                                              state.revision, "state", text, "bytes", (json_int_t)state.bytes,
                                              "done_bytes", (json_int_t)state.done_bytes, "complete",
                                              state.condition == SLUICE_INSTALL_COMPLETE));
    else if (state.condition == SLUICE_INSTALL_PARTIAL)
        out_print("%-24s %10s  %s, %s of it\n", name, human_bytes(state.bytes, size), text,
                  human_bytes(state.done_bytes, done));
    else
        out_print("%-24s %10s  %s%s%s\n", name, human_bytes(state.bytes, size), text,
                  state.model_id[0] ? ", " : "", state.model_id);
}

static int list_run(void *options, const struct parse *parse)
{
    const struct list_options *o = options;
    char dir[PATH_MAX];
    struct names names = {0};
    (void)parse;
    if (!models_dir(dir)) {
        fail("there is no models directory: set SLUICE_HOME");
        return EXIT_FAILED;
    }
    collect(dir, &names);
    json_t *list = o->json ? json_array() : NULL;
    for (size_t i = 0; i < names.n; i++) {
        list_one(names.items[i], list);
        free(names.items[i]);
    }
    free(names.items);
    if (o->json)
        out_json(json_pack("{s:s, s:o}", "directory", dir, "installs", list));
    else if (names.n == 0)
        notice("Nothing is installed in %s; \"sluice models\" lists what could be.", dir);
    return EXIT_DONE;
}

static const struct flag_group list_groups[] = {
    {.title = "List", .rows = list_rows, .n = sizeof list_rows / sizeof *list_rows},
    HELP_GROUP,
};

const struct command cmd_list = {
    .name = "list",
    .summary = "list what is in the models directory",
    .about = "Lists the installs of the models directory with their sizes and whether they are complete, "
             "verified or "
             "interrupted. The directory is $SLUICE_HOME/models, or else sluice/models in $XDG_DATA_HOME or "
             "~/.local/share.",
    .examples = "sluice list\n",
    .groups = list_groups,
    .n_groups = sizeof list_groups / sizeof *list_groups,
    .options_bytes = sizeof(struct list_options),
    .run = list_run,
};

/* ---- rm ---- */

struct name_options {
    const char *install;
};

static int rm_run(void *options, const struct parse *parse)
{
    const struct name_options *o = options;
    char path[PATH_MAX];
    struct stat info;
    sluice_error error;
    (void)parse;
    /* An interrupted one has no directory of its own name yet. */
    const char *target = o->install;
    if (lstat(target, &info) != 0 && strchr(target, '/') == NULL && models_path(target, path))
        target = path;
    if (sluice_install_remove(target, &error) != SLUICE_OK)
        return fail_error(&error);
    return EXIT_DONE;
}

static const struct operand rm_operands[] = {
    {.name = OPERAND_INSTALL,
     .required = true,
     .offset = offsetof(struct name_options, install),
     .help = "what to delete: a .gturbo directory"},
};

static const struct flag_group help_only[] = {HELP_GROUP};

const struct command cmd_rm = {
    .name = "rm",
    .summary = "delete an install",
    .about =
        "Deletes an install, or what an interrupted one left. A directory that is no install stays. Of an "
        "imported one only the link in the models directory is deleted. Nothing is asked.",
    .examples = "sluice rm gemma4\n",
    .operands = rm_operands,
    .n_operands = 1,
    .groups = help_only,
    .n_groups = 1,
    .options_bytes = sizeof(struct name_options),
    .run = rm_run,
};

/* ---- path ---- */

static int path_run(void *options, const struct parse *parse)
{
    const struct name_options *o = options;
    char dir[PATH_MAX], resolved[PATH_MAX];
    (void)parse;
    if (o->install == NULL) {
        if (!models_dir(dir)) {
            fail("there is no models directory: set SLUICE_HOME");
            return EXIT_FAILED;
        }
        out_print("%s\n", dir);
        return EXIT_DONE;
    }
    sluice_install_state state;
    sluice_error error = {0};
    sluice_status status = sluice_install_examine(o->install, &state, &error);
    if (status != SLUICE_OK)
        return fail_error(&error);
    if (state.condition != SLUICE_INSTALL_COMPLETE || realpath(o->install, resolved) == NULL) {
        fail("%s is not installed", o->install);
        return EXIT_FAILED;
    }
    out_print("%s\n", resolved);
    return EXIT_DONE;
}

static const struct operand path_operands[] = {
    {.name = OPERAND_INSTALL,
     .offset = offsetof(struct name_options, install),
     .help = "a .gturbo directory; without it the models directory is printed"},
};

const struct command cmd_path = {
    .name = "path",
    .summary = "print where an install is",
    .about = "Prints the absolute path of an install, for scripts; without an argument that of the models "
             "directory.",
    .examples = "sluice path gemma4\n",
    .operands = path_operands,
    .n_operands = 1,
    .groups = help_only,
    .n_groups = 1,
    .options_bytes = sizeof(struct name_options),
    .run = path_run,
};

/* ---- import ---- */

struct import_options {
    const char *dir, *name;
    bool quiet;
};

static const struct flag import_rows[] = {
    {.name = "name",
     .kind = FLAG_STRING,
     .value = "NAME",
     AT(struct import_options, name, const char *),
     .min = 1,
     .otherwise = "the directory's own",
     .help = "what it is called from now on"},
    {.name = "quiet",
     .letter = 'q',
     .kind = FLAG_BOOL,
     AT(struct import_options, quiet, bool),
     .help = "no progress and no report"},
};

static int verify(const struct import_options *o)
{
    struct progress progress;
    sluice_error error;
    sluice_watch watch = progress_watch(&progress, o->quiet);
    sluice_status status = sluice_verify(o->dir, &watch, NULL, &error);
    progress_end();
    return status == SLUICE_OK ? EXIT_DONE : fail_error(&error);
}

static int import_run(void *options, const struct parse *parse)
{
    const struct import_options *o = options;
    char dir[PATH_MAX], target[PATH_MAX], link[PATH_MAX];
    (void)parse;
    if (realpath(o->dir, target) == NULL) {
        fail("cannot open %s: %s", o->dir, strerror(errno));
        return EXIT_FAILED;
    }
    if (o->name != NULL && (strchr(o->name, '/') != NULL || o->name[0] == '.'))
        return fail_usage("--name takes a plain name, without slashes or a dot in front");
    int code = verify(o);
    if (code != EXIT_DONE)
        return code;
    if (!models_make_dir(dir))
        return EXIT_FAILED;
    if (!models_path(o->name != NULL ? o->name : target, link)) {
        fail("%s cannot be the name of a model; give one with --name", o->dir);
        return EXIT_FAILED;
    }
    if (symlink(target, link) != 0) {
        if (errno == EEXIST)
            fail("%s is there already; delete it with \"sluice rm\", or choose another --name", link);
        else
            fail("cannot make %s: %s", link, strerror(errno));
        return EXIT_FAILED;
    }
    if (!o->quiet)
        out_print("%s is %s\n", link, target);
    return EXIT_DONE;
}

static const struct operand import_operands[] = {
    {.name = "DIR",
     .required = true,
     .offset = offsetof(struct import_options, dir),
     .help = "a .gturbo directory, Mference's included"},
};

static const struct flag_group import_groups[] = {
    {.title = "Import", .rows = import_rows, .n = sizeof import_rows / sizeof *import_rows},
    HELP_GROUP,
};

const struct command cmd_import = {
    .name = "import",
    .summary = "take an existing .gturbo directory into the models directory",
    .about = "Hashes every file of an install that another program made or another machine sent, renews its "
             "receipt, "
             "and links it into the models directory under a name. The files stay where they are.",
    .examples = "sluice import /media/models/qwen36.gturbo\n"
                "sluice import ~/old/model.gturbo --name gemma4\n",
    .operands = import_operands,
    .n_operands = 1,
    .groups = import_groups,
    .n_groups = sizeof import_groups / sizeof *import_groups,
    .options_bytes = sizeof(struct import_options),
    .run = import_run,
};
