"""Answers in JSON against the schema that their command declares: types, and no field that is not declared."""

import functools

from gdbext.commands import table
from gdbext.render.fields import answer_schema

TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}


def held(answer):
    """An answer, which is as its command declares it."""
    name = str(answer.get("schema", "")).partition("/")[0]
    if "error" not in answer and name in table.names():
        found = list(faults(answer, schema_of(name)))
        assert not found, f"{name}: {'; '.join(found[:8])}"
    return answer


@functools.lru_cache(None)
def schema_of(name):
    return answer_schema(name, table.load(name).fields)


def faults(value, schema, path="", defs=None):
    """What in an answer is not as its schema says."""
    defs = schema.get("$defs", {}) if defs is None else defs
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        tried = [list(faults(value, one, path, defs)) for one in schema["anyOf"]]
        yield from min(tried, key=lambda found: (any(fault.startswith(f"{path} is ") for fault in found), len(found)))
    elif "const" in schema:
        if value != schema["const"]:
            yield f"{path} is {value!r}"
    elif not any(_is(value, one) for one in _listed(schema.get("type", ()))):
        yield f"{path} is {str(value)[:60]!r}, not {schema.get('type')}"
    elif isinstance(value, dict) and "properties" in schema:
        for key, one in value.items():
            if key in schema["properties"]:
                yield from faults(one, schema["properties"][key], f"{path}.{key}", defs)
            elif key == "node":  # which machine a row of a merged answer is of
                yield from faults(one, {"type": "string"}, f"{path}.{key}", defs)
            elif "additionalProperties" in schema:
                yield from faults(one, schema["additionalProperties"], f"{path}.*", defs)
            else:
                yield f"{path}.{key} is not declared"
        yield from (f"{path} lacks {key}" for key in schema.get("required", ()) if key not in value)
    elif isinstance(value, list) and "items" in schema:
        for number, one in enumerate(value):
            yield from faults(one, schema["items"], f"{path}[{number}]", defs)


def _listed(types):
    return [types] if isinstance(types, str) else types


def _is(value, kind):
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
