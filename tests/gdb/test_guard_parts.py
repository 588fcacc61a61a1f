"""The guard's and the collector's parts, on processes as plain as can be."""

import contextlib
import ctypes
import mmap
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import types

import pytest
from harness.subjects import spawned

from gdbext.access import guard, pagemap, ptrace, recovery, remote_memory
from gdbext.errors import GdbextError, NotFoundError

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture
def sleeper():
    code = "import time; print('up', flush=True); time.sleep(600)"
    with spawned([sys.executable, "-c", code], ready="up") as process:
        yield process


def within(ask, seconds=20):
    end = time.monotonic() + seconds
    while not ask() and time.monotonic() < end:
        time.sleep(0.01)
    return ask()


def test_status_and_start_time_tell_a_process_from_its_absence(sleeper):
    state = ptrace.status(sleeper.pid)
    assert state["state"] in "SRD" and state["tracer"] == 0 and state["tgid"] == sleeper.pid and not state["kthread"]
    assert ptrace.start_time(sleeper.pid) > 0
    sleeper.kill()
    assert within(lambda: ptrace.status(sleeper.pid)["state"] == "Z")
    sleeper.wait()
    assert ptrace.status(sleeper.pid) is None and ptrace.start_time(sleeper.pid) is None and ptrace.tids(sleeper.pid) == []
    with pytest.raises(NotFoundError):
        ptrace.Stopped(sleeper.pid).__enter__()


def test_settle_resumes_a_process_left_stopped_and_never_one_that_was(sleeper):
    start = ptrace.start_time(sleeper.pid)
    os.kill(sleeper.pid, signal.SIGSTOP)
    assert within(lambda: ptrace.is_stopped(sleeper.pid))
    assert recovery.restore_run_state(sleeper.pid, start, True, 0.1) == 0 and ptrace.is_stopped(sleeper.pid)
    assert recovery.restore_run_state(sleeper.pid, start + 1, False, 0.1) == 0 and ptrace.is_stopped(
        sleeper.pid
    )  # another process by that pid
    assert recovery.restore_run_state(sleeper.pid, start, False, 0.1) >= 1 and not ptrace.is_stopped(sleeper.pid)


def test_a_second_tracer_is_named(sleeper):
    with ptrace.Stopped(sleeper.pid):
        code = f"from gdbext.access import ptrace\nptrace.Stopped({sleeper.pid}).__enter__()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert f"already traced by process {os.getpid()}" in done.stderr


HOLD = """
import sys, time
from gdbext.access import ptrace
for _ in range(int(sys.argv[2])):
    with ptrace.Stopped(int(sys.argv[1])):
        print("held", flush=True)
        time.sleep(float(sys.argv[3]))
    time.sleep(0.1)
print("gone", flush=True)
sys.stdin.read()
"""


def held(pid, times, seconds):
    """A process that holds another, so many times for so many seconds; it has begun to."""
    command = [sys.executable, "-c", HOLD, str(pid), str(times), str(seconds)]
    found = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert found.stdout.readline() == "held\n"
    return found


@pytest.mark.parametrize("times, seconds", [(1, 0.1), (8, 0.05)])
def test_a_reader_that_passes_by_has_stopped_nobody_and_is_waited_for(sleeper, times, seconds):
    other = held(sleeper.pid, times, seconds)
    assert ptrace.status(sleeper.pid)["tracer"] == other.pid
    assert ptrace.stopped_by([sleeper.pid]) == {}
    with ptrace.Stopped(sleeper.pid) as stopped:
        assert set(stopped.threads) == {sleeper.pid}
    other.communicate()


def test_a_tracer_that_stays_and_a_signal_are_named(sleeper):
    other = held(sleeper.pid, 1, 60)
    stopper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    os.kill(stopper.pid, signal.SIGSTOP)
    assert within(lambda: ptrace.is_stopped(stopper.pid))
    found = ptrace.stopped_by([sleeper.pid, stopper.pid, os.getpid()])
    assert found.pop(stopper.pid) == "a signal"
    assert set(found) == {sleeper.pid} and f"process {other.pid} (" in found[sleeper.pid]
    for one in (other, stopper):
        one.kill()
        one.communicate()


