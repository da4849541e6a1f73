#!/usr/bin/env python3
"""Make the tiny random Gemma 4 checkpoints under tests/golden/gemma4. Needs numpy only; same bytes on any machine.

usage: make_checkpoints.py OUT_DIR [NAME...]

Each is a snapshot directory in MLX's layout, with its own mix of bit widths, group sizes and configuration.
Weights are scaled so that a layer's output is a few times the embedding it adds to, else every token would predict
itself, and so that router logits have a deviation near one.
"""
import json
import os
import shutil
import sys

import numpy as np

import snapshot as S

PREFIX = "language_model.model."
SPECIALS = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|turn>", "<turn|>"]
MERGES = [["\u2581", "t"], ["a", "n"], ["\u2581", "a"], ["e", "n"]]
VOCAB = 272
TEMPLATE = ("{{ bos_token }}{% for message in messages %}"
            "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
            "{{ '<|turn>' + role + '\\n' + message['content'] | trim + '<turn|>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|turn>model\\n' }}{% endif %}")

# Shapes of one checkpoint. Layer types: s sliding, F full (transformers wants the last layer full).
SHAPE = dict(hidden=64, layers="ssFF", heads=4, kv_heads=2, full_kv_heads=1, head_dim=32, full_head_dim=64, dense=128,
             expert=64, experts=8, top_k=2, window=16, k_eq_v=True, partial=0.25, softcap=30.0, shards=1, by_name=False,
             embed=1.0)


def router_only(bits):
    return lambda module, layer: (bits, None) if module == "router.proj" else None


def eight_with_fours(module, layer):
    """4 bits for layer 1's experts, so that layers differ in record size, and here and there among the rest."""
    four = (layer == 1 and "switch_glu" in module) or (layer == 2 and module == "mlp.down_proj") \
        or (layer == 3 and module == "experts.switch_glu.up_proj") or (layer == 0 and module == "self_attn.o_proj")
    return (4, None) if four else None


def two_bit_experts(module, layer):
    if module == "embed_tokens" or module == "router.proj":
        return 8, None
    return (2, None) if "switch_glu" in module else None


def mixed_groups(module, layer):
    """Group 128 where the width allows; the router and one matrix in groups of 32 and 64."""
    if module == "router.proj":
        return 8, 64
    return (4, 32) if module == "mlp.up_proj" and layer == 0 else None


def plain_resident(module, layer):
    return None if "switch_glu" in module else False


# name: seed, default (bits, group_size), overrides, and what differs from SHAPE.
MIXES = {
    "q4": dict(seed=404, default=(4, 64), override=router_only(8), embed=0.7),
    "q8g32": dict(seed=802, default=(8, 32), override=eight_with_fours, expert=32, top_k=4, window=24, shards=3,
                  dense=96),
    "q2": dict(seed=203, default=(4, 64), override=two_bit_experts, layers="sFssF", full_kv_heads=2, top_k=3,
               by_name=True, dense=64),
    "g128": dict(seed=1284, default=(4, 128), override=mixed_groups, hidden=128, layers="sF", full_head_dim=128,
                 expert=128, experts=4, softcap=12.0, embed=0.5),
    "bf16": dict(seed=165, default=(4, 64), override=plain_resident, layers="sF", dense=64, top_k=4, shards=2,
                 embed=0.7),
    "plainkv": dict(seed=706, default=(4, 64), override=router_only(8), layers="sFsF", k_eq_v=False, partial=None,
                    heads=6, kv_heads=3, full_kv_heads=None, head_dim=32, full_head_dim=32, dense=64, expert=64,
                    experts=7, top_k=2, softcap=None),
    "onegroup": dict(seed=327, default=(4, 32), override=router_only(8), hidden=32, layers="sssFssF", heads=2,
                     kv_heads=1, head_dim=16, full_head_dim=32, dense=32, expert=32, experts=6, top_k=3, window=7),
}


