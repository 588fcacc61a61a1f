"""Answers of colleagues (-merge) and saved listings (-diff) whose JSON is damaged anywhere: one line that says so, never a
traceback."""

import copy
import json
import os
import random

import pytest

from gdbext.answers.tensor_list import load_listing
from gdbext.commands import table
from gdbext.commands.llm_stacks import ANSWER
from gdbext.errors import GdbextError
from gdbext.session.session import Session
from gdbext.setup import outside
from gdbext.stacks import cluster

PLACE = {"host": "node1", "label": "TP0", "pid": 7, "role": "worker", "tid": 8, "name": "MainThread"}
FRAME = {"kind": "python", "function": "f", "file": "/x.py", "line": 3, "library": None, "level": 0, "pc": None, "sp": "0x10"}
STACKS = {
    "schema": "llm-stacks/1",
    "partial": ["7 of 8"],
    "groups": [{"frames": [FRAME, dict(FRAME, kind="native", library="/lib/x.so")], "members": [PLACE], "idle": False}],
    "failed": [{"label": "TP1", "pid": 9, "reason": "gone"}],
    "pauses": [{"pid": 7, "seconds": 0.001}],
    "ranks_read": 1,
    "ranks_total": 2,
}
ROW = {
    "address": "0x10",
    "shape": [2, 3],
    "dtype": "torch.float32",
    "device": "cpu",
    "bytes": 24,
    "storage": "0x20",
    "owner": "x",
}
LISTING = {"schema": "pytensors/1", "partial": [], "tensors": [ROW, dict(ROW, address="0x30")], "total_bytes": 24}
OTHERS = (None, True, -1, 1 << 70, 2.5, float("nan"), "", "text", "\x1b[2J", [], [[]], {}, {"a": 1})


def damaged(value, rng):
    """A copy with one place, anywhere, replaced by something else, or taken away."""
    value = copy.deepcopy(value)
    places = []

    def collect(node):
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], (dict, list)):
                collect(node[key])

    collect(value)
    for node, key in rng.sample(places, rng.randint(1, 2)):
        if rng.random() < 0.2 and isinstance(node, dict):
            node.pop(key, None)
        else:
            node[key] = copy.deepcopy(rng.choice(OTHERS))
    return value


def deep(levels=200_000):
    return "[" * levels + "]" * levels


def test_damaged_answers_of_other_machines(tmp_path):
    rng, statuses = random.Random(1), set()
    path = tmp_path / "one.json"
    for number in range(400):
        path.write_text(json.dumps(damaged(STACKS, rng)) if number else deep())
        for option in ("", " -json"):
            status, out, err = outside.perform(table.load("llm-stacks"), f"-merge {tmp_path}{option}", Session())
            assert out or err
            statuses.add(status)
    assert statuses <= {0, 1, 3} and len(statuses) > 1


def test_damaged_listings(tmp_path):
    from gdbext.answers.tensor_list import difference

    rng, refused = random.Random(1), 0
    path = tmp_path / "old.json"
    for number in range(400):
        path.write_text(json.dumps(damaged(LISTING, rng)) if number else deep())
        try:
            difference(load_listing(str(path)), LISTING["tensors"])
        except GdbextError as e:
            assert "no listing of pytensors" in str(e)
            refused += 1
    assert 40 < refused < 400


def test_what_is_no_regular_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "n0.json")
    with pytest.raises(GdbextError, match="not a regular file"):
        cluster.from_folder(str(tmp_path), ANSWER.answer_shape)
    with pytest.raises(GdbextError, match=f"-diff {tmp_path}/n0.json: not a regular file"):
        load_listing(str(tmp_path / "n0.json"))


def test_damaged_heaps(tmp_path):
    from gdbext.answers.heap import load_look

    kept = {"process": "1", "complete": True, "types": [["dict", 3, 400]], "containers": [["0x7f0010", "list", 5, 90]]}
    rng, refused, path = random.Random(1), 0, tmp_path / "old.json"
    for number in range(500):
        path.write_text(json.dumps(damaged({"schema": "pyheap-look/1", "look": kept}, rng)) if number else deep())
        try:
            found = load_look(str(path))
            assert all(isinstance(address, int) for address in found.containers)
        except GdbextError as e:
            assert "no heap of pyheap" in str(e)
            refused += 1
    assert 50 < refused < 500
