"""A few bytes that stand for more than there is memory: files of JSON, C++ names, expressions. Each is bounded where it is read,
and what is whole beside it is answered."""

import ast
import gzip
import json
import os
import pathlib
import tracemalloc

import pytest
from harness.cxx_names import doubling

from gdbext.access import files
from gdbext.access.files import JSON_SIZE, Budget, json_of
from gdbext.answers import heap, tensor_list
from gdbext.commands.llm_stacks import ANSWER
from gdbext.cpython import expressions, spending
from gdbext.errors import GdbextError
from gdbext.render import demangler, names
from gdbext.stacks import cluster
from gdbext.timeline import store
from gdbext.torch import layer_records

PACK = pathlib.Path(files.__file__).parents[1]
OWN = {  # what this pack writes itself, to itself: JSON that nobody else has a hand in
    "access/collect.py": "what the collector says",
    "access/holder.py": "what the holder says",
    "access/kept_symbols.py": "what it wrote into the user's cache folder, checked by a sum",
    "observe/log_reader.py": "what it asks the helper that reads logs, and that answers",
    "package.py": "the pack's own tables",
    "session/rehearsal.py": "the options of the command that is rehearsed",
    "setup/inside.py": "what the outer process asks",
    "setup/outside.py": "what gdb, started for it, answers",
}


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            yield f"{node.func.value.id}.{node.func.attr}"


@pytest.mark.sources
def test_json_is_read_at_one_door():
    """Whoever reads JSON that others wrote has it from `json_of`."""
    doors = {}
    for path in PACK.rglob("*.py"):
        found = [c for c in calls(ast.parse(path.read_text())) if c in ("json.load", "json.loads")]
        if found:
            doors[str(path.relative_to(PACK))] = len(found)
    assert doors.pop("access/files.py") == 1
    assert set(doors) == set(OWN)


DEEP = b'{"schema": ' + b"[" * 5000 + b"]" * 5000 + b"}"


@pytest.fixture
def small(monkeypatch):
    """Budgets of 1 MiB, so that a test need not fill more."""
    for module in (files, cluster, store, layer_records):
        monkeypatch.setattr(module, "JSON_SIZE", 1 << 20)


def swollen():
    return b'{"schema":"x","x":[' + b'{"a":1},' * 20_000 + b"0]}"


def packed(data):
    return gzip.compress(b'{"gdbext-record":1,"x":' + data + b"}")


