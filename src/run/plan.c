/* The memory plan: everything the process will hold, before any weight is read. */
#include "run/engine.h"

#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Code, libraries, stacks, parsed manifests and allocator slack: 14 MiB measured for the demo model after
 * open, less its planned parts; rounded up. */
static const uint64_t RESERVE_BYTES = 32ull << 20;
/* Of the bytes of tokenizer.json. Kept: spellings, merges and their tables, 0.6 measured for 262,144 ids with
 * 523,000 merges. While it is opened, before anything large is: the text, a part of its tree and the
 * tables, 2.8. */
static const uint64_t TOKENIZER_KEPT = 1, TOKENIZER_OPENING = 3;
/* The kernel is charged 8 bytes per page of 4096 that is mapped, whether or not pages are huge. */
static const uint64_t PAGE_TABLE_SHARE = 512;
/* Left to the rest of the machine when no budget was given: a tenth of what is available, within bounds. */
static const uint64_t LEAVE_MIN_BYTES = 256ull << 20, LEAVE_MAX_BYTES = 2ull << 30;

/* The number that a line of a pseudo file starts with after `key`; UINT64_MAX when there is none ("max"). */
static uint64_t read_number(const char *path, const char *key)
{
    FILE *file = fopen(path, "re");
    char line[128];
    uint64_t value = UINT64_MAX;
    while (file && value == UINT64_MAX && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        char *end, *digits = line + strlen(key);
        unsigned long long number = strtoull(digits, &end, 10);
        if (end != digits)
            value = number;
    }
    if (file)
        (void)fclose(file);
    return value;
}

static uint64_t available_bytes(void)
{
    uint64_t kib = read_number("/proc/meminfo", "MemAvailable:");
    return kib == UINT64_MAX ? UINT64_MAX : kib << 10;
}

/* The tightest limit of the process's cgroup and its ancestors, in either version's hierarchy. */
static uint64_t cgroup_limit_bytes(void)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[1024];
    uint64_t limit = UINT64_MAX;
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        bool unified = controllers[1] == '\0', v1 = strcmp(controllers + 1, "memory") == 0;
        if (!unified && !v1)
            continue;
        for (;;) {
            char name[1280];
            (void)snprintf(name, sizeof name, "/sys/fs/cgroup%s%s/%s", v1 ? "/memory" : "", path,
                           v1 ? "memory.limit_in_bytes" : "memory.max");
            uint64_t value = read_number(name, "");
            limit = value < limit ? value : limit;
            char *slash = strrchr(path, '/');
            if (!slash || path[0] == '\0')
                break;
            *slash = '\0';
        }
    }
    if (file)
        (void)fclose(file);
    return limit;
}

uint64_t sluice_available_memory_bytes(void)
{
    uint64_t available = available_bytes(), cgroup = cgroup_limit_bytes();
    return cgroup < available ? cgroup : available;
}

static void set_limit(const sluice_engine_options *options, sluice_plan *plan)
{
    if (options->memory_bytes) {
        plan->limit_bytes = options->memory_bytes;
        plan->limit_source = "--memory";
        return;
    }
    uint64_t available = available_bytes(), cgroup = cgroup_limit_bytes();
    if (cgroup < available) {
        plan->limit_bytes = cgroup;
        plan->limit_source = "cgroup limit";
        return;
    }
    uint64_t leave = available / 10;
    leave = leave < LEAVE_MIN_BYTES ? LEAVE_MIN_BYTES : leave > LEAVE_MAX_BYTES ? LEAVE_MAX_BYTES : leave;
    plan->limit_bytes = available > leave ? available - leave : 0;
    plan->limit_source = "available memory";
}

static void add_item(sluice_plan *plan, const char *name, uint64_t bytes)
{
    plan->items[plan->n_items].name = name;
    plan->items[plan->n_items].bytes = bytes;
    plan->n_items++;
    plan->total_bytes += bytes;
}

/* The most slots per layer that `bytes` hold, at most one per expert. */
static uint32_t slots_within(const struct gturbo *store, uint32_t spares, uint64_t bytes)
{
    uint32_t slots = store->n_experts;
    while (slots > 0 && experts_bytes(store, slots, spares) > bytes)
        slots--;
    return slots;
}

/* How many slots per layer: what was asked for, or what the budget leaves, but not below `least`. */
static sluice_status choose_slots(const sluice_engine_options *options, const struct gturbo *store,
                                  uint32_t least, uint64_t left, uint32_t *slots, sluice_error *err)
{
    uint32_t asked = options->expert_slots == SLUICE_SLOTS_ALL ? store->n_experts : options->expert_slots;
    uint64_t cache_bytes = options->expert_cache_bytes;
    if (asked && cache_bytes)
        return err_set(err, SLUICE_E_ARGUMENT,
                       "expert slots and an expert cache size exclude each other; give one");
    if (asked && (asked < least || asked > store->n_experts))
        return err_set(err, SLUICE_E_ARGUMENT,
                       "%u expert slots per layer were asked for; from %u to %u are possible", asked, least,
                       store->n_experts);
    *slots = asked ? asked : slots_within(store, plan_spares(options), cache_bytes ? cache_bytes : left);
    if (*slots < least && cache_bytes)
        return err_set(
            err, SLUICE_E_BUDGET,
            "an expert cache of %llu bytes holds %u experts per layer, at least %u are needed: %llu bytes",
            (unsigned long long)cache_bytes, *slots, least,
            (unsigned long long)experts_bytes(store, least, plan_spares(options)));
    if (*slots < least)
        *slots = least;
    return SLUICE_OK;
}

