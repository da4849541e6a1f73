/* sluice bench: rows of repetitions, medians, and the limits measured beside them. */
#include "run/session.h"

#include "base/clock.h"
#include "base/mem.h"
#include "io/file.h"
#include "run/limits.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Six prompts of the demo model, 120 tokens each, 8 to 40 of 64 experts in memory: of the guesses that had to
 * be read, 72 to 81 % were needed with one guess a layer, 58 to 69 % with two of its four, 44 to 52 % with
 * four. */
#define GUESS_ACCURACY_DEFAULT 0.65

enum {
    REPETITIONS_MAX = 100,
    LISTED_MAX = 64,
    MADE_TOKENS_MAX = 4096,
    GENERATED_DEFAULT = 32,
    PROMPT_DEFAULT = 128,
    REPETITIONS_DEFAULT = 3,
};
#define DRIVE_NS 1500000000u
/* Memory's rate moves by a third within a second: it is measured after every token, and where experts are
 * streamed, so that the drive does not gain time by it, before and after all of them. */
#define MEMORY_NS         200000000u
#define MEMORY_BETWEEN_NS 10000000u
#define STRETCH_BYTES     ((size_t)256 << 20)

/* What one repetition gives. */
struct sample {
    double prefill_s, decode_step_s, prefill_read, decode_read, hit_rate, prefill_wait_s, decode_wait_s, used,
        memory_rate, experts_rate, drive_rate, memory_ratio, reading_ratio, drive_ratio;
};

struct bench {
    const char *dir;
    const sluice_bench_options *o;
    sluice_engine_options engine_options; /* of the row */
    sluice_engine *engine;
    uint64_t own_bytes; /* taken from the budget for what the benchmark holds */
    struct routes routes;
    struct route_replay replay;
    size_t timeline; /* tokens of the trace that earlier repetitions used */
    int32_t *prompt;
    double drive_rate;
    sluice_page_cache page_cache;
    /* distinct experts of a prompt */
    struct route_watch watch;
    bool *used; /* [layers][experts] */
    uint64_t n_used;
    const unsigned char **records; /* [layers * experts]: where those in memory lie */
};

/* ---- cold ---- */

static void forget_dir(const char *dir, int depth, bool *all)
{
    DIR *d = opendir(dir);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        char *path = entry->d_name[0] == '.' ? NULL : file_join(dir, entry->d_name);
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
        if (fd >= 0 && entry->d_type == DT_REG)
            *all &= posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
        if (fd >= 0)
            (void)close(fd);
        if (path && entry->d_type == DT_DIR && depth > 0)
            forget_dir(path, depth - 1, all);
        mem_free(path);
    }
    if (d)
        (void)closedir(d);
    else
        *all = false;
}

/* The whole page cache where that is allowed, otherwise the install's part. */
static sluice_page_cache drop_page_cache(const char *dir)
{
    int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    bool dropped = fd >= 0 && write(fd, "1\n", 2) == 2, all = true;
    if (fd >= 0)
        (void)close(fd);
    if (dropped)
        return SLUICE_PAGE_CACHE_ALL_DROPPED;
    forget_dir(dir, 1, &all);
    return all ? SLUICE_PAGE_CACHE_FILES : SLUICE_PAGE_CACHE_KEPT;
}

/* ---- peak ---- */

static void reset_peak(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t ignored = write(fd, "5\n", 2); /* without it the peak is that of the whole process */
    (void)ignored;
    (void)close(fd);
}

static uint64_t peak_bytes(void)
{
    static const char FIELD[] = "VmHWM:";
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && kib == 0 && fgets(line, sizeof line, file))
        if (strncmp(line, FIELD, sizeof FIELD - 1) == 0)
            kib = strtoull(line + sizeof FIELD - 1, NULL, 10);
    if (file)
        (void)fclose(file);
    return kib ? kib << 10 : sluice_peak_memory_bytes();
}

/* ---- one repetition ---- */

static void count_used(void *user, uint32_t layer, uint32_t position0, uint32_t rows, uint32_t top_k,
                       const uint16_t *ids)
{
    struct bench *b = user;
    (void)position0;
    bool *used = b->used + (size_t)layer * b->engine->model->n_experts;
    for (size_t i = 0; i < (size_t)rows * top_k; i++) {
        b->n_used += !used[ids[i]];
        used[ids[i]] = true;
    }
}

