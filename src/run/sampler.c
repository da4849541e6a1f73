#include "run/sampler.h"

#include "base/random.h"
#include "compute/host.h"
#include "compute/math64.h"

#include <string.h>

size_t sampler_bytes(uint32_t vocab)
{
    return arena_cost(vocab * sizeof(struct candidate)) + arena_cost(vocab * sizeof(uint32_t));
}

void sampler_open(struct sampler *s, uint32_t vocab, struct arena *arena)
{
    *s = (struct sampler){.vocab = vocab};
    s->candidates = arena_take(arena, vocab * sizeof *s->candidates);
    s->counts = arena_take(arena, vocab * sizeof *s->counts);
}

sluice_status sluice_sampling_check(const sluice_sampling *p, sluice_error *err)
{
    const struct {
        const char *name;
        float value, min, max;
    } ROWS[] = {
        {"temperature", p->temperature, 0, 100},
        {"top_p", p->top_p, 0, 1},
        {"min_p", p->min_p, 0, 1},
        {"repetition_penalty", p->repetition_penalty, 0, 100},
        {"presence_penalty", p->presence_penalty, -100, 100},
        {"frequency_penalty", p->frequency_penalty, -100, 100},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        if (!(ROWS[i].value >= ROWS[i].min && ROWS[i].value <= ROWS[i].max))
            return err_set(err, SLUICE_E_ARGUMENT, "%s is %g, it must be from %g to %g", ROWS[i].name,
                           (double)ROWS[i].value, (double)ROWS[i].min, (double)ROWS[i].max);
    for (size_t i = 0; i < p->n_biases; i++)
        if (!(p->biases[i].bias >= -1e4f && p->biases[i].bias <= 1e4f))
            return err_set(err, SLUICE_E_ARGUMENT,
                           "the logit bias of token %d is %g, it must be from -10000 to 10000",
                           p->biases[i].id, (double)p->biases[i].bias);
    return SLUICE_OK;
}

/* ---- distribution ---- */

/* log(sum(exp(x - max))) + max, in double: the sum has up to 262,144 terms. Term i goes to sum i mod 8, for
 * one addition after another took longer than all else that a greedy draw does. */
static double log_total(const float *x, uint32_t n)
{
    enum { RUN = 512, SUMS = 8 };
    float max = host_largest(x, n), e[RUN];
    double sums[SUMS] = {0}, total = 0;
    for (uint32_t i = 0; i < n; i += RUN) {
        const uint32_t count = n - i < RUN ? n - i : RUN;
        host_exp(x + i, max, count, e);
        memset(e + count, 0, (RUN - count) * sizeof *e);
        for (uint32_t j = 0; j < RUN; j += SUMS)
            for (uint32_t k = 0; k < SUMS; k++)
                sums[k] += (double)e[j + k];
    }
    for (uint32_t k = 0; k < SUMS; k++)
        total += sums[k];
    return (double)max + math64_log(total);
}

/* ---- candidates: a heap gives them best first without sorting all ---- */

static bool better(const struct candidate *a, const struct candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void sift_down(struct candidate *heap, size_t n, size_t at)
{
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= n)
            return;
        if (child + 1 < n && better(&heap[child + 1], &heap[child]))
            child++;
        if (!better(&heap[child], &heap[at]))
            return;
        struct candidate swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
        at = child;
    }
}

static void heapify(struct candidate *heap, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i);
}

/* Move the best of heap[0..n) to heap[n - 1]: after k pops the k best are at the end, best last. */
static void pop(struct candidate *heap, size_t n)
{
    struct candidate best = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = best;
    sift_down(heap, n - 1, 0);
}

/* ---- steps ---- */

static void load_candidates(struct sampler *s, const float *logits)
{
    for (uint32_t i = 0; i < s->vocab; i++)
        s->candidates[i] = (struct candidate){logits[i], (int32_t)i};
    s->n = s->vocab;
}

/* Leave only what is allowed: top-p, top-k and min-p then speak of what can be drawn. Masks mostly allow
 * nearly nothing or nearly everything, so words without a bit are passed over and full ones moved whole. */
static void drop_barred(struct sampler *s)
{
    uint32_t n = 0;
    for (uint32_t from = 0; from < s->n; from += 64) {
        uint64_t bits = s->allowed[from / 64];
        if (bits == UINT64_MAX && s->n - from >= 64) {
            if (n != from)
                memmove(s->candidates + n, s->candidates + from, 64 * sizeof *s->candidates);
            n += 64;
            continue;
        }
        for (; bits; bits &= bits - 1) {
            uint32_t id = from + (uint32_t)__builtin_ctzll(bits);
            if (id < s->n)
                s->candidates[n++] = s->candidates[id];
        }
    }
    s->n = n;
}

static void apply_biases(struct sampler *s, const sluice_sampling *p)
{
    for (size_t i = 0; i < p->n_biases; i++)
        if (p->biases[i].id >= 0 && (uint32_t)p->biases[i].id < s->vocab)
            s->candidates[p->biases[i].id].logit += p->biases[i].bias;
}

static bool has_penalty(const sluice_sampling *p)
{
    return (p->repetition_penalty != 0 && p->repetition_penalty != 1) || p->presence_penalty != 0 ||
           p->frequency_penalty != 0;
}

