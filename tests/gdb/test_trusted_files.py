"""Only the file that a process has mapped gives symbols and unwind tables, only from the process's own root, and only regular
files are read."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest
from harness.answers import answer, run
from harness.cxx_names import doubling
from harness.gdb_run import run_gdb
from harness.heartbeats import asleep
from harness.subjects import spawned

from gdbext.access import elf, files, identity, in_root, ptrace
from gdbext.access.collect import collect
from gdbext.access.proc import ProcTarget, process_root
from gdbext.access.snapshot import CoreFileTarget
from gdbext.errors import GdbextError
from gdbext.stacks.threads import ProcessView

READER = "gdbext.stacks.prefetch"
LIBRARY = """
#include <unistd.h>
%s
__attribute__((noinline)) int %s(void) { for (;;) pause(); }
__attribute__((noinline)) int entry(int n) { volatile char room[%d]; room[n] = 1; return %s() + room[n]; }
"""
PADDING = """
__attribute__((noinline)) int pad(int n) { volatile int x = n; while (x > 0) x -= 3; return x; }
int pad2(int n) { return pad(n) * 3; }
"""


def built(path, function, padding="", room=100, flags=()):
    source = LIBRARY % (padding, function, room, function)
    command = ["gcc", "-O1", "-fno-toplevel-reorder", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), *flags]
    subprocess.run(command, input=source.encode(), check=True)


def waiting(library, **options):
    code = f"import ctypes\nlib = ctypes.CDLL({str(library)!r})\nprint('up', flush=True)\nlib.entry(3)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, **options)
    assert process.stdout.readline() == b"up\n"
    assert asleep(process.pid)
    return process


@pytest.fixture
def library(tmp_path):
    path = tmp_path / "libfoo.so"
    built(path, "inside")
    return path


def native(target):
    """{function: (reliable)} of the main thread's frames in libfoo.so, and what is said of them."""
    view = ProcessView(target)
    frames = [f for f in view.main.native if os.path.basename(f.library) == "libfoo.so"]
    return [(f.function, f.reliable) for f in frames], view.partial


@pytest.mark.parametrize("flags", [(), ("-Wl,--build-id=none",)])
def test_another_build_at_the_same_path_is_refused_by_name(library, tmp_path, flags):
    built(library, "inside", flags=flags)
    process = waiting(library)
    try:
        file = str(tmp_path / "snapshot")
        collect(process.pid, file, READER)
        assert native(CoreFileTarget(file)) == ([("inside", True), ("entry", True)], [])
        built(tmp_path / "new.so", "outside", PADDING, 3000, flags)
        os.replace(tmp_path / "new.so", library)
        frames, partial = native(CoreFileTarget(file))
        assert frames and not any(function for function, _ in frames)
        assert any(str(library) in reason and "not the file that is mapped" in reason for reason in partial)
        for command in (f"llm-stacks {file} -json", f"llm-bt -on {file} -json -all"):
            assert any("not the file that is mapped" in reason for reason in answer(command)["partial"]), command
        # The process itself still has the old one: its own pieces tell, though the file has no name any more.
        live = str(tmp_path / "live")
        collect(process.pid, live, READER)
        view = ProcessView(ProcTarget(process.pid))
        module = next(m for m in view.target.modules() if "libfoo" in m.path)
        assert module.symbol("inside") and module.elf.symbol("outside") is None
    finally:
        process.kill()
        process.communicate()


