"""The fields of answers are declared once: JSON, docs, schema, table and the merge over machines follow."""

import contextlib
import json
import os
from types import SimpleNamespace

import pytest
from harness.gdb_run import ROOT
from harness.schemas import TYPES, faults, held
from tools import record_answers

from gdbext.answers import each_node, ranks, requests
from gdbext.commands import table
from gdbext.engines.instances import Instance, Spread
from gdbext.errors import GdbextError
from gdbext.kvcache.model import Request
from gdbext.render.fields import FAILURES, JOIN, KEEP, LEFT_OUT, NUMBER, REAL, SUM, VALUE, Field, Fields, answer_schema, each
from gdbext.render.text import PLAIN, Style
from gdbext.requests.model import Tracked

ROW = Fields(
    Field("name", str, "its name", must=True, head="name"),
    Field("held", NUMBER, "what it holds", "bytes", lambda one: one.size, head="held", cell=lambda n: f"{n} B", spare=1),
    Field("hidden", (bool, None), read=lambda one: None),
)
WHOLE = Fields(
    Field("rows", [ROW], merge=JOIN),
    Field("looked", int, must=True, merge=SUM),
    Field("failed", [each_node.FAILED], merge=FAILURES),
)


class One:
    name, size = "a\x1b[2J", 5


def test_a_field_is_json_a_cell_a_row_of_the_docs_and_a_schema():
    data = ROW.data(One())
    assert data == {"name": "a\\x1b[2J", "held": 5, "hidden": None}
    head, line = ROW.table([data], PLAIN).splitlines()
    assert head.split() == ["name", "held"] and line.split()[-2:] == ["5", "B"] and "\x1b" not in line
    assert [head for head, *_ in map(str.split, ROW.table([data], Style(False, 12)).splitlines())][0] == "name"
    assert list(WHOLE.rows())[:3] == [
        ("rows", "list of objects", ""),
        ("rows[].name", "text", "its name"),
        ("rows[].held", "number or null", "what it holds, bytes"),
    ]
    schema = answer_schema("x", WHOLE)["properties"]
    assert schema["schema"] == {"const": "x/1"}
    assert schema["rows"]["items"]["properties"]["held"] == {"type": ["integer", "null"], "description": "what it holds, bytes"}


@pytest.mark.parametrize("kind", [float, (float, None), REAL, int, VALUE])
def test_a_column_of_numbers_is_to_the_right_and_rounded_either_way(kind):
    row = Fields(Field("n", kind, head="n", digits=2), Field("name", str, head="name"))
    data = [row.of(n=value, name="x") for value in (1234.5678, 1.0, None)]
    assert [one["n"] for one in data] == [1234.57, 1.0, None]
    assert data[0] == row.data(SimpleNamespace(n=1234.5678, name="x"))
    heads, *lines = row.table(data, PLAIN).splitlines()
    assert len({line.index("x") for line in lines}) == 1 and heads.rstrip().endswith("n  name") and lines[1].startswith(" ")


def test_a_field_is_merged_as_it_is_declared_and_a_damaged_answer_left():
    def answer(name, **more):
        return {"rows": [{"name": name, "new": [1]}], "looked": 2, "failed": [], **more}

    gone = {"label": "x", "pid": 1, "reason": "gone"}
    failed = []
    answers = [("ssh:a", answer("a")), ("ssh:b", answer("b", failed=[gone], partial=["unstopped"]))]
    answers += [("ssh:c", answer(3)), ("ssh:d", {"rows": []}), ("ssh:e", {"error": "no route"})]
    data, partial = each_node.merged(WHOLE, answers, failed, lambda one: {"rows": len(one["rows"])})
    assert data["rows"] == [{"name": "a", "new": [1], "node": "a"}, {"name": "b", "new": [1], "node": "b"}]
    assert data["looked"] == 4 and data["nodes"] == [{"node": "ssh:a", "rows": 1}, {"node": "ssh:b", "rows": 1}]
    assert data["failed"][0] == {**gone, "node": "b"} and [one["label"] for one in failed[1:]] == ["ssh:c", "ssh:d", "ssh:e"]
    assert partial[0] == "ssh:b: unstopped" and len(partial) == 4
    assert [line.split() for line in ROW.table(data["rows"], PLAIN).splitlines()] == [["node", "name"], ["a", "a"], ["b", "b"]]
    with pytest.raises(GdbextError, match="no route"):
        each_node.merged(WHOLE, answers[-1:], [], lambda one: {})


