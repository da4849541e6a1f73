/* int8 activations on sixteen lanes: quantizing a row, and the product with affine weights (ref.c says what
 * the bits are; the integer dot of a group is exact in any order).
 *
 * A unit is 64 packed bytes of a row of weights and the 64 * 8 / bits activations that they meet, kept plane
 * after plane of 64 bytes: byte i of plane p meets bits p * bits of packed byte i. That order is the same for
 * every group size and every register width.
 *
 * One row of x (decode) runs along the rows of weights as they lie in memory: a lane is a group, 16 groups
 * are one step. Where a row has 1, 2, 4 or 8 groups a step takes several rows; where it has another
 * number below 16, 16 rows are a run of groups. A few rows of x take turns at a block of weights. With more,
 * a lane is an output: 16 rows of weights are transposed once and meet them all. */
#ifndef COMPUTE_CPU_LANE_AFFINE_H
#define COMPUTE_CPU_LANE_AFFINE_H

enum { UNIT = 64, GROUPS = LANES, GROUP_MAX = 128, TILE = LANES, TILE_ROWS = 32, STREAMS = 4 };
/* Rows of x up to which they are taken one after another, and bytes of weights that they share. */
enum { FEW = 6, FEW_WIDE = 4, FEW_BYTES = 1 << 15 };

/* How far ahead one row of x asks for weights and for their scales. The processor's own prefetching ends at
 * every page, and starts anew: with these, decode of Qwen 3.6's shape is a third faster (docs/learned.md).
 * Nothing is read there, so the end of a matrix needs no care. */
enum { AHEAD_BYTES = 2048, AHEAD_GROUPS = 64 };

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

/* Rows of 1, 2, 4 or 8 groups: each run of `groups` lanes is a row of weights. Accumulators without a group
 * hold +0, and adding that to the others is the part of the tree that would otherwise be left out: it turns
 * -0 into +0. */
INLINE void short_rows(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x, float *y,
                       uint32_t bits, uint32_t n, bool wide)
{
    const uint32_t groups = m->cols / n, together = GROUPS / groups;
    struct repeated r;
    repeat_row(x, groups, &r);
    struct step s = first_step(m, begin, r.codes[0], wide ? sizeof r.codes[0] : 0, r.scales, r.sums, bits, n);
    for (uint32_t o = begin; o < end; o += together) {
        const uint32_t rows = end - o < together ? end - o : together;
        vf acc = vf_set(0.0f);
        acc = rows == together ? step_add(acc, &s, bits, n) : step_add_n(acc, &s, rows * groups, bits, n);
        acc = vf_add(acc, vf_set(0.0f));
        acc = groups >= 8 ? vf_fold(acc, 4) : acc;
        acc = groups >= 4 ? vf_fold(acc, 2) : acc;
        acc = groups >= 2 ? vf_fold(acc, 1) : acc;
        float sums[LANES];
        vf_store(sums, acc);
        for (uint32_t i = 0; i < rows; i++)
            y[o + i] = sums[i * groups];
        next_step(&s, bits, n);
        s.q = r.codes[0];
        s.xs = r.scales;
        s.sums = r.sums;
    }
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
    for (uint32_t o = begin; o < begin + apart; o += GROUPS)
        run_blocks(m, (uint32_t[]){o, o + apart, o + 2 * apart, o + 3 * apart}, STREAMS, GROUPS, &r, y, bits,
                   n, wide);
    for (uint32_t o = begin + STREAMS * apart; o < end; o += GROUPS)
        run_blocks(m, &o, 1, end - o < GROUPS ? end - o : GROUPS, &r, y, bits, n, wide);
}

/* ---- several rows of x ---- */

/* What a tile of 16 outputs and up to TILE_ROWS rows of x works in. */
struct tile {
    float acc[LANES][TILE_ROWS][TILE];                /* by g mod 16 */
    float scales[GROUPS][TILE], biases[GROUPS][TILE]; /* of 16 groups */
    uint8_t planes[4 * 1024];                         /* [plane][dword][output][4] of a unit */
    const uint8_t *packed[TILE], *scale_rows[TILE], *bias_rows[TILE];
};

static void widen_transposed(const uint8_t *const rows[TILE], uint32_t groups, float out[GROUPS][TILE])
{
    float wide[TILE][GROUPS];
    const uint8_t *wide_rows[TILE];
    for (uint32_t i = 0; i < TILE; i++) {
        vf_store(wide[i], groups == GROUPS ? vf_bf16(rows[i]) : vf_bf16_n(rows[i], groups));
        wide_rows[i] = (const uint8_t *)wide[i];
    }
    transpose16(wide_rows, 64, (uint8_t *)out);
}

