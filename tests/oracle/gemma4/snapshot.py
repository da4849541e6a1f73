"""Snapshot directories as MLX writes them: safetensors, affine quantization, and what config.json says of both.

Only numpy is needed. Arrays hold float32; BF16 exists on disk alone, as its upper 16 bits.
"""
import json
import os
import re

import numpy as np

DTYPES = {"U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "F32": np.float32, "BF16": np.uint16}


def bf16_bits(x):
    """float32 -> BF16 bits, rounded to nearest even."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_floats(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def bf16_round(x):
    return bf16_floats(bf16_bits(x))


# Affine quantization: value = scale * code + bias per group of a row.

def quantize(w, bits, group):
    """float32 w[..., cols] -> codes [..., cols], scales and biases [..., cols / group] (BF16 values as float32).

    The bias is the group's value of larger magnitude, so it is kept exactly up to BF16, and the scale counts
    from it towards the other end: positive in some groups, negative in others, as in MLX's own files.
    """
    x = w.reshape(*w.shape[:-1], -1, group)
    low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    from_low = np.abs(low) > np.abs(high)
    step = np.maximum((high - low) / (2 ** bits - 1), 1e-7)
    scale = bf16_round(np.where(from_low, step, -step))
    bias = bf16_round(np.where(from_low, low, high))
    codes = np.clip(np.rint((x - bias) / scale), 0, 2 ** bits - 1).astype(np.uint32)
    return codes.reshape(w.shape), scale[..., 0], bias[..., 0]


def pack(codes, bits):
    """Codes [..., cols] -> U32 words [..., cols * bits / 32], first code in the lowest bits."""
    per = 32 // bits
    x = codes.reshape(*codes.shape[:-1], -1, per)
    return np.bitwise_or.reduce(x << (np.arange(per, dtype=np.uint32) * bits), axis=-1).astype(np.uint32)


def unpack(words, bits):
    per = 32 // bits
    x = (words[..., None] >> (np.arange(per, dtype=np.uint32) * bits)) & np.uint32(2 ** bits - 1)
    return x.reshape(*words.shape[:-1], -1)


def dequantize(words, scales, biases, bits):
    """In float32: the product is rounded, then the sum. Exact enough: codes and BF16 scales multiply exactly."""
    codes = unpack(words, bits).astype(np.float32)
    x = codes.reshape(*scales.shape, -1)
    return (x * scales[..., None] + biases[..., None]).reshape(codes.shape)


# safetensors

def write_safetensors(path, tensors, by_name=False):
    """name -> (dtype text, array). Widest elements first, as the safetensors library writes them; by_name keeps
    the order of names instead, which leaves words at addresses that are only even."""
    order = sorted(tensors) if by_name else sorted(tensors, key=lambda n: (-tensors[n][1].itemsize, n))
    header, offset = {"__metadata__": {"format": "mlx"}}, 0
    for name in order:
        dtype, array = tensors[name]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            f.write(np.ascontiguousarray(tensors[name][1]).tobytes())


def read_safetensors(path):
    """name -> (dtype text, array)."""
    data = open(path, "rb").read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            lo, hi = (8 + n + o for o in t["data_offsets"])
            out[name] = (t["dtype"], np.frombuffer(data[lo:hi], DTYPES[t["dtype"]]).reshape(t["shape"]))
    return out


# The snapshot

def module_quantization(quantization, module):
    """What config.json's "quantization" says of one module: (bits, group_size), or None when it is stored as is."""
    entry = quantization.get(module, quantization)
    return None if entry is False else (entry["bits"], entry["group_size"])


def read_snapshot(directory):
    """config.json, and MLX name -> float32 array with every affine matrix dequantized."""
    config = json.load(open(f"{directory}/config.json"))
    index = f"{directory}/model.safetensors.index.json"
    files = ["model.safetensors"]
    if os.path.exists(index):
        files = sorted(set(json.load(open(index))["weight_map"].values()))
    raw = {}
    for name in files:
        raw.update(read_safetensors(f"{directory}/{name}"))
    out = {}
    for name, (dtype, array) in raw.items():
        module = name.removesuffix(".weight")
        if dtype == "U32":
            bits, group = module_quantization(config["quantization"], module)
            scales, biases = (bf16_floats(raw[f"{module}.{k}"][1]) for k in ("scales", "biases"))
            out[name] = dequantize(array, scales, biases, bits)
            assert out[name].shape[-1] == scales.shape[-1] * group, name
        elif not re.search(r"\.(scales|biases)$", name):
            assert dtype == "BF16", name
            out[name] = bf16_floats(array)
    return config, out


def transformers_names(weights):
    """MLX names -> the names of transformers' Gemma4ForCausalLM: gate and up of the experts are one tensor there."""
    out = {}
    for name, array in weights.items():
        name = name.removeprefix("language_model.")
        if ".switch_glu.up_proj." in name:
            continue
        if ".switch_glu.gate_proj." in name:
            up = weights["language_model." + name.replace("gate_proj", "up_proj")]
            out[re.sub(r"switch_glu.*", "gate_up_proj", name)] = np.concatenate((array, up), 1)
        elif ".switch_glu." in name:
            out[re.sub(r"switch_glu.*", "down_proj", name)] = array
        else:
            out[name] = array
    return out
