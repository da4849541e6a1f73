#!/usr/bin/env python3
"""Record what Hugging Face transformers computes for the tiny Qwen checkpoints: NAME.json and NAME.bin beside each.

usage: golden_qwen.py GOLDEN_DIR OUT_DIR [NAME...]

Qwen3_5MoeForCausalLM or Qwen3_5ForCausalLM in float32 on the CPU, eager attention and experts, over the dequantized
weights. Prompts are drawn until no choice in them is a near tie. Beside what Gemma's goldens hold (../gemma4), the
recurrent state and the convolution's last inputs after prompt 1 and after its continuation, token by token.

transformers leaves the drafting layer out. It is put together here from its own decoder layer, as docs/models/qwen38.md
says, and its guesses are recorded.
"""
import multiprocessing
import os
import re
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import Qwen3_5MoeTextConfig, Qwen3_5TextConfig
from transformers.models.qwen3_5 import modeling_qwen3_5 as dense
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as moe

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gemma4"))
import golden_hf as G  # noqa: E402
import snapshot as S  # noqa: E402

NORMS = re.compile(r"(layernorm|[qk]_norm|\.norm|^norm|pre_fc_norm_\w+)\.weight$")
FIRST_PLAIN, TRIES, VARIETY = 4, 60, 6
CHAIN = 3       # guesses one after another


def read_snapshot(directory):
    """config.json, and name -> float32 array as transformers' Qwen3_5*ForCausalLM names it; the drafting layer's
    apart."""
    files = ["model.safetensors"]
    if os.path.exists(f"{directory}/model.safetensors.index.json"):
        files = sorted(e for e in os.listdir(directory) if e.startswith("model-"))
    if os.path.exists(f"{directory}/mtp.safetensors"):
        files.append("mtp.safetensors")
    config, raw = S.json.load(open(f"{directory}/config.json")), {}
    for file in files:
        raw.update((n, t) for n, t in S.read_safetensors(f"{directory}/{file}").items()
                   if file != "mtp.safetensors" or n.startswith("mtp."))
    original, out, draft = any(n.startswith("model.language_model.") for n in raw), {}, {}
    for name, (dtype, array) in raw.items():
        if re.search(r"\.(scales|biases)$", name) or "vision_tower" in name or "visual" in name:
            continue
        module = name.removesuffix(".weight")
        if dtype == "U32":
            bits, _ = S.module_quantization(config["quantization"], module)
            value = S.dequantize(array, *(S.bf16_floats(raw[f"{module}.{k}"][1]) for k in ("scales", "biases")), bits)
        else:
            value = array if dtype == "F32" else S.bf16_floats(array)
        if name.startswith("mtp."):
            draft[name.removeprefix("mtp.")] = value
            continue
        name = name.removeprefix("language_model.").replace("model.language_model.", "model.")
        if not original and NORMS.search(name) and "linear_attn" not in name:
            value = value - np.float32(1)
        if not original and name.endswith("conv1d.weight"):
            value = np.moveaxis(value, 2, 1)
        out[name] = value
    for name in [n for n in out if ".switch_mlp.gate_proj." in n]:
        up, down = (out.pop(name.replace("gate_proj", k)) for k in ("up_proj", "down_proj"))
        stem = name.split("switch_mlp")[0] + "experts."
        out[stem + "gate_up_proj"], out[stem + "down_proj"] = np.concatenate((out.pop(name), up), 1), down
    return config, out, draft


def fill(module, weights):
    """Every tensor exactly once, both ways."""
    with torch.no_grad():
        for name, tensor in module.named_parameters():
            w = torch.from_numpy(np.ascontiguousarray(weights.pop(name)))
            assert tensor.shape == w.shape, (name, tensor.shape, w.shape)
            tensor.copy_(w)
    assert not weights, sorted(weights)


class Draft(torch.nn.Module):
    """The drafting layer, from transformers' own parts."""

    def __init__(self, text, model):
        super().__init__()
        h = text.hidden_size
        one = type(text).from_dict({**text.to_dict(), "num_hidden_layers": 1, "layer_types": ["full_attention"]})
        one._attn_implementation = "eager"
        self.fc = torch.nn.Linear(2 * h, h, bias=False)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = (
            dense.Qwen3_5RMSNorm(h, text.rms_norm_eps) for _ in range(3))
        self.layers = torch.nn.ModuleList([dense.Qwen3_5DecoderLayer(one, 0)])
        self.__dict__["model"] = model      # not a part of this module

    def forward(self, ids, hidden):
        """Outputs after the final norm, and logits, of pairs 0..n-1: (token j + 1, normed hidden state j)."""
        n = len(ids)
        e = self.pre_fc_norm_embedding(self.model.model.embed_tokens(torch.tensor([ids])))
        x = self.fc(torch.cat((e, self.pre_fc_norm_hidden(hidden[None])), -1))
        positions = torch.arange(n)[None, None].expand(3, 1, n)
        rope = self.model.model.rotary_emb(x, positions)
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        x = self.layers[0](x, position_embeddings=rope, attention_mask=mask)
        x = self.norm(x)[0]
        return x, self.model.lm_head(x)


