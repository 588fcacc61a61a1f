"""Interpreters whose files are stripped, renamed, deleted or replaced, and cores that the kernel trimmed: the same frames as Python tells."""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys

import pytest

from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError
from gdbext.target.proc import ProcTarget
from gdbext.target.snapshot import CoreFileTarget
from pysubjects import PYTHONS, SUBJECTS


def copy(python, folder, name="", strip=False):
    """-> (argv, more environment, path of the copy) that run an interpreter with a copy of the file that holds it, under `name`."""
    code = "import sys; print(sys.base_prefix, flush=True); input()"
    with subprocess.Popen([python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        prefix = process.stdout.readline().strip()
        target = ProcTarget(process.pid)
        argv, env, held = target.argv()[:-2], target.environ(), open_runtime(target).library.path
        process.kill()
    path = os.path.join(str(folder), name or os.path.basename(held))
    if strip:
        subprocess.run([shutil.which("strip") or pytest.skip("no strip here"), "-s", "-o", path, held], check=True)
        os.chmod(path, 0o755)
    else:
        shutil.copy(held, path)
    if ".so" in os.path.basename(held):  # the loader takes a library that is there already for the one of the same SONAME
        return argv, {"LD_PRELOAD": path}, path
    argv = [path if os.path.realpath(word) == held else word for word in argv]
    return argv, {"PYTHONHOME": env.get("PYTHONHOME", prefix)}, path


@contextlib.contextmanager
def running(argv, env, name="py_stacks.py", **more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    process = subprocess.Popen(
        [*argv, os.path.join(SUBJECTS, name)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**clean, **env}, text=True, **more
    )
    try:
        line = process.stdout.readline()
        assert line, f"{argv} said nothing and ended with {process.wait(20)}"
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


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
def test_stripped_with_native_frames(gdb, python, tmp_path):
    argv, env, path = copy(python, tmp_path, strip=True)
    with running(argv, env) as (process, truth):
        rt = check(ProcTarget(process.pid), truth)
        assert rt.library.path == path and not rt.library.elf.has_static_symbols
        ran = gdb(["llm-bt -all -json"], ["-p", str(process.pid)], before=["set auto-solib-add off"])
    answer = ran.json(0)
    assert not [r for r in answer["partial"] if "counting" not in r]
    for thread in answer["threads"]:
        if str(thread["tid"]) in truth["threads"]:
            python_frames = [f for f in thread["frames"] if f["kind"] == "python"]
            assert [(f["function"], f["file"], f["line"]) for f in python_frames] == [tuple(f[:3]) for f in truth["threads"][str(thread["tid"])]]
            assert all(f["reliable"] for f in thread["frames"]) and thread["frames"][0]["kind"] == "native"


@pytest.mark.parametrize("python", PYTHONS[:2] + PYTHONS[-1:], ids=os.path.basename)
def test_renamed(python, tmp_path):
    argv, env, path = copy(python, tmp_path, name="engine-worker")
    with running(argv, env) as (process, truth):
        assert check(ProcTarget(process.pid), truth).library.path == path


@pytest.mark.parametrize("way", ["gone", "replaced", "gone, its file not to be opened"])
@pytest.mark.parametrize("python", PYTHONS[:1] + PYTHONS[2:3] + PYTHONS[-1:], ids=os.path.basename)
def test_deleted(python, way, tmp_path, monkeypatch):
    argv, env, path = copy(python, tmp_path)
    with running(argv, env) as (process, truth):
        os.remove(path)
        if way == "replaced":
            shutil.copy(shutil.which("sleep"), path)
        if "opened" in way:
            monkeypatch.setattr(ProcTarget, "deleted_file", lambda self, path, base: "")
        target = ProcTarget(process.pid)
        rt = check(target, truth)
        assert rt.library.path == path + " (deleted)"
        assert rt.library.elf.build_id and rt.library.symbol("PyUnicode_Type")


def kernel_core(process, folder):
    with open("/proc/sys/kernel/core_pattern") as f:
        if not re.fullmatch(r"core(\.%p)?\s*", f.read()):
            pytest.skip("the kernel writes no core files here")
    process.send_signal(signal.SIGABRT)
    process.wait(60)
    found = [name for name in os.listdir(folder) if name.startswith("core")]
    if not found:
        pytest.skip("the kernel wrote no core file")
    return os.path.join(str(folder), found[0])


@pytest.mark.parametrize("bits", ["0x33", "0x21", "0x1", "0x7f", "0x30"])
def test_cores_of_the_kernel_trimmed_by_coredump_filter(bits, tmp_path):
    def unlimited():
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        with open("/proc/self/coredump_filter", "w") as f:
            f.write(bits)

    with running([PYTHONS[2 % len(PYTHONS)]], {}, preexec_fn=unlimited, cwd=str(tmp_path)) as (process, truth):
        core = kernel_core(process, tmp_path)
    if int(bits, 16) & 1:
        check(CoreFileTarget(core), truth)
    else:  # without private memory there is no Python in it: that is said
        with pytest.raises(GdbextError, match="(not in the core|trimmed)") as e:
            open_runtime(CoreFileTarget(core))
        assert "\n" not in str(e.value)


def test_a_core_whose_interpreter_is_gone_or_another_says_so_and_sysroot_finds_it(gdb, tmp_path):
    argv, env, path = copy(PYTHONS[2 % len(PYTHONS)], tmp_path)

    def limited():
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        with open("/proc/self/coredump_filter", "w") as f:
            f.write("0x33")

    with running(argv, env, preexec_fn=limited, cwd=str(tmp_path)) as (process, truth):
        core = kernel_core(process, tmp_path)
    check(CoreFileTarget(core), truth)
    root = str(tmp_path / "root")
    os.makedirs(root + os.path.dirname(path))
    os.rename(path, root + path)
    ran = gdb(["pybt -all -json", f"set sysroot {root}", "pybt -all -json"], ["-c", core], before=["set auto-solib-add off"])
    assert os.path.basename(path) in ran.outputs[0] and not ran.outputs[0].startswith("{")
    found = {str(thread["tid"]): [[f["function"], f["file"], f["line"]] for f in thread["frames"]] for thread in ran.json(2)["threads"]}
    assert {tid: [f[:3] for f in frames] for tid, frames in truth["threads"].items()}.items() <= found.items()
    with pytest.raises(GdbextError, match=re.escape(os.path.basename(path))) as gone:
        open_runtime(CoreFileTarget(core))
    shutil.copy(sys.executable, path)
    with pytest.raises(GdbextError) as other:
        open_runtime(CoreFileTarget(core))
    assert "\n" not in str(gone.value) + str(other.value)
