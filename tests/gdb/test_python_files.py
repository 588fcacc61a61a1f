"""Interpreters whose files are stripped, renamed, deleted or replaced, and cores that the kernel trimmed: the same frames as
Python tells."""

import os
import re
import shutil
import sys

import pytest
from harness.subjects import PYTHONS, copy, kernel_core, running, unlimited_core

from gdbext.access.proc import ProcTarget
from gdbext.access.snapshot import CoreFileTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError


def check(target, truth):
    """Every frame of every thread is as the process told."""
    rt = open_runtime(target)
    threads = {thread.tid: thread for thread in rt.threads()}
    wrong = []
    for tid, frames in truth["threads"].items():
        found = [(f.function, f.file, f.line) for f in rt.frames(threads[int(tid)])]
        if found != [tuple(f[:3]) for f in frames]:
            wrong.append(f"{truth['names'][tid]}: {found}")
    assert not wrong and len(truth["threads"]) == 24, "\n".join(wrong)
    return rt


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
@pytest.mark.skipif(not shutil.which("strip"), reason="no strip here")
def test_stripped_with_native_frames(gdb, python, tmp_path):
    argv, env, path = copy(python, tmp_path, strip=True)
    with running(argv, "py_stacks.py", env=env) as (target, truth):
        rt = check(target, truth)
        assert rt.library.path == path and not rt.library.elf.has_static_symbols
        ran = gdb(["llm-bt -all -json"], ["-p", str(target.pid)], before=["set auto-solib-add off"])
    answer = ran.json(0)
    assert not [r for r in answer["partial"] if "counting" not in r]
    for thread in answer["threads"]:
        if str(thread["tid"]) in truth["threads"]:
            python_frames = [f for f in thread["frames"] if f["kind"] == "python"]
            assert [(f["function"], f["file"], f["line"]) for f in python_frames] == [
                tuple(f[:3]) for f in truth["threads"][str(thread["tid"])]
            ]
            assert all(f["reliable"] for f in thread["frames"]) and thread["frames"][0]["kind"] == "native"


@pytest.mark.parametrize("python", PYTHONS[:2] + PYTHONS[-1:], ids=os.path.basename)
def test_renamed(python, tmp_path):
    argv, env, path = copy(python, tmp_path, name="engine-worker")
    with running(argv, "py_stacks.py", env=env) as (target, truth):
        assert check(target, truth).library.path == path


@pytest.mark.parametrize("way", ["gone", "replaced", "gone, its file not to be opened"])
@pytest.mark.parametrize("python", PYTHONS[:1] + PYTHONS[2:3] + PYTHONS[-1:], ids=os.path.basename)
def test_deleted(python, way, tmp_path, monkeypatch):
    argv, env, path = copy(python, tmp_path)
    with running(argv, "py_stacks.py", env=env) as (target, truth):
        os.remove(path)
        if way == "replaced":
            shutil.copy(shutil.which("sleep"), path)
        if "opened" in way:
            monkeypatch.setattr(ProcTarget, "deleted_file", lambda self, path, base: "")
        rt = check(target, truth)
        assert rt.library.path == path + " (deleted)"
        assert rt.library.elf.build_id and rt.library.symbol("PyUnicode_Type")


def core_of(process, folder):
    return kernel_core(process, folder) or pytest.skip("the kernel writes no core files here")


@pytest.mark.parametrize("bits", ["0x33", "0x21", "0x1", "0x7f", "0x30"])
def test_cores_of_the_kernel_trimmed_by_coredump_filter(bits, tmp_path):
    with running(PYTHONS[2 % len(PYTHONS)], "py_stacks.py", preexec_fn=lambda: unlimited_core(bits), cwd=str(tmp_path)) as (
        target,
        truth,
    ):
        core = core_of(target.process, tmp_path)
    if int(bits, 16) & 1:
        check(CoreFileTarget(core), truth)
    else:  # without private memory there is no Python in it: that is said
        with pytest.raises(GdbextError, match="(not in the core|trimmed)") as e:
            open_runtime(CoreFileTarget(core))
        assert "\n" not in str(e.value)


def test_a_core_whose_interpreter_is_gone_says_so_and_sysroot_finds_it(gdb, tmp_path):
    argv, env, path = copy(PYTHONS[2 % len(PYTHONS)], tmp_path)
    with running(argv, "py_stacks.py", env=env, preexec_fn=unlimited_core, cwd=str(tmp_path)) as (target, truth):
        core = core_of(target.process, tmp_path)
    check(CoreFileTarget(core), truth)
    root = str(tmp_path / "root")
    os.makedirs(root + os.path.dirname(path))
    os.rename(path, root + path)
    ran = gdb(["pybt -all -json", f"set sysroot {root}", "pybt -all -json"], ["-c", core], before=["set auto-solib-add off"])
    assert os.path.basename(path) in ran.outputs[0] and not ran.outputs[0].startswith("{")
    found = {
        str(thread["tid"]): [[f["function"], f["file"], f["line"]] for f in thread["frames"]] for thread in ran.json(2)["threads"]
    }
    assert {tid: [f[:3] for f in frames] for tid, frames in truth["threads"].items()}.items() <= found.items()
    with pytest.raises(GdbextError, match=re.escape(os.path.basename(path))) as gone:
        open_runtime(CoreFileTarget(core))
    shutil.copy(sys.executable, path)
    with pytest.raises(GdbextError) as other:
        open_runtime(CoreFileTarget(core))
    assert "\n" not in str(gone.value) + str(other.value)
