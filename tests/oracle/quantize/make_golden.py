#!/usr/bin/env python3
"""Writes tests/golden/quantize/*.bin: what mx.quantize makes of float weights, for tests/unit/test_quantize.c.

    python3 -m venv V && V/bin/pip install -r tests/oracle/quantize/requirements.txt
    V/bin/python tests/oracle/quantize/make_golden.py

A file is: four bytes type (0 bfloat16, 1 float16, 2 float32), bits, group size / 32, 0; u32 number of values; the
values; the codes, scales and biases of mx.quantize on the values as bfloat16. All little-endian.
"""
import pathlib

import mlx.core as mx
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2] / "golden" / "quantize"
TYPES = {"bf16": mx.bfloat16, "f16": mx.float16, "f32": mx.float32}
ROWS, COLS = 12, 256


def weights(rng):
    """Rows with the shapes that matter: usual ones, one sign only, constants, zeros, tiny, huge, single outliers."""
    w = rng.standard_normal((ROWS, COLS)).astype(np.float32) * 0.02
    w[1] = np.abs(w[1])
    w[2] = -np.abs(w[2])
    w[3] = 0.0
    w[4] = 0.25
    w[5] = -3.0
    w[6] *= 1e-6
    w[7] *= 1e4
    w[8, ::64] = 2.0
    w[9, 5::64] = -7.0
    w[10] = rng.integers(-8, 8, COLS) / 8
    w[11, :128] = np.linspace(-1, 1, 128)
    return w


def raw(array):
    if array.dtype == mx.bfloat16:
        array = array.view(mx.uint16)
    return np.asarray(array).tobytes()


def main():
    ROOT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20261129)
    mx.set_default_device(mx.cpu)
    for code, (name, dtype) in enumerate(TYPES.items()):
        for bits in (2, 4, 8):
            for group in (32, 64, 128):
                w = mx.array(weights(rng)).astype(dtype)
                parts = mx.quantize(w.astype(mx.bfloat16), group_size=group, bits=bits)
                head = bytes((code, bits, group // 32, 0)) + (ROWS * COLS).to_bytes(4, "little")
                (ROOT / f"{name}-{bits}-{group}.bin").write_bytes(head + raw(w) + b"".join(raw(p) for p in parts))


if __name__ == "__main__":
    main()
