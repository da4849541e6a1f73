#!/usr/bin/env python3
"""Record what Hugging Face transformers computes for the tiny checkpoints: NAME.json and NAME.bin beside each.

usage: golden_hf.py GOLDEN_DIR OUT_DIR [NAME...]

Gemma4ForCausalLM in float32 on the CPU, eager attention and experts, over the dequantized weights. Prompts are drawn
until no choice in them is a near tie, so that another program's rounding cannot turn one. See tests/golden/README.md
for what the files hold.
"""
import datetime
import hashlib
import json
import multiprocessing
import os
import platform
import sys

import numpy as np
import torch
import transformers
from transformers import Gemma4TextConfig
from transformers.models.gemma4.modeling_gemma4 import Gemma4ForCausalLM

import snapshot as S

LENGTHS = (6, 33, 139)      # within the window, past it, past two blocks of 64 positions
STEPS = 64                  # of greedy continuation
ROUTER_GAP, ARGMAX_GAP = 2e-4, 2e-3
VARIETY = 6                 # different tokens in it, so that it is more than one token over and over
BOS, FIRST_PLAIN, TRIES = 2, 7, 40        # token ids, and prompts tried
DTYPE_NAMES = {np.uint8: "U8", np.uint16: "U16", np.float32: "F32"}


class Model:
    """The reference, and what it did in its last call: routes and hidden states per layer."""

    def __init__(self, directory):
        config, weights = S.read_snapshot(directory)
        text = Gemma4TextConfig.from_dict(config["text_config"])
        text._attn_implementation = "eager"
        self.text, self.model = text, Gemma4ForCausalLM(text).float().eval()
        self.model.set_experts_implementation("eager")
        self.load(S.transformers_names(weights))
        for layer in self.model.model.layers:
            layer.router.proj.register_forward_hook(lambda _, __, out: self.scores.append(out.detach().clone()))
            layer.router.register_forward_hook(lambda _, __, out: self.routes.append((out[2], out[1])))
            layer.register_forward_hook(lambda _, __, out: self.hidden.append(out[0].detach().clone()))

    def load(self, weights):
        """Every tensor exactly once, both ways: none of the model's is left as it was made, none of ours is unused."""
        names = dict(self.model.named_parameters())
        names.update((n, b) for n, b in self.model.named_buffers() if n.endswith("layer_scalar"))
        with torch.no_grad():
            for name, tensor in names.items():
                w = torch.from_numpy(weights.pop(name).copy())
                assert tensor.shape == w.shape, (name, tensor.shape, w.shape)
                tensor.copy_(w)
        assert not weights, sorted(weights)
        assert self.model.lm_head.weight.data_ptr() == self.model.model.embed_tokens.weight.data_ptr()

    @torch.no_grad()
    def __call__(self, ids, cache=None):
        self.scores, self.routes, self.hidden = [], [], []
        out = self.model(input_ids=torch.tensor([ids]), past_key_values=cache, use_cache=cache is not None)
        return out.logits[0]

    def greedy(self, ids, steps):
        """Continuation with a KV cache, and the logits that each token was picked from."""
        cache = transformers.DynamicCache(config=self.text)
        rows, out = [self(ids, cache)[-1]], []
        for _ in range(steps):
            out.append(rows[-1].argmax().item())
            rows.append(self(out[-1:], cache)[-1])
        return out, torch.stack(rows[:-1])


def smallest_gaps(scores, k, logits):
    """Between neighbours among each position's k + 1 best experts, and between the two best next tokens."""
    order = torch.stack(scores).sort(-1, descending=True).values
    best = logits.topk(2).values
    return (order[..., :k] - order[..., 1:k + 1]).min().item(), (best[:, 0] - best[:, 1]).min().item()


def pick_prompt(model, vocab, length, first_seed):
    """The first prompt from first_seed on that stays clear of near ties to the end of its greedy continuation."""
    k = model.text.top_k_experts
    for seed in range(first_seed, first_seed + TRIES):
        rng = np.random.Generator(np.random.PCG64(seed))
        ids = [BOS] + rng.integers(FIRST_PLAIN, vocab, length - 1).tolist()
        logits = model(ids)
        gaps = smallest_gaps(model.scores, k, logits)
        if gaps[0] < ROUTER_GAP or gaps[1] < ARGMAX_GAP:
            continue
        more, rows = model.greedy(ids, STEPS)
        if len(set(more)) < VARIETY:
            continue
        logits = model(ids + more[:-1])
        gaps = smallest_gaps(model.scores, k, logits)
        assert logits[length - 1:].argmax(-1).tolist() == more or gaps[1] < ARGMAX_GAP, "cache and no cache differ"
        if gaps[0] < ROUTER_GAP or gaps[1] < ARGMAX_GAP:
            continue
        return {"seed": seed, "ids": ids, "greedy": more, "router_gap": gaps[0], "argmax_gap": gaps[1],
                "cache_difference": (logits[length - 1:] - rows).abs().max().item()}
    raise RuntimeError(f"no prompt of {length} tokens stays clear of near ties in {TRIES} tries: "
                       "change the checkpoint's seed")