def test_objects_are_gathered_as_read_singly_and_none_if_one_is_missing():
    area = mmap.mmap(-1, 64 * 4096)
    area.write(os.urandom(64 * 4096))
    base = ctypes.addressof(ctypes.c_char.from_buffer(area))
    places = [base + 16 * ((7919 * i) % 16000) for i in range(3000)]
    assert bytes(remote_memory.gather(os.getpid(), places, 24)) == b"".join(
        remote_memory.read_ranges(os.getpid(), [(a, 24) for a in places])
    )
    assert remote_memory.gather(os.getpid(), [*places, 8], 24) is None and remote_memory.gather(os.getpid(), [1 << 64], 8) is None


def test_read_ranges_gives_what_can_be_read_and_nothing_else():
    area = mmap.mmap(-1, 3 * 4096)
    area.write(b"\x07" * (3 * 4096))

    base = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None)
    assert libc.mprotect(ctypes.c_void_p(base + 4096), 4096, 0) == 0
    ranges = [(base, 4096), (base + 4000, 200), (base + 4096, 100), (base + 8192, 4096), (8, 8)] + [(base, 1)] * 3000
    found = remote_memory.read_ranges(os.getpid(), ranges)
    assert [len(d) for d in found[:5]] == [4096, 96, 0, 4096, 0]
    assert found[5:] == [b"\x07"] * 3000
    assert remote_memory.read_ranges(os.getpid(), []) == []


# Attaches as gdb does, follows forks, and says the number of the first child, whose stop it does not fetch.
TRACES_FORKS = """
import ctypes, os, sys, time
from gdbext.access import ptrace
pid, child = int(sys.argv[1]), ctypes.c_ulong()
ptrace.call(16, pid)  # PTRACE_ATTACH
os.waitpid(pid, ptrace.WALL)
ptrace.call(0x4200, pid, 0, 2)  # PTRACE_SETOPTIONS, PTRACE_O_TRACEFORK
ptrace.call(ptrace.CONT, pid)
print("traces", flush=True)
while True:
    _, code = os.waitpid(pid, ptrace.WALL)
    if code >> 16 == 1:  # PTRACE_EVENT_FORK
        ptrace.call(0x4201, pid, 0, ctypes.addressof(child))  # PTRACE_GETEVENTMSG
        print(child.value, flush=True)
        time.sleep(600)
    ptrace.call(ptrace.CONT, pid, 0, 0 if code >> 16 else os.WSTOPSIG(code))
"""


def test_the_guard_starts_listens_and_ends(sleeper):
    watcher = guard.Guard()
    watcher.start()
    watcher.own(sleeper.pid, False)
    pid = watcher.pid
    assert os.getsid(pid) == pid != os.getsid(0)
    watcher.end()
    assert within(lambda: (ptrace.status(pid) or {"state": "Z"})["state"] == "Z")
    assert sleeper.poll() is None


def test_the_guard_has_seen_what_a_process_has_before_the_attach_goes_on(sleeper, monkeypatch):
    """What is planted after `own` has returned is gdb's: on a busy machine the guard once took it for what was there before."""
    monkeypatch.setattr(guard.own_end, "wake", lambda pid: False)  # it is to stand for a while
    watcher = guard.Guard()
    watcher.start()
    os.kill(watcher.pid, signal.SIGSTOP)
    done = []
    asking = threading.Thread(target=lambda: done.append(watcher.own(sleeper.pid, False)))
    asking.start()
    try:
        asking.join(0.3)
        assert asking.is_alive() and not done
    finally:
        os.kill(watcher.pid, signal.SIGCONT)
    asking.join(60)
    assert done == [None]
    watcher.own(sleeper.pid, False)
    watcher.end()


def test_a_guard_that_a_signal_stops_goes_on(sleeper):
    watcher = guard.Guard()
    watcher.start()
    os.kill(watcher.pid, signal.SIGSTOP)
    watcher.own(sleeper.pid, False)
    assert within(lambda: ptrace.status(watcher.pid)["state"] == "S")
    watcher.end()


def signalled(pid, number):
    """Sends a signal to a process from another one."""
    subprocess.run([sys.executable, "-c", f"import os; os.kill({pid}, {number})"], check=True)


