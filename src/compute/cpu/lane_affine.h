/* int8 activations on sixteen lanes: quantizing a row, and the product with affine weights (ref.c says what
 * the bits are; the integer dot of a group is exact in any order).
 *
 * A unit is 64 packed bytes of a row of weights and the 64 * 8 / bits activations that they meet, kept plane
 * after plane of 64 bytes: byte i of plane p meets bits p * bits of packed byte i. That order is the same for
 * every group size and every register width.
 *
 * One row of x (decode) runs along the rows of weights as they lie in memory: a lane is a group, 16 groups
 * are one step. Where a row has 1, 2, 4 or 8 groups a step takes several rows; where it has another
 * number below 16, 16 rows are a run of groups. A few rows of x (FEW, or FEW_WIDE where `wide`) take turns at
 * a block of weights. With more, a lane is an output: 16 rows of weights are transposed once and meet them
 * all. */
#ifndef COMPUTE_CPU_LANE_AFFINE_H
#define COMPUTE_CPU_LANE_AFFINE_H

enum { UNIT = 64, GROUPS = LANES, GROUP_MAX = 128, TILE = LANES, BLOCK_ROWS = 16, SHORT = 4, STREAMS = 4 };
/* Columns of 16 rows that are unpacked at a time: a multiple of 16 of the largest groups. */
enum { COLS_MOST = 8192, GROUPS_MOST = COLS_MOST / 32 };
/* Bytes of weights that a few rows of x share. */
enum { FEW_BYTES = 1 << 15 };

/* How far ahead one row of x asks for weights and for their scales. The processor's own prefetching ends at
 * every page, and starts anew: with these, decode of Qwen 3.6's shape is a third faster (docs/learned.md).
 * Nothing is read there, so the end of a matrix needs no care. */
enum { AHEAD_BYTES = 2048, AHEAD_GROUPS = 64 };
/* A stream of weights that is shorter comes from a cache, or ends before asking has paid. */
enum { STREAM_BYTES_MIN = 1 << 14 };

/* ---- quantizing ---- */

INLINE vi magnitude(vf x)
{
    return vi_and(vf_bits(x), vi_set(0x7fffffff));
}

/* q >> 7, of what is within +-2^20. */
INLINE vi hundreds(vi q)
{
    return vi_sub(vi_right(vi_add(q, vi_set(1 << 20)), 7), vi_set(1 << 13));
}

/* Codes in their own order, the low parts in `low` where `wide`; returns s and the sum of the codes. */
INLINE float quantize_group(const float *x, uint32_t n, bool wide, int8_t *codes, int8_t *low, int32_t *sum)
{
    const float limit = wide ? QUANT_WIDE_MAX : QUANT_NARROW_MAX;
    vi most = vi_set(0);
    for (uint32_t k = 0; k < n; k += LANES)
        most = vi_max(most, magnitude(vf_load(x + k)));
    const int32_t largest = vi_most(most);
    float s;
    memcpy(&s, &largest, sizeof s);
    s /= limit;
    *sum = 0;
    if (!(s > 0.0f && largest < 0x7f800000)) {
        memset(codes, 0, n);
        if (wide)
            memset(low, 0, n);
        return s;
    }
    vi total = vi_set(0);
    for (uint32_t k = 0; k < n; k += LANES) {
        vf v = vf_div(vf_load(x + k), vf_set(s));
        vi q = vf_rint(vf_at_least(vf_at_most(v, vf_set(limit)), vf_set(-limit)));
        total = vi_add(total, q);
        if (wide) {
            const vi high = hundreds(vi_add(q, vi_set(64)));
            vi_store_bytes(low + k, vi_sub(q, vi_left(high, 7)));
            q = high;
        }
        vi_store_bytes(codes + k, q);
    }
    *sum = vi_total(total);
    return s;
}

/* A unit's codes, in their own order, to planes. */
INLINE void split_planes(const int8_t *in, uint32_t planes, int8_t *out)
{
    int8_t half[2][2 * UNIT];
    switch (planes) {
    case 1:
        memcpy(out, in, UNIT);
        break;
    case 2:
        split_bytes(in, out, out + UNIT);
        break;
    default: /* even: planes 0 and 2; odd: 1 and 3 */
        split_bytes(in, half[0], half[1]);
        split_bytes(in + 2 * UNIT, half[0] + UNIT, half[1] + UNIT);
        split_bytes(half[0], out, out + 2 * UNIT);
        split_bytes(half[1], out + UNIT, out + 3 * UNIT);
    }
}

