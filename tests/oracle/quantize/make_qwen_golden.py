#!/usr/bin/env python3
"""Makes tests/golden/quantize/qwen36: a tiny Qwen 3.6 as Hugging Face publishes it, and what MLX makes of it.

    V/bin/python tests/oracle/quantize/make_qwen_golden.py [build/sluice]

The checkpoint has the published names and shapes: fused expert matrices, norms less 1, convolutions [channels, 1,
taps]. mlx-lm's own converter (its names, its choice of what is quantized, mx.quantize) turns it into an MLX-affine
checkpoint, and the digests of every quantized tensor's codes, scales and biases are the golden;
tests/unit/test_install_quantize.c lets the installer quantize the published one. With a command it also installs both,
and compares what they generate: log-probabilities and all, to the bit.
"""
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

import mlx.core as mx
import numpy as np
from mlx_lm import convert

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "qwen"))
import make_qwen as Q  # noqa: E402
from make_qwen import S  # noqa: E402

GOLDEN = HERE.parents[1] / "golden" / "quantize" / "qwen36"
MIX = dict(seed=363, default=None, override=Q.everything_plain, layers="LLLF", experts=3, layout="original")


def fuse(tensors, s):
    """The experts' three stacks, as published two."""
    for i in range(len(s["layers"])):
        mlp = f"{Q.prefix_of(s)}layers.{i}.mlp."
        gate, up, down = (tensors.pop(f"{mlp}switch_mlp.{n}_proj.weight")[1] for n in ("gate", "up", "down"))
        tensors[mlp + "experts.gate_up_proj"] = ("BF16", np.concatenate((gate, up), 1))
        tensors[mlp + "experts.down_proj"] = ("BF16", down)


def norms_that_add_up(tensors):
    """A norm's weight less 1, such that adding the 1 is exact: mlx-lm adds it in bfloat16."""
    for name, (dtype, bits) in tensors.items():
        if name.endswith("norm.weight") and "linear_attn" not in name:
            whole = S.bf16_floats(S.bf16_bits(S.bf16_floats(bits) + 1))
            tensors[name] = (dtype, S.bf16_bits(whole - 1))


def digests(tensors):
    out = {}
    for name in sorted(n.removesuffix(".scales") for n in tensors if n.endswith(".scales")):
        sha = hashlib.sha256()
        for part in ("weight", "scales", "biases"):
            array = tensors[f"{name}.{part}"]
            sha.update(np.asarray(array if part == "weight" else array.view(mx.uint16)).tobytes())
        out[name] = sha.hexdigest()
    return out


def generate(sluice, install):
    done = subprocess.run([sluice, "run", install, "--quiet", "--greedy", "--ignore-eos", "--max-tokens", "64", "--prompt",
                           "the end and then", "--logprobs", "5", "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["logprobs"]


def main():
    mx.set_default_device(mx.cpu)
    Q.MIXES[GOLDEN.name] = MIX
    make_tensors = Q.make_tensors

    def published(s, quantization):
        tensors = make_tensors(s, quantization)
        fuse(tensors, s)
        norms_that_add_up(tensors)
        return tensors

    Q.make_tensors, Q.place = published, lambda *_: GOLDEN
    Q.make(GOLDEN.name, None)
    golden = {}
    with tempfile.TemporaryDirectory() as temp:
        for bits in (4, 8):
            mlx = f"{temp}/mlx{bits}"
            convert(str(GOLDEN), mlx, quantize=True, q_group_size=64, q_bits=bits)
            tensors = {}
            for file in pathlib.Path(mlx).glob("*.safetensors"):
                tensors.update(mx.load(str(file)))
            golden[str(bits)] = digests(tensors)
            for source, more in ((mlx, []), (str(GOLDEN), ["--quantize", str(bits)])) if len(sys.argv) > 1 else ():
                subprocess.run([sys.argv[1], "install", source, "--output", f"{source}.{bits}.gturbo".replace(
                    str(GOLDEN), f"{temp}/published"), "--quiet", *more], check=True)
            if len(sys.argv) > 1:
                same = generate(sys.argv[1], f"{mlx}.{bits}.gturbo") == generate(sys.argv[1], f"{temp}/published.{bits}.gturbo")
                print(f"{bits} bits: the installs generate {'the same' if same else 'DIFFERENT'} tokens")
                assert same
    with open(f"{GOLDEN}.json", "w", encoding="utf-8") as f:
        f.write(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
