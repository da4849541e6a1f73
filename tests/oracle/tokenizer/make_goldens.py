"""Write tests/golden/tokenizer: small tokenizer files and what Hugging Face tokenizers makes of some strings.

    python make_goldens.py DIR_OF_JSON OUT_DIR

DIR_OF_JSON comes from vocabularies.py. NAME.json is a tokenizer file, NAME.cases.json has its strings:
{"cases": [[text, ids, ids without control tokens, decoded, decoded with control tokens], …]}. The demo's file
is the checkpoint's own. variations.json: a base file, and rows of members to put in its place, with cases.
"""
import copy
import json
import os
import sys

from tokenizers import Tokenizer

import compare
import strings
import vocabularies


def cases(doc, texts):
    plain = copy.deepcopy(doc)
    plain["added_tokens"] = [t for t in doc["added_tokens"] if not compare.is_control(t)]
    plain["post_processor"] = None
    whole, plain = Tokenizer.from_str(json.dumps(doc)), Tokenizer.from_str(json.dumps(plain))
    rows = []
    for text in texts:
        ids = whole.encode(text, add_special_tokens=False).ids
        rows.append([text, ids, plain.encode(text, add_special_tokens=False).ids, whole.decode(ids),
                     whole.decode(ids, skip_special_tokens=False)])
    return rows


def write(path, value):
    with open(path, "w", encoding="ascii") as f:
        json.dump(value, f, ensure_ascii=True, indent=0, separators=(",", ":"))
        f.write("\n")


def cut_demo(doc, merges):
    """Control tokens, bytes, single characters and the first merges of the demo's vocabulary."""
    keep = {}
    for token in list(doc["model"]["vocab"])[:5] + ["<|turn>", "<turn|>", "<unused7>"]:
        keep[token] = len(keep)
    for token in doc["model"]["vocab"]:
        if len(token) == 1 or token.startswith("<0x"):
            keep.setdefault(token, len(keep))
    pairs = doc["model"]["merges"][:merges]
    for left, right in pairs:
        keep.setdefault(left + right, len(keep))
    model = {**doc["model"], "vocab": keep, "merges": pairs}
    tokens = [{**t, "id": keep[t["content"]]} for t in doc["added_tokens"] if t["content"] in keep]
    return {**doc, "added_tokens": tokens, "model": model}


def main():
    source, out = sys.argv[1:]
    texts = strings.strings(400)
    for name, given in (("demo", "demo"), ("qwen", "qwen_cut"), ("deepseek", "deepseek_cut")):
        with open(os.path.join(source, given + ".json"), encoding="utf-8") as f:
            doc = json.load(f)
        if name != "demo":
            write(os.path.join(out, name + ".json"), doc)
        write(os.path.join(out, name + ".cases.json"), {"cases": cases(doc, texts[:400 if name == "demo" else 240])})
    with open(vocabularies.DEMO, encoding="utf-8") as f:
        base = cut_demo(json.load(f), 120)
    rows = []
    for name, doc in vocabularies.variations(base):
        doc = vocabularies.renumber(doc)
        changed = {k: v for k, v in doc.items() if k != "model" and v != base[k]}
        model = {k: v for k, v in doc["model"].items() if v != base["model"][k]}
        if "vocab" in model:
            continue
        # With ignore_merges the reference reaches control tokens from plain text.
        picked = [t for t in strings.strings(32, seed=len(rows)) if name != "ignore_merges" or "<" not in t]
        rows.append({"name": name, "members": changed, "model": model,
                     "cases": [row for row in cases(doc, picked) if sum(map(len, row[3:])) < 240]})
    write(os.path.join(out, "variations.json"), {"base": base, "variations": rows})


if __name__ == "__main__":
    main()
