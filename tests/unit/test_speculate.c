/* Speculative decoding: what is generated is what would have been without it, to the byte, whoever guesses
 * and however often it is right; sampled tokens follow the model's distribution; the drafting layer guesses
 * what the reference's does; and when guessing pays. */
#include <math.h>

#include "support/golden.h"

#include "run/session.h"

#define DEMO   "demo/dictionary-moe"
#define QWEN36 "tests/golden/qwen36/q4"
#define QWEN38 "tests/golden/qwen38/mtp"      /* its drafting layer is right now and then */
#define PLAIN  "tests/golden/qwen38/original" /* its drafting layer never is */

enum which { DEMO_MODEL, MOE, DENSE, NEVER, N_MODELS };
static const char *const SOURCES[N_MODELS] = {DEMO, QWEN36, QWEN38, PLAIN};
static char g_temp[PATH_BYTES], g_installs[N_MODELS][PATH_BYTES];

enum { TOKENS = 40, PROMPTS = 24, GUESSES = 4 };

/* ---- lookup ---- */

static void lookup_finds_what_followed(void **state)
{
    (void)state;
    static const struct {
        int32_t tokens[12];
        uint32_t n;
        int32_t want[4]; /* -1: nothing */
    } ROWS[] = {
        {{1, 2, 3, 4, 9, 1, 2}, 7, {3, 4, 9, 1}},
        {{1, 2, 3, 1, 2, 4, 1, 2}, 8, {4, 1, 2, 4}},           /* the latest of equal matches, running on */
        {{5, 1, 2, 7, 8, 1, 2, 4, 5, 1, 2}, 11, {7, 8, 1, 2}}, /* the longest */
        {{1, 1, 1}, 3, {1, 1, 1, 1}},
        {{1, 2, 3, 4}, 4, {-1}},
        {{1, 3, 2, 3}, 4, {-1}}, /* one token is no match */
        {{7}, 1, {-1}},
        {{0}, 0, {-1}},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        int32_t out[4] = {-1, -1, -1, -1};
        uint32_t n = lookup_guess(ROWS[i].tokens, ROWS[i].n, 4, out);
        assert_int_equal(n, ROWS[i].want[0] < 0 ? 0 : 4);
        for (uint32_t k = 0; k < n; k++)
            if (out[k] != ROWS[i].want[k])
                fail_msg("row %zu: guess %u is %d, not %d", i, k, out[k], ROWS[i].want[k]);
    }
}

/* ---- pace ---- */

/* A machine where a pass takes `plain` and each guess `more`; a text where `accept` of the guesses are right.
 * Returns the share of steps with guesses among the last half. */
static double drafted_share(double plain, double more, double accept, uint32_t *last)
{
    struct pace pace = {.accept = 0.8};
    uint32_t drafted = 0;
    double luck = 0;
    enum { STEPS = 4000 };
    for (uint32_t i = 0; i < STEPS; i++) {
        uint32_t n = pace_choose(&pace, 8);
        if (n == 0) {
            pace_plain(&pace, plain);
            continue;
        }
        drafted += i >= STEPS / 2;
        *last = n;
        pace_round(&pace, n, plain + more * n);
        for (uint32_t k = 0; k < n; k++) {
            luck += accept;
            bool hit = luck >= 1;
            luck -= hit;
            pace_test(&pace, hit);
            if (!hit)
                break;
        }
    }
    return drafted / (STEPS / 2.0);
}

static void guessing_stops_where_it_loses(void **state)
{
    (void)state;
    uint32_t n = 0;
    assert_true(drafted_share(100, 10, 0.95, &n) > 0.9); /* cheap and right: nearly always, and far */
    assert_true(n >= 5);
    assert_true(drafted_share(100, 40, 0.6, &n) > 0.5); /* worth a little */
    assert_true(n <= 3);
    assert_true(drafted_share(100, 90, 0.5, &n) < 0.1);  /* as dear as a pass: now and then a try */
    assert_true(drafted_share(100, 30, 0.02, &n) < 0.1); /* never right */
    struct pace pace = {.accept = 0.8};
    assert_int_equal(pace_choose(&pace, 4), 0); /* until a plain pass was measured */
    assert_int_equal(pace_choose(&pace, 0), 0);
}

/* ---- engines ---- */