INLINE void quantize_parts(const struct quant *quant, uint32_t row, const float *x, bool wide)
{
    const uint32_t n = quant->group_size, planes = 8u / quant->bits, span = UNIT * planes, parts = 1u + wide;
    int8_t *out = quant->codes + (size_t)row * parts * quant->code_stride, unit[2][4 * UNIT];
    size_t at = (size_t)row * quant->group_stride;
    uint32_t filled = 0;
    for (uint32_t k = 0; k < quant->cols; k += n, at++) {
        int32_t sum;
        quant->scales[at] = quantize_group(x + k, n, wide, unit[0] + filled, unit[1] + filled, &sum);
        quant->sums[at] = quant->scales[at] * (float)sum;
        filled += n;
        for (; filled >= span; filled -= span, out += span) { /* a group of 128 may fill two units */
            for (uint32_t p = 0; p < parts; p++) {
                split_planes(unit[p], planes, out + (size_t)p * quant->code_stride);
                memmove(unit[p], unit[p] + span, filled - span);
            }
        }
    }
    for (uint32_t p = 0; p < parts && filled; p++) {
        memset(unit[p] + filled, 0, span - filled);
        split_planes(unit[p], planes, out + (size_t)p * quant->code_stride);
    }
}

static void quantize_row(const struct quant *quant, uint32_t row, const float *x)
{
    if (quant->wide)
        quantize_parts(quant, row, x, true);
    else
        quantize_parts(quant, row, x, false);
}

/* ---- one row of x ---- */

/* Dots of 16 consecutive groups, or of the first `groups`. Every unit is loaded, planes are split and
 * multiplied; then neighbours are added until a lane is a group. `low` is the distance from the codes to
 * their low parts, or 0. */
INLINE vi groups_dot(const uint8_t *packed, const int8_t *q, size_t low, uint32_t groups, uint32_t bits,
                     uint32_t n)
{
    const uint32_t planes = 8 / bits, group_bytes = n * bits / 8, per_group = group_bytes / UNIT;
    const uint32_t units = per_group > 1 ? GROUPS : GROUPS * group_bytes / UNIT,
                   chain = per_group > 1 ? per_group : 1;
    vi d[GROUPS];
    for (uint32_t u = 0; u < units; u++) {
        d[u] = vi_set(0);
        for (uint32_t c = 0; c < chain; c++) {
            const uint32_t at = (u * chain + c) * UNIT, bytes = groups * group_bytes;
            if (groups < GROUPS && at >= bytes)
                continue;
            __builtin_prefetch(packed + at + AHEAD_BYTES);
            vb w = groups < GROUPS ? vb_load_n(packed + at, bytes - at) : vb_load(packed + at), codes[4];
            for (uint32_t p = 0; p < planes; p++)
                codes[p] = bits == 8 ? w : vb_plane(w, p * bits, (1u << bits) - 1);
            const int8_t *meets = q + (size_t)at * planes;
            vi dot = unit_dot(codes, meets, bits);
            if (low)
                dot = vi_add(vi_left(dot, 7), unit_dot(codes, meets + low, bits));
            d[u] = vi_add(d[u], dot);
        }
    }
    for (uint32_t left = units; left > 1; left /= 2)
        for (uint32_t i = 0; i < left / 2; i++)
            d[i] = vi_pairs(d[2 * i], d[2 * i + 1]);
    return d[0];
}

/* What a step of 16 groups multiplies: weights, and activations with their scales and sums. */
struct step {
    const uint8_t *packed;
    const uint16_t *scales, *biases;
    const int8_t *q;
    size_t low;
    const float *xs, *sums;
};

/* acc = fmaf(scale * s, dot, acc), then fmaf(bias, sum, acc). */
INLINE vf step_add(vf acc, const struct step *s, uint32_t bits, uint32_t n)
{
    __builtin_prefetch(s->scales + AHEAD_GROUPS);
    __builtin_prefetch(s->biases + AHEAD_GROUPS);
    const vf dot = vi_float(groups_dot(s->packed, s->q, s->low, GROUPS, bits, n));
    acc = vf_fma(vf_mul(vf_bf16(s->scales), vf_load(s->xs)), dot, acc);
    return vf_fma(vf_bf16(s->biases), vf_load(s->sums), acc);
}

