"""A stop is bounded whatever the copy waits for, threads that sleep are left asleep, and no answer wants a disk, a folder or the
engine's memory."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import types

import pytest
from harness import adverse, cgroups
from harness.adverse import UP
from harness.answers import answer
from harness.gdb_run import INIT
from harness.heartbeats import asleep, eventually, heartbeats
from harness.subjects import spawned

from gdbext.access import holder, ptrace, sleepers
from gdbext.access.collect import collect
from gdbext.access.proc import ProcTarget
from gdbext.access.snapshot import CoreFileTarget

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
READER = "gdbext.stacks.prefetch"
LOOKS = ["llm-stacks", "llm-hang -wait 0.3", "llm-locks", "llm-snapshot -o {folder}/copy"]
WHOLE = "llm-snapshot -heap -o {folder}/copy"


def asked(command, pid, folder, before=(), tmp=None, **more):
    """(the JSON, exit status, standard error) of a command in a process of its own; `before`: words that start it."""
    line = command.format(folder=folder).split()
    words = [*before, sys.executable, "-m", "gdbext", *line, str(pid), "-json"]
    env = {**os.environ, "PYTHONPATH": ROOT, "PYTHONDONTWRITEBYTECODE": "1", **({"TMPDIR": tmp} if tmp else {})}
    done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, **more)
    assert "Traceback" not in done.stderr, done.stderr
    return (json.loads(done.stdout) if done.stdout.startswith("{") else None), done.returncode, done.stderr


def functions(found):
    return {f["function"] for group in found["groups"] for f in group["frames"]}


class Standstill:
    """The longest time for which a thread of a process was seen in a tracing stop."""

    def __init__(self, pid):
        self.pid, self.longest, self._done = pid, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self):
        began = None
        while not self._done.wait(0.002):
            if any(ptrace.thread_state(self.pid, tid) == "t" for tid in ptrace.tids(self.pid)):
                began = began or time.monotonic()
                self.longest = max(self.longest, time.monotonic() - began)
            else:
                began = None

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()


# ---- pages that do not come ------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return adverse.library(str(tmp_path_factory.mktemp("absent")))


@pytest.fixture(params=["fuse", "uffd"])
def absent(request, library, tmp_path):
    """-> Popen of a process, a thread of which has pages on its stack that do not come."""
    with adverse.absent(library, request.param, str(tmp_path / "mount")) as process:
        yield process


@pytest.mark.parametrize("command", LOOKS)
@pytest.mark.drawn(4)
def test_a_page_that_does_not_come_is_not_waited_for(absent, command, tmp_path):
    with Standstill(absent.pid) as still:
        found, status, _ = asked(command, absent.pid, tmp_path)
    assert status in (0, 3) and not found["failed"]
    assert not ptrace.tracers(absent.pid), "and nobody stood for as long as a page was waited for"
    assert still.longest < 20 * holder.LONGEST
    if command == "llm-stacks":
        assert {"counts", "<module>"} <= functions(found) and "waits" in functions(found)
    if "snapshot" in command:
        assert any("left out" in reason for reason in found["partial"]), found["partial"]


OTHERS = ["pyheap -on", "llm-report {folder}/page.html", "llm-record -for 0.3 -native", "pybt -all -on", "llm-top -once"]


@pytest.mark.parametrize("command", OTHERS, ids=lambda line: line.split()[0])
@pytest.mark.drawn(4)
def test_no_other_door_waits_for_a_page_either(absent, command, tmp_path):
    with Standstill(absent.pid) as still:
        found, status, error = asked(command, absent.pid, tmp_path)
    assert status in (0, 3) and found, error
    assert not ptrace.tracers(absent.pid) and still.longest < 20 * holder.LONGEST


def test_a_command_that_is_killed_meanwhile_strands_nobody(absent, tmp_path):
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        for moment in (0.3, 0.6, 0.9):
            words = [sys.executable, "-m", "gdbext", "llm-stacks", str(absent.pid)]
            with spawned(words, cwd=ROOT, stderr=subprocess.DEVNULL) as one:
                time.sleep(moment)
                one.send_signal(number)
                one.wait(120)
            eventually(lambda: not ptrace.tracers(absent.pid), "that nobody traces it")
            assert ptrace.thread_state(absent.pid, absent.pid) in ("S", "R", "D")


def test_a_reader_that_never_comes_back_does_not_hold_the_process(tmp_path):
    """The one that reads stands still itself, for good; so does the one that stops, in another round: it is killed then."""
    with heartbeats(tmp_path, 1) as (one,), holder.Holder() as holds:
        with holds.held(one.pid, limit=holder.LONGEST) as held:
            assert len(held.registers) == one.threads
            assert one.runs(), "it runs on while nobody lets it go"
        assert held.over
        with holds.held(one.pid, limit=1000.0) as held:
            assert one.runs(), "who asks for more gets no more"
        assert held.over
        with contextlib.suppress(Exception), holds.held(one.pid, limit=holder.LONGEST):
            os.kill(holds.pid, signal.SIGKILL)
        assert one.runs()


def test_who_holds_ends_where_it_is_stopped_itself(tmp_path):
    """The kernel's timer does it; the next pause has another helper."""
    with heartbeats(tmp_path, 1) as (one,), holder.Holder() as holds:
        stopped = holds.pid
        with holds.held(one.pid, limit=holder.LONGEST) as held:
            os.kill(stopped, signal.SIGSTOP)
            assert one.runs()
        assert held.over and held.seconds > 0
        with holds.held(one.pid) as held:
            assert held.registers
        assert holds.pid != stopped and one.runs()


