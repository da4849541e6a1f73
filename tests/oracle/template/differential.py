"""Compare the template engine with jinja2, set as transformers sets it, on a folder of chat templates.

    python differential.py FOLDER [--verbose]

FOLDER holds *.jinja files: chat templates of published models, wherever they may be had (they belong to the
models' authors, so none is kept here). Each is rendered for a matrix of conversations, by jinja2 3.1.6 and by
this engine, which is compiled for the occasion from src/. Where jinja2 renders, the bytes must be equal; where
it fails, the engine must fail too. Ends with 1 when anything differs.
"""
import ctypes
import datetime
import itertools
import json
import os
import subprocess
import sys
import tempfile

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
NOW = 1764421200  # a fixed moment, so that dates compare

SHIM = r"""
#include "base/mem.h"
#include "text/template.h"
#include <string.h>
int shim(const char *source, size_t n, const char *variables, size_t n_variables, long long now, char **text,
         size_t *bytes, char detail[512]);
int shim(const char *source, size_t n, const char *variables, size_t n_variables, long long now, char **text,
         size_t *bytes, char detail[512])
{
    static const char *const TRUSTED[] = {"bos_token", "eos_token", NULL};
    struct template *t = NULL;
    struct str out = {0}, marks = {0};
    sluice_error err = {0};
    json_t *root = json_loadb(variables, n_variables, 0, NULL);
    int status = template_open(source, n, &t, &err);
    if (status == SLUICE_OK)
        status = template_render(t, &(struct template_input){root, TRUSTED, now}, &out, &marks, &err);
    memcpy(detail, err.detail, 512);
    *text = out.p;
    *bytes = out.len;
    str_free(&marks);
    template_close(t);
    json_decref(root);
    return status;
}
"""