/* The same in the first `groups` lanes. */
INLINE vf step_add_n(vf acc, const struct step *s, uint32_t groups, uint32_t bits, uint32_t n)
{
    const vf dot = vi_float(groups_dot(s->packed, s->q, s->low, groups, bits, n));
    acc = vf_fma_n(vf_mul(vf_bf16_n(s->scales, groups), vf_load_n(s->xs, groups)), dot, acc, groups);
    return vf_fma_n(vf_bf16_n(s->biases, groups), vf_load_n(s->sums, groups), acc, groups);
}

INLINE struct step first_step(const struct mat *m, uint32_t o, const int8_t *q, size_t low, const float *xs,
                              const float *sums, uint32_t bits, uint32_t n)
{
    const size_t first = (size_t)o * (m->cols / n);
    return (struct step){(const uint8_t *)m->weight + (size_t)o * (m->cols / 8) * bits,
                         (const uint16_t *)m->scales + first,
                         (const uint16_t *)m->biases + first,
                         q,
                         low,
                         xs,
                         sums};
}

INLINE void next_step(struct step *s, uint32_t bits, uint32_t n)
{
    s->packed += GROUPS * n * bits / 8;
    s->scales += GROUPS;
    s->biases += GROUPS;
    s->q += GROUPS * n;
    s->xs += GROUPS;
    s->sums += GROUPS;
}

INLINE bool long_streams(const struct mat *m, uint32_t rows, uint32_t bits)
{
    return (size_t)rows * (m->cols / 8 * bits) >= STREAM_BYTES_MIN;
}

/* Asks for the beginnings of streams of `apart` rows each, from `begin` on: what their first steps ask for
 * lies further on. */
INLINE void ask_streams(const struct mat *m, uint32_t begin, uint32_t apart, uint32_t bits, uint32_t n)
{
    if (!long_streams(m, apart, bits))
        return;
    for (uint32_t i = 0; i < STREAMS; i++) {
        const struct step s = first_step(m, begin + i * apart, NULL, 0, NULL, NULL, bits, n);
        for (size_t at = 0; at < AHEAD_BYTES; at += UNIT)
            __builtin_prefetch(s.packed + at);
        for (size_t g = 0; g < AHEAD_GROUPS; g += UNIT / sizeof *s.scales) {
            __builtin_prefetch(s.scales + g);
            __builtin_prefetch(s.biases + g);
        }
    }
}

/* One output, or four whose rows lie far apart: four streams keep more of memory's lines under way than one.
 */
INLINE void row_sums(const struct mat *m, const uint32_t *outputs, uint32_t n_outputs, const struct quant *x,
                     vf *sums, uint32_t bits, uint32_t n, bool wide)
{
    const uint32_t groups = m->cols / n;
    struct step s[STREAMS];
    for (uint32_t i = 0; i < n_outputs; i++) {
        s[i] = first_step(m, outputs[i], x->codes, wide ? x->code_stride : 0, x->scales, x->sums, bits, n);
        sums[i] = vf_set(0.0f);
    }
    uint32_t g = 0;
    for (; g + GROUPS <= groups; g += GROUPS)
        for (uint32_t i = 0; i < n_outputs; i++) {
            sums[i] = step_add(sums[i], &s[i], bits, n);
            next_step(&s[i], bits, n);
        }
    for (uint32_t i = 0; i < n_outputs && g < groups; i++)
        sums[i] = step_add_n(sums[i], &s[i], groups - g, bits, n);
}