def test_every_field_of_an_answer_is_declared():
    instance = Instance(spread=Spread("tp", 4, [0]))
    assert list(instance.data()) == [one.name for one in ranks.INSTANCE]
    assert list(instance.data()["spread"]) == [one.name for one in ranks.SPREAD]
    for made in (requests.request_data(Request("a"), Tracked("a", [])), requests.request_data(None)):
        assert set(made) <= requests.REQUEST.names
        assert set(requests.CUSTODY.data(Tracked("a", []))) & requests.REQUEST.merging(KEEP).names == set()


def recorded():
    """(command line, command, {path of a field: its types}) of tests/answers/fields.json."""
    with open(os.path.join(ROOT, "tests", "answers", "fields.json")) as f:
        for line, found in json.load(f).items():
            yield line, (line.partition(": ")[2] if ": " in line else line).split()[0], found


def test_recording_adds_and_takes_nothing_away():
    before = {"a": {"held": ["null", "text"], "partial[]": ["text"]}, "b": {"x": ["list"]}}
    now = {"a": {"held": ["null"], "new": ["number"]}, "b": {"x": ["null"], "partial[]": ["text"]}, "c": {"partial[]": ["text"]}}
    assert record_answers.joined(before, now) == {
        "a": {"held": ["null", "text"], "partial[]": ["text"], "new": ["number"]},
        "b": {"x": ["list", "null"]},
        "c": {"partial[]": ["text"]},
    }
    assert before["b"] == {"x": ["list"]}


def test_a_command_that_refuses_a_core_is_told_its_row(monkeypatch):
    asked = [("snapshot: llm-age {on}", "llm-age x.core")]
    monkeypatch.setattr(record_answers, "commands", lambda python: contextlib.nullcontext(asked))
    monkeypatch.setattr(record_answers, "answers", lambda root, lines: [{"error": "not a live process"}])
    with pytest.raises(
        AssertionError, match="llm-age {on}: not a live process; .*`live` instead of `both`: ROWS of tests/harness"
    ):
        record_answers.record("python")


def in_schema(path, schema, defs):
    """The types that a schema gives to a field; None where it has none."""
    for step in filter(None, path.replace("[]", ".[]").split(".")):
        kinds = [kind for one in kinds_of(schema, defs) for kind in kinds_of(step_of(one, step), defs)]
        if not kinds:
            return None
        schema = {"anyOf": kinds}
    found = {
        one for kind in kinds_of(schema, defs) for one in (kind["type"] if isinstance(kind["type"], list) else [kind["type"]])
    }
    return {"integer": "number", "string": "text", "boolean": "bool", "array": "list"}, found


def kinds_of(schema, defs):
    if schema is None:
        return []
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    return [kind for one in schema["anyOf"] for kind in kinds_of(one, defs)] if "anyOf" in schema else [schema]


def step_of(schema, step):
    anything = {"type": list(TYPES)}
    if step == "[]":
        return schema.get("items", anything if "array" in schema["type"] else None)
    open_to_all = anything if "object" in schema["type"] and "properties" not in schema else None
    return schema.get("properties", {}).get(step, schema.get("additionalProperties", open_to_all))


def test_every_recorded_field_is_declared_with_its_types():
    compared, missing = 0, []
    for line, name, found in recorded():
        schema = answer_schema(name, table.load(name).fields)
        for path, kinds in found.items():
            if path == "schema":
                continue
            compared += 1
            declared = in_schema(path, schema, schema.get("$defs", {}))
            words = set() if declared is None else {declared[0].get(one, one) for one in declared[1]}
            missing += [f"{line}: {path}: {kinds}, declared {words}"] if not set(kinds) <= words else []
    assert compared > 1500 and not missing, missing


