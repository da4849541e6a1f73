/* sluice chat: a conversation at the terminal, or driven by lines on standard input. The session keeps the
 * state of all turns; each question is synchronized with it, so only what is new is computed. */
#include "cli.h"
#include "engine.h"
#include "generation.h"
#include "interrupt.h"
#include "lines.h"
#include "prompt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chat_options {
    const char *install, *system;
    bool quiet;
    struct generation_flags generation;
    sluice_engine_options engine;
};

#define FIELD(member, type) AT(struct chat_options, member, type)

static const struct flag rows[] = {
    {.name = "system",
     .letter = 's',
     .kind = FLAG_STRING,
     .value = "TEXT",
     FIELD(system, const char *),
     .min = 1,
     .help = "system message of the conversation; /system changes it"},
    {.name = "quiet",
     .letter = 'q',
     .kind = FLAG_BOOL,
     FIELD(quiet, bool),
     .help = "answers only: no greeting, plan, progress or figures"},
};

/* Contents are owned; message 0 is the system message when has_system. */
struct chat {
    sluice_engine *engine;
    sluice_session *session;
    const sluice_generate_options *generate;
    sluice_message *messages;
    size_t n_messages;
    bool has_system, quiet;
    size_t turns, reused_tokens; /* the latter by the last question */
};

/* ---- the conversation ---- */

static void push(struct chat *chat, const char *role, const char *content)
{
    chat->messages = must_realloc(chat->messages, chat->n_messages + 1, sizeof *chat->messages);
    chat->messages[chat->n_messages++] = (sluice_message){.role = role, .content = must_copy(content)};
}

static void pop(struct chat *chat)
{
    free((void *)chat->messages[--chat->n_messages].content);
}

static void forget(struct chat *chat)
{
    while (chat->n_messages > (chat->has_system ? 1 : 0))
        pop(chat);
}

static void set_system(struct chat *chat, const char *text)
{
    if (chat->has_system) {
        free((void *)chat->messages[0].content);
        chat->n_messages--;
        memmove(chat->messages, chat->messages + 1, chat->n_messages * sizeof *chat->messages);
    }
    chat->has_system = text != NULL;
    if (text == NULL)
        return;
    push(chat, "system", text);
    sluice_message system = chat->messages[chat->n_messages - 1];
    memmove(chat->messages + 1, chat->messages, (chat->n_messages - 1) * sizeof *chat->messages);
    chat->messages[0] = system;
}

/* ---- one turn ---- */

static void tell_full(const struct chat *chat, size_t needed)
{
    notice("The conversation takes %zu tokens and the context holds %" PRIu32
           "; /clear starts over, a larger --context holds more",
           needed, sluice_engine_plan(chat->engine)->context_tokens);
}

/* Bring the session to the conversation. EXIT_USAGE: not this question, but the chat goes on. */
static int synchronize(struct chat *chat, const struct prompt *prompt)
{
    sluice_error error;
    /* One token at least must fit behind the question. */
    if (prompt->n_ids >= sluice_engine_plan(chat->engine)->context_tokens) {
        tell_full(chat, prompt->n_ids);
        return EXIT_USAGE;
    }
    sluice_status status =
        sluice_session_sync(chat->session, prompt->ids, prompt->n_ids, &chat->reused_tokens, &error);
    switch (status) {
    case SLUICE_OK:
        return EXIT_DONE;
    case SLUICE_E_CONTEXT:
        tell_full(chat, prompt->n_ids);
        return EXIT_USAGE;
    case SLUICE_E_CANCELLED:
        notice("Stopped; the question is dropped");
        return EXIT_USAGE;
    default:
        return fail_error(&error) == EXIT_USAGE ? EXIT_USAGE : EXIT_FAILED;
    }
}

static void tell_end(const struct chat *chat, const struct answer *answer)
{
    size_t n_tokens;
    if (answer->generated.finish == SLUICE_FINISH_CANCELLED)
        notice("Stopped");
    else
        answer_explain_length(answer, chat->generate, chat->engine);
    sluice_session_tokens(chat->session, &n_tokens);
    if (n_tokens >= sluice_engine_plan(chat->engine)->context_tokens)
        tell_full(chat, n_tokens);
    if (!chat->quiet)
        answer_footer(answer, &chat->generate->sampling);
}