def test_a_ctrl_c_of_the_dead_tracer_is_taken_away_and_no_other(sleeper):
    """gdb passes one on when SIGTERM ends it."""
    for ours in (True, False):
        os.kill(sleeper.pid, signal.SIGSTOP)
        assert within(lambda: ptrace.is_stopped(sleeper.pid))
        if ours:
            os.kill(sleeper.pid, signal.SIGINT)
        else:
            signalled(sleeper.pid, int(signal.SIGINT))
        assert recovery.discard_signals(sleeper.pid, os.getpid(), 30) == ours
        if ours:
            assert within(lambda: ptrace.status(sleeper.pid)["state"] == "S") and sleeper.poll() is None
    assert sleeper.wait(60) == -signal.SIGINT


@pytest.mark.parametrize("orphan", [False, True])
def test_a_child_that_stands_at_its_fork_is_let_go_and_no_other(tmp_path, orphan):
    """A tracer that is killed leaves one; a child that others have stopped stands elsewhere. `orphan`: its parent has ended."""
    code = """
import os, signal, sys, time
pids = []
for n in range(2):
    pid = os.fork()
    if not pid:
        time.sleep(600)
    pids.append(pid)
print(*pids, flush=True)
time.sleep(0.3)
sys.stdin.readline()
pid = os.fork()
if not pid:
    time.sleep(600)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        older = [int(word) for word in process.stdout.readline().split()]
        ours = [*older, process.pid]
        tracer = subprocess.Popen(
            [sys.executable, "-c", TRACES_FORKS, str(process.pid)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        try:
            assert tracer.stdout.readline() == "traces\n"
            os.kill(older[0], signal.SIGSTOP)
            process.stdin.write("\n")
            process.stdin.flush()
            child = int(tracer.stdout.readline())
            ours.append(child)
            assert within(lambda: ptrace.thread_state(child, child) == "t")
            tracer.kill()
            tracer.wait()
            assert within(lambda: ptrace.is_stopped(child) and not ptrace.tracers(child)), "it stands where its tracer left it"
            program = recovery.program_of(process.pid)
            held = {process.pid: recovery.Held(ptrace.start_time(process.pid), False, program=program)}
            if orphan:
                process.kill()
                process.wait()
            assert list(recovery.left_children(held, tracer.pid)) == [child]
            recovery.recover(held, tracer.pid, lambda: True)
            assert within(lambda: not ptrace.is_stopped(child)) and ptrace.is_stopped(older[0])
        finally:
            for pid in (*ours, tracer.pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)


def test_the_guard_resumes_what_was_left_stopped_when_the_channel_ends(sleeper):
    """As with a gdb that died between its SIGSTOP and the detach; the one that holds the channel is a process that is killed."""
    code = (
        f"import os, signal, time\nfrom gdbext.access import guard\ng = guard.Guard(); g.start(); g.own({sleeper.pid}, False)\n"
        f"os.kill({sleeper.pid}, signal.SIGSTOP); print('stopped', flush=True); time.sleep(600)"
    )
    with spawned([sys.executable, "-c", code], ready="stopped", cwd=ROOT):
        assert within(lambda: ptrace.is_stopped(sleeper.pid))
    assert within(lambda: not ptrace.is_stopped(sleeper.pid))


def test_a_killed_guard_is_started_again_with_what_it_knew(sleeper):
    """Of whatever process of ours is killed: what was attached is put in order once gdb ends too."""
    code = (
        f"import os, signal, time\nfrom gdbext.access import guard\ng = guard.Guard(); g.start(); g.own({sleeper.pid}, False)\n"
        f"first = g.pid; os.kill(first, signal.SIGKILL)\nwhile g.pid == first: time.sleep(0.05)\n"
        f"os.kill({sleeper.pid}, signal.SIGSTOP); print('stopped', flush=True); time.sleep(600)"
    )
    with spawned([sys.executable, "-c", code], ready="stopped", cwd=ROOT):
        assert within(lambda: ptrace.is_stopped(sleeper.pid))
    assert within(lambda: not ptrace.is_stopped(sleeper.pid))


def test_a_guard_that_is_gone_is_an_error_only_if_no_other_can_be_started(sleeper, monkeypatch):
    """Killed for want of memory, say: what was attached is still detached, all of it."""
    watcher = guard.Guard()
    watcher.start()
    watcher.own(sleeper.pid, False)
    first = watcher.pid
    os.kill(first, signal.SIGKILL)
    assert within(lambda: (ptrace.status(first) or {"state": "Z"})["state"] == "Z")
    watcher.armed(sleeper.pid)
    watcher.own(sleeper.pid, False)
    assert watcher.pid != first and watcher._told[sleeper.pid].known == "-"
    monkeypatch.setattr(guard, "SCRIPT", "/nonexistent")
    second = watcher.pid
    os.kill(second, signal.SIGKILL)
    assert within(lambda: (ptrace.status(second) or {"state": "Z"})["state"] == "Z")
    for _ in range(2):
        watcher.free(1)
        watcher.resumed(1)
        watcher.armed(1, False)
    watcher.end()
    with pytest.raises(GdbextError, match="guard process did not start"):
        watcher.start()
        watcher.own(sleeper.pid, False)
    monkeypatch.undo()
    watcher.start()  # and it can be started again
    watcher.own(sleeper.pid, False)
    watcher.end()


def test_nothing_that_is_started_later_keeps_the_channel_open():
    watcher = guard.Guard()
    watcher.start()
    with spawned([sys.executable, "-c", "import time; time.sleep(600)"], close_fds=False):
        watcher.end()
        assert within(lambda: (ptrace.status(watcher.pid) or {"state": "Z"})["state"] == "Z")


def test_a_machine_without_python3_is_told_so(monkeypatch):
    """No python3 to be found: said, not hidden."""
    guard.find_python.cache_clear()  # a failure is not kept
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(guard.sys, "executable", "")
    monkeypatch.setattr(guard.sys, "prefix", "/nonexistent")
    monkeypatch.setattr(guard.sys, "base_prefix", "/nonexistent")
    with pytest.raises(NotFoundError, match="python3"):
        guard.find_python()
    with pytest.raises(GdbextError, match="python3"):
        guard.Guard().start()


def test_the_end_of_the_thread_that_holds_the_mutex_is_told():
    """A process that holds it is killed; who waits for it learns so."""
    code = (
        "from gdbext.access import liveness; import time; life = "
        "liveness.LivenessMutex.held(); print(life.fd, flush=True); time.sleep(600)"
    )
    with spawned([sys.executable, "-c", code], ready="", cwd=ROOT) as holder:
        fd = os.open(f"/proc/{holder.pid}/fd/{int(holder.said)}", os.O_RDWR)
        waits = f"from gdbext.access import liveness; print('up', flush=True); print(liveness.LivenessMutex({fd}).ended())"
        with spawned([sys.executable, "-c", waits], ready="up", cwd=ROOT, pass_fds=[fd]) as waiter:
            holder.kill()
            assert waiter.communicate(timeout=60)[0] == "True\n"


def test_halt_stops_only_what_the_dying_tracer_holds(sleeper):
    recovery.stop_threads(sleeper.pid, os.getpid())
    assert not ptrace.is_stopped(sleeper.pid) and not ptrace.status(sleeper.pid)["pending"]
    ptrace.call(ptrace.SEIZE, sleeper.pid)
    recovery.stop_threads(sleeper.pid, os.getpid())
    _, code = os.waitpid(sleeper.pid, ptrace.WALL)
    assert os.WIFSTOPPED(code) and os.WSTOPSIG(code) == signal.SIGSTOP
    ptrace.call(ptrace.DETACH, sleeper.pid)
    assert within(lambda: ptrace.status(sleeper.pid)["state"] == "S")


def test_a_trap_that_waits_for_its_delivery_is_taken_away(sleeper):
    os.kill(sleeper.pid, signal.SIGSTOP)
    assert within(lambda: ptrace.is_stopped(sleeper.pid))
    os.kill(sleeper.pid, signal.SIGTRAP)
    assert recovery.discard_signals(sleeper.pid, 1, 30) == 1 and recovery.discard_signals(sleeper.pid, 1) == 0
    assert within(lambda: ptrace.status(sleeper.pid)["state"] == "S") and sleeper.poll() is None


def test_the_end_of_a_group_stop_leaves_a_debuggers_own_stop(sleeper):
    """gdb has sent SIGSTOP to a thread whose other event came first, and waits for it at its next stop."""
    pid = sleeper.pid
    ptrace.call(ptrace.SEIZE, pid)
    ptrace.call(ptrace.INTERRUPT, pid)
    assert os.WIFSTOPPED(os.waitpid(pid, ptrace.WALL)[1])
    os.kill(pid, signal.SIGSTOP)  # of the group
    ptrace.libc.syscall(recovery.TGKILL[ptrace.MACHINE], pid, pid, int(signal.SIGSTOP))  # the debugger's own
    recovery.end_group_stop(pid)
    ptrace.call(ptrace.CONT, pid)
    seen = []

    def stops():
        found, code = os.waitpid(pid, ptrace.WALL | os.WNOHANG)
        if found:
            seen.append(os.WSTOPSIG(code))
            ptrace.call(ptrace.CONT, pid)
        return signal.SIGSTOP in seen

    assert within(stops), seen
    ptrace.call(ptrace.INTERRUPT, pid)
    os.waitpid(pid, ptrace.WALL)
    ptrace.call(ptrace.DETACH, pid)
    assert within(lambda: ptrace.status(pid)["state"] == "S")


def test_only_our_own_guards_are_waited_for(tmp_path):
    """A command line that looks like a guard's delays nobody: it lies elsewhere, or has no socket, or is another user's."""
    elsewhere = tmp_path / "gdbext" / "access" / "guard_process.py"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_text("")
    code = "import time; print('up', flush=True); time.sleep(600)"
    listening = "import socket; listener = socket.socket(); " + code
    named = [
        ([sys.executable, "-c", listening, str(elsewhere), "999999"], None),
        ([sys.executable, "-c", code, guard.SCRIPT, "999999"], None),
    ]
    anybodys = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin")
    if os.geteuid() == 0 and anybodys:
        named.append(([anybodys, "-c", listening, guard.SCRIPT, "999999"], 65534))
    with contextlib.ExitStack() as ends:
        liars = [ends.enter_context(spawned(words, ready="up", user=user)) for words, user in named]
        assert not set(guard.recovering()) & {liar.pid for liar in liars}


def test_the_guard_looks_at_pages_of_code_alone(sleeper, monkeypatch):
    """Whatever else a process has mapped: an attach to 200 GB of memory costs what one to a small process costs."""
    read, opened, entries, whole = [], [], pagemap.os.pread, recovery.read_proc
    monkeypatch.setattr(pagemap, "os", types.SimpleNamespace(pread=lambda fd, n, at: read.append(n) or entries(fd, n, at)))
    monkeypatch.setattr(recovery, "read_proc", lambda pid, name: opened.append(name) or whole(pid, name))
    recovery.planted_breakpoints(sleeper.pid)
    with open(f"/proc/{sleeper.pid}/maps") as f:
        code = [[int(x, 16) for x in line.split()[0].split("-")] for line in f if line.split()[1][2:] == "xp"]
    assert 0 < sum(read) <= sum(end - start for start, end in code) // 4096 * 8
    assert opened == ["maps"]


OWN_TRAPS = """
import ctypes, mmap, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
file = open(sys.argv[1], "rb")
at = libc.mmap(None, ctypes.c_size_t(8192), 5, mmap.MAP_PRIVATE, file.fileno(), ctypes.c_long(0))
assert libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(8192), 7) == 0
for place, byte in ((16, 0xCC), (4096 + 16, 0xCC), (4096 + 100, 1)):
    ctypes.memset(at + place, byte, 1)