def test_a_file_that_differs_in_nothing_but_its_symbols_is_another(library, tmp_path):
    """Without a build-id, with the same headers and tables of the same size at the same places: two functions of one length have
    changed their names. In a snapshot, and live where another file system's file has come over the path."""
    flags = ("-Wl,--build-id=none", "-fno-ident")
    twin = "__attribute__((noinline)) int {}(void) {{ for (;;) pause(); }}".format
    built(library, "inside", twin("beside"), flags=flags)
    built(tmp_path / "new.so", "beside", twin("inside"), flags=flags)
    assert os.path.getsize(library) == os.path.getsize(tmp_path / "new.so")
    process = waiting(library)
    try:
        file = str(tmp_path / "snapshot")
        collect(process.pid, file, READER)
        assert native(CoreFileTarget(file)) == ([("inside", True), ("entry", True)], [])
        live = ProcTarget(process.pid)
        (module,) = [m for m in live.modules() if m.name == "libfoo.so"]
        module.file = str(tmp_path / "new.so")
        assert module.symbol("inside") and not module.elf.has_static_symbols  # made out of what is mapped
        os.replace(tmp_path / "new.so", library)
        frames, partial = native(CoreFileTarget(file))
        assert not any(function for function, _ in frames)
        assert any("its symbols or its code differ" in reason and str(library) in reason for reason in partial)
    finally:
        process.kill()
        process.communicate()


SAME_TABLES = """
#include <unistd.h>
__attribute__((noinline)) static int one(int n) { for (;;) { pause(); if (n == %d) return 1; } }
__attribute__((noinline)) int %s(int n) { return one(n) + %s; }
"""


