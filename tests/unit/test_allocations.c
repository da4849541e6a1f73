/* The token loop asks for no memory: between the first piece of an answer and the last, whatever is streamed,
 * sampled or drafted, malloc and its relatives are not called by any thread.
 *
 * The program's own malloc counts and hands on to glibc's. Sanitizers bring their own: nothing is counted
 * there, and the tests are skipped. */
#include <stdatomic.h>

#include "support/run.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { COUNTING = 0 };
#else
enum { COUNTING = 1 };
#endif

static atomic_ulong g_allocations;

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

void *malloc(size_t bytes)
{
    (void)atomic_fetch_add(&g_allocations, 1);
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    (void)atomic_fetch_add(&g_allocations, 1);
    return __libc_calloc(n, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    (void)atomic_fetch_add(&g_allocations, 1);
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    (void)atomic_fetch_add(&g_allocations, 1);
    return __libc_memalign(alignment, bytes);
}
#endif

#define DEMO   "demo/dictionary-moe"
#define QWEN36 "tests/golden/qwen36/q4"
#define QWEN38 "tests/golden/qwen38/mtp"

enum { DEMO_MODEL, MOE, DENSE, N_MODELS, TOKENS = 48 };
static const char *const SOURCES[N_MODELS] = {DEMO, QWEN36, QWEN38};
static char g_temp[PATH_BYTES], g_installs[N_MODELS][PATH_BYTES];

static int setup(void **state)
{
    (void)state;
    char name[16];
    temp_make(g_temp);
    for (int i = 0; i < N_MODELS; i++) {
        (void)snprintf(name, sizeof name, "%d", i);
        install_into(SOURCES[i], g_temp, name, g_installs[i]);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    temp_remove(g_temp);
    return 0;
}

/* The count when the first piece came, and when the latest did. */
struct span {
    unsigned long first, last;
    unsigned pieces;
};

static bool note(void *user, const sluice_piece *piece)
{
    struct span *span = user;
    (void)piece;
    span->last = atomic_load(&g_allocations);
    if (span->pieces++ == 0)
        span->first = span->last;
    return true;
}

static unsigned long allocations(const char *install, const sluice_engine_options *engine_options,
                                 const sluice_generate_options *options)
{
    static const int32_t PROMPT[] = {5, 9, 17, 5, 9, 17, 5, 9}; /* repeats itself, for lookup */
    sluice_error err;
    sluice_generated generated;
    struct span span = {0};
    sluice_engine *engine = engine_open(install, engine_options);
    sluice_session *session = session_open(engine);
    EXPECT_OK(sluice_session_prefill(session, PROMPT, sizeof PROMPT / sizeof *PROMPT, &err));
    EXPECT_OK(sluice_generate(session, options, note, &span, &generated, &err));
    assert_int_equal(generated.tokens, TOKENS);
    assert_true(span.pieces > TOKENS / 2);
    sluice_session_close(session);
    sluice_engine_close(engine);
    return span.last - span.first;
}

static void no_token_allocates(void **state)
{
    (void)state;
    static const char *const STOPS[] = {"e never to be said", "a nor this", "\nnor that"};
    const sluice_sampling drawn = {.temperature = 0.9f,
                                   .top_p = 0.95f,
                                   .top_k = 40,
                                   .min_p = 0.01f,
                                   .repetition_penalty = 1.1f,
                                   .presence_penalty = 0.2f,
                                   .frequency_penalty = 0.1f,
                                   .seed = 7};
    const struct {
        const char *what;
        int model;
        sluice_engine_options engine;
        sluice_generate_options options;
    } ROWS[] = {
        {"greedy, in memory", DEMO_MODEL, {.expert_slots = 64}, {.max_tokens = TOKENS}},
        {"streamed", DEMO_MODEL, {.expert_slots = 4}, {.max_tokens = TOKENS}},
        {"streamed, by receipt",
         DEMO_MODEL,
         {.expert_slots = 5, .verification = SLUICE_VERIFY_RECEIPT},
         {.max_tokens = TOKENS}},
        {"by threads", DEMO_MODEL, {.expert_slots = 4, .io = SLUICE_IO_THREADS}, {.max_tokens = TOKENS}},
        {"with a lookahead", DEMO_MODEL, {.expert_slots = 6, .lookahead_experts = 4}, {.max_tokens = TOKENS}},
        {"drawn", DEMO_MODEL, {.expert_slots = 8}, {.sampling = drawn, .top_logprobs = 5}},
        {"stop strings", DEMO_MODEL, {.expert_slots = 8}, {.stops = STOPS, .n_stops = 3}},
        {"looked up", DEMO_MODEL, {.draft = SLUICE_DRAFT_LOOKUP, .draft_max = 4}, {.max_tokens = TOKENS}},
        {"recurrent", MOE, {.expert_slots = 3}, {.max_tokens = TOKENS}},
        {"drafted", DENSE, {.draft = SLUICE_DRAFT_MTP, .draft_max = 3}, {.max_tokens = TOKENS}},
        {"drafted and drawn", DENSE, {.draft = SLUICE_DRAFT_MTP, .draft_max = 3}, {.sampling = drawn}},
    };
    if (!COUNTING)
        skip();
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        sluice_generate_options options = ROWS[i].options;
        options.max_tokens = TOKENS;
        options.ignore_stop_ids = true;
        unsigned long n = allocations(g_installs[ROWS[i].model], &ROWS[i].engine, &options);
        if (n)
            fail_msg("%s: %lu allocations after the first token", ROWS[i].what, n);
    }
}

/* That the count counts at all. */
static void an_allocation_is_counted(void **state)
{
    (void)state;
    if (!COUNTING)
        skip();
    unsigned long before = atomic_load(&g_allocations);
    void *volatile memory = malloc(10);
    memory = need(realloc(memory, 20));
    free(memory);
    assert_int_equal(atomic_load(&g_allocations) - before, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_token_allocates),
        cmocka_unit_test(an_allocation_is_counted),
    };
    return cmocka_run_group_tests_name("allocations", tests, setup, teardown);
}