DOORS = {
    "record": (lambda path: store.read(path), "one.record", packed),
    "folded": (lambda path: store.stacks_of(path, False), "one.folded", lambda data: b"a;b;c 1\n" * 20_000),
    "heap": (heap.load_look, "one.json", bytes),
    "tensors": (tensor_list.load_listing, "one.json", bytes),
    "layers": (layer_records.read, "one.jsonl", bytes),
    "merge": (lambda path: cluster.from_folder(os.path.dirname(path), ANSWER.answer_shape), "one.json", bytes),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_file_that_swells_is_refused_before_it_does(door, small, tmp_path):
    read, name, form = DOORS[door]
    path = tmp_path / name
    path.write_bytes(form(swollen()))
    tracemalloc.start()
    try:
        with pytest.raises(GdbextError, match="more than 1 MiB of memory"):
            read(str(path))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_what_is_counted_is_no_less_than_what_is_made():
    for text in ('[{"a":1},{"b":[]}]', '["", "a", "é", "漢字"]', '{"a": {"b": {"c": 1.5}}}', "[1000,2000,3.5,-7]", "[[],[[]]]"):
        data = ("[" + ",".join([text] * 2000) + "]").encode()
        budget = Budget("x", JSON_SIZE)
        files.take_json(budget, data)
        tracemalloc.start()
        kept = json.loads(data)
        assert tracemalloc.get_traced_memory()[0] <= JSON_SIZE - budget._left, text
        tracemalloc.stop()
        assert kept


@pytest.mark.parametrize("text", [DEEP, b"[" * 100_000, b'{"a":' * 300 + b"1" + b"}" * 300])
def test_what_is_too_deep_is_no_json(text):
    with pytest.raises(ValueError):
        json_of(text, "x")
    assert json_of(b"[" * 90 + b"]" * 90, "x")


def test_a_file_that_swells_leaves_the_others_their_room(small, tmp_path):
    place = {"host": "a", "label": "TP0", "pid": 7, "tid": 7, "name": "x"}
    frame = {"kind": "python", "function": "f", "file": "/x.py", "line": 3}
    whole = {"schema": "llm-stacks/1", "failed": [], "pauses": [], "ranks_total": 1}
    whole["groups"] = [{"frames": [frame], "members": [place]}]
    (tmp_path / "a.json").write_bytes(swollen())
    (tmp_path / "b.json").write_text(json.dumps(whole))
    merged = cluster.from_folder(str(tmp_path), ANSWER.answer_shape)
    assert [p.host for p in merged.processes] == ["b"] and [f["label"] for f in merged.failed] == ["a"]


# ---- C++ names -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [doubling(22), doubling(40), doubling(14, 3), doubling(3000), "_Z1f" + "P" * 50_000 + "i"])
def test_a_name_that_doubles_stays_as_it_is(name, monkeypatch):
    monkeypatch.setattr(names, "_apart", names._Apart())
    assert names.demangle.__wrapped__(name) == names.shorten(name, names.MAX_NAME)
    names._apart.end()


def test_names_with_many_references_are_read_apart(monkeypatch):
    monkeypatch.setattr(names, "_apart", names._Apart())
    name = doubling(9)
    assert names.demangle.__wrapped__(name) == demangler.work(name) != name
    assert names._apart._process is not None
    assert names.demangle.__wrapped__(doubling(30)) == doubling(30)
    assert names.demangle.__wrapped__(name) == demangler.work(name)  # another process answers
    names._apart.end()


def test_the_demangler_has_one_door():
    doors = [path for path in PACK.rglob("*.py") if "__cxa_demangle" in path.read_text()]
    assert [path.name for path in doors] == ["demangler.py"]
    users = [str(p.relative_to(PACK)) for p in PACK.rglob("*.py") if "demangler.work" in p.read_text()]
    assert users == ["render/names.py"]


# ---- expressions -----------------------------------------------------------------------------------------------------
def nested(inner, step, times):
    for _ in range(times):
        inner = step.format(inner)
    return inner


PAIR = "[[v, v] for v in [{}]][0]"
GROWING = {
    "text": nested("['xxxxxxxx']", "[v + v for v in {}]", 21),
    "bytes": nested("[b'xxxxxxxx']", "[v + v for v in {}]", 21),
    "lists": nested("[[1, 2, 3]]", "[v + v for v in {}]", 20),
    "tuples": nested("[(1, 2, 3)]", "[v + v for v in {}]", 20),
    "copies of what holds one thing twice": "{" + nested("(1,)", "[(v, v) for v in [{}]][0]", 40) + "}",
    "hexadecimals": nested("[b'xxxxxxxx']", "[v + v for v in {}]", 17) + "[0].hex()",
    "pieces": "[v.split() for v in " + nested("['a b c d ']", "[v + v for v in {}]", 14) + "]",
    "numbers": "[1 << 1000000 for v in range(1000)]",
    "ranges": "[list(range(10000)) for v in range(1000)]",
    "sets": "[{x for x in range(1000)} for v in range(1000)]",
    "dicts": "[{x: x for x in range(1000)} for v in range(1000)]",
    "tuples of several": "[list(zip(range(10000), range(10000))) for v in range(100)]",
    "sums of lists": "[sum([w for y in range(1000)], []) for w in [[x for x in range(100)]]]",
    "slices": "[v[:] for v in ['xxxxxxxxxxxxxxxx'] for w in range(1000000)]",
}


@pytest.mark.parametrize("what", GROWING)
def test_an_expression_that_grows_is_refused(what, monkeypatch):
    monkeypatch.setattr(spending, "MAX_MADE", 4 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(GdbextError, match="makes more than 4 MiB"):
            expressions.evaluate(None, GROWING[what])
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", ["{0} == {0}", "{{1: 2}}[{0}]", "{0} in [{0}]"])
def test_an_expression_that_takes_for_ever_is_ended(text, monkeypatch):
    monkeypatch.setattr(spending, "SECONDS", 0.2)
    with pytest.raises(GdbextError, match="takes more than 0.2 s|unhashable"):
        expressions.evaluate(None, text.format(nested("(1,)", "[(v, v) for v in [{}]][0]", 40)))


@pytest.mark.parametrize(
    "text",
    ["[i for i in range(9999999) for j in range(9999999) if j < 0]", "any(i < 0 for i in range(9999999) for j in range(99))"]
    + [
        "[1 for i in range(9999999) for j in []]",
        "{i for i in range(9999999) if i < 0}",
        "{i: i for i in range(9999999) if not 1}",
    ],
)
def test_a_search_that_finds_nothing_ends_in_time(text, monkeypatch):
    monkeypatch.setattr(spending, "SECONDS", 0.2)
    with pytest.raises(GdbextError, match="takes more than 0.2 s"):
        expressions.evaluate(None, text)


def test_an_error_does_not_write_out_what_holds_itself_many_times():
    with pytest.raises(GdbextError, match="has no attribute real_"):
        expressions.evaluate(None, f"({nested('[1]', PAIR, 28)}).real_")  # deeper Python 3.8 does not parse


@pytest.mark.parametrize(
    "text",
    [
        "sum(x for x in range(100000))",
        "len('x' + 'y')",
        "[i for i, x in enumerate(range(1000)) if x > 997]",
        "[i for i in range(9999) if i < 0]",
    ],
)
def test_what_does_not_grow_is_answered(text):
    assert expressions.evaluate(None, text) == eval(text)