assert libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(8192), 5) == 0
print(at, flush=True)
input()
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="a breakpoint of one byte")
def test_breakpoints_are_put_back_from_the_mapped_file_alone(tmp_path, monkeypatch):
    """Not from another one at its path, though it has the same inode number on another device."""
    path, other = tmp_path / "code", tmp_path / "new"
    path.write_bytes(bytes([7]) * 8192)
    other.write_bytes(bytes([8]) * 8192)

    def forbidden(name, flags, *more, **options):
        if "map_files" in str(name):
            raise PermissionError
        return os.open(name, flags, *more, **options)

    with spawned([sys.executable, "-c", OWN_TRAPS, path], ready="") as one:
        at = int(one.said)
        both = {at + 16: b"\x07", at + 4096 + 16: b"\x07"}
        assert recovery.planted_breakpoints(one.pid) == both
        blind = types.SimpleNamespace(**{**vars(os), "open": forbidden})
        monkeypatch.setattr(recovery, "os", blind)
        assert recovery.planted_breakpoints(one.pid) == both
        blind.makedev = lambda major, minor: -1
        assert recovery.planted_breakpoints(one.pid) == {at + 16: b"\x07"}  # of a page that is the same otherwise
        blind.makedev = os.makedev
        os.link(path, tmp_path / "kept")
        os.replace(other, path)
        (tmp_path / "code (deleted)").write_bytes(bytes([8]) * 8192)  # how the kernel names what is mapped now
        assert recovery.planted_breakpoints(one.pid) == {}  # another inode
        if os.geteuid() == 0:
            monkeypatch.setattr(recovery, "os", os)
            assert recovery.planted_breakpoints(one.pid) == both  # by the kernel's own link