def matrices(s):
    """Every matrix of the model: module path, layer or None, shape, standard deviation of its weights."""
    h, out = s["hidden"], []

    def add(module, layer, *shape, std=None):
        out.append((module, layer, shape, std or shape[-1] ** -0.5))

    add("embed_tokens", None, VOCAB, h, std=s["embed"] * h ** -0.5)
    for i, kind in enumerate(s["layers"]):
        full = kind == "F"
        d = s["full_head_dim"] if full else s["head_dim"]
        kv = s["full_kv_heads"] if full and s["k_eq_v"] else s["kv_heads"]
        add("self_attn.q_proj", i, s["heads"] * d, h)
        add("self_attn.k_proj", i, kv * d, h)
        if not (full and s["k_eq_v"]):
            add("self_attn.v_proj", i, kv * d, h)
        add("self_attn.o_proj", i, h, s["heads"] * d)
        add("mlp.gate_proj", i, s["dense"], h)
        add("mlp.up_proj", i, s["dense"], h)
        add("mlp.down_proj", i, h, s["dense"])
        add("router.proj", i, s["experts"], h, std=1.0)      # its input is scaled by hidden^-1/2
        add("experts.switch_glu.gate_proj", i, s["experts"], s["expert"], h)
        add("experts.switch_glu.up_proj", i, s["experts"], s["expert"], h)
        add("experts.switch_glu.down_proj", i, s["experts"], h, s["expert"])
    return out


def vectors(s):
    """Every vector: full name, length, and the range that its values are drawn from."""
    h, out = s["hidden"], [(PREFIX + "norm.weight", s["hidden"], (3 / s["embed"], 5 / s["embed"]))]
    for i, kind in enumerate(s["layers"]):
        p = f"{PREFIX}layers.{i}."
        d = s["full_head_dim"] if kind == "F" else s["head_dim"]
        # Scores are not divided by sqrt(d), so these keep them from saturating the softmax.
        peak = 1.6 * d ** -0.25
        out += [(p + f"self_attn.{n}_norm.weight", d, (0.5 * peak, peak)) for n in "qk"]
        out += [(p + n + ".weight", h, r) for n, r in (
            ("input_layernorm", (0.5, 1.5)), ("post_attention_layernorm", (1.0, 3.0)),
            ("pre_feedforward_layernorm", (0.5, 1.5)), ("pre_feedforward_layernorm_2", (0.5, 1.5)),
            ("post_feedforward_layernorm", (1.0, 3.0)), ("post_feedforward_layernorm_1", (0.5, 1.5)),
            ("post_feedforward_layernorm_2", (0.5, 1.5)))]
        out += [(p + "router.scale", h, (0.5, 1.8)), (p + "router.per_expert_scale", s["experts"], (0.5, 1.6)),
                (p + "layer_scalar", 1, (0.4, 1.3))]
    return out


def text_config(s):
    full = {"rope_type": "default", "rope_theta": 50000.0} if s["partial"] is None else \
        {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": s["partial"]}
    config = {
        "model_type": "gemma4_text", "vocab_size": VOCAB, "hidden_size": s["hidden"], "intermediate_size": s["dense"],
        "num_hidden_layers": len(s["layers"]), "num_attention_heads": s["heads"], "num_key_value_heads": s["kv_heads"],
        "head_dim": s["head_dim"], "global_head_dim": s["full_head_dim"], "attention_k_eq_v": s["k_eq_v"],
        "num_global_key_value_heads": s["full_kv_heads"], "sliding_window": s["window"],
        "layer_types": ["full_attention" if k == "F" else "sliding_attention" for k in s["layers"]],
        "rope_parameters": {"full_attention": full,
                            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
        "final_logit_softcapping": s["softcap"], "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6,
        "attention_bias": False, "attention_dropout": 0.0, "enable_moe_block": True, "num_experts": s["experts"],
        "top_k_experts": s["top_k"], "moe_intermediate_size": s["expert"], "max_position_embeddings": 512,
        "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": VOCAB, "num_kv_shared_layers": 0,
        "use_double_wide_mlp": False, "use_bidirectional_attention": None, "tie_word_embeddings": True,
        "pad_token_id": 0, "eos_token_id": [1, 6], "bos_token_id": 2}
    return config


def tokenizer_json():
    vocab = {t: i for i, t in enumerate(SPECIALS + [f"<0x{b:02X}>" for b in range(256)])}
    for a, b in MERGES:
        for t in (a, b, a + b):
            vocab.setdefault(t, len(vocab))
    assert len(vocab) <= VOCAB
    for i in range(len(vocab), VOCAB):
        vocab[f"<unused{i}>"] = i
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, t in enumerate(SPECIALS)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                              "invert": False},
            "post_processor": None,
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                      "vocab": vocab, "merges": MERGES}}


