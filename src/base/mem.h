/* Memory: the one place that allocates, the budget that everything large is charged to, and arenas.
 *
 * mem_alloc and its kin are malloc with a fault hook, for small and short-lived things. A struct budget
 * counts what is reserved against a limit; an arena takes a fixed number of bytes from a budget when it opens
 * and hands them out until it closes, so nothing allocates in the token loop. Budgets are thread-safe, arenas
 * belong to one thread at a time. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include "base/err.h"

#include <setjmp.h>
#include <stdatomic.h>

/* ---- plain ---- */

void *mem_alloc(size_t bytes);               /* uninitialised; NULL when refused; bytes 0 acts as 1 */
void *mem_calloc(size_t count, size_t size); /* zeroed, overflow-checked */
void *mem_realloc(void *memory, size_t bytes);
char *mem_strdup(const char *text);
char *mem_strndup(const char *text, size_t bytes);
void mem_free(void *memory);

/* Grow an array of `size`-byte items so that it holds at least `need`; doubles. *cap is in items. False when
 * refused: *items and *cap are as before. */
bool mem_grow(void **items, size_t *cap, size_t need, size_t size);

/* Route jansson's allocations through mem_alloc; call once before jansson is used. Thread-safe. */
void mem_hook_json(void);
/* While jansson parses on this thread: a refused allocation jumps to *way_out instead of reaching jansson
 * (json_parse() says why). NULL ends it. */
void mem_guard_json(jmp_buf *way_out);

/* ---- budget ---- */

struct budget {
    uint64_t limit_bytes; /* UINT64_MAX: none */
    _Atomic uint64_t used_bytes, peak_bytes;
};

void budget_init(struct budget *budget, uint64_t limit_bytes);
/* Charge or refuse with SLUICE_E_BUDGET, naming `what`, the need and what is left. */
sluice_status budget_charge(struct budget *budget, uint64_t bytes, const char *what, sluice_error *err);
void budget_release(struct budget *budget, uint64_t bytes);

/* ---- arena ---- */

#define ARENA_ALIGN 64

struct arena {
    struct budget *budget; /* not owned; NULL: uncharged */
    unsigned char *base;
    size_t used_bytes, cap_bytes;
    bool huge;
};

/* Map `bytes` of zeroed anonymous memory, 2 MiB-aligned with huge pages advised from 2 MiB up, charged to
 * `budget` (may be NULL) under the name `what`. Pages become resident when touched. */
sluice_status arena_open(struct arena *arena, struct budget *budget, size_t bytes, const char *what,
                         sluice_error *err);
/* Unmaps and gives the charge back. A zeroed arena is fine. */
void arena_close(struct arena *arena);
/* ARENA_ALIGN-aligned; never NULL: the caller planned the size, and asserts hold it to that. */
void *arena_take(struct arena *arena, size_t bytes);
/* What arena_take(bytes) consumes, and what arena_open(bytes) charges: for planning. */
size_t arena_cost(size_t bytes);
size_t arena_charge(size_t bytes);

#endif