/* EXIT_FAILED ends the chat; anything else returns to the prompt. */
static int turn(struct chat *chat, const char *question)
{
    struct answer answer = {.stream = true};
    struct prompt prompt = {0};
    push(chat, "user", question);
    int code = prompt_chat(sluice_engine_tokenizer(chat->engine), chat->messages, chat->n_messages, &prompt);
    if (code == EXIT_DONE) {
        sluice_session_stats_get(chat->session, &answer.before);
        code = synchronize(chat, &prompt);
    }
    if (code == EXIT_DONE) {
        code = answer_generate(chat->session, chat->generate, &answer);
        /* When standard output fails that is all there is to tell. */
        if ((code == EXIT_DONE || code == EXIT_INTERRUPTED) && out_flush())
            tell_end(chat, &answer);
    }
    /* What was shown stays part of the conversation, also when it was stopped half way. */
    if (answer.text.n > 0) {
        push(chat, "assistant", answer.text.bytes);
        chat->turns++;
    } else {
        pop(chat);
    }
    answer_free(&answer);
    prompt_free(&prompt);
    if (!out_flush())
        return EXIT_FAILED;
    return code == EXIT_FAILED ? EXIT_FAILED : EXIT_DONE;
}

/* ---- commands ---- */

enum after { GO_ON, LEAVE };

static enum after do_clear(struct chat *chat, const char *rest)
{
    sluice_error error;
    (void)rest;
    forget(chat);
    if (sluice_session_rewind(chat->session, 0, &error) != SLUICE_OK)
        fail_error(&error);
    notice("The conversation starts over%s", chat->has_system ? "; the system message stays" : "");
    return GO_ON;
}

static enum after do_system(struct chat *chat, const char *rest)
{
    set_system(chat, *rest != '\0' ? rest : NULL);
    notice(*rest != '\0' ? "The system message is set, from the next question on"
                         : "The system message is removed");
    return GO_ON;
}

static enum after do_stats(struct chat *chat, const char *rest)
{
    sluice_session_stats s;
    size_t n_tokens;
    char peak[HUMAN_BYTES], read[HUMAN_BYTES], wait[HUMAN_BYTES];
    (void)rest;
    sluice_session_stats_get(chat->session, &s);
    sluice_session_tokens(chat->session, &n_tokens);
    notice("turns          %zu", chat->turns);
    notice("context        %zu of %" PRIu32 " tokens; the last question reused %zu", n_tokens,
           sluice_engine_plan(chat->engine)->context_tokens, chat->reused_tokens);
    notice("prefill        %" PRIu64 " tokens, %.1f tok/s", s.prefill_tokens,
           per_second(s.prefill_tokens, s.prefill_ns));
    notice("decode         %" PRIu64 " tokens, %.2f tok/s", s.decode_tokens,
           per_second(s.decode_tokens, s.decode_ns));
    notice("expert hits    %" PRIu64 " of %" PRIu64, s.decode_expert_hits, s.decode_expert_requests);
    notice("read           %s per token",
           human_bytes(s.decode_tokens > 0 ? s.decode_read_bytes / s.decode_tokens : 0, read));
    notice("waited         %s for reads", human_time(seconds_of(s.wait_ns), wait));
    notice("peak memory    %s", human_bytes(sluice_peak_memory_bytes(), peak));
    return GO_ON;
}

static enum after do_quit(struct chat *chat, const char *rest)
{
    (void)chat;
    (void)rest;
    return LEAVE;
}

static enum after do_help(struct chat *chat, const char *rest);

static const struct chat_command {
    const char *name, *help;
    enum after (*run)(struct chat *chat, const char *rest);
    bool takes_text;
} chat_commands[] = {
    {"clear", "forget the conversation, keep the system message", do_clear, false},
    {"system", "TEXT: set the system message; without TEXT remove it", do_system, true},
    {"stats", "tokens, rates, memory and cache of this chat", do_stats, false},
    {"help", "this list", do_help, false},
    {"quit", "leave, as Ctrl-D does", do_quit, false},
};

static enum after do_help(struct chat *chat, const char *rest)
{
    (void)chat;
    (void)rest;
    for (size_t i = 0; i < sizeof chat_commands / sizeof *chat_commands; i++)
        notice("/%-8s %s", chat_commands[i].name, chat_commands[i].help);
    notice("//text asks \"/text\"; a backslash at the end of a line goes on with the next; Ctrl-C stops an "
           "answer");
    return GO_ON;
}