class Model:
    """The reference, and what it did in its last call: routes and hidden states per layer."""

    def __init__(self, directory):
        config, weights, draft = read_snapshot(directory)
        self.moe = config["model_type"] == "qwen3_5_moe"
        text = (Qwen3_5MoeTextConfig if self.moe else Qwen3_5TextConfig).from_dict(config["text_config"])
        text._attn_implementation = "eager"
        self.text = text
        self.model = (moe.Qwen3_5MoeForCausalLM if self.moe else dense.Qwen3_5ForCausalLM)(text).float().eval()
        if self.moe:
            self.model.set_experts_implementation("eager")
        fill(self.model, weights)
        self.draft = None
        if draft:
            self.draft = Draft(text, self.model).float().eval()
            fill(self.draft, draft)
        for layer in self.model.model.layers:
            layer.register_forward_hook(lambda _, __, out: self.hidden.append(
                (out[0] if isinstance(out, tuple) else out).detach().clone().reshape(-1, text.hidden_size)))
            if self.moe:
                layer.mlp.gate.register_forward_hook(lambda _, __, out: self.note_routes(*out))
        self.model.model.norm.register_forward_hook(
            lambda _, __, out: setattr(self, "normed", out.detach().clone()[0]))

    def note_routes(self, logits, weights, ids):
        self.scores.append(logits.detach().clone())
        order = weights.sort(dim=-1, descending=True, stable=True).indices
        self.routes.append((ids.gather(-1, order), weights.gather(-1, order)))

    @torch.no_grad()
    def __call__(self, ids, cache=None):
        self.scores, self.routes, self.hidden = [], [], []
        out = self.model(input_ids=torch.tensor([ids]), past_key_values=cache, use_cache=cache is not None)
        return out.logits[0]

    def greedy(self, ids, steps):
        """Continuation with a cache, the logits that each token was picked from, and the states at the end of
        prompt and continuation."""
        cache = transformers.DynamicCache(config=self.text)
        rows, out = [self(ids, cache)[-1]], []
        states = [self.states(cache)]
        for _ in range(steps):
            out.append(rows[-1].argmax().item())
            rows.append(self(out[-1:], cache)[-1])
        return out, torch.stack(rows[:-1]), states + [self.states(cache)]

    def states(self, cache):
        """Per DeltaNet layer: state [heads][value][key], and the convolution's last inputs, oldest first."""
        out = []
        for i, kind in enumerate(self.text.layer_types):
            if kind == "linear_attention":
                layer = cache.layers[i]
                tail = layer.conv_states[0][0].T[-(self.text.linear_conv_kernel_dim - 1):]
                out.append((layer.recurrent_states[0][0].transpose(-1, -2).clone().numpy(), tail.clone().numpy()))
        return out

    @torch.no_grad()
    def guesses(self, ids):
        """After every position but the last, the token guessed two further on; then a chain from the last."""
        self(ids)
        hidden, pairs = self.normed, list(ids[1:])
        outputs, logits = self.draft(pairs, hidden[:-1])
        first, gap = logits.argmax(-1).tolist(), self.gap(logits)
        token, chain = self.model.lm_head(hidden[-1]).argmax().item(), []
        states = hidden
        for _ in range(CHAIN):
            pairs.append(token)
            outputs, logits = self.draft(pairs, states[:len(pairs)])
            gap = min(gap, self.gap(logits[-1:]))
            token = logits[-1].argmax().item()
            chain.append(token)
            states = torch.cat((states, outputs[-1:]))
        return first, chain, gap

    @staticmethod
    def gap(logits):
        best = logits.topk(2).values
        return (best[:, 0] - best[:, 1]).min().item()


def gaps_of(model, logits):
    if model.moe:
        return G.smallest_gaps(model.scores, model.text.num_experts_per_tok, logits)
    return 1.0, Model.gap(logits)


