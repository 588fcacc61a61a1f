"""Adding an engine is one folder and its row: the toy engine of tests/toy_engine, put into a copy of the pack, is listed with its
ranks, its requests and its KV cache by the real commands; nothing else of the copy is touched."""

import filecmp
import json
import os
import subprocess
import sys

import pytest
from harness.gdb_run import ROOT
from harness.toy import pack_with_toy, toy


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    """A copy of the pack with the toy engine in it."""
    return pack_with_toy(tmp_path_factory.mktemp("pack"))


@pytest.fixture(scope="module")
def toys():
    """Two processes of the toy engine -> [(pid, what it says of itself)]"""
    with toy(0) as first, toy(1) as second:
        yield [first, second]


SEVERAL = """
import sys
from gdbext.commands import table
from gdbext.session.session import Session
from gdbext.setup import outside
for line in sys.argv[1:]:
    name, _, words = line.partition(" ")
    status, said, error = outside.perform(table.load(name), words + " -json", Session())
    assert status in (0, 3), (line, said, error)
    print(said.strip())
"""


def answers(pack, *lines):
    """What the copy's commands say, as JSON: all in one process, because starting one costs more than an answer."""
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL, *lines],
        cwd=pack,
        env={**os.environ, "PYTHONPATH": str(pack)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_its_ranks_are_listed(pack, toys):
    ours = {pid for pid, _ in toys}  # another worker of a parallel run has toys of its own
    ranks = {r["pid"]: r for r in answers(pack, "llm-ranks -verify")[0]["ranks"] if r["engine"] == "toy" and r["pid"] in ours}
    assert sorted(ranks) == sorted(pid for pid, _ in toys)
    for number, (pid, _) in enumerate(toys):
        said = ranks[pid]
        assert (said["role"], said["label"], said["ranks"], said["rank_source"]) == (
            "scheduler",
            f"TP{number}",
            {"tp": number},
            "memory",
        )


def test_its_requests_are_listed_with_what_they_wait_for(pack, toys):
    pid, said = toys[0]
    found = answers(pack, f"llm-requests -on {pid}")[0]["requests"]
    assert [r["request_id"] for r in found] == said["ids"]
    assert [r["prompt_tokens"] for r in found] == [6, 30, 1] and [r["output_tokens"] for r in found] == [9, 0, 0]
    assert [r["blocked_by"] for r in found] == [None, "blocks: needs more, 3 free", "queue: behind toy-b"]


def test_its_kv_cache_is_listed_and_checked(pack, toys):
    pid, said = toys[1]
    lines = ("llm-kv", "llm-kv free", "llm-kv block 4", "llm-kv check")
    cache, free, block, check = answers(pack, *(f"{line} -on {pid}" for line in lines))
    assert (cache["engine"], cache["version"], cache["num_blocks"], cache["block_size"]) == ("toy", "1.0", 8, 4)
    assert free["order"] == said["free"]
    assert block["block"]["owners"] == [{"request_id": "toy-a", "index": 3, "group": 0}] and block["block"]["free"] is False
    assert check["ok"] is True


def test_its_private_names_stay_hidden_and_help_names_its_releases(pack, toys):
    expression = "__main__:scheduler.running[0].toy_prompt"
    on = f"pyprint -on {toys[0][0]}"
    hidden, shown = answers(pack, f"{on} {expression}", f"{on} -show-content {expression}")
    assert hidden["repr"] == "<6 items, private: -show-content shows them>" and shown["repr"] == "[11, 12, 13, 14, 15, 16]"
    said = subprocess.run(
        [sys.executable, "-m", "gdbext", "llm-kv", "--help"], cwd=pack, stdout=subprocess.PIPE, text=True
    ).stdout
    assert "Toy 1.0" in said


def test_nothing_else_was_touched_and_without_it_all_is_as_before(pack, toys):
    differ = []

    def compare(here, there):
        both = filecmp.dircmp(here, there, ignore=["__pycache__"])
        differ.extend(os.path.join(there, name) for name in both.diff_files + both.left_only + both.right_only)
        for name in both.common_dirs:
            compare(os.path.join(here, name), os.path.join(there, name))

    compare(os.path.join(ROOT, "gdbext"), str(pack / "gdbext"))
    assert sorted(os.path.relpath(path, pack) for path in differ) == ["gdbext/engines/__init__.py", "gdbext/engines/toy"]
    mine = {pid for pid, _ in toys}
    assert not [r for r in answers(ROOT, "llm-ranks")[0]["ranks"] if r["pid"] in mine]
