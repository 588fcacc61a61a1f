"""Cores that are judged together: a parent's and its child's are one group, whatever wrote them; those of two machines are told
apart though their pids are the same."""

import contextlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys

import pytest
from harness.answers import answer
from harness.subjects import SUBJECTS, spawned


@pytest.fixture(scope="module")
def families():
    """-> [{parent, child}] of two programs that wait, one of which forked its child"""
    line = [sys.executable, os.path.join(SUBJECTS, "born_of_one.py")]
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(spawned([*line, way], ready="{", stdin=subprocess.PIPE)) for way in ("spawn", "fork")]
        yield [json.loads(child.said) for child in children]


def groups_of(files):
    """The verdicts' groups of processes."""
    said = answer(f"llm-hang {' '.join(files)} -json")
    assert said["failed"] == [], said
    return {frozenset(v["group"]) for v in said["verdicts"]}


def test_snapshots_of_a_parent_and_its_child_are_one_group(families, tmp_path):
    files = {}
    for number, one in enumerate(families):
        for who, pid in one.items():
            files[number, who] = str(tmp_path / f"{number}.{who}.core")
            assert answer(f"llm-snapshot {pid} -o {files[number, who]} -json")["snapshots"]
    assert groups_of(files.values()) == {frozenset(map(str, one.values())) for one in families}


def test_cores_of_two_machines_with_the_same_pids_are_told_apart(families, tmp_path):
    gcore = shutil.which("gcore")
    if not gcore:
        pytest.skip("no gcore here")
    files = {}
    for number, one in enumerate(families):
        for who, pid in one.items():
            subprocess.run(
                [gcore, "-o", str(tmp_path / who), str(pid)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True
            )
            files[number, who] = str(tmp_path / f"{number}.{who}.core")
            os.rename(str(tmp_path / f"{who}.{pid}"), files[number, who])
    first, second = families
    for who in ("parent", "child"):  # the second's, as if the pids of its machine were the first's
        have = struct.pack("<2i", second[who], second["parent"] if who == "child" else os.getpid())
        with open(files[1, who], "r+b") as f:
            found = re.search(re.escape(have) + b".{8}python", f.read(), re.S)  # struct elf_prpsinfo: pr_pid to pr_fname
            assert found, who
            f.seek(found.start())
            f.write(struct.pack("<2i", first[who], first["parent"] if who == "child" else os.getpid()))
    said = answer(f"llm-hang {' '.join(files.values())} -json")
    assert said["failed"] == [] and len(said["verdicts"]) == 2, said
    names = [frozenset(os.path.basename(name.rpartition(" of ")[2]) for name in v["group"]) for v in said["verdicts"]]
    assert set(names) == {frozenset(f"{number}.{who}.core" for who in ("parent", "child")) for number in (0, 1)}, said["verdicts"]