INLINE void long_rows(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x, float *y,
                      uint32_t bits, uint32_t n, bool wide)
{
    const uint32_t apart = (end - begin) / STREAMS;
    vf sums[STREAMS];
    ask_streams(m, begin, apart, bits, n);
    for (uint32_t o = begin; o < begin + apart; o++) {
        const uint32_t outputs[STREAMS] = {o, o + apart, o + 2 * apart, o + 3 * apart};
        float out[STREAMS];
        row_sums(m, outputs, STREAMS, x, sums, bits, n, wide);
        vf_sum4(sums[0], sums[1], sums[2], sums[3], out);
        for (uint32_t i = 0; i < STREAMS; i++)
            y[outputs[i]] = out[i];
    }
    for (uint32_t o = begin + STREAMS * apart; o < end; o++) {
        row_sums(m, &o, 1, x, sums, bits, n, wide);
        y[o] = vf_sum(sums[0]);
    }
}

/* A row of x repeated until it meets 16 groups. */
struct repeated {
    int8_t codes[2][GROUPS * GROUP_MAX]; /* wide: the low parts in the second */
    float scales[GROUPS], sums[GROUPS];
};

static void repeat_codes(const struct quant *x, uint32_t groups, const int8_t *from, int8_t *to)
{
    const uint32_t planes = 8u / x->bits, group_bytes = x->group_size / planes;
    const uint32_t row_bytes = groups * group_bytes, run = row_bytes < UNIT ? row_bytes : UNIT;
    for (uint32_t p = 0; p < planes; p++) /* a first unit, full */
        for (uint32_t at = 0; at < UNIT; at += run)
            memcpy(to + p * UNIT + at, from + p * UNIT, run);
    const uint32_t span = run < UNIT ? UNIT * planes : row_bytes * planes; /* what repeats from here on */
    for (uint32_t at = UNIT * planes; at < span; at += UNIT)
        vb_store(to + at, vb_load(from + at));
    for (uint32_t at = span; at < GROUPS * group_bytes * planes; at += UNIT)
        vb_store(to + at, vb_load(to + at - span));
}

static void repeat_row(const struct quant *x, uint32_t groups, struct repeated *r)
{
    for (uint32_t p = 0; p < 1u + x->wide; p++)
        repeat_codes(x, groups, x->codes + (size_t)p * x->code_stride, r->codes[p]);
    for (uint32_t i = 0; i < GROUPS; i++) {
        r->scales[i] = x->scales[i & (groups - 1)];
        r->sums[i] = x->sums[i & (groups - 1)];
    }
}

/* As many of the next rows as fill a step, or the first `rows` of them, where each run of `groups` lanes is a
 * row of weights. Accumulators without a group hold +0, and adding that to the others is the part of the tree
 * that would otherwise be left out: it turns -0 into +0. */
INLINE void short_step(struct step *s, const struct repeated *r, uint32_t rows, uint32_t groups, float *y,
                       uint32_t bits, uint32_t n)
{
    vf acc = vf_set(0.0f);
    acc = rows * groups == GROUPS ? step_add(acc, s, bits, n) : step_add_n(acc, s, rows * groups, bits, n);
    acc = vf_add(acc, vf_set(0.0f));
    acc = groups >= 8 ? vf_fold(acc, 4) : acc;
    acc = groups >= 4 ? vf_fold(acc, 2) : acc;
    acc = groups >= 2 ? vf_fold(acc, 1) : acc;
    float sums[LANES];
    vf_store(sums, acc);
    for (uint32_t i = 0; i < rows; i++)
        y[i] = sums[i * groups];
    next_step(s, bits, n);
    s->q = r->codes[0];
    s->xs = r->scales;
    s->sums = r->sums;
}

/* Rows of 1, 2, 4 or 8 groups. */
INLINE void short_rows(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x, float *y,
                       uint32_t bits, uint32_t n, bool wide)
{
    const uint32_t groups = m->cols / n, together = GROUPS / groups;
    const uint32_t quarter = (end - begin) / STREAMS / together * together;
    const uint32_t apart = long_streams(m, quarter, bits) ? quarter : 0;
    const uint32_t rest = begin + STREAMS * apart;
    struct repeated r;
    repeat_row(x, groups, &r);
    const size_t low = wide ? sizeof r.codes[0] : 0;
    if (apart > 0) {
        struct step s[STREAMS];
        ask_streams(m, begin, apart, bits, n);
        for (uint32_t i = 0; i < STREAMS; i++)
            s[i] = first_step(m, begin + i * apart, r.codes[0], low, r.scales, r.sums, bits, n);
        for (uint32_t o = begin; o < begin + apart; o += together)
            for (uint32_t i = 0; i < STREAMS; i++)
                short_step(&s[i], &r, together, groups, y + o + i * apart, bits, n);
    }
    struct step s = first_step(m, rest, r.codes[0], low, r.scales, r.sums, bits, n);
    for (uint32_t o = rest; o < end; o += together)
        short_step(&s, &r, end - o < together ? end - o : together, groups, y + o, bits, n);
}