/* What schemas and grammars may take: the vocabulary in their order once, and for each session a share that
 * grows with what the budget leaves beyond the minimum. */
static uint64_t grammars_bytes(const sluice_engine_options *options, const struct model *model,
                               uint64_t beyond)
{
    static const uint64_t LEAST_BYTES = 4ull << 20, MOST_BYTES = 16ull << 20, SHARE = 64;
    uint64_t each = LEAST_BYTES + beyond / SHARE / options->max_sessions;
    each = each > MOST_BYTES ? MOST_BYTES : each;
    return grammar_vocab_bytes(model->vocab) +
           (options->grammar_bytes ? options->grammar_bytes : each * options->max_sessions);
}

static uint64_t page_tables(uint64_t mapped_bytes)
{
    return mapped_bytes / PAGE_TABLE_SHARE;
}

/* What a token asks for, from which its speed on a drive follows. */
static void describe_experts(const struct gturbo *store, const struct model *model, sluice_plan *plan)
{
    for (uint32_t l = 0; l < store->n_layers; l++)
        plan->expert_layers += store->layers[l].present;
    plan->experts_per_token = model->top_k;
    plan->expert_bytes = store->stride_bytes;
}

/* ---- the prefill chunk ---- */

enum { CHUNK_LEAST = 128, CHUNK_ALL_FIT = 512, CHUNK_MOST = 2048 };

static uint64_t sessions_bytes(const sluice_engine_options *options, const struct model *model,
                               uint32_t chunk)
{
    uint32_t lanes = options->threads ? options->threads : thread_available();
    struct session_cost cost = session_cost(model, options, chunk, lanes, options->kv);
    return arena_charge((size_t)(cost.kv_bytes + cost.recurrent_bytes + cost.scratch_bytes)) *
           options->max_sessions;
}

static uint32_t least_chunk(const sluice_engine_options *options)
{
    uint32_t context = options->context_tokens;
    return options->prefill_chunk_tokens ? options->prefill_chunk_tokens
           : context < CHUNK_LEAST       ? context
                                         : CHUNK_LEAST;
}

static bool all_fit(const sluice_engine_options *options, const struct gturbo *store, uint64_t left)
{
    if (options->expert_slots)
        return options->expert_slots >= store->n_experts;
    return experts_bytes(store, store->n_experts, plan_spares(options)) <=
           (options->expert_cache_bytes ? options->expert_cache_bytes : left);
}

/* Rows of a chunk. An expert that is not in memory is read once per chunk, so where not all of them fit,
 * twice the rows is half the reading per token; an eighth of what the budget leaves beyond the minimum is
 * well spent on that. Where all fit, more rows only share the unpacking of an expert's weights: of 512 rows,
 * 32 meet each expert of a 26B-A4B shape, and its experts take two thirds of the time that they take with 128
 * rows; further rows gain nothing, and none is worth an expert's place. */
static uint32_t choose_chunk(const sluice_engine_options *options, const struct gturbo *store,
                             const struct model *model, uint64_t beyond_minimum, uint64_t least_slots_bytes)
{
    uint32_t chunk = least_chunk(options);
    if (options->prefill_chunk_tokens || model->n_experts == 0)
        return chunk;
    const uint64_t left = beyond_minimum + least_slots_bytes, least = sessions_bytes(options, model, chunk);
    const bool fits = all_fit(options, store, left);
    const uint32_t most = fits ? CHUNK_ALL_FIT : CHUNK_MOST;
    for (uint32_t next = chunk * 2; next <= options->context_tokens && next <= most; next *= 2) {
        const uint64_t more = sessions_bytes(options, model, next) - least;
        if (more > beyond_minimum / 8 || (fits && !all_fit(options, store, left - more)))
            break;
        chunk = next;
    }
    return chunk;
}

/* An expert computes while the next one is read; fewer slots than a token needs only mean that it takes them
 * in turn. Where memory is short, that is slow, but it is. */
enum { SLOTS_LEAST = 2 };

/* ---- the plan ---- */

/* What is charged to the process without being of an arena. */
static uint64_t unmetered(uint64_t tokenizer_bytes, uint64_t mapped_bytes)
{
    return TOKENIZER_KEPT * tokenizer_bytes + RESERVE_BYTES + page_tables(mapped_bytes);
}

