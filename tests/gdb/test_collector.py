"""The collector on running processes, and cores of the kernel, of gdb and of the collector read alike without gdb."""

import contextlib
import json
import os
import re
import resource
import signal
import struct
import subprocess
import sys

import pytest
from harness.heartbeats import asleep, busy, eventually, heartbeats, stop
from harness.subjects import spawned

from gdbext.access import elf, ptrace
from gdbext.access.collect import Running, collect
from gdbext.access.snapshot import CoreFileTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import FaultError, GdbextError

READER = "gdbext.cpython.prefetch"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

SUBJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subjects", "parked.py")


def told(process):
    """{tid: [[function, line]]} that a subject says of itself, once all its threads have gone to sleep."""
    truth = {int(tid): stack for tid, stack in json.loads(process.said).items()}
    assert asleep(process.pid)
    return truth


@pytest.fixture
def parked():
    """(pid, {tid: [[function, line]]}) as the process says of itself."""
    with spawned([sys.executable, SUBJECT, "word one", "\x1b[2J"], ready="{") as process:
        yield process.pid, told(process)


def python_stacks(target):
    rt = open_runtime(target)
    found = {}
    for th in rt.threads():  # a thread that is just being started has its starter's tid: the first counts
        found.setdefault(th.tid, [[f.function.rpartition(".")[2], f.line] for f in rt.frames(th)])
    return found


@contextlib.contextmanager
def traced_by_another(pid):
    """Another process traces it, and lets it run."""
    code = "import sys; from gdbext.access import ptrace; ptrace.call(ptrace.SEIZE, int(sys.argv[1])); print('on'); input()"
    with spawned([sys.executable, "-u", "-c", code, str(pid)], ready="on", cwd=ROOT) as tracer:
        yield tracer