/* A row of x as often as 16 rows of weights meet it, so that these can be taken as one run of groups. */
struct run {
    int8_t codes[2][GROUPS * GROUPS * GROUP_MAX]; /* wide: the low parts in the second */
    float scales[GROUPS * GROUPS], sums[GROUPS * GROUPS];
};

INLINE void run_codes(const int8_t *from, uint32_t groups, int8_t *to, uint32_t bits, uint32_t n)
{
    const uint32_t planes = 8 / bits, group_bytes = n * bits / 8;
    const uint32_t piece = group_bytes < UNIT ? group_bytes : UNIT, pieces = groups * (group_bytes / piece);
    for (uint32_t k = 0, of = 0; k < GROUPS * pieces; k++, of = of + 1 == pieces ? 0 : of + 1) {
        const uint32_t at = k * piece, source = of * piece;
        for (uint32_t p = 0; p < planes; p++)
            memcpy(to + at / UNIT * UNIT * planes + p * UNIT + at % UNIT,
                   from + source / UNIT * UNIT * planes + p * UNIT + source % UNIT, piece);
    }
}

INLINE void run_row(const struct quant *x, uint32_t groups, struct run *r, uint32_t bits, uint32_t n,
                    bool wide)
{
    for (uint32_t p = 0; p < 1u + wide; p++)
        run_codes(x->codes + (size_t)p * x->code_stride, groups, r->codes[p], bits, n);
    for (uint32_t k = 0; k < GROUPS; k++) {
        memcpy(r->scales + k * groups, x->scales, groups * sizeof *x->scales);
        memcpy(r->sums + k * groups, x->sums, groups * sizeof *x->sums);
    }
}

/* Up to 16 rows from each of the outputs on: their groups in steps of 16 wherever rows begin, then every
 * row's groups summed. */
INLINE void run_blocks(const struct mat *m, const uint32_t *outputs, uint32_t n_outputs, uint32_t rows,
                       const struct run *r, float *y, uint32_t bits, uint32_t n, bool wide)
{
    const uint32_t groups = m->cols / n, total = rows * groups;
    float values[STREAMS][GROUPS * GROUPS];
    struct step s[STREAMS];
    for (uint32_t i = 0; i < n_outputs; i++)
        s[i] = first_step(m, outputs[i], r->codes[0], wide ? sizeof r->codes[0] : 0, r->scales, r->sums, bits,
                          n);
    uint32_t g = 0;
    for (; g + GROUPS <= total; g += GROUPS)
        for (uint32_t i = 0; i < n_outputs; i++) {
            vf_store(values[i] + g, step_add(vf_set(0.0f), &s[i], bits, n));
            next_step(&s[i], bits, n);
        }
    for (uint32_t i = 0; i < n_outputs && g < total; i++)
        vf_store(values[i] + g, step_add_n(vf_set(0.0f), &s[i], total - g, bits, n));
    for (uint32_t i = 0; i < n_outputs; i++) {
        const float *v = values[i];
        float *out = y + outputs[i];
        uint32_t k = 0;
        for (; k + 4 <= rows; k += 4, v += 4 * groups)
            vf_sum4(vf_load_n(v, groups), vf_load_n(v + groups, groups), vf_load_n(v + 2 * groups, groups),
                    vf_load_n(v + 3 * groups, groups), out + k);
        for (; k < rows; k++, v += groups)
            out[k] = vf_sum(vf_load_n(v, groups));
    }
}

/* Rows of fewer than 16 groups lie one after another without a gap. One at a time, a row of 11 (Gemma 4's
 * experts) leaves a third of every step empty and ends before memory's lines come in: half the speed. */