static sluice_status cancelled(const struct bench *b, sluice_error *err)
{
    const sluice_watch *watch = &b->o->watch;
    return watch->cancel && *watch->cancel ? err_set(err, SLUICE_E_CANCELLED, "cancelled") : SLUICE_OK;
}

struct meter {
    const struct bench *b;
    bool between; /* tokens */
    double bytes, seconds, expert_bytes;
    size_t at, n_records; /* that b->records has */
};

/* Another stretch of the resident weights each time, so that none is found in a cache. */
static void meter_memory(struct meter *meter, uint64_t ns)
{
    const struct arena *weights = &meter->b->engine->resident;
    const size_t stretch = weights->cap_bytes < STRETCH_BYTES ? weights->cap_bytes : STRETCH_BYTES;
    if (meter->at + stretch > weights->cap_bytes)
        meter->at = 0;
    const double seconds = (double)ns / 1e9;
    meter->bytes += seconds * limits_memory(meter->b->engine->pool, weights->base + meter->at, stretch, ns);
    meter->seconds += seconds;
    meter->at += stretch;
}

static void meter_experts(struct meter *meter, uint64_t ns)
{
    const struct bench *b = meter->b;
    if (meter->n_records > 0)
        meter->expert_bytes += (double)ns / 1e9 *
                               limits_records(b->engine->pool, b->records, meter->n_records,
                                              (size_t)b->engine->store->stride_bytes, ns);
}

/* Outside of what is timed. */
static bool go_on(void *user, const sluice_piece *piece)
{
    struct meter *meter = user;
    (void)piece;
    if (meter->between) {
        meter_memory(meter, MEMORY_BETWEEN_NS);
        meter_experts(meter, MEMORY_BETWEEN_NS);
    }
    return cancelled(meter->b, NULL) == SLUICE_OK;
}

static sluice_status measure(struct bench *b, sluice_session *s, const sluice_bench_row *row,
                             struct sample *sample, sluice_error *err)
{
    const struct model *model = b->engine->model;
    sluice_session_stats prefilled, end;
    memset(b->used, 0, (size_t)model->n_layers * model->n_experts * sizeof *b->used);
    b->n_used = 0;
    s->watch = &b->watch;
    TRY(sluice_session_prefill(s, b->prompt, row->prompt_tokens, err));
    s->watch = NULL;
    sluice_session_stats_get(s, &prefilled);
    const sluice_plan *plan = &b->engine->plan;
    struct meter meter = {.b = b, .between = plan->expert_slots >= plan->experts_per_layer};
    if (meter.between && model->n_experts > 0)
        meter.n_records =
            experts_records(b->engine->experts, b->records, (size_t)model->n_layers * model->n_experts);
    if (!meter.between)
        meter_memory(&meter, MEMORY_NS);
    sluice_generated generated;
    const sluice_generate_options options = {.max_tokens = row->generated_tokens + 1,
                                             .ignore_stop_ids = true};
    TRY(sluice_generate(s, &options, go_on, &meter, &generated, err));
    TRY(cancelled(b, err));
    if (!meter.between)
        meter_memory(&meter, MEMORY_NS);
    sluice_session_stats_get(s, &end);
    double steps = (double)end.decode_tokens;
    uint64_t requests = end.decode_expert_requests;
    *sample = (struct sample){
        .drive_rate = sample->drive_rate,
        .prefill_s = (double)end.prefill_ns / 1e9,
        .decode_step_s = (double)end.decode_ns / 1e9 / steps,
        .prefill_read = (double)end.prefill_read_bytes,
        .decode_read = (double)end.decode_read_bytes / steps,
        .hit_rate = requests ? (double)end.decode_expert_hits / (double)requests : 1,
        .prefill_wait_s = (double)prefilled.wait_ns / 1e9,
        .decode_wait_s = (double)(end.wait_ns - prefilled.wait_ns) / 1e9 / steps,
        .used = (double)b->n_used * (double)b->engine->store->stride_bytes,
        .memory_rate = meter.bytes / meter.seconds,
        .experts_rate = meter.expert_bytes / meter.seconds,
    };
    return SLUICE_OK;
}

static void add_profile(sluice_profile *sum, const sluice_session *s)
{
    sluice_profile one;
    sluice_session_profile_get(s, &one);
    for (int i = 0; i < SLUICE_PHASES; i++) {
        sum->names[i] = one.names[i];
        sum->prefill_ns[i] += one.prefill_ns[i];
        sum->decode_ns[i] += one.decode_ns[i];
    }
}

