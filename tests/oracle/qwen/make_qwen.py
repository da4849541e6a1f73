#!/usr/bin/env python3
"""Make the tiny random Qwen checkpoints of tests/golden/qwen36 and qwen38. Needs numpy only; same bytes on any machine.

usage: make_qwen.py GOLDEN_DIR [NAME...]

Each is a snapshot directory with its own mix of bit widths, group sizes, shapes and layout: MLX's, or the one that
Hugging Face publishes ("original").
"""
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gemma4"))
import snapshot as S  # noqa: E402
from make_checkpoints import write_json  # noqa: E402
from make_checkpoints import write_weights  # noqa: E402

VOCAB = 272
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
MERGES = [["\u0120", "t"], ["a", "n"], ["\u0120", "a"], ["e", "n"]]
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
           r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEMPLATE = ("{% for message in messages %}"
            "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
            "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}"
            "{% else %}{{ '<think>\\n' }}{% endif %}{% endif %}")

# Layer types: L linear (DeltaNet), F full attention. experts 0: a dense model.
SHAPE = dict(hidden=64, layers="LLLFLLLF", heads=4, kv_heads=2, head_dim=32, partial=0.25, key_heads=2, value_heads=4,
             key_dim=32, value_dim=32, taps=4, dense=64, expert=64, experts=8, top_k=2, listed=True, layout="mlx",
             mtp=False, agree=0.0, shards=1, by_name=False, vectors="BF16")


def as_published(module):
    return (8, 64) if module in ("mlp.gate", "mlp.shared_expert_gate") else None


def plain_resident(module):
    return None if "switch_mlp" in module else False


def everything_plain(_):
    return False


def mixed(module):
    if module in ("mlp.gate", "linear_attn.in_proj_a"):
        return 8, 32
    return (4, 64) if module in ("linear_attn.out_proj", "self_attn.q_proj") else None


MIXES = {
    "q4": dict(seed=36, default=(4, 64), override=as_published),
    "q8g32": dict(seed=832, default=(8, 32), override=mixed, layers="LFLLF", heads=6, kv_heads=3, head_dim=64,
                  partial=0.5, key_heads=1, value_heads=3, key_dim=128, value_dim=64, expert=32, experts=12, top_k=4,
                  dense=96, shards=2),
    "bf16": dict(seed=161, default=(4, 64), override=plain_resident, layers="LLF", taps=3, key_heads=4, value_heads=4,
                 key_dim=16, value_dim=32, experts=6, top_k=3, dense=32, vectors="F32", by_name=True),
    "dense": dict(seed=384, default=(4, 64), override=lambda _: None, experts=0, dense=128, value_heads=6,
                  listed=False),
    "original": dict(seed=382, default=None, override=everything_plain, experts=0, dense=48, layers="LLLFF",
                     layout="original", vectors="F32", mtp=True),
    "mtp": dict(seed=387, default=(4, 64), override=lambda _: None, experts=0, dense=128, layers="LLLF", mtp=True,
                agree=0.65),
}


def prefix_of(s):
    return "model.language_model." if s["layout"] == "original" else "language_model.model."


def head_of(s):
    return "lm_head" if s["layout"] == "original" else "language_model.lm_head"


def attention(s, p):
    d = s["head_dim"]
    return [(p + "self_attn.q_proj", (2 * s["heads"] * d, s["hidden"])),
            (p + "self_attn.k_proj", (s["kv_heads"] * d, s["hidden"])),
            (p + "self_attn.v_proj", (s["kv_heads"] * d, s["hidden"])),
            (p + "self_attn.o_proj", (s["hidden"], s["heads"] * d))]


def dense(s, p):
    return [(p + "gate_proj", (s["dense"], s["hidden"])), (p + "up_proj", (s["dense"], s["hidden"])),
            (p + "down_proj", (s["hidden"], s["dense"]))]


def layer_matrices(s, kind, p):
    h, value, e = s["hidden"], s["value_heads"] * s["value_dim"], s["experts"]
    channels = 2 * s["key_heads"] * s["key_dim"] + value
    out = attention(s, p) if kind == "F" else [
        (p + "linear_attn.in_proj_qkv", (channels, h)), (p + "linear_attn.in_proj_z", (value, h)),
        (p + "linear_attn.in_proj_a", (s["value_heads"], h)), (p + "linear_attn.in_proj_b", (s["value_heads"], h)),
        (p + "linear_attn.out_proj", (h, value))]
    if not e:
        return out + dense(s, p + "mlp.")
    return out + [(p + "mlp.gate", (e, h)), (p + "mlp.shared_expert_gate", (1, h))] \
        + dense(s, p + "mlp.shared_expert.") \
        + [(p + "mlp.switch_mlp.gate_proj", (e, s["expert"], h)), (p + "mlp.switch_mlp.up_proj", (e, s["expert"], h)),
           (p + "mlp.switch_mlp.down_proj", (e, h, s["expert"]))]