INLINE void run_rows(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x, float *y,
                     uint32_t bits, uint32_t n, bool wide)
{
    const uint32_t apart = (end - begin) / STREAMS / GROUPS * GROUPS;
    struct run r;
    run_row(x, m->cols / n, &r, bits, n, wide);
    ask_streams(m, begin, apart, bits, n);
    for (uint32_t o = begin; o < begin + apart; o += GROUPS)
        run_blocks(m, (uint32_t[]){o, o + apart, o + 2 * apart, o + 3 * apart}, STREAMS, GROUPS, &r, y, bits,
                   n, wide);
    for (uint32_t o = begin + STREAMS * apart; o < end; o += GROUPS)
        run_blocks(m, &o, 1, end - o < GROUPS ? end - o : GROUPS, &r, y, bits, n, wide);
}

/* ---- several rows of x ---- */

/* Sixteen rows of weights, unpacked: as many columns of them as fit. */
struct unpacked {
    uint8_t planes[TILE * COLS_MOST]; /* [unit][plane][dword][output][4] */
    float scales[GROUPS_MOST][TILE], biases[GROUPS_MOST][TILE];
    bool configured; /* AMX's tiles are */
};

/* A block of rows of x meets them. */
struct block {
    const int8_t *q; /* of the first row, at the first unit that is unpacked */
    size_t stride;   /* from part to part: two for each row where `wide` */
    const float *scales, *sums;
    size_t group_stride;
    uint32_t rows;
    bool first;     /* the sums begin at 0 with these groups */
    uint32_t slots; /* accumulators that are written: those that get a group, and where `first` the others */
};

typedef float block_sums[LANES][BLOCK_ROWS][TILE]; /* by g mod 16 */

/* scales and biases [16][groups] to [groups][16]: both in one go, as halves of a lane. */
static void unpack_scales(const uint8_t *const scales[TILE], const uint8_t *const biases[TILE],
                          uint32_t groups, float out_scales[GROUPS][TILE], float out_biases[GROUPS][TILE])
{
    float joined[TILE][GROUPS];
    const uint8_t *rows[TILE];
    vb columns[GROUPS];
    for (uint32_t i = 0; i < TILE; i++) {
        const vf scale = groups == GROUPS ? vf_bf16(scales[i]) : vf_bf16_n(scales[i], groups);
        const vf bias = groups == GROUPS ? vf_bf16(biases[i]) : vf_bf16_n(biases[i], groups);
        vf_store(joined[i], vf_from_bits(vi_or(vf_bits(scale), vi_right(vf_bits(bias), 16))));
        rows[i] = (const uint8_t *)joined[i];
    }
    transpose16(rows, columns);
    for (uint32_t g = 0; g < groups; g++) {
        vb_store(out_scales[g], columns[g]);
        const vi both = vf_bits(vf_load(out_scales[g]));
        vf_store(out_scales[g], vf_from_bits(vi_and(both, vi_set((int32_t)0xffff0000))));
        vf_store(out_biases[g], vf_from_bits(vi_left(both, 16)));
    }
}

/* The planes of a unit of which the rows hold `bytes`; what lies `ahead` bytes further on is asked for. */
INLINE void unpack_unit(const uint8_t *const of[TILE], size_t at, uint32_t bytes, size_t ahead, uint32_t bits,
                        uint8_t *planes)
{
    uint8_t part[TILE][UNIT];
    const uint8_t *rows[TILE];
    vb dwords[16];
    for (uint32_t i = 0; i < TILE; i++) {
        rows[i] = of[i] + at;
        __builtin_prefetch(rows[i] + ahead, 0, 2);
        if (bytes < UNIT) {
            vb_store(part[i], vb_load_n(rows[i], bytes));
            rows[i] = part[i];
        }
    }
    transpose16(rows, dwords);
    for (uint32_t d = 0; d < 16; d++)
        for (uint32_t p = 0; p < 8 / bits; p++)
            vb_store(planes + (size_t)1024 * p + (size_t)64 * d,
                     bits == 8 ? dwords[d] : vb_plane(dwords[d], p * bits, (1u << bits) - 1));
}

