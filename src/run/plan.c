/* The memory plan: everything the process will hold, before any weight is read. */
#include "run/engine.h"

#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Code, libraries, stacks, parsed manifests and allocator slack: 14 MiB measured for the demo model after
 * open, less its planned parts; rounded up. */
static const uint64_t RESERVE_BYTES = 32ull << 20;
static const uint64_t TOKENIZER_FACTOR = 3;
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
static uint32_t slots_within(const struct gturbo *store, uint64_t bytes)
{
    uint32_t slots = store->n_experts;
    while (slots > 0 && experts_bytes(store, slots) > bytes)
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
    *slots = asked ? asked : slots_within(store, cache_bytes ? cache_bytes : left);
    if (*slots < least && cache_bytes)
        return err_set(
            err, SLUICE_E_BUDGET,
            "an expert cache of %llu bytes holds %u experts per layer, at least %u are needed: %llu bytes",
            (unsigned long long)cache_bytes, *slots, least, (unsigned long long)experts_bytes(store, least));
    if (*slots < least)
        *slots = least;
    return SLUICE_OK;
}

sluice_status plan_compute(const struct gturbo *store, const struct model *model,
                           const sluice_engine_options *options, uint64_t tokenizer_bytes, sluice_plan *plan,
                           sluice_error *err)
{
    memset(plan, 0, sizeof *plan);
    set_limit(options, plan);
    plan->context_tokens = options->context_tokens;
    plan->prefill_chunk_tokens = options->prefill_chunk_tokens;
    plan->experts_per_layer = model->n_experts;
    uint32_t lanes = options->threads ? options->threads : thread_available();
    struct session_cost cost =
        session_cost(model, options->context_tokens, options->prefill_chunk_tokens, lanes, options->kv);
    uint64_t session = arena_charge((size_t)(cost.kv_bytes + cost.recurrent_bytes + cost.scratch_bytes));
    add_item(plan, "resident weights", arena_charge((size_t)store->resident_bytes));
    add_item(plan, "KV cache", cost.kv_bytes * options->max_sessions);
    if (cost.recurrent_bytes)
        add_item(plan, "recurrent state", cost.recurrent_bytes * options->max_sessions);
    add_item(plan, "scratch", (session - cost.kv_bytes - cost.recurrent_bytes) * options->max_sessions);
    /* Vocabulary, merges and their tables: about three times the JSON text that is parsed and dropped. */
    add_item(plan, "tokenizer", TOKENIZER_FACTOR * tokenizer_bytes);
    add_item(plan, "reserve", RESERVE_BYTES);
    plan->unmetered_bytes = TOKENIZER_FACTOR * tokenizer_bytes + RESERVE_BYTES;
    uint64_t fixed = plan->total_bytes;
    if (model->n_experts) {
        uint32_t least = model->top_k < 2 ? 2 : model->top_k;
        uint64_t left = plan->limit_bytes > fixed ? plan->limit_bytes - fixed : 0;
        plan->minimum_bytes = fixed + experts_bytes(store, least);
        TRY(choose_slots(options, store, least, left, &plan->expert_slots, err));
        add_item(plan, "expert slots", experts_bytes(store, plan->expert_slots));
    } else {
        plan->minimum_bytes = fixed;
    }
    if (plan->total_bytes > plan->limit_bytes)
        return err_set(
            err, SLUICE_E_BUDGET,
            "the plan needs %.1f MiB, the limit (%s) is %.1f MiB; the smallest budget that works with this "
            "context is %.1f MiB",
            (double)plan->total_bytes / 1048576, plan->limit_source, (double)plan->limit_bytes / 1048576,
            (double)plan->minimum_bytes / 1048576);
    return SLUICE_OK;
}
