#include "base/mem.h"

#include "base/check.h"
#include "base/fault.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *mem_alloc(size_t bytes)
{
    return fault_hit(FAULT_ALLOC) ? NULL : malloc(bytes ? bytes : 1);
}

void *mem_calloc(size_t count, size_t size)
{
    size_t bytes; /* sanitizers end the program where calloc itself finds the overflow */
    return fault_hit(FAULT_ALLOC) || !size_mul(count, size, &bytes)
               ? NULL
               : calloc(count ? count : 1, size ? size : 1);
}

void *mem_realloc(void *memory, size_t bytes)
{
    return fault_hit(FAULT_ALLOC) ? NULL : realloc(memory, bytes ? bytes : 1);
}

char *mem_strndup(const char *text, size_t bytes)
{
    size_t room;
    char *copy = size_add(bytes, 1, &room) ? mem_alloc(room) : NULL;
    if (copy) {
        memcpy(copy, text, bytes);
        copy[bytes] = '\0';
    }
    return copy;
}

char *mem_strdup(const char *text)
{
    return mem_strndup(text, strlen(text));
}

void mem_free(void *memory)
{
    free(memory);
}

void sluice_free(void *memory)
{
    mem_free(memory);
}

bool mem_grow(void **items, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return true;
    size_t next = *cap ? *cap : 16, bytes;
    while (next < need)
        if (!size_mul(next, 2, &next))
            return false;
    if (!size_mul(next, size, &bytes))
        return false;
    void *grown = mem_realloc(*items, bytes);
    if (!grown)
        return false;
    *items = grown;
    *cap = next;
    return true;
}

static _Thread_local jmp_buf *json_way_out;

static void *json_alloc(size_t bytes)
{
    if (!json_way_out)
        return mem_alloc(bytes);
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        longjmp(*json_way_out, 1);
    return memory;
}

static void hook_json(void)
{
    json_set_alloc_funcs(json_alloc, mem_free);
}

void mem_guard_json(jmp_buf *way_out)
{
    json_way_out = way_out;
}

void mem_hook_json(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, hook_json);
}

/* ---- budget ---- */

void budget_init(struct budget *budget, uint64_t limit_bytes)
{
    budget->limit_bytes = limit_bytes;
    atomic_init(&budget->used_bytes, 0);
    atomic_init(&budget->peak_bytes, 0);
}

sluice_status budget_charge(struct budget *budget, uint64_t bytes, const char *what, sluice_error *err)
{
    uint64_t used = atomic_load(&budget->used_bytes), next;
    do {
        if (!u64_add(used, bytes, &next) || next > budget->limit_bytes)
            return err_set(err, SLUICE_E_BUDGET,
                           "%s needs %llu bytes, the budget of %llu has %llu left; raise --memory", what,
                           (unsigned long long)bytes, (unsigned long long)budget->limit_bytes,
                           (unsigned long long)(budget->limit_bytes - used));
    } while (!atomic_compare_exchange_weak(&budget->used_bytes, &used, next));
    uint64_t peak = atomic_load(&budget->peak_bytes);
    while (peak < next && !atomic_compare_exchange_weak(&budget->peak_bytes, &peak, next))
        ;
    return SLUICE_OK;
}

void budget_release(struct budget *budget, uint64_t bytes)
{
    uint64_t before = atomic_fetch_sub(&budget->used_bytes, bytes);
    assert(before >= bytes);
    (void)before;
}

/* ---- arena ---- */

enum { HUGE_BYTES = 2 << 20, PAGE_BYTES = 4096 };

size_t arena_charge(size_t bytes)
{
    size_t unit = bytes >= HUGE_BYTES ? HUGE_BYTES : PAGE_BYTES;
    return ((bytes ? bytes : 1) + unit - 1) / unit * unit;
}

sluice_status arena_open(struct arena *arena, struct budget *budget, size_t bytes, const char *what,
                         sluice_error *err)
{
    memset(arena, 0, sizeof *arena);
    size_t padded;
    if (!size_add(bytes, 2 * (size_t)HUGE_BYTES, &padded))
        return err_memory(err, bytes, what);
    arena->cap_bytes = bytes ? bytes : 1;
    arena->huge = bytes >= HUGE_BYTES;
    size_t mapped = arena_charge(arena->cap_bytes);
    if (budget)
        TRY(budget_charge(budget, mapped, what, err));
    size_t slack = arena->huge ? HUGE_BYTES : 0;
    void *raw = fault_hit(FAULT_ALLOC) ? MAP_FAILED
                                       : mmap(NULL, mapped + slack, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
        if (budget)
            budget_release(budget, mapped);
        memset(arena, 0, sizeof *arena);
        return err_memory(err, bytes, what);
    }
    uintptr_t start = (uintptr_t)raw;
    if (arena->huge) {
        /* Trim the mapping to a 2 MiB boundary at both ends. */
        start = (start + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
        size_t head = start - (uintptr_t)raw;
        if (head)
            (void)munmap(raw, head);
        if (slack - head)
            (void)munmap((void *)(start + mapped), slack - head);
        (void)madvise((void *)start, mapped, MADV_HUGEPAGE);
    }
    arena->base = (unsigned char *)start;
    arena->budget = budget;
    return SLUICE_OK;
}

void arena_close(struct arena *arena)
{
    if (arena->base) {
        size_t mapped = arena_charge(arena->cap_bytes);
        (void)munmap(arena->base, mapped);
        if (arena->budget)
            budget_release(arena->budget, mapped);
    }
    memset(arena, 0, sizeof *arena);
}

size_t arena_cost(size_t bytes)
{
    return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

void *arena_take(struct arena *arena, size_t bytes)
{
    size_t cost = arena_cost(bytes);
    assert(arena->base && cost <= arena->cap_bytes - arena->used_bytes);
    void *memory = arena->base + arena->used_bytes;
    arena->used_bytes += cost;
    return memory;
}