/* Groups [g0, g0 + groups) of up to 16 outputs from o on; the last output stands for those that are not. */
INLINE void unpack(const struct mat *m, uint32_t o, uint32_t outputs, uint32_t g0, uint32_t groups,
                   struct unpacked *u, uint32_t bits, uint32_t n)
{
    const uint8_t *packed[TILE], *scales[TILE], *biases[TILE];
    const uint32_t all = m->cols / n, group_bytes = n * bits / 8;
    const size_t bytes = (size_t)groups * group_bytes;
    const size_t ahead = g0 + groups < all ? bytes : (size_t)TILE * all * group_bytes - g0 * group_bytes;
    for (uint32_t i = 0; i < TILE; i++) {
        const size_t group = (size_t)(o + (i < outputs ? i : outputs - 1)) * all + g0;
        packed[i] = (const uint8_t *)m->weight + group * group_bytes;
        scales[i] = (const uint8_t *)m->scales + group * 2;
        biases[i] = (const uint8_t *)m->biases + group * 2;
    }
    for (size_t at = 0; at < bytes; at += UNIT)
        unpack_unit(packed, at, bytes - at < UNIT ? (uint32_t)(bytes - at) : UNIT, ahead, bits,
                    u->planes + at * TILE * (8 / bits));
    for (uint32_t g = 0; g < groups; g += GROUPS) {
        unpack_scales(scales, biases, groups - g < GROUPS ? groups - g : GROUPS, u->scales + g,
                      u->biases + g);
        for (uint32_t i = 0; i < TILE; i++) {
            scales[i] += 2 * GROUPS;
            biases[i] += 2 * GROUPS;
        }
    }
}

/* The tree over the accumulators of every row; lanes are outputs here. */
INLINE void finish_block(const block_sums sums, uint32_t rows, uint32_t outputs, size_t stride, float *y)
{
    for (uint32_t r = 0; r < rows; r++) {
        vf a[LANES];
        for (uint32_t i = 0; i < LANES; i++)
            a[i] = vf_load(sums[i][r]);
        for (uint32_t i = 0; i < 8; i++)
            a[i] = vf_add(a[i], a[i + 8]);
        for (uint32_t i = 0; i < 4; i++)
            a[i] = vf_add(a[i], a[i + 4]);
        vf_store_n(y + r * stride, vf_add(vf_add(a[0], a[2]), vf_add(a[1], a[3])), outputs);
    }
}

/* The same where only the first SHORT accumulators have groups; the +0 of the others turns -0 into +0. */
INLINE void finish_short(const block_sums sums, uint32_t rows, uint32_t outputs, size_t stride, float *y)
{
    for (uint32_t r = 0; r < rows; r++) {
        vf a[SHORT];
        for (uint32_t i = 0; i < SHORT; i++)
            a[i] = vf_add(vf_load(sums[i][r]), vf_set(0.0f));
        vf_store_n(y + r * stride, vf_add(vf_add(a[0], a[2]), vf_add(a[1], a[3])), outputs);
    }
}

/* Adds the products of some groups to a block's sums. */
typedef void block_fn(struct unpacked *u, const struct block *b, uint32_t groups, block_sums sums,
                      uint32_t bits, uint32_t n, bool wide);

/* Of 16 outputs. Few rows of x meet 16 groups at a time, which stay in the first-level cache; for more, a
 * whole row is unpacked, or as much of it as fits. */
INLINE void tile_product(const struct mat *m, uint32_t o, uint32_t outputs, const struct quant *x,
                         uint32_t n_rows, float *y, block_fn *product, struct unpacked *u, uint32_t bits,
                         uint32_t n, bool wide)
{
    _Alignas(64) block_sums sums;
    const uint32_t groups = m->cols / n, most = n_rows < BLOCK_ROWS ? GROUPS : COLS_MOST / n;
    for (uint32_t r = 0; r < n_rows; r += BLOCK_ROWS) {
        const uint32_t rows = n_rows - r < BLOCK_ROWS ? n_rows - r : BLOCK_ROWS;
        const struct quant from = quant_from(x, r);
        float *to = y + (size_t)r * m->rows + o;
        for (uint32_t g = 0; g < groups; g += most) {
            const uint32_t count = groups - g < most ? groups - g : most;
            if (r == 0 || groups > most)
                unpack(m, o, outputs, g, count, u, bits, n);
            const struct block b = {from.codes + (size_t)g * n,
                                    x->code_stride,
                                    from.scales + g,
                                    from.sums + g,
                                    x->group_stride,
                                    rows,
                                    g == 0,
                                    groups <= SHORT            ? SHORT
                                    : g == 0 || count >= LANES ? LANES
                                                               : count};
            product(u, &b, count, sums, bits, n, wide);
        }
        if (groups <= SHORT)
            finish_short(sums, rows, outputs, m->rows, to);
        else
            finish_block(sums, rows, outputs, m->rows, to);
    }
}