def test_no_signal_of_a_terminal_reaches_who_holds():
    with holder.Holder() as holds:
        eventually(lambda: os.getsid(holds.pid) == holds.pid, "a session of its own")
        ignored = {signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}

        def mask():
            with open(f"/proc/{holds.pid}/status") as f:
                return next(int(line.split()[1], 16) for line in f if line.startswith("SigIgn"))

        eventually(lambda: all(mask() >> number - 1 & 1 for number in ignored), "it to ignore them")


def test_a_copy_too_long_for_the_stop_goes_on_while_the_process_runs(tmp_path, monkeypatch):
    code = "import os\nkept = [os.urandom(1000) for _ in range(60000)]\nprint('up', flush=True)\nwhile True: pass"
    monkeypatch.setattr(holder, "LONGEST", 0.0)
    with spawned([sys.executable, "-c", code], ready="up") as process:
        words = "import sys, json; from gdbext.access import collector, holder\n"
        words += "import gdbext.access.remote_memory as r\nread = r.ReadBuffer.read\n"
        words += "late = lambda self, until: until and (until if self.size < 4 << 20 else 0.0)\n"
        words += "r.ReadBuffer.read = lambda self, tid, until=None: read(self, tid, late(self, until))\n"
        words += "print(json.dumps(collector.take(int(sys.argv[1]), sys.argv[2], 'gdbext.stacks.prefetch', heap=1 << 30)))"
        run = [sys.executable, "-c", words, str(process.pid), str(tmp_path / "copy")]
        said = json.loads(subprocess.run(run, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=120).stdout)
    assert any("copied while it ran" in reason for reason in said["partial"]) and said["bytes"] > 50 << 20


# ---- threads that sleep ----------------------------------------------------------------------------------------------
WAITS = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
static void say(const char *what, int result) { printf("%s %s\n", what, result < 0 ? strerror(errno) : "ended"); fflush(stdout); }
static void *epolls(void *x) { struct epoll_event e; say("epoll", epoll_wait(epoll_create1(0), &e, 1, 900000)); return x; }
static void *sems(void *x) { struct sembuf b = {0, -1, 0}; say("semop", semop(semget(IPC_PRIVATE, 1, 0600), &b, 1)); return x; }
static void *signals(void *x) { sigset_t s; siginfo_t i; struct timespec t = {900, 0}; sigemptyset(&s); sigaddset(&s, SIGUSR1);
    say("sigtimedwait", sigtimedwait(&s, &i, &t)); return x; }
static void *times(void *x) { struct sembuf b = {0, -1, 0}; struct timespec t = {900, 0};
    say("semtimedop", semtimedop(semget(IPC_PRIVATE, 1, 0600), &b, 1, &t)); return x; }
