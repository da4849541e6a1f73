"""Sample answers of the demo model under many JSON Schemas, and validate every finished one with jsonschema.

    python validate.py SLUICE DEMO.gturbo [SAMPLES]

jsonschema[format] 4.26.0, with the format checker of draft 2020-12. Schemas take the shapes of the JSON-Schema test suite: types, enum,
const, required, additionalProperties, items, anyOf, oneOf, allOf, $ref, bounds, pattern, format. An answer that
the token limit cut must say "length"; any other must parse and validate. Ends with 1 when one does not.
"""
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import jsonschema

def obj(properties, required=None, **more):
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required, **more}

STRING, INTEGER = {"type": "string", "maxLength": 30}, {"type": "integer"}
SCHEMAS = [
    obj({"word": STRING}), obj({"a": INTEGER, "b": {"type": "boolean"}}), obj({"a": INTEGER, "b": STRING}, ["b"]),
    obj({"n": {"type": "integer", "minimum": -7, "maximum": 130}}), obj({"x": {"type": "number", "minimum": 0, "maximum": 1}}),
    obj({"x": {"type": "number", "exclusiveMinimum": -2.5, "exclusiveMaximum": 3.25}}), obj({"x": {"type": "integer", "exclusiveMinimum": 9}}),
    obj({"x": {"type": "number"}}), {"enum": ["red", 3, None, [1], {"k": "v"}]}, {"const": "it's \"x\""}, {"type": ["integer", "null"]},
    {"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 4}, {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 5},
    {"type": "array", "prefixItems": [INTEGER, STRING], "items": False, "minItems": 2}, obj({}, additionalProperties={"type": "integer", "maximum": 99}),
    obj({"key": {"type": "null"}}, additionalProperties={"type": "boolean"}), obj({"q": {"anyOf": [INTEGER, {"type": "null"}, {"type": "array", "items": STRING, "maxItems": 2}]}}),
    {"oneOf": [obj({"kind": {"const": "a"}, "n": INTEGER}), obj({"kind": {"const": "b"}, "s": STRING})]},
    {"allOf": [obj({"a": INTEGER}), {"properties": {"b": {"const": 2}}, "required": ["b"]}]},
    {"$defs": {"n": obj({"v": INTEGER, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}]}})}, "$ref": "#/$defs/n"},
    obj({"p": {"type": "string", "pattern": "^[A-Z][a-z]{2,6}( [a-z]+)?$"}}), obj({"p": {"type": "string", "pattern": "[0-9]{3}-[0-9]{2}"}}),
    obj({"p": {"type": "string", "pattern": "^(\\d|\\w\\s){1,5}$"}}), obj({"p": {"type": "string", "pattern": "^[^\\s\"]{1,4}$|^x$"}}),
    *[obj({"f": {"type": "string", "format": f}}) for f in ("date", "time", "date-time", "uuid", "ipv4", "ipv6", "hostname", "email", "uri")],
    obj({"s": {"type": "string", "minLength": 3, "maxLength": 12}}), obj({"a": obj({"b": obj({"c": {"type": "boolean"}})})}),
]


def sample(job):
    sluice, demo, path, schema, seed = job
    made = subprocess.run([sluice, "run", demo, "--quiet", "--json", "--json-schema", path, "--seed", str(seed), "--temperature",
                           str(0.3 + seed % 7 * 0.25), "--max-tokens", "160", "--threads", "1", "--verify", "receipt"],
                          input="What does lighthouse mean?", capture_output=True, text=True)
    if made.returncode:
        return "failed: " + made.stderr.strip()
    answer = json.loads(made.stdout)
    if answer["finish_reason"] == "length":
        return "length"
    try:
        jsonschema.validate(json.loads(answer["text"]), schema, jsonschema.Draft202012Validator, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    except Exception as error:  # whatever is wrong with it
        return "WRONG %r: %s" % (answer["text"], str(error).split("\n")[0])
    return "valid"


def main():
    sluice, demo, count = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 2000
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, schema in enumerate(SCHEMAS):
            paths.append("%s/%d.json" % (folder, i))
            with open(paths[-1], "w", encoding="utf-8") as f:
                json.dump(schema, f)
        jobs = [(sluice, demo, paths[k % len(SCHEMAS)], SCHEMAS[k % len(SCHEMAS)], k) for k in range(count)]
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(sample, jobs))
    bad = [(k, r) for k, r in enumerate(results) if r not in ("valid", "length")]
    for k, why in bad[:20]:
        print("schema %d, seed %d: %s" % (k % len(SCHEMAS), k, why))
    print("%d samples under %d schemas: %d valid, %d cut by the limit, %d wrong" %
          (count, len(SCHEMAS), results.count("valid"), results.count("length"), len(bad)))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