/* A fresh session over the engine as it is; `profile` may be NULL. */
static sluice_status repeat(struct bench *b, const sluice_bench_row *row, struct sample *sample,
                            sluice_profile *profile, sluice_error *err)
{
    sluice_session *s;
    TRY(cancelled(b, err));
    TRY(sluice_session_open(b->engine, &s, err));
    if (b->o->route_trace) {
        b->replay.first = b->timeline;
        s->override = &b->replay.override;
        b->timeline += (size_t)row->prompt_tokens + row->generated_tokens;
    }
    sluice_session_profile(s, b->o->profile && profile);
    sluice_status status = measure(b, s, row, sample, err);
    if (status == SLUICE_OK && b->o->profile && profile)
        add_profile(profile, s);
    sluice_session_close(s);
    return status;
}

/* ---- a row ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Of the member at `offset` of n samples. */
static double median(const struct sample *samples, size_t n, size_t offset)
{
    double values[REPETITIONS_MAX];
    for (size_t i = 0; i < n; i++)
        memcpy(&values[i], (const char *)&samples[i] + offset, sizeof values[i]);
    qsort(values, n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

#define MEDIAN(member) median(samples, row->repetitions, offsetof(struct sample, member))

/* Each repetition against the limits that were measured beside it. */
static void relate(struct sample *s, double touched_bytes, double expert_bytes)
{
    s->memory_ratio = touched_bytes / s->decode_step_s / s->memory_rate;
    if (s->experts_rate > 0)
        s->reading_ratio =
            (expert_bytes / s->experts_rate + (touched_bytes - expert_bytes) / s->memory_rate) /
            s->decode_step_s;
    s->drive_ratio = s->drive_rate > 0 ? s->decode_read / s->decode_step_s / s->drive_rate : 0;
}

static void fill_row(const struct bench *b, struct sample *samples, sluice_bench_row *row)
{
    const uint32_t middle = row->prompt_tokens + row->generated_tokens / 2;
    row->decode_touched_bytes_per_token =
        (double)limits_weight_bytes(b->engine->store, b->engine->model) +
        (double)limits_kv_bytes(b->engine->model, b->engine->options.kv, middle) +
        (double)limits_state_bytes(b->engine->model);
    for (uint32_t i = 0; i < row->repetitions; i++)
        relate(&samples[i], row->decode_touched_bytes_per_token,
               (double)limits_routed_bytes(b->engine->store, b->engine->model));
    row->prefill_seconds = MEDIAN(prefill_s);
    row->decode_step_seconds = MEDIAN(decode_step_s);
    row->prefill_tokens_per_second = row->prompt_tokens / row->prefill_seconds;
    row->decode_tokens_per_second = 1 / row->decode_step_seconds;
    row->prefill_read_bytes = MEDIAN(prefill_read);
    row->decode_read_bytes_per_token = MEDIAN(decode_read);
    row->prefill_used_bytes = MEDIAN(used);
    row->hit_rate = MEDIAN(hit_rate);
    row->prefill_wait_seconds = MEDIAN(prefill_wait_s);
    row->decode_wait_seconds_per_token = MEDIAN(decode_wait_s);
    row->memory_bytes_per_second = MEDIAN(memory_rate);
    row->experts_bytes_per_second = MEDIAN(experts_rate);
    row->drive_bytes_per_second = MEDIAN(drive_rate);
    row->decode_memory_ratio = MEDIAN(memory_ratio);
    row->decode_reading_ratio = MEDIAN(reading_ratio);
    row->decode_drive_ratio = MEDIAN(drive_ratio);
    row->peak_bytes = peak_bytes();
    row->plan_bytes = b->engine->plan.total_bytes + b->own_bytes;
}

static void close_engine(struct bench *b)
{
    sluice_engine_close(b->engine);
    b->engine = NULL;
}

static sluice_status open_engine(struct bench *b, sluice_error *err)
{
    sluice_engine_options options = b->engine_options;
    close_engine(b);
    if (options.memory_bytes)
        options.memory_bytes = options.memory_bytes > b->own_bytes ? options.memory_bytes - b->own_bytes : 1;
    return sluice_engine_open(b->dir, &options, &b->engine, err);
}

static sluice_status run_row(struct bench *b, sluice_bench_row *row, sluice_error *err)
{
    struct sample samples[REPETITIONS_MAX], warmup = {0};
    reset_peak();
    if (!b->engine)
        TRY(open_engine(b, err));
    row->expert_slots = b->engine->plan.expert_slots;
    row->experts_per_layer = b->engine->plan.experts_per_layer;
    row->prefill_chunk_tokens = b->engine->options.prefill_chunk_tokens;
    row->threads = pool_lanes(b->engine->pool);
    if (!b->o->cold)
        TRY(repeat(b, row, &warmup, NULL, err));
    for (uint32_t i = 0; i < row->repetitions; i++) {
        samples[i].drive_rate = b->drive_rate;
        if (b->o->cold) {
            close_engine(b); /* the drive's rate changes by the minute, and to measure it takes memory */
            TRY(sluice_measure_drive(b->dir, &b->engine_options, DRIVE_NS, &samples[i].drive_rate, err));
            row->page_cache = drop_page_cache(b->dir);
            TRY(open_engine(b, err));
        }
        TRY(repeat(b, row, &samples[i], &row->profile, err));
    }
    fill_row(b, samples, row);
    return SLUICE_OK;
}

/* ---- preparation ---- */

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value ? value : otherwise;
}

static uint32_t longest_prompt(const sluice_bench_options *o)
{
    uint32_t longest = o->n_prompt_tokens ? 0 : PROMPT_DEFAULT;
    for (size_t i = 0; i < o->n_prompt_tokens; i++)
        longest = o->prompt_tokens[i] > longest ? o->prompt_tokens[i] : longest;
    return longest;
}

static sluice_status open_routes(struct bench *b, const struct model *model, uint32_t tokens,
                                 sluice_error *err)
{
    const char *spec = b->o->route_trace;
    if (!spec)
        return SLUICE_OK;
    if (model->n_experts == 0)
        return err_set(err, SLUICE_E_ARGUMENT, "the model has no routed experts, there is nothing to replay");
    uint32_t repetitions = or_default(b->o->repetitions, REPETITIONS_DEFAULT);
    uint64_t wanted = (uint64_t)tokens * (repetitions + 1);
    if (routes_is_spec(spec))
        TRY(routes_generate(spec, model->n_layers, model->n_experts, model->top_k,
                            wanted < MADE_TOKENS_MAX ? (size_t)wanted : MADE_TOKENS_MAX, b->o->seed,
                            &b->routes, err));
    else
        TRY(routes_load(spec, &b->routes, err));
    b->own_bytes += b->routes.tokens * (sizeof *b->routes.token +
                                        (size_t)b->routes.layers * b->routes.top_k * sizeof *b->routes.ids);
    TRY(replay_open(&b->replay, &b->routes, model, err));
    b->replay.guess_accuracy = b->o->guess_accuracy > 0 ? b->o->guess_accuracy : GUESS_ACCURACY_DEFAULT;
    return SLUICE_OK;
}

/* Any ids will do: a benchmark does not read the answer. Low ids are often control tokens. */
static void make_prompt(struct bench *b, uint32_t n, uint32_t vocab)
{
    uint64_t state = b->o->seed + 1;
    uint32_t low = vocab / 8;
    for (uint32_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        b->prompt[i] = (int32_t)(low + (uint32_t)(state >> 33) % (vocab - low));
    }
}

static sluice_status check_bench(const sluice_bench_options *o, sluice_error *err)
{
    if (o->repetitions > REPETITIONS_MAX)
        return err_set(err, SLUICE_E_ARGUMENT, "%u repetitions were asked for, the most is %d",
                       o->repetitions, REPETITIONS_MAX);
    const size_t lists[] = {o->n_prompt_tokens, o->n_threads, o->n_expert_slots, o->n_prefill_chunks};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (lists[i] > LISTED_MAX)
            return err_set(err, SLUICE_E_ARGUMENT, "a list of %zu values was given, the most is %d", lists[i],
                           LISTED_MAX);
    for (size_t i = 0; i < o->n_prompt_tokens; i++)
        if (o->prompt_tokens[i] == 0)
            return err_set(err, SLUICE_E_ARGUMENT, "a prompt needs at least one token");
    return SLUICE_OK;
}

static sluice_status prepare(struct bench *b, sluice_error *err)
{
    struct gturbo *store;
    struct model *model;
    sluice_engine_options *e = &b->engine_options;
    uint32_t prompt = longest_prompt(b->o), generated = or_default(b->o->generated_tokens, GENERATED_DEFAULT);
    uint64_t tokens = (uint64_t)prompt + generated + 1;
    if (e->verification == SLUICE_VERIFY_FULL)
        TRY(sluice_verify(b->dir, &b->o->watch, NULL, err));
    e->verification = SLUICE_VERIFY_RECEIPT;
    TRY(engine_open_shape(b->dir, e, true, &store, &model, err));
    sluice_status status = SLUICE_OK;
    if (tokens > model->max_context || (e->context_tokens && tokens > e->context_tokens))
        status =
            err_set(err, SLUICE_E_ARGUMENT,
                    "%u prompt and %u generated tokens do not fit a context of %u; shorten them or raise "
                    "--context",
                    prompt, generated,
                    e->context_tokens && e->context_tokens < model->max_context ? e->context_tokens
                                                                                : model->max_context);
    if (status == SLUICE_OK) {
        if (e->context_tokens == 0)
            e->context_tokens = (uint32_t)tokens;
        const size_t n_experts = (size_t)model->n_layers * model->n_experts;
        b->own_bytes = prompt * sizeof *b->prompt + n_experts * (sizeof *b->used + sizeof *b->records);
        b->prompt = mem_calloc(prompt, sizeof *b->prompt);
        b->used = mem_calloc(n_experts, sizeof *b->used);
        b->records = mem_calloc(n_experts, sizeof *b->records);
        if (!b->prompt || !b->used || !b->records)
            status = err_memory(err, (size_t)b->own_bytes, "the benchmark");
        else
            make_prompt(b, prompt, model->vocab);
    }
    if (status == SLUICE_OK)
        status = open_routes(b, model, (uint32_t)tokens, err);
    model_close(model);
    gturbo_close(store);
    if (status == SLUICE_OK)
        status = sluice_measure_drive(b->dir, e, DRIVE_NS, &b->drive_rate, err);
    return status;
}

/* ---- all rows ---- */

/* The i-th value of a list, or `otherwise` when it has none. */
static uint32_t listed(const uint32_t *values, size_t n, size_t i, uint32_t otherwise)
{
    return n ? values[i] : otherwise;
}

static sluice_status run_rows(struct bench *b, sluice_bench_fn fn, void *user, sluice_error *err)
{
    const sluice_bench_options *o = b->o;
    const sluice_engine_options given = b->engine_options;
    for (size_t t = 0; t == 0 || t < o->n_threads; t++)
        for (size_t k = 0; k == 0 || k < o->n_expert_slots; k++)
            for (size_t c = 0; c == 0 || c < o->n_prefill_chunks; c++) {
                close_engine(b);
                b->engine_options = given;
                b->engine_options.threads = listed(o->threads, o->n_threads, t, given.threads);
                b->engine_options.expert_slots =
                    listed(o->expert_slots, o->n_expert_slots, k, given.expert_slots);
                b->engine_options.prefill_chunk_tokens =
                    listed(o->prefill_chunks, o->n_prefill_chunks, c, given.prefill_chunk_tokens);
                for (size_t p = 0; p == 0 || p < o->n_prompt_tokens; p++) {
                    sluice_bench_row row = {
                        .prompt_tokens = listed(o->prompt_tokens, o->n_prompt_tokens, p, PROMPT_DEFAULT),
                        .generated_tokens = or_default(o->generated_tokens, GENERATED_DEFAULT),
                        .repetitions = or_default(o->repetitions, REPETITIONS_DEFAULT),
                        .cold = o->cold,
                    };
                    TRY(run_row(b, &row, err));
                    fn(user, &row);
                }
            }
    return SLUICE_OK;
}

sluice_status sluice_bench(const char *install_dir, const sluice_engine_options *options,
                           const sluice_bench_options *bench, sluice_bench_fn fn, void *user,
                           sluice_error *err)
{
    struct bench b = {.dir = install_dir, .o = bench};
    if (options)
        b.engine_options = *options;
    b.watch = (struct route_watch){&b, count_used};
    sluice_status status = check_bench(bench, err);
    if (status == SLUICE_OK)
        status = prepare(&b, err);
    if (status == SLUICE_OK)
        status = run_rows(&b, fn, user, err);
    close_engine(&b);
    routes_free(&b.routes);
    mem_free(b.prompt);
    mem_free(b.used);
    mem_free(b.records);
    return status;
}