static sluice_status add_experts(const struct gturbo *store, const struct model *model,
                                 const sluice_engine_options *options, uint32_t least, uint64_t *mapped_bytes,
                                 sluice_plan *plan, sluice_error *err)
{
    uint32_t spares = plan_spares(options);
    uint64_t fixed = plan->total_bytes + page_tables(*mapped_bytes);
    uint64_t left = plan->limit_bytes > fixed ? plan->limit_bytes - fixed : 0;
    TRY(choose_slots(options, store, least, left - page_tables(left), &plan->expert_slots, err));
    uint64_t slots = experts_bytes(store, plan->expert_slots, 0);
    uint64_t with_spares = experts_bytes(store, plan->expert_slots, spares);
    add_item(plan, "expert slots", slots);
    if (with_spares > slots)
        add_item(plan, "lookahead slots", with_spares - slots);
    *mapped_bytes += with_spares;
    describe_experts(store, model, plan);
    return SLUICE_OK;
}

/* The lookahead is decided: a number, 0 for none. */
static sluice_status compute(const struct gturbo *store, const struct model *model,
                             const sluice_engine_options *options, uint64_t tokenizer_bytes,
                             sluice_plan *plan, sluice_error *err)
{
    memset(plan, 0, sizeof *plan);
    set_limit(options, plan);
    plan->context_tokens = options->context_tokens;
    plan->lookahead_experts = options->lookahead_experts;
    plan->experts_per_layer = model->n_experts;
    uint64_t resident = arena_charge((size_t)store->resident_bytes);
    uint64_t opening = TOKENIZER_OPENING * tokenizer_bytes + RESERVE_BYTES;
    uint32_t least = model->n_experts == 0 ? 0 : SLOTS_LEAST;
    uint64_t least_slots = least ? experts_bytes(store, least, plan_spares(options)) : 0;
    uint64_t least_grammars = grammars_bytes(options, model, 0);
    uint64_t least_mapped = resident + sessions_bytes(options, model, least_chunk(options)) + least_slots;
    plan->minimum_bytes = least_mapped + least_grammars + unmetered(tokenizer_bytes, least_mapped);
    uint64_t beyond = plan->limit_bytes > plan->minimum_bytes ? plan->limit_bytes - plan->minimum_bytes : 0;
    plan->grammar_bytes = grammars_bytes(options, model, beyond);
    beyond -= plan->grammar_bytes - least_grammars;
    plan->minimum_bytes = plan->minimum_bytes > opening ? plan->minimum_bytes : opening;
    plan->prefill_chunk_tokens = choose_chunk(options, store, model, beyond, least_slots);
    uint64_t sessions = sessions_bytes(options, model, plan->prefill_chunk_tokens);
    uint32_t lanes = options->threads ? options->threads : thread_available();
    struct session_cost cost = session_cost(model, options, plan->prefill_chunk_tokens, lanes, options->kv);
    uint64_t kv = cost.kv_bytes * options->max_sessions, state = cost.recurrent_bytes * options->max_sessions;
    add_item(plan, "resident weights", resident);
    add_item(plan, "KV cache", kv);
    if (state)
        add_item(plan, "recurrent state", state);
    add_item(plan, "scratch", sessions - kv - state);
    uint64_t mapped = plan->total_bytes;
    add_item(plan, "grammars", plan->grammar_bytes);
    add_item(plan, "tokenizer", TOKENIZER_KEPT * tokenizer_bytes);
    add_item(plan, "reserve", RESERVE_BYTES);
    if (least)
        TRY(add_experts(store, model, options, least, &mapped, plan, err));
    add_item(plan, "page tables", page_tables(mapped));
    plan->unmetered_bytes = unmetered(tokenizer_bytes, mapped);
    if (plan->total_bytes > plan->limit_bytes || opening > plan->limit_bytes)
        return err_set(
            err, SLUICE_E_BUDGET,
            "the plan needs %.1f MiB, the limit (%s) is %.1f MiB; the smallest budget that works with this "
            "context is %.1f MiB",
            (double)(plan->total_bytes > opening ? plan->total_bytes : opening) / 1048576, plan->limit_source,
            (double)plan->limit_bytes / 1048576, (double)plan->minimum_bytes / 1048576);
    return SLUICE_OK;
}

sluice_status plan_compute(const struct gturbo *store, const struct model *model,
                           const sluice_engine_options *options, uint64_t tokenizer_bytes, sluice_plan *plan,
                           sluice_error *err)
{
    sluice_engine_options decided = *options;
    if (options->lookahead_experts == SLUICE_LOOKAHEAD_OFF)
        decided.lookahead_experts = 0;
    TRY(compute(store, model, &decided, tokenizer_bytes, plan, err));
    /* Left open: worth its spare slots where experts are streamed, and a token's own have room. */
    decided.lookahead_experts = model->family->lookahead;
    sluice_plan ahead;
    if (options->lookahead_experts == 0 && decided.lookahead_experts > 0 &&
        plan->expert_slots < plan->experts_per_layer &&
        compute(store, model, &decided, tokenizer_bytes, &ahead, NULL) == SLUICE_OK &&
        ahead.expert_slots >= 2 * model->top_k)
        *plan = ahead;
    return SLUICE_OK;
}