static void *accepts(void *x) { int s = socket(AF_UNIX, SOCK_STREAM, 0); struct timeval t = {900, 0}; sa_family_t any = AF_UNIX;
    bind(s, (struct sockaddr *)&any, sizeof any); listen(s, 1); setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    say("accept", accept(s, 0, 0)); return x; }
static void *completes(void *x) { unsigned long c = 0; char events[64]; syscall(SYS_io_setup, 1, &c);
    say("io_getevents", syscall(SYS_io_getevents, c, 1L, 1L, events, 0)); return x; }
static void *receives(void *x) { int v[2]; char c; struct timeval t = {900, 0}; socketpair(AF_UNIX, SOCK_STREAM, 0, v);
    setsockopt(v[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t); say("recv", recv(v[0], &c, 1, 0)); return x; }
int main(void) {
    void *(*all[])(void *) = {epolls, sems, signals, receives, times, accepts, completes};
    pthread_t thread;
    for (int i = 0; i < 7; i++) pthread_create(&thread, 0, all[i], 0);
    usleep(300000);
    puts("up");
    fflush(stdout);
    for (;;) pause();
}
"""


@pytest.fixture(params=["-fomit-frame-pointer", "-fno-omit-frame-pointer"])
def waiting(request, tmp_path):
    """-> (Popen of a program whose threads wait in calls that return EINTR after a stop, whether its stacks can be walked)"""
    path = str(tmp_path / "waits")
    subprocess.run(["gcc", "-O2", request.param, "-x", "c", "-", "-lpthread", "-o", path], input=WAITS.encode(), check=True)
    with spawned([path], ready="up") as process:
        yield process, "no-" not in request.param


def test_threads_that_sleep_are_left_asleep_or_it_is_said(waiting, tmp_path):
    process, walkable = waiting
    stopped = 0
    for command in LOOKS:
        found, _, _ = asked(command, process.pid, tmp_path)
        stopped += sum(one["woken"] for one in found["pauses"])
        if command == "llm-stacks" and walkable:
            called = {"epolls", "sems", "signals", "receives", "times", "accepts", "completes", "main"}
            assert called <= functions(found)
    process.kill()
    ended = process.stdout.read()
    assert bool(stopped) == bool(ended) and not (walkable and ended), (stopped, ended)


def test_what_a_slow_machine_does_not_reach_in_time_is_reached(monkeypatch):
    """Stacks are walked for so much CPU time, however long that takes: else a busy machine would stop all threads."""
    code = "import threading\nnever = threading.Event()\n"
    code += "for _ in range(80): threading.Thread(target=never.wait, daemon=True).start()"
    state = ptrace.thread_state
    with spawned([sys.executable, "-c", code + "\nprint('up', flush=True)\nnever.wait()"], ready="up") as process:
        asleep(process.pid)
        found = sleepers.Sleepers(ProcTarget(process.pid), types.SimpleNamespace(pid=0))
        monkeypatch.setattr(ptrace, "thread_state", lambda pid, tid: (time.sleep(2 * sleepers.LEARN / 80), state(pid, tid))[1])
        found.learn()
        monkeypatch.setattr(ptrace, "thread_state", state)
        assert len(found.now()) == 81 and not found.woken
        for name in ("LEARN", "EACH"):
            monkeypatch.setattr(sleepers, name, 0.0)
        hurried = sleepers.Sleepers(ProcTarget(process.pid), types.SimpleNamespace(pid=0))
        hurried.learn()
        assert not hurried.now() and hurried.woken == 81


def test_one_that_wakes_while_it_is_copied_is_stopped_then(tmp_path):
    """Sleepers that sleep for moments only: the copy is of one moment all the same."""
    code = "import threading, time\ndef naps():\n    while True:\n        time.sleep(0.0005)\n"
    code += "for _ in range(4): threading.Thread(target=naps, daemon=True).start()\nprint('up', flush=True)\nnaps()"
    with spawned([sys.executable, "-c", code], ready="up") as process:
        for number in range(5):
            result = collect(process.pid, str(tmp_path / str(number)), READER)
            assert result.partial == [] and result.threads == 5
            assert len(CoreFileTarget(result.file).threads()) == 5


# ---- one that another debugger holds ---------------------------------------------------------------------------------
def test_a_process_that_another_debugger_holds_is_read_where_it_stands(tmp_path):
    code = "import threading\ndef spins():\n    while True: pass\nthreading.Thread(target=spins, daemon=True).start()\n"
    with spawned([sys.executable, "-c", code + UP], ready="up") as process:
        with adverse.held(process.pid) as tracer:
            for command in LOOKS:
                found, status, _ = asked(command, process.pid, tmp_path)
                assert status == 0 and any(f"process {tracer.pid} (" in reason for reason in found["partial"]), found
                assert not found["failed"] and ptrace.tracers(process.pid) == {tracer.pid}
                if command == "llm-stacks":
                    assert {"spins", "rests", "<module>"} <= functions(found)
                if "hang" in command:
                    assert found["verdict"] == "stopped"
        assert ptrace.thread_state(process.pid, process.pid) in "SR"


@pytest.mark.parametrize("command", OTHERS[:4], ids=lambda line: line.split()[0])
def test_what_another_debugger_holds_is_left_to_it_by_other_doors(command, tmp_path):
    with spawned([sys.executable, "-c", UP], ready="up") as process:
        with adverse.held(process.pid) as tracer:
            found, status, error = asked(command, process.pid, tmp_path)
            assert ptrace.tracers(process.pid) == {tracer.pid} and ptrace.thread_state(process.pid, process.pid) == "t"
            if status == 1:
                assert f"process {tracer.pid} (" in error and len(error.splitlines()) == 1, error
            else:
                assert status in (0, 3) and found, error
            if command.startswith("pybt"):
                assert "rests" in json.dumps(found)
        assert ptrace.thread_state(process.pid, process.pid) in "SR"


# ---- no disk, no folder, no memory -----------------------------------------------------------------------------------
@pytest.mark.parametrize("command", [*LOOKS[:3], "pyheap -on"])
def test_a_read_only_root_without_tmp(command, tmp_path):
    """No folder that a temporary file could lie in may be written."""
    before = adverse.read_only()
    code = "kept = [[object() for _ in range(100)] for _ in range(100)]\n" + UP
    with spawned([sys.executable, "-c", code], ready="up") as process:
        found, status, error = asked(command, process.pid, tmp_path, before)
        assert status in (0, 3), (status, error)
        if command == "llm-stacks":
            assert "rests" in functions(found)


def test_a_full_disk(tmp_path):
    """Of no interest to what has no name; a snapshot with one says in a line what it needs."""
    full = tmp_path / "full"
    with adverse.full_disk(str(full)), spawned([sys.executable, "-c", UP], ready="up") as process:
        for command in LOOKS[:3]:
            found, status, _ = asked(command, process.pid, full, tmp=str(full))
            assert status in (0, 3) and not found["failed"]
        found, status, _ = asked(LOOKS[3], process.pid, full)
        said = found["failed"][0]["reason"] if "failed" in found else found["error"]
        assert status == 1 and ("to spare" in said or "No space left" in said) and "\n" not in said
        assert os.listdir(full) == []


@pytest.mark.parametrize("command", [*LOOKS, "pyheap -on"])
@pytest.mark.parametrize("size", [0, 4096])
def test_where_no_file_may_grow(command, size, tmp_path):
    """RLIMIT_FSIZE, of which the kernel sends SIGXFSZ: an answer, or one line, and nothing is left."""
    limit = (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    with spawned([sys.executable, "-c", UP], ready="up") as process:
        found, status, error = asked(
            command, process.pid, tmp_path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        )
        assert ptrace.thread_state(process.pid, process.pid) in "SR" and not ptrace.tracers(process.pid)
    if status == 1:
        said = found.get("error") or found["failed"][0]["reason"]
        assert "File too large" in said and "\n" not in said, said
    else:
        assert status in (0, 3) and "snapshot" not in command, error
    assert os.listdir(tmp_path) == []


def test_in_gdb_a_read_only_root_without_tmp(gdb_path):
    words = [*adverse.read_only(), gdb_path, "-nx", "-q", "-batch", "-iex", "set debuginfod enabled off", "-ex", f"source {INIT}"]
    with spawned([sys.executable, "-c", UP], ready="up") as process:
        for command in ("llm-stacks", "llm-hang -wait 0.3", "llm-locks", "pyheap -on"):
            words += ["-ex", f"{command} {process.pid} -json"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    schemas = [one["schema"].partition("/")[0] for one in answers if not one.get("failed")]
    assert schemas[:3] == ["llm-stacks", "llm-hang", "llm-locks"] and len(answers) == 4, done.stdout + done.stderr
    assert "rests" in functions(answers[0]) and "Traceback" not in done.stdout + done.stderr
    assert "error" not in answers[3] or "numpy" in answers[3]["error"], answers[3]


@pytest.fixture(params=[20 << 20, 10 << 20, 120 << 20], ids=lambda n: f"{n >> 20}MiB")
def crowded(request):
    """-> (an engine in a memory group, the group, bytes that are to spare in it)"""
    with adverse.crowded(request.param) as (engine, group):
        yield engine, group, request.param


@pytest.mark.parametrize("command", [*LOOKS, WHOLE, "pyheap -on"])
@pytest.mark.drawn(6)
def test_in_the_engines_memory_group_the_engine_lives(crowded, command, tmp_path):
    engine, group, room = crowded
    found, status, error = asked(command, engine.pid, tmp_path, preexec_fn=cgroups.joining(group))
    assert engine.poll() is None, "the engine lives"
    if status == -signal.SIGKILL:  # while it was loaded: the kernel ended the tool, of whom it has marked itself
        assert room < 24 << 20  # llm-hang takes 21 MiB before it looks at anything
    elif status == 1:
        said = found.get("error") or found["failed"][0]["reason"]
        assert "memory" in said and "to spare" in said and "\n" not in said or "collector failed" in said, said
    else:
        assert status in (0, 3), (status, error)
        if command == "llm-stacks":
            assert "rests" in functions(found)
    if room > 64 << 20 and command == WHOLE:
        assert status == 3 and any("to spare" in reason for reason in found["partial"]), found


@pytest.mark.parametrize("command", [LOOKS[0], WHOLE, "pyheap -on"], ids=lambda line: line.split()[0])
def test_where_the_group_above_is_the_one_that_is_full_the_engine_lives(command, tmp_path):
    """As of a pod whose containers have no limits of their own."""
    with adverse.crowded(70 << 20, above=True) as (engine, group):
        found, status, error = asked(command, engine.pid, tmp_path, preexec_fn=cgroups.joining(group))
        assert engine.poll() is None and status in (0, 1, 3), (status, error)
        if command == LOOKS[0]:
            assert "rests" in functions(found)
        else:
            said = [*found["partial"], found.get("error", ""), *(one["reason"] for one in found.get("failed", ()))]
            assert any("to spare" in reason and os.path.dirname(group) in reason for reason in said), found


def test_everything_of_ours_is_the_memory_killers_first_choice():
    """The command, its collector, what stops and what reads pages, and a gdb that it starts."""
    seen = {}
    with spawned([sys.executable, "-c", UP], ready="up") as process:
        words = [sys.executable, "-m", "gdbext", "llm-stacks", "-samples", "300", "-interval", "0", str(process.pid)]
        with spawned(words, cwd=ROOT, stdout=subprocess.DEVNULL) as command:
            time.sleep(0.5)
            for _ in range(400):
                for pid in {command.pid, *descendants(command.pid)}:
                    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj") as f:
                        seen[pid] = f.read().strip()
                if len(seen) > 4:
                    break
                time.sleep(0.005)
    assert len(seen) > 4 and set(seen.values()) == {"1000"}, seen


def descendants(pid):
    found = []
    with contextlib.suppress(OSError):
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/children") as f:
                for child in map(int, f.read().split()):
                    found += [child, *descendants(child)]
    return found


def test_an_answer_in_a_gdb_of_its_own_wants_no_folder(tmp_path, gdb_path):
    with spawned([sys.executable, "-c", UP], ready="up") as process:
        answer(f"llm-snapshot {process.pid} -o {tmp_path}/core -json")
    env = {**os.environ, "PYTHONPATH": ROOT, "TMPDIR": "/nonexistent"}
    words = [sys.executable, "-m", "gdbext", "llm-symbols", "--help"]
    assert subprocess.run(words, env=env, stdout=subprocess.PIPE, check=True).stdout