/* Planes of `bytes` packed bytes from `at` on, for all 16 outputs: [plane][dword][output][4]. */
static void unpack_unit(const uint8_t *const of[TILE], size_t at, uint32_t bytes, uint32_t bits,
                        uint8_t *planes)
{
    uint8_t packed[1024];
    const uint8_t *rows[TILE];
    for (uint32_t i = 0; i < TILE; i++)
        rows[i] = of[i] + at;
    transpose16(rows, bytes, bits == 8 ? planes : packed);
    for (uint32_t d = 0; bits < 8 && d < 16; d++) {
        vb w = vb_load(packed + (size_t)64 * d);
        for (uint32_t p = 0; p < 8 / bits; p++)
            vb_store(planes + (size_t)1024 * p + (size_t)64 * d, vb_plane(w, p * bits, (1u << bits) - 1));
    }
}

/* Where the activations of a group meet a tile. */
struct meeting {
    const int8_t *q; /* of the first row, at the group's first dword */
    uint32_t group, slot, dword;
    bool more; /* the second half of a group of 128 bytes: its dots join those of the first */
};

INLINE void meet_rows(struct tile *t, const struct quant *x, const struct meeting *at, size_t r0,
                      uint32_t row, uint32_t rows, uint32_t bits, uint32_t dwords, bool wide, vi *carried)
{
    const uint32_t parts = 1u + wide;
    vi dots[DOT_ROWS];
    tile_dots(t->planes + (size_t)64 * at->dword, at->q + (size_t)row * parts * x->code_stride,
              x->code_stride, dwords, bits, rows * parts, dots);
    for (uint32_t r = 0; r < rows && wide; r++)
        dots[r] = vi_add(vi_left(dots[2 * r], 7), dots[2 * r + 1]);
    for (uint32_t r = 0; r < rows; r++) {
        if (carried && !at->more) {
            carried[row + r] = dots[r];
            continue;
        }
        const vi dot = carried ? vi_add(dots[r], carried[row + r]) : dots[r];
        const size_t g = (r0 + row + r) * x->group_stride + at->group;
        float *acc = t->acc[at->slot][row + r];
        vf a =
            vf_fma(vf_mul(vf_load(t->scales[at->slot]), vf_set(x->scales[g])), vi_float(dot), vf_load(acc));
        vf_store(acc, vf_fma(vf_load(t->biases[at->slot]), vf_set(x->sums[g]), a));
    }
}

INLINE void meet(struct tile *t, const struct quant *x, const struct meeting *at, size_t r0, uint32_t rows,
                 uint32_t bits, uint32_t dwords, bool wide, vi *carried)
{
    const uint32_t many = DOT_ROWS / (1u + wide);
    uint32_t r = 0;
    for (; r + many <= rows; r += many)
        meet_rows(t, x, at, r0, r, many, bits, dwords, wide, carried);
    for (; r + 2 <= rows; r += 2)
        meet_rows(t, x, at, r0, r, 2, bits, dwords, wide, carried);
    if (r < rows)
        meet_rows(t, x, at, r0, r, 1, bits, dwords, wide, carried);
}

/* The tree over the 16 accumulators of every row; lanes are outputs here. */
INLINE void finish_tile(const float acc[LANES][TILE_ROWS][TILE], uint32_t rows, uint32_t outputs,
                        size_t stride, float *y)
{
    for (uint32_t r = 0; r < rows; r++) {
        vf a[LANES];
        for (uint32_t i = 0; i < LANES; i++)
            a[i] = vf_load(acc[i][r]);
        for (uint32_t i = 0; i < 8; i++)
            a[i] = vf_add(a[i], a[i + 8]);
        for (uint32_t i = 0; i < 4; i++)
            a[i] = vf_add(a[i], a[i + 4]);
        vf_store_n(y + r * stride, vf_add(vf_add(a[0], a[2]), vf_add(a[1], a[3])), outputs);
    }
}

INLINE void tile_groups(struct tile *t, const struct quant *x, size_t r0, uint32_t rows, uint32_t groups,
                        uint32_t g0, uint32_t bits, uint32_t n, bool wide)
{
    const uint32_t planes = 8 / bits, group_bytes = n * bits / 8;
    const uint32_t dwords = (group_bytes < UNIT ? group_bytes : UNIT) / 4;
    const size_t from = (size_t)g0 * group_bytes, bytes = (size_t)groups * group_bytes;
    vi carried[TILE_ROWS];
    for (size_t done = 0; done < bytes; done += UNIT) {
        const uint32_t unit = bytes - done < UNIT ? (uint32_t)(bytes - done) : UNIT;
        unpack_unit(t->packed, from + done, unit, bits, t->planes);
        for (uint32_t d = 0; d < unit / 4; d += dwords) {
            const uint32_t slot = (uint32_t)((done + 4 * d) / group_bytes);
            const struct meeting at = {x->codes + r0 * (1u + wide) * x->code_stride + (from + done) * planes +
                                           (size_t)4 * d,
                                       g0 + slot, slot, d, (done + 4 * d) % group_bytes != 0};
            meet(t, x, &at, r0, rows, bits, dwords, wide, group_bytes > UNIT ? carried : NULL);
        }
    }
}

