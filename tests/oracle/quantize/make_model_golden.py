#!/usr/bin/env python3
"""Writes tests/golden/quantize/gemma4.json: what an install holds of tests/golden/gemma4/q4 when MLX quantizes it.

    V/bin/python tests/oracle/quantize/make_model_golden.py build/sluice

The checkpoint's matrices are dequantized, rounded to bfloat16, quantized again by mx.quantize (routers at 8 bits), and
installed; the digests of the weight files are the golden. tests/unit/test_install_quantize.c makes the same bfloat16
values under the names of transformers and lets the installer quantize them.
"""
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

import mlx.core as mx
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "gemma4"))
import snapshot as snap  # noqa: E402

GOLDEN = HERE.parents[1] / "golden"
SOURCE = GOLDEN / "gemma4" / "q4"


def quantized(weights, quantized_names, bits, config):
    out, storage = {}, {"group_size": 64, "bits": bits, "mode": "affine"}
    for name, array in weights.items():
        if name not in quantized_names:
            out[name] = ("BF16", snap.bf16_bits(array))
            continue
        module = name.removesuffix(".weight")
        own = 8 if module.endswith("router.proj") else bits
        if own != bits:
            storage[module] = {"group_size": 64, "bits": own}
        w = mx.array(array).astype(mx.bfloat16)
        codes, scales, biases = mx.quantize(w, group_size=64, bits=own)
        out[name] = ("U32", np.asarray(codes))
        out[module + ".scales"] = ("BF16", np.asarray(scales.view(mx.uint16)))
        out[module + ".biases"] = ("BF16", np.asarray(biases.view(mx.uint16)))
    config = {k: v for k, v in config.items() if k != "quantization_config"}
    return out, dict(config, quantization=storage)


def digests(sluice, bits):
    config, weights = snap.read_snapshot(SOURCE)
    names = {n for n, (d, _) in snap.read_safetensors(SOURCE / "model.safetensors").items() if d == "U32"}
    tensors, config = quantized(weights, names, bits, config)
    with tempfile.TemporaryDirectory() as temp:
        root = pathlib.Path(temp)
        (root / "s").mkdir()
        snap.write_safetensors(root / "s" / "model.safetensors", tensors)
        (root / "s" / "config.json").write_text(json.dumps(config))
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (root / "s" / name).write_bytes((SOURCE / name).read_bytes())
        subprocess.run([sluice, "install", root / "s", "--output", root / "o.gturbo", "--quiet"], check=True)
        files = sorted(p for p in (root / "o.gturbo").rglob("*") if p.suffix == ".bin" or p.name == "layout.json")
        return {str(p.relative_to(root / "o.gturbo")): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def main():
    mx.set_default_device(mx.cpu)
    golden = {str(bits): digests(sys.argv[1], bits) for bits in (4, 8)}
    (GOLDEN / "quantize" / "gemma4.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
