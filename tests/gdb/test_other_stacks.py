"""A thread may have more stacks than one: its Python frames stand along the chain of native frames, wherever those stacks lie."""

import re
import shutil
import subprocess

import pytest
from harness.answers import answer
from harness.gdb_run import run_gdb
from harness.subjects import PYTHONS, SUBJECTS, running


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    path = str(tmp_path_factory.mktemp("stacks") / "libother.so")
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-o", path, f"{SUBJECTS}/other_stacks.c", "-lpthread"], check=True)
    return path


def python_names(frames):
    return [f["function"].rpartition(".")[2].strip("<>") for f in frames if f["kind"] == "python"]


def compare(threads, truth):
    """All Python frames are there; what runs below a native frame of the library stands below it."""
    seen = {}
    for thread in threads:
        if thread["name"] in truth["stacks"]:
            seen[thread["name"]] = thread["frames"]
    assert seen.keys() == truth["stacks"].keys()
    for name, frames in seen.items():
        assert python_names(frames) == [f.strip("<>") for f in truth["stacks"][name]], name
        kinds = [f["kind"] for f in frames]
        inner = [f["function"] for f in frames[: kinds.index("python")]]
        if name.startswith(("c_fiber", "signal_stack")):
            assert "pause" in inner and any(re.match("park|c_waits", f) for f in inner), (name, inner)
        else:
            assert not any("park" in f for f in inner)
            rest = [f["function"] for f in frames[kinds.index("python") :]]
            assert "called_back" in rest and "park" not in rest


@pytest.mark.parametrize("python", PYTHONS)
def test_python_frames_are_there_wherever_the_other_stack_lies(python, library, tmp_path):
    with running(python, "other_stacks.py", library) as (target, truth):
        file = str(tmp_path / "shot")
        answer(f"llm-snapshot {target.pid} -o {file} -json")
        said = answer(f"llm-bt -all -on {file} -json")
        compare(said["threads"], truth)
        whole = {t["name"] for t in said["threads"] if all(f["reliable"] for f in t["frames"])}
        assert {"plain-0", "plain-1", "signal_stack-0", "signal_stack-1"} <= whole
        again = answer(f"llm-stacks {target.pid} -json")
        shown = {tuple(python_names(g["frames"])) for g in again["groups"]}
        assert {tuple(f.strip("<>") for f in stack) for stack in truth["stacks"].values()} <= shown | {s[::-1] for s in shown}


def test_in_gdb_and_in_its_own_backtrace(library, gdb_path):
    with running(PYTHONS[-1], "other_stacks.py", library) as (target, truth):
        said = run_gdb(gdb_path, [f"llm-attach {target.pid}", "llm-bt -all -json", "llm-detach"])
        compare(said.json(1)["threads"], truth)