static sluice_engine *open_model(enum which model, sluice_draft draft, uint32_t most, uint32_t chunk)
{
    sluice_engine_options options = {.context_tokens = 256,
                                     .prefill_chunk_tokens = chunk,
                                     .expert_slots = model == DEMO_MODEL ? 16
                                                     : model == MOE      ? 4
                                                                         : 0,
                                     .threads = 2,
                                     .max_sessions = 2,
                                     .verification = SLUICE_VERIFY_RECEIPT,
                                     .draft = draft,
                                     .draft_max = most};
    return engine_open(g_installs[model], &options);
}

/* Prompts of some tokens that repeat, so that there is something to look up. */
static size_t make_prompt(uint32_t index, uint32_t vocab, int32_t *ids)
{
    uint64_t x = index * 2654435761u + 12345;
    const size_t n = 5 + index % 23;
    for (size_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[i] = i >= 4 && i % 3 ? ids[i - 4] : (int32_t)(10 + (x >> 33) % (vocab - 20));
    }
    return n;
}

struct taken {
    int32_t ids[TOKENS];
    float logprobs[TOKENS];
    size_t n;
};

static bool take_piece(void *user, const sluice_piece *piece)
{
    struct taken *taken = user;
    if (piece->token.id >= 0) {
        assert_true(taken->n < TOKENS);
        taken->logprobs[taken->n] = piece->token.logprob;
        taken->ids[taken->n++] = piece->token.id;
    }
    return true;
}

static void generate(sluice_session *session, uint32_t prompt, const sluice_sampling *sampling,
                     struct taken *taken)
{
    sluice_error err;
    int32_t ids[64];
    sluice_generated result;
    size_t n = make_prompt(prompt, session->engine->model->vocab, ids);
    sluice_generate_options options = {.sampling = *sampling, .max_tokens = TOKENS, .ignore_stop_ids = true};
    EXPECT_OK(sluice_session_rewind(session, 0, &err));
    EXPECT_OK(sluice_session_prefill(session, ids, n, &err));
    *taken = (struct taken){.n = 0};
    EXPECT_OK(sluice_generate(session, &options, take_piece, taken, &result, &err));
    assert_int_equal(taken->n, TOKENS);
}

static const sluice_sampling GREEDY = {.temperature = 0};
static const sluice_sampling SAMPLED = {.temperature = 0.9f, .top_p = 0.95f, .seed = 17};

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void expect_same(const struct taken *got, const struct taken *want, const char *what, uint32_t prompt)
{
    for (size_t i = 0; i < TOKENS; i++)
        if (got->ids[i] != want->ids[i] || bits_of(got->logprobs[i]) != bits_of(want->logprobs[i]))
            fail_msg("%s, prompt %u, token %zu: %d (%a), without drafting %d (%a)", what, prompt, i,
                     got->ids[i], (double)got->logprobs[i], want->ids[i], (double)want->logprobs[i]);
}

/* ---- forced drafters ---- */

/* What plain decoding gave, and how many guesses of a round shall be right. */
static struct {
    struct taken *truth;
    size_t prompt_tokens;
    uint32_t right;
    bool varies;
} g_forced;

static uint32_t forced(sluice_session *s, int32_t token, uint32_t n, int32_t *out)
{
    size_t at = s->kv.length - g_forced.prompt_tokens; /* of `token` in the truth */
    (void)token;
    uint32_t right = g_forced.varies ? (uint32_t)(at * 7 % (n + 1)) : g_forced.right;
    for (uint32_t i = 0; i < n; i++) {
        int32_t truth = at + 1 + i < TOKENS ? g_forced.truth->ids[at + 1 + i] : 11;
        out[i] = i < right ? truth : (truth + 1) % (int32_t)s->engine->model->vocab;
    }
    return n;
}

static void use_forced(sluice_session *session)
{
    session->speculation.draft = forced;
    session->speculation.steady = true;
}

