#!/usr/bin/env python3
"""Run the tiny Qwen checkpoints in mlx-lm, the format's own implementation, and compare with the goldens.

usage: compare_mlx_qwen.py GOLDEN_DIR [NAME...]

A second opinion, on the same quantized files: the logits of every position, every argmax and the greedy continuation.
Exit status 1 when they are not those recorded from transformers. Left out are checkpoints that mlx-lm cannot express:
without a "quantization", and with full attention elsewhere than in every fourth layer.
"""
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_model

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gemma4"))
from compare_mlx import LOGIT_TOLERANCE, read_golden  # noqa: E402


def logits_of(model, ids, cache=None):
    return np.array(model(mx.array([ids]), cache=cache))[0]


def compare(root, name):
    info, arrays = read_golden(root, name)
    model, _ = load_model(Path(f"{root}/{name}"), strict=False)     # the tower's tensor is one too many
    model.set_dtype(mx.float32)
    worst, argmaxes, greedy = 0.0, 0, 0
    for i, prompt in enumerate(info["prompts"]):
        logits = logits_of(model, prompt["ids"])
        low, high = arrays[f"{i}.range"][:, :1], arrays[f"{i}.range"][:, 1:]
        theirs = low + arrays[f"{i}.logits"] / 65535.0 * (high - low)
        worst = max(worst, float((np.abs(logits - theirs) / (high - low)).max()))
        argmaxes += int((logits.argmax(-1) != prompt["argmax"]).sum())
        cache, out = model.make_cache(), []
        rows = logits_of(model, prompt["ids"], cache)
        for _ in range(len(prompt["greedy"])):
            out.append(int(rows[-1].argmax()))
            rows = logits_of(model, out[-1:], cache)
        greedy += out != prompt["greedy"]
    print(f"{name}: logits within {worst:.1e} of the range; different: {argmaxes} argmaxes, {greedy} continuations",
          flush=True)
    return worst <= LOGIT_TOLERANCE and not argmaxes and not greedy


def readable(directory):
    config = json.load(open(f"{directory}/config.json"))
    types = config["text_config"].get("layer_types", [])
    return "quantization" in config and all((t == "full_attention") == (i % 4 == 3) for i, t in enumerate(types))


def main():
    mx.set_default_device(mx.cpu)
    root = sys.argv[1]
    names = sys.argv[2:] or sorted(e for e in os.listdir(root) if os.path.isdir(f"{root}/{e}")
                                   and readable(f"{root}/{e}"))
    print("mlx", version("mlx"), "mlx-lm", version("mlx-lm"))
    return 0 if all([compare(root, name) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