def test_private_fields_are_of_commands_that_take_show_content():
    found = set()
    for command in table.load_all():
        text = json.dumps(answer_schema(command.name, command.fields))
        if "with -show-content" in text:
            found.add(command.name)
            assert any(one.name == "show-content" for one in command.all_options()), command.name
    assert found == {"llm-kv", "llm-requests", "llm-request"}


def test_every_command_declares_its_answer_and_a_shape_has_one_meaning():
    shapes = {}
    for command in table.load_all():
        assert command.fields.fields, command.name
        for name, fields in command.fields.shapes().items():
            known = shapes.setdefault(name, fields)
            assert known is fields or list(known.rows()) == list(fields.rows()), name
            assert " " not in name and known.schema({}) == fields.schema({})


def example(schema, defs, above=()):
    """An answer that a schema allows; a shape does not stand in itself."""
    if schema.get("$ref") in above:
        return None
    above = (*above, schema["$ref"]) if "$ref" in schema else above
    if "anyOf" in schema:
        return next((one for one in (example(kind, defs, above) for kind in schema["anyOf"]) if one is not None), None)
    schema = kinds_of(schema, defs)[0]
    if "const" in schema:
        return schema["const"]
    kind = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
    if kind == "array":
        return [one for one in [example(schema.get("items", {"type": "null"}), defs, above)] if one is not None]
    if kind == "object":
        return {name: example(one, defs, above) for name, one in schema.get("properties", {}).items()}
    return {"string": "x", "integer": 1, "number": 1.5, "boolean": True, "null": None}[kind]


@pytest.mark.parametrize("name", table.names())
def test_a_renamed_or_mistyped_field_is_seen(name):
    """Of every field at the top of an answer, and of one field of each object in it."""
    schema = answer_schema(name, table.load(name).fields)
    answer = example(schema, schema.get("$defs", {}))
    assert held(answer) is answer
    changed = 0
    for path, one in objects_in(answer):
        for field in list(one) if one is answer else list(one)[:1]:
            if field != "schema":
                value = one.pop(field)
                one[field + "_"] = value
                missed = not list(faults(answer, schema))
                del one[field + "_"]
                one[field] = object()
                missed_too = not list(faults(answer, schema))
                one[field] = value
                changed += 1
                assert not missed_too and (not missed or path in OPEN.get(name, ())), (path, field)
    assert changed >= len(schema["properties"]) - 1


# Objects whose names are their own.
OPEN = {
    "llm-kv": (".block.addresses[]", ".block.stats[]"),
    "llm-request": (".sampling_rows[]",),
    "llm-inject": (".started[]",),
    "llm-launch": (".args[].points_to",),
}


def objects_in(value, path=""):
    if isinstance(value, dict):
        yield path, value
        for name, one in list(value.items()):
            yield from objects_in(one, f"{path}.{name}")
    elif isinstance(value, list):
        for one in value:
            yield from objects_in(one, path + "[]")


def test_an_answer_of_known_values_lacks_what_it_is_not_given():
    inner = Fields(Field("a", int), shape="inner")
    inner.add(Field("more", [inner]))
    whole = Fields(*each(NUMBER, "x y", default=None), Field("z", str), Field("deep", inner), Field("of", Fields(rest=str)))
    assert whole.of(x=1) == {"x": 1, "y": None}
    with pytest.raises(KeyError, match="not declared: w"):
        whole.of(w=1)
    schema = answer_schema("x", whole)
    good = {"schema": "x/1", "partial": [], "deep": {"a": 1, "more": [{"a": 2}]}, "of": {"any": "text"}}
    assert not list(faults(good, schema)) and whole.shape["deep?"]["more?"] == [dict]
    good["deep"]["more"][0]["a"] = "2"
    good["of"]["any"] = 3
    assert [fault.partition(" is ")[0] for fault in faults(good, schema)] == [".deep.more[0].a", ".of.*"]
    assert Fields(Field("text", str, read=lambda one: one), Field("none", int, read=lambda one: LEFT_OUT)).data("a\n") == {
        "text": "a\\n"
    }
