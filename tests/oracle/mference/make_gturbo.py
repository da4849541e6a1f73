#!/usr/bin/env python3
"""Writes a .gturbo directory of a Gemma 4 checkpoint as Mference's installer leaves it, from the description of that
format alone: nothing here comes from Sluice. Only the standard library is needed.

    python3 tests/oracle/mference/make_gturbo.py SNAPSHOT OUTPUT.gturbo

It differs from what `sluice install` writes wherever the format leaves a choice: norms of a layer in order of name,
"bits" in layout.json only where they are not the base's, slashes escaped and keys sorted as Foundation's encoder does,
whole numbers without a fraction, a receipt without modification times that names a directory of another machine.

tests/golden/mference holds this of tests/golden/gemma4/q4 but for the expert files and the tokenizer, which are the
same bytes in both; tests/cli/cases/import-mference.case imports, verifies and runs it.
"""
import hashlib
import json
import pathlib
import re
import shutil
import struct
import sys

PAGE = 16384
CODES = {"U32": 0, "BF16": 1, "F16": 2, "F32": 3, "I64": 4, "I32": 5}
# Slot rank inside a layer; what follows in no list comes by name.
RANKS = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm",
         "self_attn.k_norm", "router.", "mlp.", ".*layernorm", "layer_scalar"]
PARTS = [("gate", "gate_proj"), ("up", "up_proj"), ("down", "down_proj")]
SIDECARS = ["config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
            "chat_template.jinja", "chat_template.json"]
LAYER = re.compile(r"language_model\.model\.layers\.(\d+)\.(.*)")


def pages(n):
    return (n + PAGE - 1) // PAGE * PAGE


def read_snapshot(root):
    """Name -> (dtype, shape, bytes)."""
    tensors = {}
    for path in sorted(root.glob("*.safetensors")):
        data = path.read_bytes()
        n = int.from_bytes(data[:8], "little")
        for name, t in json.loads(data[8:8 + n]).items():
            if name != "__metadata__":
                begin, end = t["data_offsets"]
                tensors[name] = (t["dtype"], t["shape"], data[8 + n + begin:8 + n + end])
    return tensors


def bits_of(config, module):
    q = config["quantization"]
    return q.get(module, q)["bits"]