def make_tensors(s, quantization):
    """On-disk name -> (dtype, array); fills `quantization` with what differs from its default."""
    rng, tensors = np.random.Generator(np.random.PCG64(s["seed"])), {}
    for module, layer, shape, std in matrices(s):
        path = PREFIX + (module if layer is None else f"layers.{layer}.{module}")
        w = (rng.standard_normal(shape) * std).astype(np.float32)
        choice = s["override"](module, layer)
        if choice is False:
            quantization[path] = False
            tensors[path + ".weight"] = ("BF16", S.bf16_bits(w))
            continue
        bits, group = choice or s["default"]
        group = group or s["default"][1]
        if (bits, group) != s["default"]:
            quantization[path] = {"bits": bits, "group_size": group}
        codes, scales, biases = S.quantize(w, bits, group)
        tensors[path + ".weight"] = ("U32", S.pack(codes, bits))
        tensors[path + ".scales"] = ("BF16", S.bf16_bits(scales))
        tensors[path + ".biases"] = ("BF16", S.bf16_bits(biases))
    for name, length, (low, high) in vectors(s):
        tensors[name] = ("BF16", S.bf16_bits(rng.uniform(low, high, length)))
    return tensors


def write_weights(out, s, tensors):
    """One file, or shards that cut through the list of names wherever it falls, so a matrix and its scales part."""
    if s["shards"] == 1:
        S.write_safetensors(f"{out}/model.safetensors", tensors, s["by_name"])
        return
    names, n = sorted(tensors), s["shards"]
    weight_map = {}
    for k in range(n):
        part = names[k * len(names) // n:(k + 1) * len(names) // n]
        file = f"model-{k + 1:05d}-of-{n:05d}.safetensors"
        S.write_safetensors(f"{out}/{file}", {name: tensors[name] for name in part}, s["by_name"])
        weight_map.update((name, file) for name in part)
    total = sum(array.nbytes for _, array in tensors.values())
    write_json(f"{out}/model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1, sort_keys=True, ensure_ascii=False)
        f.write("\n")


def make(name, root):
    s, out = {**SHAPE, **MIXES[name]}, f"{root}/{name}"
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    bits, group = s["default"]
    quantization = {"bits": bits, "group_size": group, "mode": "affine"}
    write_weights(out, s, make_tensors(s, quantization))
    write_json(f"{out}/config.json", {
        "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "text_config": text_config(s),
        "tie_word_embeddings": True, "eos_token_id": [1, 6], "vocab_size": VOCAB, "quantization": quantization,
        "quantization_config": quantization})
    with open(f"{out}/tokenizer.json", "w", encoding="utf-8") as f:
        json.dump(tokenizer_json(), f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    write_json(f"{out}/tokenizer_config.json", {
        "tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>",
        "unk_token": "<unk>", "add_bos_token": False})
    with open(f"{out}/chat_template.jinja", "w", encoding="utf-8") as f:
        f.write(TEMPLATE)


def main():
    root, names = sys.argv[1], sys.argv[2:] or list(MIXES)
    for name in names:
        make(name, root)
        size = sum(e.stat().st_size for e in os.scandir(f"{root}/{name}"))
        print(f"{name}: {size} bytes")


if __name__ == "__main__":
    sys.exit(main())