static enum after do_command(struct chat *chat, const char *line)
{
    char shown[QUOTE_BYTES];
    size_t n = strcspn(line, " \t\n");
    const char *rest = line + n + strspn(line + n, " \t\n");
    for (size_t i = 0; i < sizeof chat_commands / sizeof *chat_commands; i++) {
        const struct chat_command *command = &chat_commands[i];
        if (strlen(command->name) != n || memcmp(command->name, line, n) != 0)
            continue;
        if (*rest == '\0' || command->takes_text)
            return command->run(chat, rest);
        notice("/%s takes no text", command->name);
        return GO_ON;
    }
    notice("There is no command %s; /help lists them, and //text asks \"/text\"", quote(line - 1, shown));
    return GO_ON;
}

/* ---- the loop ---- */

/* An exit code, or -1 to go on. */
static int answer_line(struct chat *chat, const char *line)
{
    if (line[strspn(line, " \t\n")] == '\0')
        return -1;
    if (line[0] == '/' && line[1] != '/')
        return do_command(chat, line + 1) == LEAVE ? EXIT_DONE : -1;
    int code = turn(chat, line[0] == '/' ? line + 1 : line);
    /* A Ctrl-C that came during the turn has been answered by it. */
    interrupt_clear();
    return code == EXIT_DONE ? -1 : code;
}

static int converse(struct chat *chat, struct lines *lines)
{
    struct text line = {0};
    int code = -1;
    while (code < 0) {
        switch (lines_read(lines, &line)) {
        case LINE_TEXT:
            code = answer_line(chat, line.bytes);
            break;
        case LINE_END:
            code = EXIT_DONE;
            break;
        case LINE_ABANDONED:
            interrupt_clear();
            break;
        case LINE_INTERRUPTED:
            code = EXIT_INTERRUPTED;
            break;
        case LINE_FAILED:
            code = EXIT_FAILED;
            break;
        }
    }
    text_free(&line);
    return code;
}

static int run(void *options, const struct parse *parse)
{
    struct chat_options *o = options;
    sluice_generate_options generate;
    struct chat chat = {.generate = &generate, .quiet = o->quiet};
    sluice_error error;
    int code = generation_options(&o->generation, parse, &generate);
    if (code == EXIT_DONE)
        code = engine_open(o->install, &o->engine, o->quiet, &chat.engine);
    if (code != EXIT_DONE)
        return code;
    if ((code = generation_check_model(&o->generation, chat.engine)) != EXIT_DONE)
        goto out;
    if (sluice_session_open(chat.engine, &chat.session, &error) != SLUICE_OK) {
        code = fail_error(&error);
        goto out;
    }
    if (o->system != NULL)
        set_system(&chat, o->system);
    struct lines *lines = lines_open();
    if (lines_interactive(lines) && !o->quiet)
        notice("Ask something; /help lists commands, Ctrl-D leaves");
    interrupt_session(chat.session);
    code = converse(&chat, lines);
    interrupt_session(NULL);
    lines_close(lines);
    set_system(&chat, NULL);
    forget(&chat);
out:
    free(chat.messages);
    sluice_session_close(chat.session);
    sluice_engine_close(chat.engine);
    return code;
}

static const struct operand operands[] = {
    {.name = "INSTALL",
     .required = true,
     .offset = offsetof(struct chat_options, install),
     .help = "a .gturbo directory"},
};

static const struct flag_group groups[] = {
    {.title = "Chat", .rows = rows, .n = sizeof rows / sizeof *rows},
    GENERATION_GROUP(struct chat_options, generation),
    ENGINE_GROUP(struct chat_options, engine),
    DRAFT_GROUP(struct chat_options, engine),
    HELP_GROUP,
};

const struct command cmd_chat = {
    .name = "chat",
    .summary = "talk with a model over several turns",
    .about =
        "Answers line by line and remembers the conversation; each question computes only what is new. On a "
        "terminal lines can be edited and the history is kept in $XDG_STATE_HOME/sluice. Lines piped in are "
        "answered without a prompt.\n\n"
        "/clear, /system TEXT, /stats, /help and /quit are commands. Ctrl-C stops an answer; at an empty "
        "prompt "
        "it leaves with exit code 130. A conversation that no longer fits the context is never cut silently.",
    .examples = "sluice chat gemma.gturbo --memory 4G\n"
                "sluice chat demo.gturbo --greedy < questions.txt\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct chat_options),
    .run = run,
};