def layer_norms(s, kind, p):
    """Full name, length, range of the weight as it multiplies."""
    out = [(p + "input_layernorm.weight", s["hidden"], (0.6, 1.4)),
           (p + "post_attention_layernorm.weight", s["hidden"], (0.6, 1.4))]
    if kind == "F":
        out += [(p + f"self_attn.{n}_norm.weight", s["head_dim"], (0.8, 2.0)) for n in "qk"]
    return out


def matrices(s):
    p, out = prefix_of(s), [(prefix_of(s) + "embed_tokens", (VOCAB, s["hidden"]))]
    for i, kind in enumerate(s["layers"]):
        out += layer_matrices(s, kind, f"{p}layers.{i}.")
    return out + [(head_of(s), (VOCAB, s["hidden"]))]


def gain(module):
    """Standard deviation of a matrix's weights, times the square root of its width."""
    if module.endswith("embed_tokens"):
        return 4.0
    if module.endswith("lm_head"):
        return 2.0
    return 1.5 if module.endswith(("mlp.gate", "v_proj", "in_proj_qkv")) else 1.0


def vector(rng, s, name, values):
    if s["vectors"] == "F32" and not name.endswith("layernorm.weight"):
        return "F32", values.astype(np.float32)
    return "BF16", S.bf16_bits(values.astype(np.float32))


def add_norms(rng, s, norms, centred, tensors):
    for name, length, (low, high) in norms:
        tensors[name] = ("BF16", S.bf16_bits((rng.uniform(low, high, length) - (1 if centred else 0)).astype(np.float32)))


def agreeing(s, module, w):
    """Where the drafting layer shall be right often: the head is the embedding with its rows moved on, so that a
    token all but decides the next; layers add only a share, and the drafting layer starts from the embedding."""
    if module.endswith("lm_head"):
        rng = np.random.Generator(np.random.PCG64(s["seed"]))       # its first numbers are the embedding's
        table = rng.standard_normal((VOCAB, s["hidden"]))
        return np.roll(table, 7, 0).astype(np.float32) * np.float32(0.5)
    if module == "mtp.fc":
        return np.concatenate((np.eye(s["hidden"]) * 4, 0.2 * w[:, s["hidden"]:]), 1).astype(np.float32)
    return w * np.float32(s["agree"]) if module.endswith(("o_proj", "out_proj", "down_proj")) else w


def add_matrix(rng, s, module, shape, choice, quantization, tensors):
    w = (rng.standard_normal(shape) * (gain(module) * shape[-1] ** -0.5)).astype(np.float32)
    if s["agree"]:
        w = agreeing(s, module, w)
    if choice is False:
        if quantization is not None:
            quantization[module] = False
        tensors[module + ".weight"] = ("BF16", S.bf16_bits(w))
        return
    bits, group = choice or s["default"]
    if (bits, group) != s["default"]:
        quantization[module] = {"bits": bits, "group_size": group}
    codes, scales, biases = S.quantize(w, bits, group)
    tensors[module + ".weight"] = ("U32", S.pack(codes, bits))
    tensors[module + ".scales"] = ("BF16", S.bf16_bits(scales))
    tensors[module + ".biases"] = ("BF16", S.bf16_bits(biases))


def add_delta(rng, s, p, tensors):
    channels = 2 * s["key_heads"] * s["key_dim"] + s["value_heads"] * s["value_dim"]
    conv = (rng.uniform(-0.8, 0.8, (channels, s["taps"]))).astype(np.float32)
    shape = (channels, 1, s["taps"]) if s["layout"] == "original" else (channels, s["taps"], 1)
    tensors[p + "conv1d.weight"] = ("BF16", S.bf16_bits(conv).reshape(shape))
    tensors[p + "A_log"] = vector(rng, s, "A_log", rng.uniform(-3.0, 1.0, s["value_heads"]))
    tensors[p + "dt_bias"] = ("BF16", S.bf16_bits(rng.uniform(-3.0, 1.0, s["value_heads"]).astype(np.float32)))
    tensors[p + "norm.weight"] = vector(rng, s, "norm", rng.uniform(0.7, 1.5, s["value_dim"]))


def make_tensors(s, quantization):
    """On-disk name -> (dtype, array); fills `quantization` with what differs from its default."""
    rng, tensors, p = np.random.Generator(np.random.PCG64(s["seed"])), {}, prefix_of(s)
    for module, shape in matrices(s):
        short = module.removeprefix(p)
        short = short.split(".", 2)[2] if short.startswith("layers.") else short
        add_matrix(rng, s, module, shape, s["override"](short), quantization, tensors)
    norms = [(p + "norm.weight", s["hidden"], (2.0, 4.0))]
    for i, kind in enumerate(s["layers"]):
        norms += layer_norms(s, kind, f"{p}layers.{i}.")
        if kind == "L":
            add_delta(rng, s, f"{p}layers.{i}.linear_attn.", tensors)
    add_norms(rng, s, norms, s["layout"] == "original", tensors)
    return tensors