def pick_prompt(model, length, first_seed):
    """The first prompt from first_seed on that stays clear of near ties to the end of its greedy continuation."""
    for seed in range(first_seed, first_seed + TRIES):
        rng = np.random.Generator(np.random.PCG64(seed))
        ids = rng.integers(FIRST_PLAIN, 260, length).tolist()
        logits = model(ids)
        gaps = gaps_of(model, logits)
        if gaps[0] < G.ROUTER_GAP or gaps[1] < G.ARGMAX_GAP:
            continue
        more, rows, states = model.greedy(ids, G.STEPS)
        if len(set(more)) < VARIETY:
            continue
        logits = model(ids + more[:-1])
        gaps = gaps_of(model, logits)
        if gaps[0] < G.ROUTER_GAP or gaps[1] < G.ARGMAX_GAP:
            continue
        assert logits[length - 1:].argmax(-1).tolist() == more, "cache and no cache differ"
        prompt = {"seed": seed, "ids": ids, "greedy": more, "router_gap": gaps[0], "argmax_gap": gaps[1],
                  "cache_difference": (logits[length - 1:] - rows).abs().max().item()}
        if model.draft:
            prompt["guesses"], prompt["chain"], gap = model.guesses(ids)
            if gap < G.ARGMAX_GAP:
                continue
        return prompt, states
    raise RuntimeError(f"no prompt of {length} tokens stays clear of near ties in {TRIES} tries: "
                       "change the checkpoint's seed")


def record(model, prompt, states, i):
    """Name -> array for one prompt. Logits as 16-bit steps between each row's least and largest value."""
    logits = model(prompt["ids"]).numpy()
    prompt["argmax"] = logits.argmax(-1).tolist()
    low, high = logits.min(-1, keepdims=True), logits.max(-1, keepdims=True)
    codes = np.rint((logits.astype(np.float64) - low) / (high.astype(np.float64) - low) * 65535)
    out = {f"{i}.logits": codes.astype(np.uint16), f"{i}.range": np.concatenate((low, high), 1)}
    if model.moe:
        out[f"{i}.router.ids"] = torch.stack([r for r, _ in model.routes]).numpy().astype(np.uint8)
        out[f"{i}.router.weights"] = torch.stack([w for _, w in model.routes]).numpy()
    if i == 0:
        out["0.hidden"] = torch.stack(model.hidden).numpy()
    if i == 1:
        for when, layers in zip(("prompt", "end"), states):
            for k, (state, tail) in enumerate(layers):
                if k in (0, len(layers) - 1):
                    out[f"1.{when}.state.{k}"], out[f"1.{when}.tail.{k}"] = state, tail
    return out


def golden(job):
    directory, out, name = job
    torch.set_num_threads(1)
    model, prompts, arrays = Model(directory), [], {}
    for i, length in enumerate(G.LENGTHS):
        prompt, states = pick_prompt(model, length, 1000 * (i + 1))
        prompts.append(prompt)
        arrays.update(record(model, prompt, states, i))
    tensors, data = [], b""
    for key, array in arrays.items():
        data += b"\0" * (-len(data) % 8)
        tensors.append({"name": key, "dtype": G.DTYPE_NAMES[array.dtype.type], "shape": list(array.shape),
                        "offset": len(data), "bytes": array.nbytes})
        data += array.tobytes()
    with open(f"{out}/{name}.bin", "wb") as f:
        f.write(data)
    digest = {e: G.hashlib.sha256(open(f"{directory}/{e}", "rb").read()).hexdigest()
              for e in sorted(os.listdir(directory)) if e.endswith(".safetensors") or e == "config.json"}
    text = model.text
    info = {"checkpoint": name, "vocab": text.vocab_size, "layers": text.num_hidden_layers,
            "top_k": text.num_experts_per_tok if model.moe else 0,
            "made": {"date": G.datetime.date.today().isoformat(), "machine": G.machine(), "numpy": np.__version__,
                     "python": G.platform.python_version(), "torch": torch.__version__,
                     "transformers": transformers.__version__},
            "sha256": digest, "data_sha256": G.hashlib.sha256(data).hexdigest(), "prompts": prompts, "tensors": tensors}
    with open(f"{out}/{name}.json", "w") as f:
        f.write(G.layout(info))
    return name, [(p["seed"], f"{p['router_gap']:.1e}", f"{p['argmax_gap']:.1e}", f"{p['cache_difference']:.1e}",
                   len(set(p["greedy"]))) for p in prompts]


def main():
    root, out = sys.argv[1:3]
    names = sys.argv[3:] or sorted(e for e in os.listdir(root) if os.path.isdir(f"{root}/{e}"))
    os.makedirs(out, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(min(len(names), os.cpu_count())) as pool:
        for name, rows in pool.imap(golden, [(f"{root}/{n}", out, n) for n in names]):
            print(name)
            for row in rows:
                print("  prompt seed %d, smallest router gap %s, argmax gap %s, cache difference %s, "
                      "%d different tokens in the continuation" % row, flush=True)


if __name__ == "__main__":
    sys.exit(main())