STOPPED = """
import os, signal, time
os.setpgid(0, 0)
began = os.getpid()
copy = os.fork()
if not copy:
    os.kill(os.getpid(), signal.SIGSTOP)
other = os.fork()
if not other:
    time.sleep(600)
os.kill(other, signal.SIGSTOP)
print("up", copy, other, flush=True)
time.sleep(600)
"""


def test_a_copy_of_gdb_that_stopped_itself_is_ended_and_no_other():
    """gdb forks it to try out ptrace; a gdb that is killed in that moment leaves it."""
    with spawned([sys.executable, "-c", STOPPED], ready="up") as process:
        copy, other = (int(word) for word in process.said.split()[1:])
        start = ptrace.start_time(process.pid)
        try:
            assert within(lambda: ptrace.thread_state(copy, copy) == ptrace.thread_state(other, other) == "T")
            own = recovery.program_of(process.pid)
            assert recovery.end_stopped_copies(process.pid, start + 10**6, own) == 0, "younger than gdb alone"
            assert recovery.end_stopped_copies(os.getpgid(0), start, own) == 0, "of gdb's own group alone"
            assert recovery.end_stopped_copies(process.pid, start, recovery.program_of(2**22)) == 0, "of gdb's own program alone"
            assert recovery.end_stopped_copies(process.pid, start, (own[0], own[1] + 1)) == 0, "of another program"
            assert recovery.end_stopped_copies(process.pid, start, own) == 1
            assert within(lambda: ptrace.thread_state(copy, copy) in ("Z", "X", ""))
            assert ptrace.thread_state(other, other) == "T" and within(
                lambda: ptrace.thread_state(process.pid, process.pid) == "S"
            )
        finally:
            for pid in (copy, other):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("tracer", ["gone", "holds it"])
