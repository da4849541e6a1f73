#!/usr/bin/env python3
"""Writes a checkpoint in Hugging Face's layout from an install: the inverse of `sluice install`, for benchmarks.

    bench/snapshot_of.py MODEL.gturbo SNAPSHOT [SHARDS]

Only the standard library is needed. An install of SNAPSHOT has the same weight files again, byte for byte.
"""
import json
import os
import pathlib
import shutil
import struct
import sys

DTYPES = {0: "U32", 1: "BF16", 2: "F16", 3: "F32", 4: "I64", 5: "I32"}
PARTS = ("gate", "up", "down")
MODULES = {"gemma4": "experts.switch_glu", "qwen36": "mlp.switch_mlp"}


def resident(path):
    """Name -> (dtype, shape, pieces of the file) of every tensor of model_weights.bin."""
    out = {}
    with open(path, "rb") as f:
        index_bytes, _, n = struct.unpack("<QQQ", f.read(24))
        f.seek(0)
        index = f.read(index_bytes)
    for i in range(n):
        at = 24 + 72 * i
        name_at, length, dtype = struct.unpack_from("<IHB", index, at)
        offset, size, a, b, c, d, s_at, s_size, b_at, b_size = struct.unpack_from("<QQ4IQQQQ", index, at + 8)
        name = index[name_at:name_at + length].decode()
        shape = [x for x in (a, b, c, d) if x]
        if dtype == 0:
            stem, groups = name.removesuffix(".weight"), s_size // 2 // shape[0]
            out[name] = ("U32", [shape[0], size // 4 // shape[0]], [(path, offset, size)])
            out[stem + ".scales"] = ("BF16", [shape[0], groups], [(path, s_at, s_size)])
            out[stem + ".biases"] = ("BF16", [shape[0], groups], [(path, b_at, b_size)])
        else:
            out[name] = (DTYPES[dtype], shape, [(path, offset, size)])
    return out


def experts(root):
    """The same of the expert stacks."""
    arch = json.load(open(root / "manifest.json"))["arch"]
    module = MODULES[arch.get("family", "gemma4")]
    layout, out = json.load(open(root / "packed_experts" / "layout.json")), {}
    for layer in layout["layers"]:
        path = root / "packed_experts" / layer["file"]
        for part in PARTS:
            for key, suffix in ((part, "weight"), (part + "_scales", "scales"), (part + "_biases", "biases")):
                t = layer["experts"][0]["tensors"][key]
                shape = [len(layer["experts"])] + t["shape"]
                if suffix == "weight":
                    shape[2] = t["size"] // 4 // shape[1]
                pieces = [(path, e["offset"] + t["offset"], t["size"]) for e in layer["experts"]]
                out[f"language_model.model.layers.{layer['layer']}.{module}.{part}_proj.{suffix}"] = (t["dtype"], shape, pieces)
    return out


def write_shard(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, pieces) in tensors:
        size = sum(p[2] for p in pieces)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    files = {}
    with open(path, "wb", buffering=0) as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, (_, _, pieces) in tensors:
            for source, offset, size in pieces:
                if source not in files:
                    files[source] = os.open(source, os.O_RDONLY)
                while size > 0:
                    n = os.sendfile(out.fileno(), files[source], offset, size)
                    offset, size = offset + n, size - n
    for fd in files.values():
        os.close(fd)


def main():
    root, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    shards = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    target.mkdir(parents=True)
    tensors = list(resident(root / "model_weights.bin").items())
    tensors += experts(root).items()
    total, share, weight_map = sum(p[2] for _, t in tensors for p in t[2]), [], {}
    size = 0
    for name, t in tensors:
        number = min(shards - 1, size * shards // total)
        while len(share) <= number:
            share.append([])
        share[number].append((name, t))
        size += sum(p[2] for p in t[2])
    for i, part in enumerate(share):
        file = f"model-{i + 1:05}-of-{len(share):05}.safetensors"
        weight_map.update({name: file for name, _ in part})
        write_shard(target / file, part)
    (target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    for file in (root / "tokenizer").iterdir():
        shutil.copy(file, target / file.name)


if __name__ == "__main__":
    main()
