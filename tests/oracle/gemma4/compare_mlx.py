#!/usr/bin/env python3
"""Run the tiny checkpoints in mlx-lm, the format's own implementation, and compare with the goldens.

usage: compare_mlx.py GOLDEN_DIR [NAME...]

A second opinion on both sides: that every matrix here dequantizes in mx.dequantize to the bits that snapshot.py gives
(so the packing is MLX's), and that mlx-lm's gemma4 over the quantized files gives the logits and routes recorded from
transformers. Exit status 1 when it does not.
"""
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.models import gemma4_text
from mlx_lm.utils import load_model

import snapshot as S

LOGIT_TOLERANCE, WEIGHT_TOLERANCE = 1e-4, 1e-4      # of the range of a row's logits; of a router weight


def read_golden(root, name):
    info = json.load(open(f"{root}/{name}.json"))
    data = open(f"{root}/{name}.bin", "rb").read()
    return info, {t["name"]: np.frombuffer(data[t["offset"]:t["offset"] + t["bytes"]],
                                           S.DTYPES[t["dtype"]]).reshape(t["shape"]) for t in info["tensors"]}


def check_dequantization(root, name):
    """Largest difference between mx.dequantize, in float32, and snapshot.py over all matrices; their number."""
    config, ours = S.read_snapshot(f"{root}/{name}")
    raw = {}
    for path in sorted(Path(f"{root}/{name}").glob("model*.safetensors")):
        raw.update(mx.load(str(path)))
    count, worst = 0, 0.0
    for key, words in raw.items():
        if words.dtype != mx.uint32:
            continue
        module = key.removesuffix(".weight")
        bits, group = S.module_quantization(config["quantization"], module)
        scales, biases = (raw[f"{module}.{k}"].astype(mx.float32) for k in ("scales", "biases"))
        theirs = np.array(mx.dequantize(words, scales, biases, group_size=group, bits=bits))
        worst, count = max(worst, float(np.abs(theirs - ours[key]).max())), count + 1
    return worst, count


class Model:
    def __init__(self, directory):
        self.model, _ = load_model(Path(directory))
        self.model.set_dtype(mx.float32)        # scales, biases and norms: BF16 values, kept exactly
        self.routes = []

    def __call__(self, ids, cache=None):
        self.routes.clear()
        plain = gemma4_text.Router.__call__

        def watched(router, x):
            out = plain(router, x)
            self.routes.append([np.array(a)[0] for a in out])
            return out

        gemma4_text.Router.__call__ = watched
        try:
            return np.array(self.model(mx.array([ids]), cache=cache))[0]
        finally:
            gemma4_text.Router.__call__ = plain

    def greedy(self, ids, steps):
        cache, out = self.model.make_cache(), []
        logits = self(ids, cache)
        for _ in range(steps):
            out.append(int(logits[-1].argmax()))
            logits = self(out[-1:], cache)
        return out


def compare(root, name):
    """A row of figures: dequantization, largest logit difference over the row's range, and what disagrees."""
    info, arrays = read_golden(root, name)
    dequantized, matrices = check_dequantization(root, name)
    model, worst, worst_weight, argmaxes, routes, greedy = Model(f"{root}/{name}"), 0.0, 0.0, 0, 0, 0
    for i, prompt in enumerate(info["prompts"]):
        logits = model(prompt["ids"])
        low, high = arrays[f"{i}.range"][:, :1], arrays[f"{i}.range"][:, 1:]
        theirs = low + arrays[f"{i}.logits"] / 65535.0 * (high - low)
        worst = max(worst, float((np.abs(logits - theirs) / (high - low)).max()))
        argmaxes += int((logits.argmax(-1) != prompt["argmax"]).sum())
        for layer, (ids, weights) in enumerate(model.routes):
            order = np.argsort(ids, -1)
            ref = arrays[f"{i}.router.ids"][layer].astype(int)
            ref_order = np.argsort(ref, -1)
            same = (np.take_along_axis(ids, order, -1) == np.take_along_axis(ref, ref_order, -1)).all(-1)
            routes += int((~same).sum())
            off = np.abs(np.take_along_axis(weights, order, -1)
                         - np.take_along_axis(arrays[f"{i}.router.weights"][layer], ref_order, -1))
            worst_weight = max(worst_weight, float(off[same].max()))
        greedy += model.greedy(prompt["ids"], len(prompt["greedy"])) != prompt["greedy"]
    print(f"{name}: {matrices} matrices dequantize within {dequantized:.1e}; logits within {worst:.1e} of the range, "
          f"router weights within {worst_weight:.1e}; different: {argmaxes} argmaxes, {routes} routes, "
          f"{greedy} continuations", flush=True)
    return dequantized <= 1e-6 and worst <= LOGIT_TOLERANCE and worst_weight <= WEIGHT_TOLERANCE \
        and not argmaxes and not routes and not greedy


def main():
    mx.set_default_device(mx.cpu)
    root = sys.argv[1]
    names = sys.argv[2:] or sorted(e for e in os.listdir(root) if os.path.isdir(f"{root}/{e}"))
    print("mlx", version("mlx"), "mlx-lm", version("mlx-lm"))
    return 0 if all([compare(root, name) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