static void check_forced(enum which model, const sluice_sampling *sampling, uint32_t prompts)
{
    sluice_engine *plain = open_model(model, SLUICE_DRAFT_OFF, 0, 32),
                  *drafting = open_model(model, SLUICE_DRAFT_LOOKUP, GUESSES, 32);
    sluice_session *one = session_open(plain), *two = session_open(drafting);
    use_forced(two);
    struct taken truth, got;
    g_forced.truth = &truth;
    for (uint32_t p = 0; p < (getenv("SLUICE_TEST_SHORT") ? 1 : prompts); p++) {
        int32_t ids[64];
        generate(one, p, sampling, &truth);
        g_forced.prompt_tokens = make_prompt(p, one->engine->model->vocab, ids);
        for (uint32_t right = 0; right <= GUESSES + 1; right++) {
            sluice_session_stats before, after;
            g_forced.right = right;
            g_forced.varies = right > GUESSES;
            sluice_session_stats_get(two, &before);
            generate(two, p, sampling, &got);
            sluice_session_stats_get(two, &after);
            expect_same(&got, &truth, "forced", p);
            const uint64_t rounds = after.draft_rounds - before.draft_rounds,
                           accepted = after.draft_accepted - before.draft_accepted;
            assert_true(rounds > 0);
            if (right == 0)
                assert_int_equal(accepted, 0);
            else if (right <= GUESSES) /* all but the last round's, which may be cut short */
                assert_true(accepted + GUESSES >= rounds * right && accepted <= rounds * right);
            assert_int_equal(after.decode_tokens - before.decode_tokens, TOKENS - 1);
        }
    }
    sluice_session_close(one);
    sluice_session_close(two);
    sluice_engine_close(plain);
    sluice_engine_close(drafting);
}

static void any_number_of_right_guesses_gives_the_same(void **state)
{
    (void)state;
    check_forced(DEMO_MODEL, &GREEDY, 2);
    check_forced(MOE, &GREEDY, 3);
    check_forced(DENSE, &GREEDY, 3);
    check_forced(MOE, &SAMPLED, 2);
    check_forced(DEMO_MODEL, &SAMPLED, 1);
}

/* ---- real drafters ---- */

struct drafting {
    enum which model;
    sluice_draft draft;
    const sluice_sampling *sampling;
    uint32_t chunk;
    bool sometimes; /* right, and wrong, at least once each */
    bool steady;
};

static void real_drafters_change_nothing(void **state)
{
    const struct drafting *d = *state;
    sluice_engine *plain = open_model(d->model, SLUICE_DRAFT_OFF, 0, 32),
                  *drafting = open_model(d->model, d->draft, GUESSES, d->chunk);
    sluice_session *one = session_open(plain), *two = session_open(drafting);
    two->speculation.steady = d->steady;
    struct taken truth, got;
    const uint32_t step = getenv("SLUICE_TEST_SHORT") ? 6 : 1;
    for (uint32_t p = 0; p < PROMPTS; p += step) {
        generate(one, p, d->sampling, &truth);
        generate(two, p, d->sampling, &got);
        expect_same(&got, &truth, "real", p);
    }
    sluice_session_stats stats;
    sluice_session_stats_get(two, &stats);
    print_message("%llu of %llu guesses right in %llu passes\n", (unsigned long long)stats.draft_accepted,
                  (unsigned long long)stats.draft_tested, (unsigned long long)stats.draft_rounds);
    if (d->steady)
        assert_true(stats.draft_rounds > 0);
    if (d->sometimes)
        assert_true(stats.draft_accepted > 10 && stats.draft_accepted + 10 < stats.draft_tested);
    sluice_session_close(one);
    sluice_session_close(two);
    sluice_engine_close(plain);
    sluice_engine_close(drafting);
}

/* ---- the drafting layer against the reference ---- */