def make_mtp(s):
    """The drafting layer, always in the original's form."""
    rng, tensors, h = np.random.Generator(np.random.PCG64(s["seed"] + 5)), {}, s["hidden"]
    for module, shape in [("mtp.fc", (h, 2 * h))] + attention(s, "mtp.layers.0.") + dense(s, "mtp.layers.0.mlp."):
        add_matrix(rng, s, module, shape, False, None, tensors)
    add_norms(rng, s, layer_norms(s, "F", "mtp.layers.0.") + [
        ("mtp.pre_fc_norm_embedding.weight", h, (0.6, 1.4)), ("mtp.pre_fc_norm_hidden.weight", h, (0.6, 1.4)),
        ("mtp.norm.weight", h, (2.0, 4.0))], True, tensors)
    return tensors


def text_config(s):
    moe = s["experts"] > 0
    config = {
        "model_type": "qwen3_5_moe_text" if moe else "qwen3_5_text", "vocab_size": VOCAB, "hidden_size": s["hidden"],
        "num_hidden_layers": len(s["layers"]), "num_attention_heads": s["heads"],
        "num_key_value_heads": s["kv_heads"], "head_dim": s["head_dim"], "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "linear_num_key_heads": s["key_heads"], "linear_num_value_heads": s["value_heads"],
        "linear_key_head_dim": s["key_dim"], "linear_value_head_dim": s["value_dim"],
        "linear_conv_kernel_dim": s["taps"], "attention_bias": False, "attention_dropout": 0.0,
        "attn_output_gate": True, "mamba_ssm_dtype": "float32", "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": s["partial"],
                            "mrope_interleaved": True, "mrope_section": [2, 1, 1]},
        "tie_word_embeddings": False, "eos_token_id": 0}
    if s["listed"]:
        config["layer_types"] = ["full_attention" if k == "F" else "linear_attention" for k in s["layers"]]
    else:
        config["full_attention_interval"] = 4
    if moe:
        config.update({"num_experts": s["experts"], "num_experts_per_tok": s["top_k"], "norm_topk_prob": True,
                       "moe_intermediate_size": s["expert"], "shared_expert_intermediate_size": s["dense"]})
    else:
        config["intermediate_size"] = s["dense"]
    if s["mtp"]:
        config["mtp_num_hidden_layers"] = 1
    return config


def byte_alphabet():
    """GPT-2's letters for the 256 bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {b: chr(b) for b in plain}
    for b in range(256):
        if b not in letters:
            letters[b] = chr(256 + len(letters) - len(plain))
    return [letters[b] for b in range(256)]


def tokenizer_json():
    vocab = {t: i for i, t in enumerate(byte_alphabet())}
    for a, b in MERGES:
        vocab[a + b] = len(vocab)
    n = len(vocab)
    assert n + len(SPECIALS) <= VOCAB
    added = [{"id": n + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": not t.endswith("think>")} for i, t in enumerate(SPECIALS)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False},
                byte_level]},
            "post_processor": byte_level, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                      "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": vocab, "merges": MERGES}}


def place(name, root):
    moe = {**SHAPE, **MIXES[name]}["experts"] > 0
    return f"{root}/{'qwen36' if moe else 'qwen38'}/{name}"


def make(name, root):
    s, out = {**SHAPE, **MIXES[name]}, place(name, root)
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    moe = s["experts"] > 0
    config = {"architectures": ["Qwen3_5MoeForConditionalGeneration" if moe else "Qwen3_5ForConditionalGeneration"],
              "model_type": "qwen3_5_moe" if moe else "qwen3_5", "text_config": text_config(s),
              "tie_word_embeddings": False, "vision_config": {"model_type": "qwen3_5_vision"}}
    quantization = None
    if s["default"]:
        bits, group = s["default"]
        quantization = {"bits": bits, "group_size": group, "mode": "affine"}
        config.update({"quantization": quantization, "quantization_config": quantization})
    else:
        config["dtype"] = "bfloat16"
    tensors = make_tensors(s, quantization)
    if s["mtp"] and s["layout"] == "original":
        tensors.update(make_mtp(s))
    elif s["mtp"]:
        S.write_safetensors(f"{out}/mtp.safetensors", {**make_mtp(s), "model.language_model.norm.weight": (
            "BF16", S.bf16_bits(np.zeros(s["hidden"], np.float32)))})
    # A tower that is left out, by name.
    tower = "model.visual." if s["layout"] == "original" else "vision_tower."
    tensors[tower + "patch_embed.proj.bias"] = ("BF16", S.bf16_bits(np.ones(8, np.float32)))
    write_weights(out, s, tensors)
    write_json(f"{out}/config.json", config)
    with open(f"{out}/tokenizer.json", "w", encoding="utf-8") as f:

        json.dump(tokenizer_json(), f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    write_json(f"{out}/tokenizer_config.json", {
        "tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>", "add_bos_token": False})
    with open(f"{out}/chat_template.jinja", "w", encoding="utf-8") as f:
        f.write(TEMPLATE)


def main():
    root, names = sys.argv[1], sys.argv[2:] or list(MIXES)
    for name in names:
        make(name, root)
        size = sum(e.stat().st_size for e in os.scandir(place(name, root)))
        print(f"{name}: {size} bytes")


if __name__ == "__main__":
    sys.exit(main())
