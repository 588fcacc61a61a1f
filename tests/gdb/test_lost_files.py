"""Processes and cores whose files are not where they were: a core whose interpreter is gone, a chroot. And what is refused by its
reason: compressed, 32-bit and cut files."""

import os
import re
import shlex
import shutil
import struct
import subprocess
import zipfile

import pytest
from harness import own_root
from harness.answers import answer, run
from harness.heartbeats import eventually
from harness.subjects import PYTHONS, copy, kernel_core, minor, spawned, unlimited_core

from gdbext.access.snapshot import CoreFileTarget
from gdbext.errors import GdbextError

PROGRAM = """
import os, sys, threading, time
def leaf(seconds): time.sleep(seconds)
def middle(seconds): leaf(seconds)
def outer(seconds): middle(seconds)
threading.Thread(target=outer, args=(900,), name="helper", daemon=True).start()
while not any(f.f_code.co_name == "leaf" for f in sys._current_frames().values()): time.sleep(0.001)
VALUES = {"a": [1, 2.5, None, True], "b": (b"x", {3}, 4 + 5j)}
print("ready", os.getpid(), flush=True)
time.sleep(900)
"""
VALUES = repr({"a": [1, 2.5, None, True], "b": (b"x", {3}, 4 + 5j)})
HELPER = ["leaf", "middle", "outer", "Thread.run", "Thread._bootstrap_inner", "Thread._bootstrap"]
NEW = [p for p in PYTHONS if minor(p) >= 13]


def core_without_files(python, folder):
    """-> the path of a core whose interpreter's file is gone."""
    home = folder / "program"
    home.mkdir()
    argv, env, path = copy(python, home)
    with spawned([*argv, "-c", PROGRAM], ready="ready", cwd=folder, preexec_fn=unlimited_core, env={**os.environ, **env}) as p:
        core = kernel_core(p, folder)
    if core is None:
        pytest.skip("the kernel writes no core here")
    shutil.rmtree(home)
    return core


@pytest.mark.parametrize("python", NEW, ids=os.path.basename)
def test_a_core_of_a_lost_interpreter_tells_its_python_stacks(python, tmp_path):
    core = core_without_files(python, tmp_path)
    expected = [name.rpartition(".")[2] for name in HELPER]
    stacks = [[f["function"].rpartition(".")[2] for f in th["frames"]] for th in answer(f"pybt -all -on {core}")["threads"]]
    assert expected in stacks
    assert answer(f"pyprint -on {core} __main__:VALUES")["repr"] == VALUES
    assert answer(f"pyprint -on {core} __main__:outer")["repr"].startswith("<function outer at 0x")


def test_a_process_in_a_chroot_is_read(tmp_path):
    """The kernel writes its paths as seen from our root: the chroot's folder stands before each."""
    python = shutil.which("python3", path="/usr/bin:/bin")
    if os.geteuid() != 0 or not python:
        pytest.skip("needs root, and a python3 in /usr/bin")
    folder = str(tmp_path / "root")
    os.mkdir(folder)
    there = own_root.copied_python(python, folder)
    alone, inside = ["chroot", folder], ["unshare", "--mount", "chroot", folder]
    for words in (alone, inside):
        with spawned([*words, there, "-S", "-E", "-c", PROGRAM], ready="ready") as process:
            pid = int(process.said.split()[1])
            live = answer(f"pybt -all -on {pid}")["threads"]
            copied = answer(f"llm-stacks {pid}")["groups"]
            names = [f["function"] for f in answer(f"llm-bt -all -on {pid}")["threads"][0]["frames"]]
            assert [f["function"] for f in next(th for th in live if th["name"] == "helper")["frames"]] == HELPER
            assert any([f["function"] for f in g["frames"] if f["kind"] == "python"] == HELPER for g in copied)
            assert names[-1] == "<module>"


