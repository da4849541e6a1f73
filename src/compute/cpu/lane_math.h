/* exp, tanh and the gates of compute/math.h on sixteen lanes: the same operations in the same order, so the
 * same bits. What each step is for is said there. */
#ifndef COMPUTE_CPU_LANE_MATH_H
#define COMPUTE_CPU_LANE_MATH_H

INLINE vf vf_abs(vf x)
{
    return vf_from_bits(vi_and(vf_bits(x), vi_set(0x7fffffff)));
}

INLINE vf vf_negate(vf x)
{
    return vf_from_bits(vi_sub(vf_bits(x), vi_set(INT32_MIN))); /* flips the top bit alone */
}

INLINE vf vf_polynomial(vf x, const float *c, int n)
{
    vf p = vf_set(c[0]);
    for (int i = 1; i < n; i++)
        p = vf_fma(p, x, vf_set(c[i]));
    return p;
}

INLINE vf vf_scale2(vf x, vi n)
{
    vi half = vi_half(n), bias = vi_set(127);
    vf first = vf_from_bits(vi_left(vi_add(half, bias), 23));
    vf second = vf_from_bits(vi_left(vi_add(vi_sub(n, half), bias), 23));
    return vf_mul(vf_mul(x, first), second);
}

struct vf_exp {
    vf excess;
    vi exponent;
};

INLINE struct vf_exp vf_exp_parts(vf hi, vf lo)
{
    static const float Q[] = {0x1.9f0898p-13f, 0x1.6d8d06p-10f, 0x1.111270p-7f,
                              0x1.55548ep-5f,  0x1.555554p-3f,  0.5f};
    const vf rounder = vf_set(0x1.8p23f);
    vf shifted = vf_fma(hi, vf_set(0x1.715476p+0f), rounder);
    vf n = vf_sub(shifted, rounder);
    vf r = vf_fma(n, vf_set(-0x1.62e430p-1f), hi);
    vf c = vf_fma(n, vf_set(0x1.05c610p-29f), lo);
    vf t = vf_add(r, c);
    vf q = vf_polynomial(t, Q, 6);
    return (struct vf_exp){vf_add(r, vf_fma(q, vf_mul(t, t), c)), vi_sub(vf_bits(shifted), vf_bits(rounder))};
}

INLINE vf vf_exp112(vf x)
{
    return vf_at_least(vf_at_most(x, vf_set(112.0f)), vf_set(-112.0f));
}

INLINE vf vf_exp(vf x)
{
    struct vf_exp e = vf_exp_parts(vf_exp112(x), vf_set(0.0f));
    return vf_scale2(vf_add(vf_set(1.0f), e.excess), e.exponent);
}

INLINE vf vf_tanh(vf x)
{
    static const float P[] = {0x1.18e1dcp-9f,  -0x1.0bf4fcp-7f, 0x1.638b58p-6f,
                              -0x1.b9ee90p-5f, 0x1.111066p-3f,  -0x1.555554p-2f};
    const vf one = vf_set(1.0f), two = vf_set(2.0f);
    vf a = vf_abs(x), z = vf_mul(x, x);
    vf near = vf_fma(vf_polynomial(z, P, 6), vf_mul(z, a), a);
    vf far = vf_sub(one, vf_div(two, vf_add(vf_exp(vf_mul(two, a)), one)));
    vf t = vf_select(vf_less(a, vf_set(0.625f)), near, far);
    return vf_from_bits(vi_or(vf_bits(t), vi_and(vf_bits(x), vi_set(INT32_MIN))));
}

INLINE vf vf_times_sigmoid(vf num, vf hi, vf lo)
{
    const vf one = vf_set(1.0f);
    struct vf_exp e = vf_exp_parts(vf_negate(vf_exp112(hi)), vf_negate(lo));
    vi n = e.exponent, m = vi_max(n, vi_set(0)), down_by = vi_sub(vi_set(0), m);
    vf grows = vf_add(e.excess, vf_scale2(one, down_by));
    vf fades = vf_scale2(vf_add(one, e.excess), vi_sub(n, m));
    vf down = vf_add(one, vf_select(vi_greater(n, vi_set(0)), grows, fades));
    return vf_scale2(vf_div(num, down), down_by);
}

INLINE vf vf_silu(vf x)
{
    return vf_times_sigmoid(vf_at_least(x, vf_set(-112.0f)), x, vf_set(0.0f));
}

INLINE vf vf_sigmoid(vf x)
{
    return vf_times_sigmoid(vf_set(1.0f), x, vf_set(0.0f));
}

INLINE vf vf_gelu_tanh(vf x)
{
    const vf a_hi = vf_set(0x1.988454p+0f), a_lo = vf_set(-0x1.857936p-25f);
    const vf b_hi = vf_set(0x1.2444f2p-4f), b_lo = vf_set(0x1.49b16ap-29f);
    vf num = vf_at_least(x, vf_set(-16.0f));
    vf c = vf_at_most(num, vf_set(16.0f));
    vf z = vf_mul(c, c), z_lo = vf_fma(c, c, vf_negate(z));
    vf bz = vf_mul(b_hi, z), bz_lo = vf_fma(b_hi, z, vf_negate(bz));
    vf w = vf_add(a_hi, bz), back = vf_sub(w, a_hi);
    vf w_lo = vf_add(vf_sub(a_hi, vf_sub(w, back)), vf_sub(bz, back));
    w_lo = vf_add(w_lo, vf_add(bz_lo, vf_add(a_lo, vf_fma(b_hi, z_lo, vf_mul(b_lo, z)))));
    vf hi = vf_mul(c, w);
    vf lo = vf_add(vf_fma(c, w, vf_negate(hi)), vf_mul(c, w_lo));
    return vf_times_sigmoid(num, hi, lo);
}

#endif
