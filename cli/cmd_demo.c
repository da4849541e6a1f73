/* sluice demo: install the demo checkpoint if need be, and let it answer a few questions. */
#include "cli.h"
#include "engine.h"
#include "generation.h"
#include "interrupt.h"
#include "progress.h"
#include "prompt.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct demo_options {
    const char *source, *output;
    struct string_list questions;
    bool quiet;
    sluice_engine_options engine;
};

#define DEFAULT_SOURCE "demo/dictionary-moe"
#define DEFAULT_OUTPUT "build/demo.gturbo"
/* Beside the bin directory, where `make install` puts the checkpoint. */
#define SHARED_SOURCE "/share/sluice/demo"

static const char *const default_questions[] = {
    "What does lighthouse mean?",
    "What kind of thing is a violin?",
    "What is the opposite of hot?",
};

#define FIELD(member, type) AT(struct demo_options, member, type)

static const struct flag rows[] = {
    {.name = "source",
     .kind = FLAG_STRING,
     .value = "DIR",
     FIELD(source, const char *),
     .min = 1,
     .otherwise = DEFAULT_SOURCE " here, or else in the program's share directory",
     .help = "the demo checkpoint"},
    {.name = "output",
     .letter = 'o',
     .kind = FLAG_STRING,
     .value = "X.gturbo",
     FIELD(output, const char *),
     .min = 1,
     .preset = DEFAULT_OUTPUT,
     .help = "where it is installed, unless it is there already"},
    {.name = "question",
     .kind = FLAG_STRINGS,
     .value = "TEXT",
     FIELD(questions, struct string_list),
     .min = 1,
     .otherwise = "three questions",
     .help = "ask this instead; may be repeated"},
    {.name = "quiet",
     .letter = 'q',
     .kind = FLAG_BOOL,
     FIELD(quiet, bool),
     .help = "questions and answers only: no plan, progress or figures"},
};

static bool is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* PREFIX/share/... for a program in PREFIX/bin. */
static bool shared_source(char out[PATH_MAX])
{
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0)
        return false;
    program[n] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(program, '/');
        if (slash == NULL)
            return false;
        *slash = '\0';
    }
    int wrote = snprintf(out, PATH_MAX, "%s%s", program, SHARED_SOURCE);
    return wrote > 0 && wrote < PATH_MAX && is_directory(out);
}

static const char *find_source(const struct demo_options *o, char shared[PATH_MAX])
{
    if (o->source != NULL)
        return o->source;
    if (is_directory(DEFAULT_SOURCE))
        return DEFAULT_SOURCE;
    return shared_source(shared) ? shared : NULL;
}

static int make_parent(const char *output)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(output, '/');
    if (slash == NULL || slash == output || (size_t)(slash - output) >= sizeof parent)
        return EXIT_DONE;
    memcpy(parent, output, (size_t)(slash - output));
    parent[slash - output] = '\0';
    if (mkdir(parent, 0777) == 0 || errno == EEXIST)
        return EXIT_DONE;
    fail("cannot make %s: %s; choose another place with --output", parent, strerror(errno));
    return EXIT_FAILED;
}

static int install(const struct demo_options *o, bool overwrite)
{
    struct progress progress;
    char shared[PATH_MAX];
    sluice_error error;
    const char *source = find_source(o, shared);
    if (source == NULL) {
        fail("the demo checkpoint is neither in %s nor beside the program; give its place with --source",
             DEFAULT_SOURCE);
        return EXIT_FAILED;
    }
    int code = make_parent(o->output);
    if (code != EXIT_DONE)
        return code;
    if (!o->quiet)
        notice("Installing %s to %s", source, o->output);
    sluice_install_options options = {.source_dir = source,
                                      .output_dir = o->output,
                                      .overwrite = overwrite,
                                      .watch = progress_watch(&progress, o->quiet)};
    sluice_status status = sluice_install(&options, NULL, &error);
    if (status == SLUICE_E_EXISTS && !overwrite) {
        /* An earlier demo was interrupted while it installed. */
        options.resume = true;
        status = sluice_install(&options, NULL, &error);
    }
    progress_end();
    return status == SLUICE_OK ? EXIT_DONE : fail_error(&error);
}

/* Leave a good install alone, make a missing one, and mend a damaged one where nobody else's could be. */
static int provide_install(const struct demo_options *o, const struct parse *parse)
{
    struct progress progress;
    sluice_error error;
    if (!is_directory(o->output))
        return install(o, false);
    sluice_watch watch = progress_watch(&progress, o->quiet);
    sluice_status status = sluice_verify(o->output, &watch, NULL, &error);
    progress_end();
    if (status == SLUICE_OK)
        return EXIT_DONE;
    bool damaged = status == SLUICE_E_CORRUPT || status == SLUICE_E_FORMAT;
    if (!damaged || flag_given(parse, "output"))
        return fail_error(&error);
    notice("%s is damaged (%s) and is made again", o->output, error.detail);
    return install(o, true);
}

static int ask(const struct demo_options *o, sluice_engine *engine, const char *question)
{
    struct answer answer = {.stream = true};
    sluice_session *session = NULL;
    struct prompt prompt = {0};
    sluice_error error;
    const sluice_generate_options greedy = {.max_tokens = 256};
    int code =
        prompt_question(sluice_engine_tokenizer(engine), &(sluice_chat_request){0}, question, NULL, &prompt);
    if (code != EXIT_DONE)
        return code;
    if (sluice_session_open(engine, &session, &error) != SLUICE_OK) {
        code = fail_error(&error);
        goto out;
    }
    interrupt_session(session);
    out_print("> %s\n", question);
    out_flush();
    sluice_session_stats_get(session, &answer.before);
    if (sluice_session_prefill(session, prompt.ids, prompt.n_ids, &error) != SLUICE_OK)
        code = fail_error(&error);
    else
        code = answer_generate(session, &greedy, &answer);
    interrupt_session(NULL);
    if (code == EXIT_DONE && !o->quiet)
        answer_footer(&answer, &greedy.sampling);
out:
    answer_free(&answer);
    sluice_session_close(session);
    prompt_free(&prompt);
    return code;
}

static int run(void *options, const struct parse *parse)
{
    struct demo_options *o = options;
    sluice_engine *engine = NULL;
    int code = provide_install(o, parse);
    if (code == EXIT_DONE)
        code = engine_open(o->output, &o->engine, o->quiet, &engine);
    if (code != EXIT_DONE)
        return code;
    const char *const *questions = o->questions.n > 0 ? o->questions.items : default_questions;
    size_t n = o->questions.n > 0 ? o->questions.n : sizeof default_questions / sizeof *default_questions;
    for (size_t i = 0; i < n && code == EXIT_DONE; i++)
        code = ask(o, engine, questions[i]);
    sluice_engine_close(engine);
    return code;
}

static const struct flag_group groups[] = {
    {.title = "Demo", .rows = rows, .n = sizeof rows / sizeof *rows},
    ENGINE_GROUP(struct demo_options, engine),
    HELP_GROUP,
};

const struct command cmd_demo = {
    .name = "demo",
    .summary = "install the demo model and ask it three questions",
    .about =
        "The demo model is a dictionary of 80,945 English words in a small mixture of experts. It is "
        "installed to "
        "build/demo.gturbo the first time and checked every time, then answers with the likeliest tokens.",
    .examples = "sluice demo\n"
                "sluice demo --question 'What is another word for happy?'\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct demo_options),
    .run = run,
};