def test_a_guard_that_was_starved_looks_at_a_freed_process_all_the_same(sleeper, tracer):
    """Its last look was long ago, and gdb has kept the process after its word, or its SIGSTOP came after it."""
    from gdbext.access import guard_process

    start = ptrace.start_time(sleeper.pid)
    server = guard_process.Server(None, os.getpid())
    server.freed[sleeper.pid] = recovery.Held(start, False), time.monotonic() - 5
    if tracer == "holds it":
        with ptrace.Stopped(sleeper.pid):
            server._look_at_freed()
        assert sleeper.pid in server.freed
    os.kill(sleeper.pid, signal.SIGSTOP)
    while ptrace.status(sleeper.pid)["state"] != "T":
        time.sleep(0.01)
    server._look_at_freed()
    assert ptrace.status(sleeper.pid)["state"] != "T"
    server.freed[sleeper.pid] = recovery.Held(start, False), time.monotonic() - 5
    server._look_at_freed()
    assert not server.freed


def test_a_stop_of_a_process_that_the_guard_itself_traces_is_ended(sleeper):
    """A thread in uninterruptible sleep stays the guard's own after its time is over; gdb's SIGSTOP waits for it meanwhile."""
    start = ptrace.start_time(sleeper.pid)
    with ptrace.Stopped(sleeper.pid):
        os.kill(sleeper.pid, signal.SIGSTOP)
        assert recovery.restore_run_state(sleeper.pid, start, False) == 1
    time.sleep(0.2)
    assert ptrace.status(sleeper.pid)["state"] != "T"