static void the_layer_guesses_what_the_reference_does(void **state)
{
    (void)state;
    static const struct {
        enum which model;
        const char *name;
    } ROWS[] = {{DENSE, "mtp"}, {NEVER, "original"}};
    for (size_t r = 0; r < sizeof ROWS / sizeof *ROWS; r++) {
        char json[PATH_BYTES];
        sluice_error err;
        (void)snprintf(json, sizeof json, "tests/golden/qwen38/%s.json", ROWS[r].name);
        json_t *root = json_file_load(json);
        sluice_engine_options options = {.context_tokens = 256,
                                         .prefill_chunk_tokens = 7,
                                         .threads = 2,
                                         .kv = SLUICE_KV_F32,
                                         .activations = SLUICE_ACTIVATIONS_F32,
                                         .draft = SLUICE_DRAFT_MTP,
                                         .draft_max = GUESSES};
        sluice_engine *engine = engine_open(g_installs[ROWS[r].model], &options);
        sluice_session *s = session_open(engine);
        const json_t *prompts = json_object_get(root, "prompts");
        for (size_t p = 0; p < json_array_size(prompts); p++) {
            const json_t *prompt = json_array_get(prompts, p);
            size_t n, n_guesses, n_chain;
            int32_t *ids = ids_of(json_object_get(prompt, "ids"), &n), out[GUESSES];
            int32_t *guesses = ids_of(json_object_get(prompt, "guesses"), &n_guesses);
            int32_t *chain = ids_of(json_object_get(prompt, "chain"), &n_chain);
            int32_t *greedy = ids_of(json_object_get(prompt, "greedy"), &(size_t){0});
            assert_int_equal(n_guesses, n - 1);
            EXPECT_OK(sluice_session_rewind(s, 0, &err));
            /* Guess j follows from the state at j and the token at j + 1; in between, chunks of various
             * sizes. */
            for (size_t j = 0; j + 1 < n; j++) {
                EXPECT_OK(sluice_session_prefill(s, ids + j, 1, &err));
                assert_int_equal(s->speculation.draft(s, ids[j + 1], 1, out), 1);
                if (out[0] != guesses[j])
                    fail_msg("%s, prompt %zu, pair %zu: guess %d, reference %d", ROWS[r].name, p, j, out[0],
                             guesses[j]);
            }
            EXPECT_OK(sluice_session_rewind(s, 0, &err));
            EXPECT_OK(sluice_session_prefill(s, ids, n, &err));
            assert_int_equal(s->speculation.draft(s, greedy[0], (uint32_t)n_chain, out), n_chain);
            for (size_t i = 0; i < n_chain; i++)
                assert_int_equal(out[i], chain[i]);
            free(ids);
            free(guesses);
            free(chain);
            free(greedy);
        }
        sluice_session_close(s);
        sluice_engine_close(engine);
        json_decref(root);
    }
}

/* ---- distribution ---- */

/* Draws of two tokens with guesses that are right by chance: the pairs' frequencies against the exact
 * probabilities, by chi-square over the likeliest pairs. */
static uint32_t stubborn(sluice_session *s, int32_t token, uint32_t n, int32_t *out)
{
    (void)s;
    (void)token;
    for (uint32_t i = 0; i < n; i++)
        out[i] = 77;
    return n;
}

static void softmax(const float *logits, uint32_t n, double temperature, double *p)
{
    double most = (double)logits[0], sum = 0;
    for (uint32_t i = 1; i < n; i++)
        most = (double)logits[i] > most ? (double)logits[i] : most;
    for (uint32_t i = 0; i < n; i++)
        sum += p[i] = exp(((double)logits[i] - most) / temperature);
    for (uint32_t i = 0; i < n; i++)
        p[i] /= sum;
}

static void sampled_tokens_follow_the_distribution(void **state)
{
    (void)state;
    enum { DRAWS = 3000 };
    const double temperature = 20; /* the tiny model is too sure of itself */
    sluice_error err;
    sluice_engine *engine = open_model(MOE, SLUICE_DRAFT_LOOKUP, 2, 32);
    sluice_session *s = session_open(engine);
    const uint32_t vocab = engine->model->vocab;
    const int32_t prompt[] = {40, 50, 60};
    double *first = need(calloc(vocab, sizeof *first)), *second = need(calloc(vocab, sizeof *second));
    uint32_t(*counts)[272] = need(calloc(vocab, sizeof *counts));
    assert_int_equal(vocab, 272);
    sluice_snapshot *at_prompt;
    EXPECT_OK(sluice_session_prefill(s, prompt, 3, &err));
    EXPECT_OK(sluice_session_snapshot(s, &at_prompt, &err));
    softmax(sluice_session_logits(s), vocab, temperature, first);

    s->speculation.draft = stubborn; /* one and the same guess: right in some draws */
    s->speculation.steady = true;
    const int draws = getenv("SLUICE_TEST_SHORT") ? DRAWS / 8 : DRAWS;
    for (int i = 0; i < draws; i++) {
        sluice_generate_options options = {
            .sampling = {.temperature = (float)temperature, .seed = (uint64_t)i},
            .max_tokens = 3,
            .ignore_stop_ids = true};
        struct taken taken = {.n = 0};
        sluice_generated result;
        EXPECT_OK(sluice_session_restore(s, at_prompt, &err));
        EXPECT_OK(sluice_generate(s, &options, take_piece, &taken, &result, &err));
        counts[taken.ids[0]][taken.ids[1]]++;
    }
    /* Cells: by first token in 8 classes of ids, and by second token likewise. */
    double chi = 0, expected[8][8] = {{0}};
    uint32_t seen[8][8] = {{0}}, cells = 0;
    for (uint32_t a = 0; a < vocab; a++) {
        const int32_t id = (int32_t)a;
        EXPECT_OK(sluice_session_restore(s, at_prompt, &err));
        EXPECT_OK(sluice_session_prefill(s, &id, 1, &err));
        softmax(sluice_session_logits(s), vocab, temperature, second);
        for (uint32_t b = 0; b < vocab; b++) {
            expected[a * 8 / vocab][b * 8 / vocab] += draws * first[a] * second[b];
            seen[a * 8 / vocab][b * 8 / vocab] += counts[a][b];
        }
    }
    for (int a = 0; a < 8; a++)
        for (int b = 0; b < 8; b++)
            if (expected[a][b] >= 5) {
                chi += (seen[a][b] - expected[a][b]) * (seen[a][b] - expected[a][b]) / expected[a][b];
                cells++;
            }
    print_message("chi-square %.1f over %u cells, %llu of %llu guesses right\n", chi, cells,
                  (unsigned long long)s->stats.draft_accepted, (unsigned long long)s->stats.draft_tested);
    assert_true(s->stats.draft_accepted > 0 && s->stats.draft_accepted < s->stats.draft_tested);
    assert_true(cells >= 16);
    assert_true(chi < cells + 6 * sqrt(2.0 * cells)); /* seeds are fixed: this cannot fail by chance */
    sluice_snapshot_free(at_prompt);
    free(first);
    free(second);
    free(counts);
    sluice_session_close(s);
    sluice_engine_close(engine);
}