def test_a_process_that_went_into_a_chroot_itself_is_read(tmp_path):
    """Its own files lie outside the folder that has become its root."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    code = f"import os, threading; os.chroot({str(tmp_path)!r})\n" + PROGRAM
    with spawned([PYTHONS[-1], "-c", code], ready="ready") as process:
        live = answer(f"pybt -all -on {process.pid}")["threads"]
    assert [f["function"] for f in next(th for th in live if th["name"] == "helper")["frames"]] == HELPER


# ---- refused by its reason -------------------------------------------------------------------------------------------
def refused(line):
    with pytest.raises(GdbextError) as caught:
        run(line)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "name,words", [("gzip", ["gzip", "-c"]), ("zstd", ["zstd", "-qc"]), ("lz4", ["lz4", "-qc"]), ("xz", ["xz", "-c"])]
)
def test_a_compressed_core_is_named_with_the_line_that_unpacks_it(name, words, tmp_path):
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}")
    plain, packed, again = tmp_path / "core", tmp_path / "the core.packed", tmp_path / "again"
    plain.write_bytes(b"\x7fELF\x02\x01" + bytes(1000))
    packed.write_bytes(subprocess.run([*words, str(plain)], stdout=subprocess.PIPE, check=True).stdout)
    with pytest.raises(GdbextError) as caught:
        CoreFileTarget(str(packed))
    said = str(caught.value)
    assert f"compressed by {name}; unpack it: " in said
    subprocess.run(["sh", "-c", said.partition("unpack it: ")[2].replace("FILE", shlex.quote(str(again)))], check=True)
    assert again.read_bytes() == plain.read_bytes()


def test_a_32_bit_process_is_called_one(tmp_path):
    """A program of nine bytes: pause(2), for ever."""
    code, base = b"\xb8\x1d\0\0\0\xcd\x80\xeb\xf7", 0x8048000
    head = struct.pack("<16sHHIIIIIHHHHHH", b"\x7fELF\1\1\1", 2, 3, 1, base + 84, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    segment = struct.pack("<8I", 1, 0, base, base, 84 + len(code), 84 + len(code), 5, 4096)
    program = tmp_path / "program"
    program.write_bytes(head + segment + code)
    program.chmod(0o755)
    try:
        process = subprocess.Popen([str(program)])
    except OSError:
        pytest.skip("this kernel runs no 32-bit programs")
    try:
        assert refused(f"pybt -on {process.pid}") == f"process {process.pid} is a 32-bit process: 64-bit ones are read"
    finally:
        process.kill()
        process.wait()


def test_pypy_is_called_pypy(tmp_path):
    """A stand-in: a library of PyPy's name that has the function by which programs start it."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    source, library = tmp_path / "pypy.c", tmp_path / "libpypy3.9-c.so"
    source.write_text("int rpython_startup_code(void) { return 0; }")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    with spawned(["sleep", "900"], env={**os.environ, "LD_PRELOAD": str(library)}) as process:
        eventually(lambda: "libpypy" in open(f"/proc/{process.pid}/maps").read(), "the library")
        assert "runs PyPy (libpypy3.9-c.so): only CPython's objects can be read" in refused(f"pybt -on {process.pid}")


def test_a_program_without_python_is_not_called_anything_else():
    with spawned(["sleep", "900"]) as process:
        eventually(lambda: open(f"/proc/{process.pid}/comm").read() == "sleep\n", "the program")
        said = refused(f"pybt -on {process.pid}")
    assert "runs no CPython that can be found (looked in " in said and "PyPy" not in said


def test_a_cut_core_is_called_cut(tmp_path):
    python = PYTHONS[0]
    with spawned([python, "-c", PROGRAM], ready="ready", cwd=tmp_path, preexec_fn=unlimited_core) as process:
        core = kernel_core(process, tmp_path)
    if core is None:
        pytest.skip("the kernel writes no core here")
    for size, said in ((40, "cut short"), (3000, "cut short"), (200_000, "cut")):
        cut = tmp_path / f"cut-{size}"
        with open(core, "rb") as f:
            cut.write_bytes(f.read(size))
        assert said in refused(f"pybt -on {cut}")


@pytest.mark.parametrize("how", ["app.pyz", "lib.zip"])
def test_source_in_an_archive_is_shown(how, tmp_path):
    archive, source = (
        tmp_path / how,
        "import time\n\n\ndef leaf():\n    print('ready', flush=True)\n    time.sleep(900)  # here\n",
    )
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("inner/__init__.py", "")
        made.writestr("inner/deep.py", source)
        made.writestr("__main__.py", "import inner.deep\ninner.deep.leaf()\n")
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); import inner.deep; inner.deep.leaf()"
    with spawned([PYTHONS[-1], *([str(archive)] if how == "app.pyz" else ["-c", code])], ready="ready") as process:
        shown = run(f"pylist -on {process.pid}").to_text()
    assert "time.sleep(900)  # here" in shown and re.search(r"> +6 ", shown), shown