def logical(config, name, tensor):
    dtype, shape, _ = tensor
    if dtype != "U32":
        return shape
    return shape[:-1] + [shape[-1] * 32 // bits_of(config, name.removesuffix(".weight"))]


def order(name):
    layer = LAYER.fullmatch(name)
    if layer is None:
        return (2 if name.endswith("norm.weight") else 3 if "lm_head" in name else 0, 0, 0, name)
    rank = next(i for i, p in enumerate(RANKS) if re.match(p, layer[2]))
    return (1, int(layer[1]), rank, name)


def write_resident(path, config, tensors):
    names = sorted((n for n in tensors if ".switch_glu." not in n and not n.endswith((".scales", ".biases"))), key=order)
    strings_at = 24 + 72 * len(names)
    index_bytes = pages(strings_at + sum(len(n.encode()) for n in names))
    entries, strings, payload = b"", b"", b""
    for name in names:
        tensor, stem = tensors[name], name.removesuffix(".weight")
        spans = []
        for part in [name] + [stem + s for s in (".scales", ".biases") if tensor[0] == "U32"]:
            spans += [index_bytes + len(payload), len(tensors[part][2])]
            payload += tensors[part][2]
        spans += [0] * (6 - len(spans))
        shape = (logical(config, name, tensor) + [0] * 4)[:4]
        entries += struct.pack("<IHBBQQ4IQQQQ", strings_at + len(strings), len(name.encode()), CODES[tensor[0]], 0,
                               *spans[:2], *shape, *spans[2:])
        strings += name.encode()
    head = struct.pack("<QQQ", index_bytes, len(payload), len(names)) + entries + strings
    path.write_bytes(head + b"\0" * (index_bytes - len(head)) + payload)


def write_experts(root, config, tensors):
    n_layers, n_experts = (config["text_config"][k] for k in ("num_hidden_layers", "num_experts"))
    base, layers, blobs = config["quantization"]["bits"], [], []
    for layer in range(n_layers):
        module, records = f"language_model.model.layers.{layer}.experts.switch_glu.", []
        parts, at = {}, 0
        for key, proj in PARTS:
            for suffix, tail in (("weight", ""), ("scales", "_scales"), ("biases", "_biases")):
                name = module + proj + "." + suffix
                dtype, shape, data = tensors[name]
                size = len(data) // n_experts
                parts[key + tail] = {"offset": at, "size": size, "dtype": dtype,
                                     "shape": logical(config, name, tensors[name])[1:]}
                bits = bits_of(config, module + proj)
                if dtype == "U32" and bits != base:
                    parts[key + tail]["bits"] = bits
                records.append((name, size))
                at += size
        blobs.append([b"".join(tensors[n][2][e * s:(e + 1) * s] for n, s in records) for e in range(n_experts)])
        layers.append(parts)
    stride = pages(max(len(b) for layer in blobs for b in layer))
    rows = []
    for layer, records in enumerate(blobs):
        file = f"layer_{layer:02}.bin"
        (root / file).write_bytes(b"".join(b + b"\0" * (stride - len(b)) for b in records))
        rows.append({"layer": layer, "file": file,
                     "experts": [{"expert": e, "offset": e * stride, "size": stride, "tensors": layers[layer]}
                                 for e in range(n_experts)]})
    write_json(root / "layout.json", {"expertStride": stride, "numLayers": n_layers, "expertsPerLayer": n_experts,
                                      "layers": rows})
    return stride


def write_json(path, value):
    text = json.dumps(value, sort_keys=True, separators=(",", " : ") if path.name != "layout.json" else (",", ":"),
                      indent=2 if path.name != "layout.json" else None)
    path.write_text(text.replace("/", "\\/"))


def number(x):
    return int(x) if x == int(x) else x


def describe(config):
    t = config["text_config"]
    rope = t["rope_parameters"]
    arch = {"hiddenSize": t["hidden_size"], "ffnIntermediate": t["intermediate_size"],
            "moeIntermediateSize": t["moe_intermediate_size"], "numHeads": t["num_attention_heads"],
            "numKVHeads": t["num_key_value_heads"], "numFullKVHeads": t["num_global_key_value_heads"],
            "headDim": t["head_dim"], "fullHeadDim": t["global_head_dim"], "vocabSize": t["vocab_size"],
            "slidingWindow": t["sliding_window"], "finalLogitSoftcap": number(t["final_logit_softcapping"]),
            "ropeTheta": number(rope["sliding_attention"]["rope_theta"]),
            "fullRopeTheta": number(rope["full_attention"]["rope_theta"]),
            "partialRotaryFactor": number(rope["full_attention"]["partial_rotary_factor"]),
            "numLayers": t["num_hidden_layers"], "numExperts": t["num_experts"], "topKExperts": t["top_k_experts"],
            "tieWordEmbeddings": t["tie_word_embeddings"], "attentionKEqV": t["attention_k_eq_v"],
            "hiddenActivation": t["hidden_activation"],
            "fullAttentionLayerMask": [int(k == "full_attention") for k in t["layer_types"]]}
    q = config["quantization"]
    quant = {k: {"weightBits": 8 if k == "router" else q["bits"], "scheme": "affine", "scaleType": "BF16",
                 "biasType": "BF16", "groupSize": q["group_size"]}
             for k in ("embedding", "attention", "router", "sharedExpert", "routedExpert")}
    return arch, quant, sum(isinstance(v, dict) for v in q.values())


def digest(path):
    return {"size": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def main():
    source, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    config, tensors = json.loads((source / "config.json").read_text()), read_snapshot(source)
    for sub in ("packed_experts", "tokenizer"):
        (output / sub).mkdir(parents=True)
    write_resident(output / "model_weights.bin", config, tensors)
    stride = write_experts(output / "packed_experts", config, tensors)
    for name in SIDECARS:
        if (source / name).exists():
            shutil.copyfile(source / name, output / "tokenizer" / name)
    files = {str(p.relative_to(output)): digest(p) for p in sorted(output.rglob("*")) if p.is_file()}
    arch, quant, overrides = describe(config)
    index = source / "model.safetensors.index.json"
    snapshot = (index if index.exists() else source / "model.safetensors").read_bytes()
    write_json(output / "manifest.json", {
        "magic": "GTURBO", "versionMajor": 1, "versionMinor": 0,
        "flags": {"streamingPresent": True, "turboQuantKV": False, "aneSharedExpert": False},
        "modelID": "mlx-community/" + source.name, "sourceSnapshotHash": "sha256:" + hashlib.sha256(snapshot).hexdigest(),
        "arch": arch, "quant": quant, "files": files, "expertsPerLayer": arch["numExperts"],
        "numLayers": arch["numLayers"], "expertStride": stride, "bitWidthOverridesHonored": overrides})
    write_json(output / "verified-install.json", {
        "schemaVersion": 1, "manifestSha256": digest(output / "manifest.json")["sha256"],
        "modelDirectoryPath": "/Users/someone/Models/" + output.name, "sourceRepoID": "mlx-community/" + source.name,
        "sourceRevision": "0123456789abcdef0123456789abcdef01234567", "verificationTimestamp": "2026-08-14T09:30:00Z",
        "toolVersion": "MferenceRepack 1.0", "files": dict(files, **{"manifest.json": digest(output / "manifest.json")})})


if __name__ == "__main__":
    main()