INLINE void many_rows(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x,
                      uint32_t n_rows, float *y, block_fn *product, uint32_t bits, uint32_t n, bool wide)
{
    _Alignas(64) struct unpacked u;
    u.configured = false;
    for (uint32_t o = begin; o < end; o += TILE)
        tile_product(m, o, end - o < TILE ? end - o : TILE, x, n_rows, y, product, &u, bits, n, wide);
}

/* The dots of a group, of `rows` rows of x from `row` on. */
INLINE void group_dots(const struct unpacked *u, const struct block *b, uint32_t g, uint32_t row,
                       uint32_t rows, vi *dots, uint32_t bits, uint32_t n, bool wide)
{
    const uint32_t planes = 8 / bits, group_bytes = n * bits / 8, parts = 1u + wide;
    const uint32_t dwords = (group_bytes < UNIT ? group_bytes : UNIT) / 4;
    const size_t at = (size_t)g * group_bytes;
    vi part[DOT_ROWS];
    for (uint32_t r = 0; r < rows; r++)
        dots[r] = vi_set(0);
    for (size_t from = at; from < at + group_bytes; from += UNIT) {
        tile_dots(u->planes + from / UNIT * 1024 * planes + from % UNIT * TILE,
                  b->q + (size_t)row * parts * b->stride + from / UNIT * UNIT * planes + from % UNIT,
                  b->stride, dwords, bits, rows * parts, part);
        for (uint32_t r = 0; r < rows; r++) {
            const vi dot = wide ? vi_add(vi_left(part[2 * r], 7), part[2 * r + 1]) : part[r];
            dots[r] = vi_add(dots[r], dot);
        }
    }
}

/* Groups in the order of their accumulators, 0, 16, 32, ..., 1, 17, ...: an accumulator of every row then
 * stays in a register until its groups end. */
INLINE void product_of_rows(const struct unpacked *u, const struct block *b, uint32_t groups, block_sums sums,
                            uint32_t row, uint32_t rows, uint32_t bits, uint32_t n, bool wide)
{
    for (uint32_t slot = 0; slot < b->slots; slot++) {
        vf acc[DOT_ROWS];
        for (uint32_t r = 0; r < rows; r++)
            acc[r] = b->first ? vf_set(0.0f) : vf_load(sums[slot][row + r]);
        for (uint32_t g = slot; g < groups; g += LANES) {
            const vf scale = vf_load(u->scales[g]), bias = vf_load(u->biases[g]);
            vi dots[DOT_ROWS];
            group_dots(u, b, g, row, rows, dots, bits, n, wide);
            for (uint32_t r = 0; r < rows; r++) {
                const size_t at = (row + r) * b->group_stride + g;
                acc[r] = vf_fma(vf_mul(scale, vf_set(b->scales[at])), vi_float(dots[r]), acc[r]);
                acc[r] = vf_fma(bias, vf_set(b->sums[at]), acc[r]);
            }
        }
        for (uint32_t r = 0; r < rows; r++)
            vf_store(sums[slot][row + r], acc[r]);
    }
}

INLINE void block_product(struct unpacked *u, const struct block *b, uint32_t groups, block_sums sums,
                          uint32_t bits, uint32_t n, bool wide)
{
    const uint32_t most = DOT_ROWS / (1u + wide);
    uint32_t r = 0;
    for (; r + most <= b->rows; r += most)
        product_of_rows(u, b, groups, sums, r, most, bits, n, wide);
    if (most > 4 && r + 4 <= b->rows) {
        product_of_rows(u, b, groups, sums, r, 4, bits, n, wide);
        r += 4;
    }
    for (; r + 2 <= b->rows; r += 2)
        product_of_rows(u, b, groups, sums, r, 2, bits, n, wide);
    if (r < b->rows)
        product_of_rows(u, b, groups, sums, r, 1, bits, n, wide);
}

#endif