/* Repetition as in CTRL (arXiv:1909.05858): divide positive logits, multiply negative ones. Presence and
 * frequency as in the OpenAI API: subtract once, and per occurrence. */
static void apply_penalties(struct sampler *s, const int32_t *tokens, size_t n, const sluice_sampling *p)
{
    float repetition = p->repetition_penalty == 0 ? 1 : p->repetition_penalty;
    if (!has_penalty(p))
        return;
    memset(s->counts, 0, s->vocab * sizeof *s->counts);
    for (size_t i = 0; i < n; i++)
        s->counts[tokens[i]]++;
    for (uint32_t id = 0; id < s->vocab; id++) {
        if (s->counts[id] == 0)
            continue;
        float *logit = &s->candidates[id].logit;
        *logit = *logit > 0 ? *logit / repetition : *logit * repetition;
        *logit -= p->presence_penalty + p->frequency_penalty * (float)s->counts[id];
    }
}

/* Pop candidates until top-p (of the whole distribution at temperature 1), top-k or min-p says enough.
 * Returns how many; they are at the end of the array, best last. */
static size_t keep(struct sampler *s, const sluice_sampling *p)
{
    struct candidate *heap = s->candidates;
    size_t n = s->n, kept = 0, most = p->top_k ? p->top_k : n;
    double total = 0, mass = 0;
    heapify(heap, n);
    float max = heap[0].logit;
    bool nucleus = p->top_p > 0 && p->top_p < 1;
    for (size_t i = 0; nucleus && i < n; i++)
        total += (double)math_exp(heap[i].logit - max);
    while (kept < most && kept < n) {
        double weight = (double)math_exp(heap[0].logit - max);
        if (kept > 0 && weight < (double)p->min_p)
            break;
        pop(heap, n - kept);
        kept++;
        mass += weight;
        if (nucleus && mass >= (double)p->top_p * total)
            break;
    }
    return kept;
}

static int32_t draw(struct sampler *s, const sluice_sampling *p, uint64_t position)
{
    size_t kept = keep(s, p);
    const struct candidate *best = s->candidates + s->n - 1; /* best[-i] is the i-th */
    double total = 0;
    for (size_t i = 0; i < kept; i++)
        total += (double)math_exp((best[-(ptrdiff_t)i].logit - best->logit) / p->temperature);
    double target = random_unit_at(p->seed, position) * total, sum = 0;
    for (size_t i = 0; i < kept; i++) {
        sum += (double)math_exp((best[-(ptrdiff_t)i].logit - best->logit) / p->temperature);
        if (target < sum)
            return best[-(ptrdiff_t)i].id;
    }
    return best[-(ptrdiff_t)(kept - 1)].id; /* rounding: the last */
}

/* Without a bias or a penalty the logits themselves are the candidates. */
static int32_t greedy_plain(const float *logits, uint32_t n)
{
    const float best = host_largest(logits, n);
    uint32_t id = 0;
    while (id + 1 < n && logits[id] != best)
        id++;
    return (int32_t)id;
}

/* The same among what is allowed, which is often little: words without a bit are passed over. */
static int32_t greedy_allowed(const struct sampler *s, const float *logits)
{
    int32_t best = -1;
    for (uint32_t word = 0; word * 64 < s->vocab; word++) {
        for (uint64_t bits = s->allowed[word]; bits; bits &= bits - 1) {
            int32_t id = (int32_t)(word * 64) + __builtin_ctzll(bits);
            if ((uint32_t)id < s->vocab && (best < 0 || logits[id] > logits[best]))
                best = id;
        }
    }
    return best < 0 ? 0 : best;
}

static int32_t greedy(const struct sampler *s)
{
    const struct candidate *best = s->candidates;
    for (uint32_t i = 1; i < s->n; i++)
        if (s->candidates[i].logit > best->logit)
            best = &s->candidates[i];
    return best->id;
}

static void fill_top(struct sampler *s, const float *logits, double log_sum, sluice_token_logprob *top,
                     size_t n_top)
{
    load_candidates(s, logits);
    heapify(s->candidates, s->vocab);
    for (size_t i = 0; i < n_top && i < s->vocab; i++) {
        const struct candidate *best = s->candidates;
        top[i] = (sluice_token_logprob){best->id, (float)((double)best->logit - log_sum)};
        pop(s->candidates, s->vocab - i);
    }
}

void sampler_draw(struct sampler *s, const float *logits, const int32_t *tokens, size_t n_tokens,
                  const sluice_sampling *p, sluice_token_logprob *choice, sluice_token_logprob *top,
                  size_t n_top)
{
    if (p->temperature == 0 && p->n_biases == 0 && !has_penalty(p)) {
        choice->id = s->allowed ? greedy_allowed(s, logits) : greedy_plain(logits, s->vocab);
    } else {
        load_candidates(s, logits);
        apply_biases(s, p);
        apply_penalties(s, tokens, n_tokens, p);
        if (s->allowed)
            drop_barred(s);
        choice->id = p->temperature == 0 ? greedy(s) : draw(s, p, n_tokens);
    }
    double log_sum = log_total(logits, s->vocab);
    choice->logprob = (float)((double)logits[choice->id] - log_sum);
    if (n_top)
        fill_top(s, logits, log_sum, top, n_top);
}