class Generation(Extension):
    """transformers' {% generation %}: the text is the same, only remembered."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW).strftime(f)
    return env


TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a \"place\" <now> & later",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "City's name"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "days": {"type": "integer", "minimum": 1},
            "tags": {"type": "array", "items": {"type": "string"}},
            "where": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                      "required": ["lat"]}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "Tells the time",
                                      "parameters": {"type": "object", "properties": {}}}},
]


def call(name, arguments, i=0, as_text=False):
    return {"id": "call%05d" % i, "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments) if as_text else arguments}}


def conversations():
    user, answer = {"role": "user", "content": " Hi, what's up? "}, {"role": "assistant", "content": "Hello.\n"}
    system = {"role": "system", "content": "Be brief. <|im_end|>"}
    weather = {"city": "Paris", "days": 3, "tags": ["a", "b"], "where": {"lat": 1.5, "lon": -2}, "deep": None, "yes": True}
    one = {"role": "assistant", "content": "", "tool_calls": [call("get_weather", weather, 1)]}
    two = {"role": "assistant", "content": "Let me see.", "tool_calls": [call("get_weather", weather, 1), call("now", {}, 2)]}
    none = {"role": "assistant", "content": None, "tool_calls": [call("now", {"zone": "UTC"}, 3)]}
    text = {"role": "assistant", "content": "", "tool_calls": [call("get_weather", weather, 1, True)]}
    def result(i, content):
        return {"role": "tool", "tool_call_id": "call%05d" % i, "name": "get_weather", "content": content}
    thought = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes.", "reasoning_content": None}
    reasoned = {"role": "assistant", "content": "Yes.", "reasoning_content": "let me think"}
    parts = {"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "text", "text": " here"}]}
    yield "user", [user]
    yield "system", [system, user]
    yield "turns", [system, user, answer, user]
    yield "history", [user, answer, user, answer, user]
    yield "last is assistant", [user, answer]
    yield "empty content", [{"role": "user", "content": ""}]
    yield "unicode", [{"role": "user", "content": "ça va? \u2028 日本 😀 \\ \"x\" {{ y }}"}]
    yield "parts", [parts]
    yield "developer", [{"role": "developer", "content": "Rules"}, user]
    yield "odd role", [user, {"role": "critic", "content": "Hm"}, user]
    yield "system later", [user, answer, system, user]
    yield "two users", [user, user]
    yield "assistant first", [answer, user]
    yield "think tags", [user, thought, user]
    yield "reasoning", [user, reasoned, user]
    yield "tool call", [user, one]
    yield "tool result", [user, one, result(1, "18 degrees")]
    yield "tool result, user", [system, user, one, result(1, "{\"t\": 18}"), answer, user]
    yield "two calls", [user, two, result(1, "18"), result(2, "noon")]
    yield "two calls, answer", [user, two, result(1, "18"), result(2, "noon"), answer, user]
    yield "null content call", [user, none, result(3, "noon")]
    yield "arguments as text", [user, text, result(1, "18")]
    yield "reasoning and call", [user, {**one, "reasoning_content": "call it"}, result(1, "18")]
    yield "result as list", [user, one, {**result(1, ""), "content": [{"type": "text", "text": "18"}]}]
    yield "no messages", []


def matrix():
    base = {"bos_token": "<bos>", "eos_token": "<eos>"}
    for name, messages in conversations():
        for tools, prompt, thinking in itertools.product((None, TOOLS), (True, False), (None, True, False)):
            variables = {**base, "messages": messages, "add_generation_prompt": prompt}
            variables["tools"] = tools
            if thinking is not None:
                variables["enable_thinking"] = variables["thinking"] = thinking
            yield "%s, tools %s, prompt %s, thinking %s" % (name, bool(tools), prompt, thinking), variables


def build(folder):
    shim, library = os.path.join(folder, "shim.c"), os.path.join(folder, "shim.so")
    with open(shim, "w", encoding="utf-8") as f:
        f.write(SHIM)
    text = [os.path.join(ROOT, "src/text", f) for f in sorted(os.listdir(os.path.join(ROOT, "src/text")))
            if f.endswith(".c") and (f.startswith("tmpl_") or f == "unicode.c")]
    base = [os.path.join(ROOT, "src/base", f) for f in ("err.c", "fault.c", "json.c", "mem.c", "str.c", "utf8.c")]
    subprocess.run(["cc", "-std=c17", "-D_GNU_SOURCE", "-O2", "-g", "-shared", "-fPIC", "-I" + os.path.join(ROOT, "include"),
                    "-I" + os.path.join(ROOT, "src"), shim, *text, *base, "-o", library, "-ljansson", "-lutf8proc", "-lm",
                    "-lpthread"], check=True)
    return ctypes.CDLL(library)


def ours(library, source, variables):
    data, source = json.dumps(variables, ensure_ascii=False).encode(), source.encode()
    text, n, detail = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.create_string_buffer(512)
    status = library.shim(source, ctypes.c_size_t(len(source)), data, ctypes.c_size_t(len(data)), ctypes.c_longlong(NOW),
                          ctypes.byref(text), ctypes.byref(n), detail)
    made = ctypes.string_at(text, n.value) if status == 0 else None
    if text.value:
        ctypes.CDLL(None).free(text)
    return made, detail.value.decode()


def theirs(template, variables):
    try:
        return template.render(**variables).encode(), None
    except Exception as error:  # whatever a template does to Python
        return None, "%s: %s" % (type(error).__name__, error)


def main():
    folder, verbose = sys.argv[1], "--verbose" in sys.argv
    env, counts, bad = environment(), {"equal": 0, "both fail": 0, "differ": 0, "refused": 0, "lax": 0}, {}
    cases = list(matrix())
    files = sorted(f for f in os.listdir(folder) if f.endswith(".jinja"))
    with tempfile.TemporaryDirectory() as scratch:
        library = build(scratch)
        for name in files:
            with open(os.path.join(folder, name), encoding="utf-8", newline="") as f:
                source = f.read()
            try:
                template = env.from_string(source)
            except TemplateError as error:
                print(name, "is no template for jinja2:", error)
                continue
            for label, variables in cases:
                want, why = theirs(template, variables)
                got, detail = ours(library, source, variables)
                kind = ("equal" if got == want else "differ") if want is not None and got is not None else \
                    "both fail" if want is None and got is None else "refused" if got is None else "lax"
                counts[kind] += 1
                if kind in ("differ", "refused", "lax"):
                    bad.setdefault(name, []).append((kind, label, detail, why, want, got))
    for name, rows in bad.items():
        print(name, len(rows))
        for kind, label, detail, why, want, got in rows if verbose else rows[:1]:
            print("   ", kind, "|", label, "|", detail if kind == "refused" else why or "")
            if kind == "differ":
                at = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
                print("      jinja2 …", want[max(0, at - 40):at + 60], "\n      ours   …", got[max(0, at - 40):at + 60])
    print("%d templates x %d conversations:" % (len(files), len(cases)), counts)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