INLINE void tile_product(const struct mat *m, uint32_t o, uint32_t outputs, const struct quant *x, size_t r0,
                         uint32_t rows, float *y, uint32_t bits, uint32_t n, bool wide)
{
    _Alignas(64) struct tile t;
    const uint32_t groups = m->cols / n;
    for (uint32_t i = 0; i < TILE; i++) {
        const size_t row = o + (i < outputs ? i : outputs - 1);
        t.packed[i] = (const uint8_t *)m->weight + row * (m->cols / 8) * bits;
        t.scale_rows[i] = (const uint8_t *)m->scales + row * groups * 2;
        t.bias_rows[i] = (const uint8_t *)m->biases + row * groups * 2;
    }
    for (uint32_t i = 0; i < LANES; i++)
        memset(t.acc[i], 0, rows * sizeof t.acc[i][0]);
    for (uint32_t g = 0; g < groups; g += GROUPS) {
        const uint32_t count = groups - g < GROUPS ? groups - g : GROUPS;
        widen_transposed(t.scale_rows, count, t.scales);
        widen_transposed(t.bias_rows, count, t.biases);
        tile_groups(&t, x, r0, rows, count, g, bits, n, wide);
        for (uint32_t i = 0; i < TILE; i++) {
            t.scale_rows[i] += 2 * GROUPS;
            t.bias_rows[i] += 2 * GROUPS;
        }
    }
    finish_tile(t.acc, rows, outputs, m->rows, y + r0 * m->rows + o);
}

INLINE void many_rows(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x,
                      uint32_t n_rows, float *y, uint32_t bits, uint32_t n, bool wide)
{
    for (uint32_t o = begin; o < end; o += TILE)
        for (uint32_t r = 0; r < n_rows; r += TILE_ROWS)
            tile_product(m, o, end - o < TILE ? end - o : TILE, x, r,
                         n_rows - r < TILE_ROWS ? n_rows - r : TILE_ROWS, y, bits, n, wide);
}

/* ---- entry ---- */

INLINE void one_row(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x, float *y,
                    uint32_t bits, uint32_t n, bool wide)
{
    const uint32_t groups = m->cols / n;
    if (groups <= 8 && (groups & (groups - 1)) == 0)
        short_rows(m, begin, end, x, y, bits, n, wide);
    else if (groups < GROUPS)
        run_rows(m, begin, end, x, y, bits, n, wide);
    else
        long_rows(m, begin, end, x, y, bits, n, wide);
}

/* So few rows of x, as drafting has them, cost less one after another than a tile's unpacking does: a block
 * of weights stays in the first-level cache meanwhile. */
INLINE void few_rows(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x,
                     uint32_t n_rows, float *y, uint32_t bits, uint32_t n, bool wide)
{
    const uint32_t row_bytes = m->cols / 8 * bits, fit = FEW_BYTES / row_bytes;
    const uint32_t block = n_rows == 1 ? end - begin : fit < TILE ? TILE : fit;
    for (uint32_t o = begin; o < end; o += block)
        for (uint32_t r = 0; r < n_rows; r++) {
            const struct quant row = quant_from(x, r);
            one_row(m, o, end - o < block ? end : o + block, &row, y + (size_t)r * m->rows, bits, n, wide);
        }
}

INLINE void affine_shape(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x,
                         uint32_t n_rows, float *y, uint32_t bits, uint32_t n, bool wide)
{
    if (n_rows <= (wide ? FEW_WIDE : FEW))
        few_rows(m, begin, end, x, n_rows, y, bits, n, wide);
    else
        many_rows(m, begin, end, x, n_rows, y, bits, n, wide);
}

/* Functions for each width and group size: their constants decide how the loops above compile. */
#define AFFINE_SHAPE(bits, n)                                                                                \
    static void affine_##bits##_##n(const struct mat *m, uint32_t begin, uint32_t end,                       \
                                    const struct quant *x, uint32_t n_rows, float *y)                        \
    {                                                                                                        \
        if (x->wide)                                                                                         \
            affine_shape(m, begin, end, x, n_rows, y, bits, n, true);                                        \
        else                                                                                                 \
            affine_shape(m, begin, end, x, n_rows, y, bits, n, false);                                       \
    }

AFFINE_SHAPE(2, 32)
AFFINE_SHAPE(2, 64)
AFFINE_SHAPE(2, 128)
AFFINE_SHAPE(4, 32)
AFFINE_SHAPE(4, 64)
AFFINE_SHAPE(4, 128)
AFFINE_SHAPE(8, 32)
AFFINE_SHAPE(8, 64)
AFFINE_SHAPE(8, 128)

typedef void shape_fn(const struct mat *, uint32_t, uint32_t, const struct quant *, uint32_t, float *);

static void affine_i8(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x,
                      uint32_t n_rows, float *y)
{
    static shape_fn *const SHAPES[3][3] = {
        {affine_2_32, affine_2_64, affine_2_128},
        {affine_4_32, affine_4_64, affine_4_128},
        {affine_8_32, affine_8_64, affine_8_128},
    };
    /* 2, 4, 8 -> 0, 1, 2 and 32, 64, 128 -> 0, 1, 2 */
    SHAPES[m->bits / 4u][m->group_size / 64u](m, begin, end, x, n_rows, y);
}

#endif