@pytest.mark.parametrize(
    "old, new",
    [((1, "entry", "1"), (1, "retry", "1")), ((1, "entry", "1"), (2, "entry", "1")), ((1, "entry", "1"), (1, "entry", "2"))],
    ids=["a name", "a number in a function", "code alone"],
)
def test_a_file_that_differs_in_names_or_in_code_alone_is_another(tmp_path, old, new):
    """Without a build-id; headers, dynamic section and symbol tables are the same byte for byte, but for names of one length or
    a number in the code. A debugger's breakpoints make no other file of it."""
    library, other = tmp_path / "libfoo.so", tmp_path / "new.so"
    for path, words in ((library, old), (other, new)):
        flags = ["-O1", "-shared", "-fPIC", "-fno-ident", "-Wl,--build-id=none", "-Wl,--hash-style=sysv"]
        subprocess.run(["gcc", *flags, "-x", "c", "-", "-o", str(path)], input=(SAME_TABLES % words).encode(), check=True)
    assert os.path.getsize(library) == os.path.getsize(other)
    process = waiting(library)
    try:
        file = str(tmp_path / "snapshot")
        collect(process.pid, file, READER)
        module = next(m for m in ProcTarget(process.pid).modules() if m.name == "libfoo.so")
        for path, verdict in ((library, identity.SAME), (other, identity.OTHER)):
            for memory in (ProcTarget(process.pid), CoreFileTarget(file)):
                assert identity.compare(elf.open_elf(str(path)), memory, module.base)[0] == verdict, (path, memory.kind)
        with ptrace.Stopped(process.pid), open(f"/proc/{process.pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(module.base + elf.open_elf(str(library)).symbol("entry"))
            memory.write(b"\xcc")
        assert identity.compare(elf.open_elf(str(library)), ProcTarget(process.pid), module.base)[0] == identity.SAME
        os.replace(other, library)
        frames, partial = native(CoreFileTarget(file))
        assert not any(function for function, _ in frames)
        assert any("its symbols or its code differ" in reason for reason in partial)
    finally:
        process.kill()
        process.communicate()


def test_a_file_that_nothing_vouches_for_makes_frames_unreliable(library, tmp_path, monkeypatch):
    process = waiting(library)
    try:
        file = str(tmp_path / "snapshot")
        collect(process.pid, file, READER)
    finally:
        process.kill()
        process.communicate()
    target = CoreFileTarget(file)
    base = next(m for m in target.modules() if m.name == "libfoo.so")
    own = target.read_own

    def lost(address, size):
        if base.base <= address < base.end:
            raise files.NotFoundError("not in the core")
        return own(address, size)

    monkeypatch.setattr(target, "read_own", lost)
    frames, partial = native(target)
    assert frames[0] == ("inside", False)
    assert any("nothing in snapshot" in reason and str(library) in reason for reason in partial)


CLONE_NEWNS, CLONE_NEWUSER, MS_REC, MS_PRIVATE, MS_BIND = 0x20000, 0x10000000, 0x4000, 0x40000, 0x1000


def own_mounts(over, what):
    """For a child: another mount namespace in which the folder `what` is mounted over `over`."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter():
        if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
            raise OSError(ctypes.get_errno(), "unshare")
        if libc.mount(os.fsencode(what), os.fsencode(over), None, MS_BIND, None):
            raise OSError(ctypes.get_errno(), "mount")

    return enter


def test_the_files_of_a_container_are_read_from_the_hosts_side(tmp_path):
    """Another mount namespace, with another library at the same path: live, in a snapshot while it lives, and refused after its
    end."""
    here, inside = tmp_path / "lib", tmp_path / "inside"
    here.mkdir(), inside.mkdir()
    built(here / "libfoo.so", "of_the_host", PADDING, 3000)
    built(inside / "libfoo.so", "of_the_container")
    try:
        process = waiting(here / "libfoo.so", preexec_fn=own_mounts(here, inside))
    except (subprocess.SubprocessError, OSError):
        pytest.skip("no permission to make a mount namespace")
    try:
        assert process_root(process.pid) == f"/proc/{process.pid}/root" and process_root(os.getpid()) == ""
        file = str(tmp_path / "snapshot")
        collect(process.pid, file, READER)
        assert native(CoreFileTarget(file)) == ([("of_the_container", True), ("entry", True)], [])
    finally:
        process.kill()
        process.communicate()
    frames, partial = native(CoreFileTarget(file))
    assert not any(function for function, _ in frames) and any("not the file that is mapped" in reason for reason in partial)


def test_a_snapshot_names_no_root_of_its_own_choice(library, tmp_path):
    process = waiting(library)
    try:
        file = str(tmp_path / "snapshot")
        collect(process.pid, file, READER)
        target = CoreFileTarget(file)
        for note in ({"pid": 1, "start": 0, "boot": "x"}, {"pid": "/etc", "start": None, "boot": ""}, "/", ["/"], 7, None):
            target.note["root"] = note
            assert target.root() == ""
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_a_source_that_is_no_file_is_not_waited_for(tmp_path, kind):
    """co_filename is a FIFO, or a device that never ends."""
    path = "/dev/zero"
    if kind == "fifo":
        path = str(tmp_path / "fifo.py")
        os.mkfifo(path)
    text = "import time\ndef wait():\n    print('up', flush=True)\n    time.sleep(1000)\nwait()\n"
    with spawned([sys.executable, "-c", f"exec(compile({text!r}, {path!r}, 'exec'))"], ready="up") as process:
        words = [sys.executable, "-m", "gdbext"]
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        for command in ("pylist", "pyframe", "pylocals", "llm-locks"):
            asked = [*words, command, str(process.pid)] if command == "llm-locks" else [*words, command, "-on", str(process.pid)]
            done = subprocess.run(asked, cwd=root, capture_output=True, text=True, timeout=60, check=False)
            assert "Traceback" not in done.stderr
            if command == "pylist":
                assert "not a regular file" in done.stderr


def test_links_of_a_container_end_inside_it(tmp_path, library):
    root = tmp_path / "root"
    (root / "lib").mkdir(parents=True)
    shutil.copy(library, root / "lib" / "real.so")
    (root / "lib" / "libfoo.so").symlink_to("/lib/real.so")
    (root / "lib" / "out.so").symlink_to(str(library))
    assert in_root.resolve(str(root), "/lib/libfoo.so") == f"{root}/lib/real.so"
    assert not os.path.exists(in_root.resolve(str(root), "/lib/out.so"))


NAMES_A_SOURCE = """
import sys, time, types
def rests():
    time.sleep(900)
print("up", flush=True)
types.FunctionType(rests.__code__.replace(co_filename=sys.argv[1], co_firstlineno=1), globals())()
"""
NOBODY = 54321


@pytest.fixture
def kept(tmp_path):
    """-> (a folder that all may enter, a file in it that root alone may read)"""
    if os.geteuid() or not shutil.which("setpriv"):
        pytest.skip("only root may read what others may not, and become somebody else by setpriv")
    for outer in [tmp_path, *tmp_path.parents]:
        if str(outer).startswith("/tmp/"):
            outer.chmod(0o755)
    (tmp_path / "kept.py").write_text("the words of root alone\n" * 20)
    (tmp_path / "kept.py").chmod(0o600)
    return tmp_path, tmp_path / "kept.py"


WAYS = ["itself", "a link", "by its own root", "by dots", "by the debugger's descriptors", "in a folder", "in an archive"]


@pytest.mark.parametrize("way", WAYS)
def test_no_source_is_shown_that_the_process_s_user_may_not_read(kept, way, gdb_path):
    """Of another user's process, which names it as its source: live, in a snapshot, in gdb."""
    folder, file = kept
    (folder / "open").mkdir()
    (folder / "closed").mkdir(mode=0o700)
    (folder / "link.py").symlink_to(file)
    shutil.copy(file, folder / "closed" / "mine.py")
    (folder / "closed" / "mine.py").chmod(0o644)
    with zipfile.ZipFile(folder / "kept.zip", "w") as archive:
        archive.write(file, "kept.py")
    (folder / "kept.zip").chmod(0o600)
    named = {
        "itself": str(file),
        "a link": str(folder / "link.py"),
        "by its own root": f"/proc/self/root{file}",
        "by dots": f"{folder}/open/../kept.py",
        "by the debugger's descriptors": f"/proc/{os.getpid()}/fd/%d",
        "in a folder": str(folder / "closed" / "mine.py"),
        "in an archive": str(folder / "kept.zip" / "kept.py"),
    }[way]
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "/usr/bin/python3", "-c", NAMES_A_SOURCE]
    with open(file) as held, spawned([*words, named.replace("%d", str(held.fileno()))], ready="up", cwd="/") as process:
        answer(f"llm-snapshot {process.pid} -o {folder}/shot -json")
        for on in (process.pid, folder / "shot"):
            for line in (f"pylist -on {on}", f"pybt -all -locals -on {on}", f"llm-stacks {on}"):
                try:
                    said = run(line).to_text()
                except GdbextError as e:
                    said = str(e)
                assert "the words of root" not in said, (line, said)
        said = run_gdb(gdb_path, ["pylist"], ["-p", str(process.pid)], before=["set auto-solib-add off"]).text
        assert "the words of root" not in said, said
    with spawned(["/usr/bin/python3", "-c", NAMES_A_SOURCE, str(file)], ready="up", cwd="/") as process:
        assert "the words of root" in run(f"pylist -on {process.pid}").to_text(), "its own user's: the test shows nothing"


def test_names_that_stand_for_endless_text_are_bounded_at_each_door(tmp_path):
    """C++ names of functions in a library of the process."""
    for name in (doubling(22), doubling(14, 3)):
        built(tmp_path / "libfoo.so", name)
        process = waiting(tmp_path / "libfoo.so")
        try:
            answer(f"llm-snapshot {process.pid} -o {tmp_path}/shot -force -json")
            doors = ["llm-stacks {}", f"llm-stacks {tmp_path}/shot", f"llm-bt -all -on {tmp_path}/shot"]
            for line in [*doors, "llm-record -for 0.3 -native {}"]:
                said = json.dumps(answer(line.format(process.pid) + " -json"))
                assert name in said, line
            answer(f"llm-hang -wait 0 {process.pid} -json")
            answer(f"llm-locks {process.pid} -json")
        finally:
            process.kill()
            process.communicate()
