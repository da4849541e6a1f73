/* sluice models: the registry, and what of it fits this machine. */
#include "cli.h"
#include "engine.h"
#include "models.h"
#include "out.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

struct models_options {
    bool json;
};

#define FIELD(member, type) AT(struct models_options, member, type)

static const struct flag rows[] = {
    {.name = "json", .kind = FLAG_BOOL, FIELD(json, bool), .help = "print one JSON object"},
};

struct machine {
    char dir[PATH_MAX];
    uint64_t disk_bytes, memory_bytes;
    const char *drive; /* "solid state", "rotating or virtual" or "unknown" */
};

/* The nearest directory that exists. */
static bool existing_parent(char path[PATH_MAX], struct stat *info)
{
    while (stat(path, info) != 0) {
        char *slash = strrchr(path, '/');
        if (slash == NULL || slash == path)
            return stat("/", info) == 0;
        *slash = '\0';
    }
    return true;
}

/* A partition has its queue in the directory of its disk. */
static const char *drive_kind(const struct stat *info)
{
    static const char *const PATHS[] = {"/sys/dev/block/%u:%u/queue/rotational",
                                        "/sys/dev/block/%u:%u/../queue/rotational"};
    for (size_t i = 0; i < sizeof PATHS / sizeof *PATHS; i++) {
        char path[128];
        int digit = EOF;
        snprintf(path, sizeof path, PATHS[i], major(info->st_dev), minor(info->st_dev));
        FILE *file = fopen(path, "re");
        if (file != NULL) {
            digit = fgetc(file);
            fclose(file);
        }
        if (digit == '0' || digit == '1')
            return digit == '1' ? "rotating or virtual" : "solid state";
    }
    return "unknown";
}

static void examine(struct machine *m)
{
    char path[PATH_MAX];
    struct stat info;
    struct statvfs fs;
    *m = (struct machine){.memory_bytes = sluice_available_memory_bytes(), .drive = "unknown"};
    if (!models_dir(m->dir))
        snprintf(m->dir, sizeof m->dir, ".");
    memcpy(path, m->dir, sizeof path);
    if (!existing_parent(path, &info))
        return;
    m->drive = drive_kind(&info);
    if (statvfs(path, &fs) == 0)
        m->disk_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
}

static bool is_installed(const sluice_model *model)
{
    char path[PATH_MAX];
    sluice_install_state state;
    return models_path(model->name, path) && sluice_install_examine(path, &state, NULL) == SLUICE_OK &&
           state.condition == SLUICE_INSTALL_COMPLETE;
}

/* An install needs room for the output and the reserve that the installer keeps free. */
static uint64_t disk_need(const sluice_model *model)
{
    return model->install_bytes + (1u << 30);
}

static const char *verdict(const sluice_model *model, const struct machine *m, bool installed)
{
    bool disk = installed || m->disk_bytes >= disk_need(model),
         memory = m->memory_bytes >= model->memory_bytes;
    if (!model->runnable)
        return "this build cannot run it";
    if (installed)
        return memory ? "installed" : "installed, too little memory";
    if (!disk)
        return memory ? "too little disk" : "too little disk and memory";
    return memory ? "fits" : "too little memory";
}

static json_t *model_json(const sluice_model *model, const struct machine *m)
{
    bool installed = is_installed(model);
    return json_pack("{s:s, s:s, s:s, s:s, s:s?, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:b}",
                     "name", model->name, "title", model->title, "repo", model->repo, "revision",
                     model->revision, "index_sha256", model->index_sha256, "model_type", model->model_type,
                     "quantization", model->quantization, "licence", model->licence, "download_bytes",
                     (json_int_t)model->download_bytes, "install_bytes", (json_int_t)model->install_bytes,
                     "memory_bytes", (json_int_t)model->memory_bytes, "token_bytes",
                     (json_int_t)model->token_bytes, "runnable", model->runnable, "installed", installed,
                     "disk_fits", installed || m->disk_bytes >= disk_need(model), "memory_fits",
                     m->memory_bytes >= model->memory_bytes);
}

static void print_json(const sluice_model *models, size_t n, const struct machine *m)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, model_json(&models[i], m));
    out_json(json_pack("{s:s, s:I, s:I, s:s, s:o}", "directory", m->dir, "free_bytes",
                       (json_int_t)m->disk_bytes, "available_memory_bytes", (json_int_t)m->memory_bytes,
                       "drive", m->drive, "models", list));
}

static void print_text(const sluice_model *models, size_t n, const struct machine *m)
{
    char download[HUMAN_BYTES], disk[HUMAN_BYTES], memory[HUMAN_BYTES], token[HUMAN_BYTES];
    out_print("%-18s %10s %10s %10s %11s  %s\n", "NAME", "DOWNLOAD", "DISK", "MEMORY", "READ/TOKEN", "HERE");
    for (size_t i = 0; i < n; i++) {
        const sluice_model *model = &models[i];
        out_print("%-18s %10s %10s %10s %11s  %s\n", model->name,
                  human_bytes(model->download_bytes, download), human_bytes(model->install_bytes, disk),
                  human_bytes(model->memory_bytes, memory),
                  model->token_bytes > 0 ? human_bytes(model->token_bytes, token) : "-",
                  verdict(model, m, is_installed(model)));
        out_print("  %s; %s; licence: %s\n", model->title, model->quantization, model->licence);
        out_print("  %s at %.12s%s\n", model->repo, model->revision,
                  model->index_sha256 != NULL ? "" : ", not pinned: trusted on first use");
    }
    out_print("\n%s: %s free, drive %s. Memory available: %s.\n", m->dir, human_bytes(m->disk_bytes, disk),
              m->drive, human_bytes(m->memory_bytes, memory));
    out_print(
        "READ/TOKEN is what a token reads from the drive while no expert is in memory: an upper limit.\n");
}

static int run(void *options, const struct parse *parse)
{
    const struct models_options *o = options;
    struct machine machine;
    (void)parse;
    size_t n = sluice_models(NULL, 0);
    sluice_model *models = must_realloc(NULL, n, sizeof *models);
    sluice_models(models, n);
    examine(&machine);
    if (o->json)
        print_json(models, n, &machine);
    else
        print_text(models, n, &machine);
    free(models);
    return EXIT_DONE;
}

static const struct flag_group groups[] = {
    {.title = "Models", .rows = rows, .n = sizeof rows / sizeof *rows},
    HELP_GROUP,
};

const struct command cmd_models = {
    .name = "models",
    .summary = "list known models, and what fits this machine",
    .about =
        "Lists the checkpoints of the registry with their sizes, the least memory that runs them, and "
        "whether "
        "they fit here, are installed, and can be run by this build. Each is pinned to a revision and to the "
        "digest of its index. Any other repository can be installed by name; it is trusted on first use.",
    .examples = "sluice models\n"
                "sluice install gemma4\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct models_options),
    .run = run,
};