def record(model, prompt, i):
    """Name -> array for one prompt. Logits as 16-bit steps between each row's least and largest value."""
    logits = model(prompt["ids"]).numpy()
    prompt["argmax"] = logits.argmax(-1).tolist()
    low, high = logits.min(-1, keepdims=True), logits.max(-1, keepdims=True)
    codes = np.rint((logits.astype(np.float64) - low) / (high.astype(np.float64) - low) * 65535)
    out = {f"{i}.logits": codes.astype(np.uint16), f"{i}.range": np.concatenate((low, high), 1),
           f"{i}.router.ids": torch.stack([r for r, _ in model.routes]).numpy().astype(np.uint8),
           f"{i}.router.weights": torch.stack([w for _, w in model.routes]).numpy()}
    if i == 0:
        out["0.hidden"] = torch.stack(model.hidden).numpy()
    return out


def machine():
    with open("/proc/cpuinfo") as f:
        cpu = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), platform.machine())
    return f"{platform.system()} {platform.machine()}, {cpu}"


def golden(job):
    directory, out, name = job
    torch.set_num_threads(1)
    model = Model(directory)
    vocab, prompts, arrays = model.text.vocab_size, [], {}
    for i, length in enumerate(LENGTHS):
        prompts.append(pick_prompt(model, vocab, length, 1000 * (i + 1)))
        arrays.update(record(model, prompts[i], i))
    tensors, data = [], b""
    for key, array in arrays.items():
        data += b"\0" * (-len(data) % 8)
        tensors.append({"name": key, "dtype": DTYPE_NAMES[array.dtype.type], "shape": list(array.shape),
                        "offset": len(data), "bytes": array.nbytes})
        data += array.tobytes()
    with open(f"{out}/{name}.bin", "wb") as f:
        f.write(data)
    digest = {e: hashlib.sha256(open(f"{directory}/{e}", "rb").read()).hexdigest()
              for e in sorted(os.listdir(directory)) if e.endswith(".safetensors") or e == "config.json"}
    info = {"checkpoint": name, "vocab": vocab, "layers": model.text.num_hidden_layers,
            "top_k": model.text.top_k_experts,
            "made": {"date": datetime.date.today().isoformat(), "machine": machine(), "numpy": np.__version__,
                     "python": platform.python_version(), "torch": torch.__version__,
                     "transformers": transformers.__version__},
            "sha256": digest, "data_sha256": hashlib.sha256(data).hexdigest(), "prompts": prompts, "tensors": tensors}
    with open(f"{out}/{name}.json", "w") as f:
        f.write(layout(info))
    return name, [(p["seed"], f"{p['router_gap']:.1e}", f"{p['argmax_gap']:.1e}", f"{p['cache_difference']:.1e}",
                   len(set(p["greedy"])), np.mean(np.array(p["argmax"]) == p["ids"])) for p in prompts]


def layout(info):
    """JSON with one line a tensor and one line a list of numbers, so that a difference can be read."""
    lines = []
    for key, value in info.items():
        if key in ("prompts", "tensors"):
            between = ", " if key == "tensors" else ",\n   "
            rows = ",\n".join("  {" + between.join(f"{json.dumps(k)}: {json.dumps(x)}" for k, x in v.items()) + "}"
                              for v in value)
            lines.append(f' "{key}": [\n{rows}\n ]')
        else:
            lines.append(f' "{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main():
    root, out = sys.argv[1:3]
    names = sys.argv[3:] or sorted(e for e in os.listdir(root) if os.path.isdir(f"{root}/{e}"))
    os.makedirs(out, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(min(len(names), os.cpu_count())) as pool:
        for name, rows in pool.imap(golden, [(f"{root}/{n}", out, n) for n in names]):
            print(name)
            for row in rows:
                print("  prompt seed %d, smallest router gap %s, argmax gap %s, cache difference %s, "
                      "%d different tokens in the continuation, %.2f of the argmaxes repeat the token" % row,
                      flush=True)


if __name__ == "__main__":
    sys.exit(main())