/* ---- in the middle of a round ---- */

struct stopper {
    size_t left;
    sluice_snapshot *snapshot; /* taken when none are left */
    sluice_session *session;
};

static bool stop_after(void *user, const sluice_piece *piece)
{
    struct stopper *stopper = user;
    sluice_error err;
    if (piece->token.id < 0 || --stopper->left > 0)
        return true;
    EXPECT_OK(sluice_session_snapshot(stopper->session, &stopper->snapshot, &err));
    return false;
}

/* Generation ends, or a snapshot is taken, at every place of a round: going on gives the same. */
static void rounds_may_end_anywhere(void **state)
{
    (void)state;
    sluice_error err;
    for (int model = DEMO_MODEL; model <= DENSE; model++) {
        sluice_engine *engine = open_model((enum which)model, SLUICE_DRAFT_LOOKUP, GUESSES, 32);
        sluice_session *s = session_open(engine), *other = session_open(engine);
        struct taken truth;
        int32_t ids[64];
        generate(other, 5, &GREEDY, &truth); /* adaptive: equal by the tests above */
        size_t n = make_prompt(5, engine->model->vocab, ids);
        use_forced(s);
        g_forced.truth = &truth;
        g_forced.prompt_tokens = n;
        g_forced.right = 3;
        g_forced.varies = false;
        for (size_t stop = 1; stop < 12; stop += getenv("SLUICE_TEST_SHORT") ? 4 : 1) {
            struct stopper stopper = {.left = stop, .session = s};
            sluice_generated result;
            sluice_generate_options options = {.ignore_stop_ids = true};
            EXPECT_OK(sluice_session_rewind(s, 0, &err));
            EXPECT_OK(sluice_session_prefill(s, ids, n, &err));
            EXPECT_OK(sluice_generate(s, &options, stop_after, &stopper, &result, &err));
            assert_int_equal(s->kv.length, n + stop - 1);
            for (int from = 0; from < 2; from++) {
                sluice_session *go_on = from ? other : s;
                if (from)
                    EXPECT_OK(sluice_session_restore(other, stopper.snapshot, &err));
                for (size_t i = stop - 1; i < TOKENS; i++) {
                    const float *logits = need((void *)sluice_session_logits(go_on));
                    assert_int_equal(best_of(logits, engine->model->vocab), truth.ids[i]);
                    EXPECT_OK(sluice_session_prefill(go_on, &truth.ids[i], 1, &err));
                }
            }
            sluice_snapshot_free(stopper.snapshot);
        }
        sluice_session_close(s);
        sluice_session_close(other);
        sluice_engine_close(engine);
    }
}

