"""A torch that the table does not know: its row is made from the headers beside its libtorch, equals the table's, and is kept."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from harness.heartbeats import eventually
from harness.subjects import spawned

from gdbext.access.proc import ProcTarget
from gdbext.access.snapshot import CoreFileTarget
from gdbext.commands import table
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import LayoutError
from gdbext.session.session import Session
from gdbext.setup import outside
from gdbext.torch import headers, layout


@pytest.fixture(scope="module")
def target(torch_python):
    with spawned(
        [torch_python, "-c", "import torch, time; print('ready', flush=True); time.sleep(600)"], ready="ready"
    ) as process:
        found = ProcTarget(process.pid)
        yield found
        found.close()


@pytest.fixture
def unknown(target, monkeypatch, tmp_path):
    """-> (version, the table's row): this torch's minor is not in the table, and nothing is kept yet."""
    version = layout.torch_version(target, open_runtime(target))
    row = layout._rows()[layout.minor_of(version)]
    monkeypatch.setattr(layout, "_loaded", {k: v for k, v in layout._rows().items() if v is not row})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    target.invalidate()
    return version, row


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++ here")
def test_the_row_made_from_its_own_headers_is_the_tables_and_is_kept(target, unknown, tmp_path, monkeypatch):
    version, row = unknown
    made = layout.for_process(target, open_runtime(target))
    assert made.minor == layout.minor_of(version)
    wanted = {k: v for k, v in row.items() if k not in ("release", "from")}
    assert json.loads(json.dumps(made.row)) == json.loads(json.dumps(wanted))
    (kept,) = (tmp_path / "gdbext" / "torch-rows").iterdir()
    assert kept.stem in {m.build_id for m in target.modules() if m.name == "libtorch_cpu.so"}
    before = kept.stat().st_mtime_ns
    time.sleep(0.01)
    monkeypatch.setattr(headers, "make_row", None)  # the second time nothing is compiled
    target.invalidate()
    assert layout.for_process(target, open_runtime(target)).row == made.row and kept.stat().st_mtime_ns == before


def test_without_a_compiler_it_is_refused_by_name_with_what_is_missing(target, unknown, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LayoutError, match=r"torch \S+ has no layout here .*needs g\+\+ and gdb; make it with") as e:
        layout.for_process(target, open_runtime(target))
    assert "\n" not in str(e.value)


def made_headers(folder, text):
    """An include folder whose TensorImpl.h is `text`."""
    core = folder / "include" / "c10" / "core"
    os.makedirs(core)
    (core / "TensorImpl.h").write_text(text)
    return folder / "include"


def beside(monkeypatch, include):
    """The process's libtorch seems to have `include` beside it."""
    real = headers._beside

    def found(target, is_it, wanted, file):
        own = real(target, is_it, wanted, file)
        return (str(include), own[1]) if wanted == "include" else own

    monkeypatch.setattr(headers, "_beside", found)


STRANGERS = {
    "a header that anybody may write": lambda include: os.chmod(include / "c10/core/TensorImpl.h", 0o666),
    "a folder that anybody may write": lambda include: os.chmod(include / "c10", 0o777),
    "a folder above": lambda include: os.chmod(include.parent, 0o777),
    "a link": lambda include: (include / "x.h").symlink_to("/etc/hostname"),
    "another user's header": lambda include: os.chown(include / "c10/core/TensorImpl.h", 65534, 65534),
}


@pytest.mark.parametrize("what", STRANGERS)
def test_headers_that_somebody_else_may_have_written_are_not_compiled(what, target, unknown, monkeypatch, tmp_path):
    if what.startswith("another") and os.geteuid():
        pytest.skip("only root gives files away")
    include, ran = made_headers(tmp_path, '#include "/etc/passwd"\n'), []

    def run(words):
        ran.append(words)
        raise LayoutError("it ran")

    STRANGERS[what](include)
    beside(monkeypatch, include)
    monkeypatch.setattr(headers, "run", run)
    with pytest.raises(LayoutError, match="its own headers are not compiled, because .*: where you trust them, start with") as e:
        layout.for_process(target, open_runtime(target))
    assert ran == [] and "\n" not in str(e.value) and f"{headers.TRUSTED}={include}" in str(e.value)
    if shutil.which("g++"):
        monkeypatch.setenv(headers.TRUSTED, f"/nowhere:{tmp_path}")
        target.invalidate()
        with pytest.raises(LayoutError, match="it ran"):
            layout.for_process(target, open_runtime(target))


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++ here")
def test_a_header_that_never_ends_does(target, unknown, monkeypatch, tmp_path):
    include = made_headers(tmp_path, f'#include "{tmp_path}/fifo"\n')
    os.mkfifo(tmp_path / "fifo", 0o600)
    beside(monkeypatch, include)
    monkeypatch.setattr(headers, "SECONDS", 2)
    with pytest.raises(LayoutError, match=r"g\+\+ did not end in 2 s"):
        layout.for_process(target, open_runtime(target))
    eventually(lambda: not is_read(tmp_path / "fifo"), "the compiler's end")


def is_read(fifo):
    """Whether somebody has a FIFO open to read it."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++ here")
def test_headers_that_do_not_compile_are_told_in_one_line(target, unknown, monkeypatch, tmp_path):
    beside(monkeypatch, made_headers(tmp_path, "#error broken\n"))
    with pytest.raises(LayoutError, match="failed on the probe of torch's headers") as e:
        layout.for_process(target, open_runtime(target))
    assert "\n" not in str(e.value)


# ---- a process that says that it has torch 9.9, and brings a libtorch with headers --------------------------------------
CLAIMS = """
import ctypes, os, sys, types
sys.modules["torch"], sys.modules["torch.version"] = torch, version = types.ModuleType("torch"), types.ModuleType("torch.version")
version.__version__ = "9.9.0"
if sys.argv[2]:
    os.setgroups([]), os.setgid(int(sys.argv[2])), os.setuid(int(sys.argv[2]))
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: as a process that was started by that user
kept = ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""


def built(folder, source):
    """A libtorch that is made of `source`, beside headers that name a secret file."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    os.makedirs(folder / "lib", exist_ok=True)
    new = folder / "lib" / "new.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", new], input=source, text=True, check=True)
    os.replace(new, folder / "lib" / "libtorch_cpu.so")
    if not (folder / "include").exists():
        made_headers(folder, f'#include "{folder}/secret"\n')
        (folder / "secret").write_text("a-secret-of-root\n")
    return folder


def claiming(folder, uid="", before=()):
    """A process that has mapped the libtorch of a folder, as another user where one is named."""
    return spawned([*before, sys.executable, "-c", CLAIMS, folder / "lib" / "libtorch_cpu.so", uid], ready="ready")


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """What would have been started, and nothing is; nothing is kept from before."""
    ran = []

    def run(words):
        ran.append(words)
        raise LayoutError("it ran")

    monkeypatch.setattr(headers, "run", run)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(headers.shutil, "which", lambda name: "/usr/bin/" + name)
    return ran


def refusal(target):
    """Why there is no layout for a process."""
    target.invalidate()
    with pytest.raises(LayoutError) as e:
        layout.for_process(target, open_runtime(target))
    assert "\n" not in str(e.value)
    return str(e.value)


def test_headers_beside_another_build_than_the_one_that_is_looked_at_are_not_compiled(tmp_path, compiled):
    """A colleague's snapshot, and a process whose torch was installed anew while it runs: the headers are not of its torch, and a
    row of them would be kept for every process that has."""
    folder = built(tmp_path / "torch", "int one(void) { return 1; }")
    with claiming(folder) as process:
        status, _, err = outside.perform(table.load("llm-snapshot"), f"{process.pid} -o {tmp_path / 'snapshot'}", Session())
        assert status in (0, 3), err
        for target in (ProcTarget(process.pid), CoreFileTarget(str(tmp_path / "snapshot"))):
            assert "it ran" in refusal(target) and compiled  # they are its own, and ours
            compiled.clear()
        built(folder, "int two(int n) { return n + 2; }")
        said = refusal(CoreFileTarget(str(tmp_path / "snapshot")))
        assert "not compiled, because nothing proves that they are its own" in said and "libtorch_cpu.so" in said, said
        assert "no headers beside its libtorch" in refusal(ProcTarget(process.pid))  # whose file has no name any more
    assert not compiled


@pytest.mark.skipif(os.geteuid() != 0, reason="a process of another user, started by root")
def test_another_users_process_has_root_compile_nothing(tmp_path, compiled):
    """By no command: its headers would show root's files in the compiler's errors."""
    for above in (tmp_path, *tmp_path.parents):
        if os.stat(above).st_mode & 0o001 == 0:
            os.chmod(above, os.stat(above).st_mode | 0o011)
    folder = built(tmp_path / "torch", "int one(void) { return 1; }")
    for at, folders, files in os.walk(folder):
        for name in (at, *(os.path.join(at, one) for one in folders + files if one != "secret")):
            os.chown(name, 65534, 65534)
    with claiming(folder, "65534") as process:
        for command in ("pytensors", "pytensor 0x10000", "pyprint torch", "llm-addr 0x10000"):
            for more in ("", " -json"):
                name, _, rest = command.partition(" ")
                status, out, err = outside.perform(table.load(name), f"{rest} -on {process.pid}{more}", Session())
                assert "a-secret" not in out + err and "Traceback" not in out + err, (command, out, err)
                if command == "pytensors":
                    assert status == 1 and "belongs to user 65534" in out + err, (status, out, err)
    assert not compiled


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="only root makes mount namespaces")
def test_headers_of_a_container_are_the_containers_to_arrange(tmp_path, compiled):
    """Though they belong to root in there."""
    folder = built(tmp_path / "torch", "int one(void) { return 1; }")
    with claiming(folder, before=["unshare", "-m"]) as process:
        said = refusal(ProcTarget(process.pid))
        assert "is in a root of the process's own" in said and not compiled
