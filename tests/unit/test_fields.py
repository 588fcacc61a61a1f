"""The fields of answers are declared once: JSON, docs, schema, table and the merge over machines follow."""

import json
import os

import pytest
from harness.gdb_run import ROOT

from gdbext.answers import each_node, ranks, requests
from gdbext.commands import table
from gdbext.engines.instances import Instance, Spread
from gdbext.errors import GdbextError
from gdbext.kvcache.model import Request
from gdbext.render.fields import FAILURES, JOIN, KEEP, NUMBER, SUM, Field, Fields, answer_schema
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
    assert data == {"name": "a\x1b[2J", "held": 5, "hidden": None}
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
        assert set(requests.custody_data(Tracked("a", []))) & requests.REQUEST.merging(KEEP).names == set()


def test_every_recorded_field_of_a_declaring_command_is_declared():
    with open(os.path.join(ROOT, "tests", "answers", "fields.json")) as f:
        recorded = json.load(f)
    compared, missing = 0, []
    for line, found in recorded.items():
        command = table.load(line.partition(": ")[2].split()[0] if ": " in line else line.split()[0])
        if command.fields is None:
            continue
        declared = {path: words.split(" or ") for path, words, _ in command.fields.rows()}
        inner = {path.rpartition(".")[0].replace("[]", "") for path in declared}
        opened = [path for path in declared if path.replace("[]", "") not in inner]
        for path in found:
            if (
                path.partition("[")[0] in ("schema", "partial", "nodes")
                or path.endswith("]")
                or path.startswith(tuple(one + end for one in opened for end in (".", "[")))
            ):
                continue
            compared += 1
            kinds = {word.split(" of ")[0].replace("*place*", "object") for word in declared.get(path, ())}
            missing += [f"{line}: {path}: {found[path]}, declared {kinds}"] if not set(found[path]) <= kinds else []
    assert compared > 40 and not missing, missing