def state(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(") ")[2][0]


STARVED = """
import json, mmap, struct, sys
from gdbext.access import ptrace
from gdbext.access.collector import take
from gdbext.errors import GdbextError
count = mmap.mmap(-1, 4096)  # shared with the process that stops the threads
waits, late = ptrace.Stopped._wait, int(sys.argv[3])
def wait(stopped, deadline):
    number = struct.unpack_from("I", count)[0] + 1
    struct.pack_into("I", count, 0, number)
    if number <= late:
        stopped.stray = set(stopped._seized)
    else:
        waits(stopped, deadline)
ptrace.Stopped._wait = wait
ptrace.blocked_registers = lambda *_: None  # here it does stop, soon, and would have some
try:
    found = take(int(sys.argv[1]), sys.argv[2], "gdbext.cpython.prefetch")
except GdbextError as e:
    found = {"error": str(e)}
print(json.dumps({**found, "tries": struct.unpack_from("I", count)[0]}))
"""


def test_a_process_that_gets_no_processor_to_stop_on_is_stopped_again(tmp_path, root):
    with spawned([sys.executable, "-u", "-c", "print('on')\nwhile True: pass"], ready="on") as process:

        def taken(late):
            words = [sys.executable, "-c", STARVED, str(process.pid), str(tmp_path / "copy"), str(late)]
            return json.loads(subprocess.run(words, cwd=root, stdout=subprocess.PIPE, check=True, timeout=120).stdout)

        found = taken(2)
        assert found["tries"] == 3 and found["threads"] == len(found["pauses"]) == 1 and found["partial"] == []
        assert python_stacks(CoreFileTarget(found["file"])) == {process.pid: [["<module>", 2]]}
        found = taken(1000)
        assert "gets no CPU" in found["error"] and 5 < found["tries"] < 50 and state(process.pid) == "R"


MANY = """
import os, resource, sys
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
assert kept[-1] > 1024
from gdbext.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_command_that_has_more_than_1024_descriptors_open_answers(parked, root):
    """As one over hundreds of processes has."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 0 <= hard < 2048:
        pytest.skip(f"{hard} descriptors at most")
    for words in (["llm-stacks"], ["llm-hang", "-wait", "0.1"]):
        done = subprocess.run(
            [sys.executable, "-c", MANY, *words, str(parked[0]), "--json"], cwd=root, capture_output=True, text=True, timeout=120
        )
        assert done.returncode in (0, 3) and json.loads(done.stdout)["ranks_read"] == 1, done.stdout + done.stderr


FEW = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
from gdbext.__main__ import entry
del sys.argv[1:3]
entry()
"""


def test_too_few_descriptors_are_raised_or_said_in_one_line(root):
    code = "import time; print('ready', flush=True); time.sleep(600)"
    with contextlib.ExitStack() as stack:
        pids = [str(stack.enter_context(spawned([sys.executable, "-c", code], ready="ready")).pid) for _ in range(30)]
        for command in ("llm-stacks", "llm-hang"):
            for soft, hard in ((30, 400), (30, 30)):
                words = [sys.executable, "-c", FEW, str(soft), str(hard), command, *pids, "--json"]
                done = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=120)
                said = json.loads(done.stdout)
                if hard > soft:
                    assert said["ranks_read"] == len(pids), said
                else:
                    reasons = [one["reason"] for one in said.get("failed", ())] or [said["error"]]
                    assert all("open files" in why or "files open" in why for why in reasons), said


def test_a_collector_that_is_held_copies_what_is_there_when_it_is_let_go(tmp_path):
    words = [sys.executable, "-c", "import sys\ndef one(): sys.stdin.readline()\ndef two(): sys.stdin.readline()\none(); two()"]
    with spawned(words) as process:
        assert asleep(process.pid)
        copy, none = (open(tmp_path / name, "wb") for name in ("copy", "none"))
        held = Running(process.pid, copy.fileno(), READER, held=True)
        withdrawn = Running(process.pid, none.fileno(), READER, held=True)
        process.stdin.write("on\n")
        process.stdin.flush()
        assert asleep(process.pid) and state(process.pid) == "S"
        withdrawn.end()
        (stack,) = python_stacks(CoreFileTarget(held.finish().file)).values()
        assert [function for function, _ in stack] == ["two", "<module>"]
        assert asleep(process.pid) and not (tmp_path / "none").stat().st_size
        held = Running(process.pid, none.fileno(), READER, held=True)
        process.kill()
        process.wait()
        with pytest.raises(GdbextError, match="does not exist|has no memory"):
            held.finish()


def test_the_stacks_in_a_snapshot_are_those_that_the_process_says_it_has(parked, tmp_path):
    pid, truth = parked
    result = collect(pid, str(tmp_path / "snapshot"), READER, "TP0")
    assert result.partial == [] and result.threads == 4 and 0 <= result.pause
    t = CoreFileTarget(result.file)
    assert (t.kind, t.label, t.pid) == ("snapshot", "TP0", pid)
    with pytest.raises(GdbextError, match="may hold secrets"):
        t.argv()
    found = python_stacks(t)
    assert {tid: stack[: len(truth[tid])] for tid, stack in found.items()} == truth
    assert {th.tid for th in t.threads()} == set(truth)
    for thread in t.threads():
        assert thread.stack[0] <= thread.registers[ptrace.STACK_POINTER[t.arch]] < thread.stack[1]


def test_locals_in_a_snapshot_are_readable(parked, tmp_path):
    pid, _ = parked
    t = CoreFileTarget(collect(pid, str(tmp_path / "snapshot"), READER).file)
    rt = open_runtime(t)
    depths = [[dict(f.locals())["n"].integer() for f in rt.frames(th) if f.function == "deep"] for th in rt.threads()]
    assert sorted(d[-1] for d in depths) == [3, 7, 40, 200]
    assert all(d == list(range(len(d))) for d in depths)


def test_a_busy_process_is_copied_whole_and_runs_on(tmp_path):
    with heartbeats(tmp_path, 1) as (one,), busy():
        for _ in range(5):
            result = collect(one.pid, str(tmp_path / "snapshot"), READER)
            assert result.partial == [] and result.threads == one.threads
            stacks = python_stacks(CoreFileTarget(result.file))
            assert len(stacks) == one.threads and all(s[-1][0] in ("<module>", "_bootstrap") for s in stacks.values()), stacks
            assert one.runs()


def test_a_stopped_process_is_copied_and_stays_stopped(tmp_path):
    with heartbeats(tmp_path, 1) as (one,):
        stop(one)
        assert collect(one.pid, str(tmp_path / "snapshot"), READER).threads == one.threads
        assert one.stands()
        os.kill(one.pid, signal.SIGCONT)
        assert one.runs()


def test_threads_that_come_and_go_all_the_time(tmp_path):
    code = (
        "import threading, time, sys\ndef end(): time.sleep(0.002)\nprint('up', flush=True)\n"
        "while True:\n    ts = [threading.Thread(target=end) for _ in range(8)]\n"
        "    [t.start() for t in ts]\n    [t.join() for t in ts]\n"
    )
    with spawned([sys.executable, "-c", code], ready="") as process:
        whole = 0
        for _ in range(10 if os.environ.get("GDBEXT_TEST_LONG") else 5):
            result = collect(process.pid, str(tmp_path / "snapshot"), READER)
            t = CoreFileTarget(result.file)
            assert process.pid in {th.tid for th in t.threads()}
            if not result.partial:  # a machine under load may not be quick enough for this one, and then says so
                whole += 1
                assert python_stacks(t)[process.pid][-1][0] == "<module>"
            assert not ptrace.tracers(process.pid) and process.poll() is None
        assert whole


def test_a_process_that_dies_meanwhile_is_one_clear_error(root, tmp_path):
    for delay in (0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3):
        with heartbeats(tmp_path, 1) as (one,):
            running = subprocess.Popen(
                [sys.executable, "-m", "gdbext.access.collector", str(one.pid), "--reader", READER, "-o", str(tmp_path / "s")],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=root,
            )
            try:
                running.wait(delay)
            except subprocess.TimeoutExpired:
                pass
            one.process.kill()
            out, err = running.communicate(timeout=60)
            assert err == "", err
            answer = json.loads(out)
            assert "error" in answer or answer["pid"] == one.pid
            assert running.returncode == ("error" in answer)


def test_a_pid_that_is_gone_and_a_file_that_cannot_be_written_are_one_line(parked, tmp_path):
    with pytest.raises(GdbextError, match="does not exist"):
        collect(4_194_303, str(tmp_path / "s"), READER)
    with pytest.raises(GdbextError, match="-o"):
        collect(parked[0], str(tmp_path / "no folder" / "s"), READER)
    with spawned([sys.executable, "-u", "-c", "print('on')\nwhile True: pass"], ready="on") as process:
        with traced_by_another(process.pid):
            got = collect(process.pid, str(tmp_path / "s"), READER)
    assert any("already traced" in reason for reason in got.partial) and not got.pause


# ---- cores of others -------------------------------------------------------------------------------------------------
@pytest.fixture
def gcore(gdb_path, parked, tmp_path):
    path = tmp_path / "gcore"
    subprocess.run(
        [gdb_path, "-nx", "-q", "-batch", "-iex", "set auto-load off", "-p", str(parked[0]), "-ex", f"gcore {path}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=120,
        check=True,
    )
    return path


def test_a_core_that_gdb_wrote_gives_the_same_stacks_and_environment(parked, gcore):
    pid, truth = parked
    t = CoreFileTarget(str(gcore))
    assert t.kind == "core" and t.pid == pid
    assert {tid: stack[: len(truth[tid])] for tid, stack in python_stacks(t).items()} == truth
    assert t.argv()[-2:] == ["word one", "\x1b[2J"]
    assert {th.state for th in t.threads()} == {"S"}  # by the registers: each is in a system call
    with open(f"/proc/{pid}/environ", "rb") as f:
        environ = dict(e.decode("utf-8", "surrogateescape").partition("=")[::2] for e in f.read().split(b"\0") if b"=" in e)
    assert t.environ() == environ


def test_a_core_without_a_list_of_files_has_them_from_the_loaders(parked, gcore):
    """qemu's user mode writes such cores. Here the note is made another's."""
    whole = gcore.read_bytes()
    listed = {m.path for m in CoreFileTarget(str(gcore)).modules()}
    at = whole.index(struct.pack("<I", elf.NT_FILE) + b"CORE\0")
    gcore.write_bytes(whole[:at] + bytes(4) + whole[at + 4 :])
    t = CoreFileTarget(str(gcore))
    assert not t.file.mapped_files() and len(listed) > 2
    found = {os.path.realpath(m.path) for m in t.modules()}  # the loader was told of links
    assert found == {path for path in listed if os.path.isabs(path)}
    assert {tid: stack[: len(parked[1][tid])] for tid, stack in python_stacks(t).items()} == parked[1]


def test_a_truncated_core_is_a_clear_error_at_every_length(gcore, tmp_path):
    whole = gcore.read_bytes()
    cut = tmp_path / "cut"
    clean = 0
    for part in (0.001, 0.01, 0.05, 0.2, 0.5, 0.9, 0.99):
        cut.write_bytes(whole[: int(len(whole) * part)])
        try:
            python_stacks(CoreFileTarget(str(cut)))
        except GdbextError as e:
            clean += 1
            assert "\n" not in str(e)
    assert clean >= 4
    cut.write_bytes(whole[: len(whole) // 2])
    t = CoreFileTarget(str(cut))
    assert t.cut_short
    lost = next(s for s in t._loads if s.filesz and s.offset > len(whole) // 2)
    with pytest.raises(FaultError, match="cut short"):
        t.read(lost.vaddr, 8)


def test_gdb_opens_a_snapshot_and_unwinds_it(gdb_path, parked, tmp_path):
    pid, truth = parked
    file = str(tmp_path / "snapshot")
    collect(pid, file, READER)
    done = subprocess.run(
        [
            gdb_path,
            "-nx",
            "-q",
            "-batch",
            "-iex",
            "set debuginfod enabled off",
            os.path.realpath(f"/proc/{pid}/exe"),
            "-c",
            file,
            "-ex",
            "info threads",
            "-ex",
            "bt -3",
            "-ex",
            "info sharedlibrary",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=True,
    )
    assert all(f"LWP {tid}" in done.stdout for tid in truth), done.stdout
    assert re.search(r"^#\d+ .* in (_start|__libc_start_main|main)\b", done.stdout, re.M), done.stdout
    assert "libc.so.6" in done.stdout


PIPED = open("/proc/sys/kernel/core_pattern").read().startswith("|")


@pytest.mark.skipif(PIPED, reason="the kernel hands cores to a program here")
def test_a_core_that_the_kernel_wrote_is_read_too(tmp_path):
    command = f'ulimit -c unlimited; cd "$0"; exec "{sys.executable}" "{SUBJECT}"'
    with spawned(["sh", "-c", command, str(tmp_path)], ready="{") as process:
        truth = told(process)
        process.send_signal(signal.SIGABRT)
        process.wait()
    cores = [p for p in tmp_path.iterdir() if "core" in p.name]
    if not cores:
        pytest.skip("the kernel wrote no core here")
    eventually(lambda: cores[0].stat().st_size > 0, "the core")
    t = CoreFileTarget(str(cores[0]))
    assert {tid: stack[: len(truth[tid])] for tid, stack in python_stacks(t).items()} == truth