/* Guesses never pass the end of the context. */
static void the_context_ends_where_it_did(void **state)
{
    (void)state;
    sluice_error err;
    sluice_engine_options options = {.context_tokens = 30, .draft = SLUICE_DRAFT_LOOKUP, .draft_max = 8};
    sluice_engine *engine = engine_open(g_installs[DENSE], &options);
    sluice_session *s = session_open(engine);
    s->speculation.steady = true;
    int32_t ids[64];
    struct taken taken = {.n = 0};
    sluice_generated result;
    sluice_generate_options generate_options = {.ignore_stop_ids = true};
    EXPECT_OK(sluice_session_prefill(s, ids, make_prompt(3, engine->model->vocab, ids), &err));
    EXPECT_OK(sluice_generate(s, &generate_options, take_piece, &taken, &result, &err));
    assert_int_equal(result.finish, SLUICE_FINISH_LENGTH);
    assert_int_equal(s->kv.length, 30);
    sluice_session_close(s);
    sluice_engine_close(engine);
}

/* ---- options ---- */

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    static const struct {
        enum which model;
        sluice_draft draft;
        uint32_t most;
        sluice_status status;
        const char *says;
    } ROWS[] = {
        {DEMO_MODEL, SLUICE_DRAFT_MTP, 0, SLUICE_E_UNSUPPORTED, "mtp.*"},
        {MOE, SLUICE_DRAFT_MTP, 0, SLUICE_E_UNSUPPORTED, "qwen36"},
        {DENSE, SLUICE_DRAFT_OFF, 3, SLUICE_E_ARGUMENT, "drafting is off"},
        {DENSE, SLUICE_DRAFT_MTP, 17, SLUICE_E_ARGUMENT, "17"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        sluice_error err;
        sluice_engine *engine = NULL;
        sluice_engine_options options = {.draft = ROWS[i].draft, .draft_max = ROWS[i].most};
        assert_int_equal(sluice_engine_open(g_installs[ROWS[i].model], &options, &engine, &err),
                         ROWS[i].status);
        assert_null(engine);
        assert_non_null(strstr(err.detail, ROWS[i].says));
    }
}

/* ---- fixture ---- */

static int make_installs(void **state)
{
    (void)state;
    sluice_error err;
    temp_make(g_temp);
    for (int model = 0; model < N_MODELS; model++) {
        char name[32];
        (void)snprintf(name, sizeof name, "%d.gturbo", model);
        install_into(SOURCES[model], g_temp, name, g_installs[model]);
        EXPECT_OK(sluice_verify(g_installs[model], NULL, NULL, &err));
    }
    return 0;
}

static int remove_installs(void **state)
{
    (void)state;
    temp_remove(g_temp);
    return 0;
}

int main(void)
{
    static struct drafting drafting[] = {
        {DEMO_MODEL, SLUICE_DRAFT_LOOKUP, &GREEDY, 32, false, true},
        {MOE, SLUICE_DRAFT_LOOKUP, &GREEDY, 32, false, false},
        {DENSE, SLUICE_DRAFT_MTP, &GREEDY, 32, true, true},
        {DENSE, SLUICE_DRAFT_MTP, &SAMPLED, 3, true, true},
        {DENSE, SLUICE_DRAFT_MTP, &GREEDY, 32, false, false},
        {NEVER, SLUICE_DRAFT_MTP, &GREEDY, 5, false, true},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookup_finds_what_followed),
        cmocka_unit_test(guessing_stops_where_it_loses),
        cmocka_unit_test(any_number_of_right_guesses_gives_the_same),
        cmocka_unit_test_prestate(real_drafters_change_nothing, &drafting[0]),
        cmocka_unit_test_prestate(real_drafters_change_nothing, &drafting[1]),
        cmocka_unit_test_prestate(real_drafters_change_nothing, &drafting[2]),
        cmocka_unit_test_prestate(real_drafters_change_nothing, &drafting[3]),
        cmocka_unit_test_prestate(real_drafters_change_nothing, &drafting[4]),
        cmocka_unit_test_prestate(real_drafters_change_nothing, &drafting[5]),
        cmocka_unit_test(the_layer_guesses_what_the_reference_does),
        cmocka_unit_test(sampled_tokens_follow_the_distribution),
        cmocka_unit_test(rounds_may_end_anywhere),
        cmocka_unit_test(the_context_ends_where_it_did),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests_name("speculate", tests, make_installs, remove_installs);
}
