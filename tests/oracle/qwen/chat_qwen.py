#!/usr/bin/env python3
"""Compare what Sluice makes of a conversation, thinking on, off and by default, with jinja2 and tokenizers.

usage: chat_qwen.py SLUICE TOKENIZER.json TEMPLATE.jinja...

TOKENIZER.json is the real vocabulary (../tokenizer/vocabularies.py writes it as qwen36.json). A template is the one of
tests/golden/qwen36/q4, or a published one, wherever it may be had. For every conversation of ../template and every
setting the text must be jinja2's, the ids tokenizers', where no message holds a control token's name, and the end what
docs/models/qwen36.md, section 7, says. Ends with 1 when anything differs.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "template"))
import differential  # noqa: E402

ENDS = {"on": "<|im_start|>assistant\n<think>\n", "off": "<|im_start|>assistant\n<think>\n\n</think>\n\n"}
THINKING = {"on": {"enable_thinking": True}, "off": {"enable_thinking": False}, "default": {}}
STOPS = {"<|im_end|>": 248046, "<|endoftext|>": 248044}


def as_sluice_reads(message):
    """No content is an empty one, and arguments that came as text are read."""
    calls = [{**c, "function": {**c["function"], "arguments": json.loads(c["function"]["arguments"])}}
             if isinstance(c["function"]["arguments"], str) else c for c in message.get("tool_calls", [])]
    return {**message, "content": message["content"] or "", **({"tool_calls": calls} if calls else {})}


def render(template, messages, tools, thinking):
    messages = [as_sluice_reads(m) for m in messages]
    variables = {"messages": messages, "tools": tools, "add_generation_prompt": True, "bos_token": "",
                 "eos_token": "<|im_end|>", **THINKING[thinking]}
    try:
        return template.render(**variables)
    except Exception as error:  # whatever a template does to Python
        return error


def apply(sluice, folder, messages, tools, thinking):
    command = [sluice, "apply-template", folder, "-", "--json", "--thinking", thinking]
    if tools:
        Path(folder, "tools").write_text(json.dumps(tools), encoding="utf-8")
        command += ["--tools", os.path.join(folder, "tools")]
    done = subprocess.run(command, input=json.dumps(messages).encode(), capture_output=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.decode().strip()


def faults(reference, want, got, messages, thinking):
    """What is wrong with Sluice's answer."""
    if isinstance(want, Exception) or isinstance(got, str):
        return [] if isinstance(want, Exception) and isinstance(got, str) else [f"jinja2: {want!r}; Sluice: {str(got)[:300]}"]
    out = [] if got["text"] == want else [f"text {got['text']!r} is not {want!r}"]
    ids = [t["id"] for t in got["tokens"]]
    plain = not any(mark in json.dumps(messages) for mark in ("<|", "think>", "tool_"))
    if plain and ids != reference.encode(want, add_special_tokens=False).ids:
        out.append("the ids differ")
    if not want.endswith(ENDS.get(thinking, "")) and messages[-1]["role"] != "assistant":
        out.append(f"thinking {thinking} ends in {want[-60:]!r}")
    if any(t["control"] and STOPS.get(t["token"], t["id"]) != t["id"] for t in got["tokens"]):
        out.append("a stop token has another id")
    return out


def cases(path):
    """Not compared is what Sluice does otherwise on purpose: it joins a content's parts where a template knows texts
    only, takes a developer for the system, and wants a message."""
    source = path.read_text(encoding="utf-8")
    template = differential.environment().from_string(source)
    for name, messages in differential.conversations():
        lists = any(isinstance(m["content"], list) for m in messages)
        if name == "developer" or not messages or (lists and "is string" not in source):
            continue
        for thinking in THINKING:
            for tools in (None, differential.TOOLS) if thinking == "on" and "tools" in source else (None,):
                yield name, messages, tools, thinking, render(template, messages, tools, thinking)


def main():
    sluice, tokenizer, *templates = sys.argv[1:]
    reference, bad = Tokenizer.from_file(tokenizer), 0
    for path in map(Path, templates):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.abspath(tokenizer), os.path.join(folder, "tokenizer.json"))
            Path(folder, "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}', encoding="utf-8")
            Path(folder, "chat_template.jinja").write_bytes(path.read_bytes())
            n = failed = 0
            for name, messages, tools, thinking, want in cases(path):
                wrong = faults(reference, want, apply(sluice, folder, messages, tools, thinking), messages, thinking)
                n, failed, bad = n + 1, failed + isinstance(want, Exception), bad + bool(wrong)
                for what in wrong:
                    print(f"{path.name}, {name}, tools {bool(tools)}, thinking {thinking}: {what}")
        print(f"{path.name}: {n} renderings, {failed} of them refused by both", flush=True)
    print("differences:", bad)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
