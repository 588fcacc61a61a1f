"""Random kills: a command on three processes that check themselves (one of them stopped) is ended by a signal at a random moment;
then all is as it was, and nothing is left. `python -m harness.kills ROUNDS SEED [COMMAND,...]` runs it at length, in tests/."""

import collections
import contextlib
import glob
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time

from gdbext.access import debug_registers, ptrace, recovery
from gdbext.access.procfs import read_proc

from . import cgroups
from .gdb_run import INIT, ROOT

SUBJECT = os.path.join(ROOT, "tests", "gdb", "subjects", "self_checking.py")
PYTHON = [sys.executable, "-m", "gdbext"]
SECONDS = 30.0  # after which all is to be as it was, on a machine at full load
WRONG = 512  # where its file says that something went wrong (self_checking.py)
IN_FLIGHT = 4  # requests of a real engine that are under way at a time (engines/serve_vllm.py)
EXCHANGES = "/tmp/gdbext-inject-*"  # of llm-inject, in the processes' own /tmp: other tests remove theirs
CTRL_C = "shell (sleep 1.5; kill -INT $PPID) &"  # which ends gdb's wait for a stop
# The processes run on while the command stands: it is stopped by a signal, or frozen.
PAUSES = ["tstp", "stop", "group-stop", "child-stop", "tracer-stop", "freeze"]
HOW = ["kill"] * 4 + ["term"] * 2 + ["int", "hup", "child", "stopped", "group", "group-term", "group-int", "end", "cont", *PAUSES]
HOW += ["any", "any"]  # one process of ours, whichever: collector, holder, fetcher, demangler, guard, gdb
HOW += ["guard"]  # gdb after it, once there is another
NUMBERS = {
    "term": signal.SIGTERM,
    "int": signal.SIGINT,
    "hup": signal.SIGHUP,
    "tstp": signal.SIGTSTP,
    "stop": signal.SIGSTOP,
    "group-stop": signal.SIGSTOP,
    "group": signal.SIGKILL,
    "group-term": signal.SIGTERM,
    "group-int": signal.SIGINT,
}
ARMING = ["pybreak", "pylog", "pytrace", "pystep", "pycatch", "import"]
STORMS = ["fork", "exec", "threads", "signals", "libraries", "setuid", "seccomp"]


def planted(pid):
    """What is left in a process: breakpoint bytes, debug registers."""
    found = list(recovery.planted_breakpoints(pid))
    with ptrace.Stopped(pid) as stopped:
        armed = [t for t in stopped.threads if ptrace.call(debug_registers.PEEKUSER, t, debug_registers.DEBUGREG_OFFSET + 56)]
    return found + armed


def states(pid):
    return "".join((ptrace.status(pid, tid) or {"state": "?"})["state"] for tid in ptrace.tids(pid))


class Subject:
    """One process that checks itself. `stopped`: it is in a group-stop and is to stay there."""

    def __init__(self, file, stopped=False, storm=""):
        self.file, self.stopped, self.storm = file, stopped, storm
        line = [sys.executable, SUBJECT, file, *filter(None, [storm])]
        self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, start_new_session=True)  # not of a group that is orphaned
        self.pid = self.process.pid
        while not (os.path.exists(file) and os.path.getsize(file) == 4096 and min(self.beats()) > 3):
            assert self.process.poll() is None, "the subject ended before it began"
            time.sleep(0.01)
        if stopped:
            os.kill(self.pid, signal.SIGSTOP)
            while not ptrace.is_stopped(self.pid):
                time.sleep(0.01)

    def beats(self):
        with open(self.file, "rb") as f:
            return struct.unpack("3Q", f.read(24))

    def wrong(self):
        with open(self.file, "rb") as f:
            return struct.unpack_from("Q", f.read(520), WRONG)[0]

    def is_as_before(self):
        """Whether nobody traces it, and it runs, or stands, as it did."""
        found = [ptrace.status(self.pid, tid) for tid in ptrace.tids(self.pid)]
        if self.storm:
            letters = "T" if self.stopped else "RSDZX"  # its threads come and go
            return not any(s is not None and (s["tracer"] or s["state"] not in letters) for s in found)
        if len(found) != 3 or any(s is None or s["tracer"] for s in found):
            return False
        return all(s["state"] == "T" if self.stopped else s["state"] in "RSD" for s in found)

    def goes_on(self, seconds=SECONDS):
        """Whether it comes to be as it was: each thread gets on, or none where it was stopped."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            before = self.beats()
            time.sleep(0.05)
            after = self.beats()
            moves = before == after if self.stopped else all(a < b for a, b in zip(before, after))
            if moves and self.is_as_before():
                return True
        return False

    def alive(self):
        return self.process.poll() is None

    def how_it_is(self):
        """For a person: its storm, how it ended, its threads' states, its children, how a child ended that ended wrongly."""
        with open(self.file, "rb") as f:
            child = struct.unpack_from("q", f.read(536), WRONG + 16)[0]
        kept = [(pid, states(pid), ptrace.status(pid)) for pid in children(self.pid)]
        return (
            f"{self.storm} {self.process.poll()} {states(self.pid)} beats {self.beats()} children {kept} ended child {child:#x}"
        )

    def trapped(self):
        """Whether a trap ended it."""
        return self.process.poll() == -signal.SIGTRAP

    def loads_libraries(self, seconds=SECONDS):
        """Whether it gets on after it has loaded some that it had not."""
        open(self.file + ".load", "w").close()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None and not os.path.exists(self.file + ".loaded"):
            time.sleep(0.02)
        return self.goes_on(seconds)

    def end(self):
        self.process.kill()
        self.process.wait()


def as_in_a_terminal():
    """In a child: no signal is ignored, as nohup and the jobs of a shell's background would have it."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


class Rank:
    """One process of a real engine (tools.engines) that never lacks requests. `truth`: what has it run
    Python (engines/conftest.py).

    Of it as of `Subject`: whether it is as before, which here means that nobody traces it, that it runs, and where it is `asked`
    that the engine answers a request which came afterwards."""

    stopped = False

    def __init__(self, engine, pid, truth, folder, asked=True):
        self.engine, self.pid, self.truth, self.folder, self.asked = engine, pid, truth, folder, asked
        self.began = ptrace.start_time(pid)

    def alive(self):
        return ptrace.start_time(self.pid) == self.began

    def is_as_before(self):
        found = [ptrace.status(self.pid, tid) for tid in ptrace.tids(self.pid)]
        return bool(found) and not any(s is None or s["tracer"] or s["state"] not in "RSDI" for s in found)

    def goes_on(self, seconds=20 * SECONDS):
        ran, answered, deadline = self.ran(), self.engine.answered()[1], time.monotonic() + seconds
        while time.monotonic() < deadline and self.alive():
            # the last of more than are under way at a time came since
            if (not self.asked or self.engine.answered()[1] > answered + IN_FLIGHT) and self.ran() > ran and self.is_as_before():
                return True
            time.sleep(0.05)
        return False

    def ran(self):
        return int(read_proc(self.pid, "schedstat").split()[0])

    def wrong(self):
        return 0

    def how_it_is(self):
        return f"{self.alive()} {states(self.pid)}"

    def trapped(self):
        return False  # how another's child ended is not known here

    def loads_libraries(self, seconds=20 * SECONDS):
        """A copy of a library that has a name of its own: the loader takes it for another one."""
        copy = os.path.join(self.folder, f"library-{self.pid}-{time.monotonic_ns()}.so")
        with open(os.path.join(self.truth.folder, f"{self.pid}.do"), "w") as f:
            f.write(f"import _ctypes, ctypes, shutil\nctypes.CDLL(shutil.copy(_ctypes.__file__, {copy!r}))\n")
        with self.truth(self.pid):
            with open(f"/proc/{self.pid}/maps") as f:
                assert copy in f.read(), "it did not load the library that it was told to"
        return self.goes_on(seconds)

    def end(self):
        """Others end it."""


def commands(gdb, folder, pids, step="step", slower=1.0):
    """{name: (words, seconds that it takes)} `step`: what breakpoints are set on; `slower`: than on small programs."""
    a, b, c = map(str, pids[:3])
    out = os.path.join(folder, "out")

    def in_gdb(name, *lines):
        script = os.path.join(folder, f"{name}.gdb")
        with open(script, "w") as f:
            f.write("\n".join(["set confirm off", "set pagination off", f"source {INIT}", *lines]) + "\n")
        return [gdb, "-q", "-nx", "-batch", "-x", script]

    body = os.path.join(folder, "body.py")
    with open(body, "w") as f:
        f.write("import time\ntime.sleep(0.1)\n")
    found = {
        "pylog": (in_gdb("pylog", f"llm-attach {a} {b}", f'pylog {step} "passed"', CTRL_C, "continue", "llm-detach"), 3.0),
        "llm-inject": (in_gdb("llm-inject", f"llm-attach {a}", f"llm-inject -unsafe {body} {a}", "llm-detach"), 1.5),
        "llm-stacks": ([*PYTHON, "llm-stacks", a, b, c], 1.2),
        "llm-hang": ([*PYTHON, "llm-hang", a, b, c], 2.2),
        "llm-locks": ([*PYTHON, "llm-locks", a, b, c], 1.2),
        "llm-snapshot": ([*PYTHON, "llm-snapshot", a, b, c, "-o", out], 1.5),
        "llm-report": ([*PYTHON, "llm-report", f"{out}/r.html", a, b, c], 2.5),
        "llm-record": ([*PYTHON, "llm-record", a, b, "-for", "1", "-o", f"{out}/x.json.gz", "-force"], 2.0),
        "native": ([*PYTHON, "llm-record", a, b, "-for", "1", "-native", "-rate", "50", "-o", f"{out}/x.record", "-force"], 2.0),
        "llm-watch": ([*PYTHON, "llm-watch", a, c, "-after", "0.3", "-poll", "0.05", "-for", "2", "-o", out], 3.0),
        "pyheap": ([*PYTHON, "pyheap", "-on", a], 1.2),
        "llm-attach": (in_gdb("llm-attach", f"llm-attach {a} {b} {c}", "llm-bt -all", "shell sleep 0.3", "llm-detach"), 2.0),
        "llm-continue": (in_gdb("llm-continue", f"llm-attach {a} {b}", CTRL_C, "llm-continue", "llm-detach"), 2.5),
        "pybreak": (
            in_gdb("pybreak", f"llm-attach {a} {b}", f"pybreak {step}", *["llm-continue"] * 6, "llm-detach"),
            3.0,
        ),
        "pytrace": (in_gdb("pytrace", f"llm-attach {a}", f"pytrace {step} -for 1", "llm-detach"), 3.0),
        "pystep": (
            in_gdb("pystep", f"llm-attach {a}", f"pybreak {step}", "continue", "pystep", "pynext", "pyfinish", "llm-detach"),
            3.0,
        ),
        "pycatch": (in_gdb("pycatch", f"llm-attach {a}", "pycatch -uncaught", CTRL_C, "continue", "llm-detach"), 3.0),
        "import": (  # which waits by a debug register
            in_gdb("import", f"llm-attach {a} {b}", "pybreak nowhere.py:1", CTRL_C, "continue", "llm-detach"),
            3.0,
        ),
    }
    return {name: (words, slower * seconds) for name, (words, seconds) in found.items()}


def children(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/children") as f:
        return list(map(int, f.read().split()))
    return []


def send(pids, number):
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def pause(process, how, subjects, group):
    """Has a command stand. `group`: its control group."""
    if how == "freeze":
        cgroups.freeze(group)
    elif how == "child-stop":
        send(children(process.pid), signal.SIGSTOP)
    elif how == "tracer-stop":  # in the middle of a stop, where one comes
        deadline = time.monotonic() + 3
        while process.poll() is None and time.monotonic() < deadline:
            found = {pid for one in subjects for pid in ptrace.tracers(one.pid)}
            if found:
                send(found, signal.SIGSTOP)
                break
    elif how == "group-stop":
        send([-process.pid], signal.SIGSTOP)
    else:
        send([-process.pid if how == "tstp" else process.pid], NUMBERS[how])


def go_on(process, how, group):
    """Ends `pause`."""
    if how == "freeze":
        cgroups.thaw(group)
    send([*children(process.pid), -process.pid], signal.SIGCONT)


def ended(process, how, seconds, group=None):
    """Ends a command that runs in a session of its own. -> whether it has ended in time. `group`: its control group."""
    if how == "child":
        send(children(process.pid), signal.SIGKILL)
    elif how == "end":
        cgroups.end(group)
    elif how == "stopped":
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.4)
        process.kill()
    elif how.startswith("group"):
        send([-process.pid], NUMBERS[how])
    else:
        process.send_signal(NUMBERS.get(how, signal.SIGKILL))
    try:
        process.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


def stay(paths, seconds=SECONDS):
    """Those of the paths that are still there after so many seconds."""
    deadline = time.monotonic() + seconds
    while any(map(os.path.exists, paths)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return list(filter(os.path.exists, paths))


def left(mark, mine):
    """Processes that were started with TMPDIR=`mark` and still run, guards that put in order what was held not counted."""
    found = []
    for pid in set(filter(str.isdigit, os.listdir("/proc"))) - {str(pid) for pid in mine}:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as f:
            if b"TMPDIR=" + os.fsencode(mark) in f.read() and ptrace.thread_state(int(pid), int(pid)) not in ("", "Z", "X"):
                with open(f"/proc/{pid}/cmdline", "rb") as line:
                    found.append((int(pid), line.read()[:160]))
    return found


def guards_in(processes):
    """Pids of guards among those of `left`."""
    return [pid for pid, line in processes if b"guard_process" in line]


class Rounds:
    """Rounds of random kills. `wrong`: what was not as it should be, but for `trapped` processes (TRAPPED); `counts`: {(command,
    how): rounds}. `subjects`: those of a
    real engine, instead of three small programs; `storms`: the programs fork, start others, threads, get signals all the time;
    `how`: more for `commands`."""

    def __init__(self, gdb, folder, seed, only=(), subjects=(), storms=False, **how):
        self.folder, self.random, self.gdb, self.only, self.how = folder, random.Random(seed), gdb, only, how
        self.wrong, self.trapped, self.counts = [], 0, collections.Counter()
        self.storms, self.groups = storms, os.access(cgroups.unified() or "/nowhere", os.W_OK)
        for name in ("tmp", "out"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        self.tmp = os.path.join(folder, "tmp")
        self.env = dict(os.environ, PYTHONPATH=ROOT, TMPDIR=self.tmp)
        self.subjects = list(subjects) or [self._new(i, i == 2) for i in range(3)]

    def _new(self, number, stopped):
        storm = self.random.choice(STORMS) if self.storms else ""
        return Subject(os.path.join(self.folder, f"subject{number}-{time.monotonic_ns()}"), stopped, storm)

    def _is_answer(self, status, what):
        """A command that fails by itself is killed in nothing."""
        with open(os.path.join(self.folder, "said"), errors="replace") as f:
            text = f.read()
        if status not in (0, 3) or "Error in sourced command file" in text:
            self.wrong.append((*what, f"it failed by itself, {status}: {text[-300:]}"))

    def run(self, number):
        """One round."""
        found = commands(self.gdb, self.folder, [s.pid for s in self.subjects], **self.how)
        name = self.random.choice(self.only or sorted(found))
        how, (words, seconds) = self.random.choice([h for h in HOW if self.groups or h not in ("end", "freeze")]), found[name]
        moment, before = self.random.uniform(0.02, 0.9 * seconds), set(glob.glob(EXCHANGES))
        what = (number, name, how, round(moment, 3))
        with contextlib.ExitStack() as around:
            group, joins = None, as_in_a_terminal
            if how in ("end", "freeze"):
                # a gdb in version 1's freezer, which no signal reaches, lets nothing go
                v1 = how == "freeze" and words[0] != self.gdb
                group = around.enter_context(cgroups.made(v1 and cgroups.hierarchy("freezer") or cgroups.unified()))
                into = cgroups.joining(group)
                joins = lambda: (as_in_a_terminal(), into())  # noqa: E731
            more = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "start_new_session": True, "preexec_fn": joins}
            with open(os.path.join(self.folder, "said"), "wb") as said:
                process = subprocess.Popen(words, env=self.env, cwd=self.folder, stdout=said, **more)
            try:
                process.wait(moment)
                how = "ended"
                self._is_answer(process.returncode, what)
            except subprocess.TimeoutExpired:
                self._strike(process, how, group, what)
        self.counts[name, how] += 1
        for place, one in enumerate(self.subjects):
            if not one.goes_on():
                if name in ARMING and one.trapped():
                    self.trapped += 1
                else:
                    self.wrong.append((*what, f"subject {place} is not as before: {one.how_it_is()}"))
                one.end()
                if isinstance(one, Subject):
                    self.subjects[place] = self._new(place, place == 2)
            elif one.wrong():
                self.wrong.append((*what, f"subject {place} computed wrong: {one.how_it_is()}"))
                one.end()
                if isinstance(one, Subject):
                    self.subjects[place] = self._new(place, place == 2)
        for file in glob.glob(os.path.join(self.folder, "out", "*")):
            shutil.rmtree(file) if os.path.isdir(file) else os.unlink(file)  # many, of a real engine, fill the disk
        files = glob.glob(self.tmp + "/*") + glob.glob(self.tmp + "/.*[!.]") + stay(set(glob.glob(EXCHANGES)) - before)
        if files:
            self.wrong.append((*what, f"left behind: {files}"))
            for file in files:
                with contextlib.suppress(OSError):
                    os.unlink(file)

    def _strike(self, process, how, group, what):
        """Does to a command what is drawn, until it has ended."""
        if how == "cont":  # anybody's, to a process; the end comes later
            send([one.pid for one in self.subjects if not one.stopped], signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.random.uniform(0.0, 2.0))
            how = self.random.choice(["kill", "term", "group"])
        elif how == "any":
            found = left(self.tmp, [one.pid for one in self.subjects])
            if found:
                send([self.random.choice(found)[0]], signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS)
            how = "kill"
        elif how == "guard":
            first, deadline = guards_in(left(self.tmp, [])), time.monotonic() + SECONDS
            send(first, signal.SIGKILL)
            while first and process.poll() is None and time.monotonic() < deadline:
                if set(guards_in(left(self.tmp, []))) - set(first):
                    time.sleep(self.random.uniform(0.5, 1.5))  # it is told what the first one knew
                    break
                time.sleep(0.02)
            how = "kill"
        elif how in PAUSES:
            pause(process, how, self.subjects, group)
            for place, one in enumerate(self.subjects):
                if not (one.stopped or one.goes_on()):
                    text = f"subject {place} does not run on while the command stands: {one.alive()} {states(one.pid)}"
                    self.wrong.append((*what, text))
            go_on(process, how, group)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.random.choice([0.0, 0.2, 60.0]))
            how = "kill"
        if process.poll() is None and not ended(process, how, SECONDS * self.how.get("slower", 1.0), group):
            self.wrong.append((*what, "it did not end"))

    def end(self):
        """Looks for what is left, and ends the subjects."""
        deadline = time.monotonic() + SECONDS
        mine = [s.pid for s in self.subjects]
        while left(self.tmp, mine) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.wrong += [("at the end", "still runs", one) for one in left(self.tmp, mine)]
        for one in self.subjects:
            if one.alive() and not one.stopped and planted(one.pid):
                self.wrong.append(("at the end", "left in a subject", planted(one.pid)))
        for one in self.subjects:
            one.end()


# gdb and what it started are ended at once, as with their container.
GROUP = {
    "llm-stacks": None,
    "llm-snapshot": None,
    "llm-attach": ["llm-attach {0}", "shell sleep 30"],
    "llm-continue": ["llm-attach {0}", "llm-continue", "shell sleep 30"],
    "llm-continue-all": ["llm-attach {0} {1}", "llm-continue", "shell sleep 30"],
}
# With breakpoints armed in a function that is reached 700 times a second: gdb needs its real-time priority for that. The last but
# one line creates a file just before the process runs with them.
ARMED = {
    "pybreak": ["llm-attach {0} {1}", "pybreak step if n < 0", "shell touch armed", "llm-continue"],
    "pylog": ["llm-attach {0} {1}", 'pylog step "{{n}}"', "shell touch armed", "continue"],
    "pytrace": ["llm-attach {0}", "shell touch armed", "pytrace step -for 30"],
}
TRAPPED = "a trap that gdb had not fetched ended a process"  # docs/security.md: what may still end a process


def end_of_a_group(gdb, folder, seed, name, subjects=(), slower=1.0):
    """One end of a whole control group with a command in it. -> what is wrong, ''. The processes then load libraries. `subjects`:
    two of a real engine, instead of small programs."""
    chance, typed = random.Random(seed), {**GROUP, **ARMED}[name]
    subjects = subjects or [Subject(os.path.join(folder, f"{name}-{seed}-{i}")) for i in range(2)]
    os.makedirs(os.path.join(folder, "out"), exist_ok=True)
    armed = os.path.join(folder, "armed")
    with contextlib.suppress(OSError):
        os.unlink(armed)
    try:
        words = commands(gdb, folder, [s.pid for s in subjects] + [0])[name if typed is None else "llm-attach"][0]
        words = [word for word in words if word != "0"]
        if typed is not None:
            with open(words[-1], "w") as f:
                lines = [line.format(*(s.pid for s in subjects)) for line in typed]
                f.write("\n".join(["set confirm off", "set pagination off", f"source {INIT}", *lines]) + "\n")
        with cgroups.made(cgroups.unified()) as group:
            null = subprocess.DEVNULL
            env = dict(os.environ, PYTHONPATH=ROOT)
            more = {"stdin": null, "stdout": null, "stderr": null, "start_new_session": True}
            process = subprocess.Popen(words, env=env, cwd=folder, preexec_fn=cgroups.joining(group), **more)
            if name in ARMED:
                while not os.path.exists(armed):
                    assert process.poll() is None, "gdb ended before it armed anything"
                    time.sleep(0.005)
            time.sleep(slower * chance.uniform(0.2, 4.0 if name in GROUP and typed is not None else 1.5))
            cgroups.end(group)
            process.wait()
        for one in subjects:
            if not one.goes_on():
                return TRAPPED if one.trapped() else f"a process is not as before: {one.alive()} {states(one.pid)}"
        for one in subjects:
            if not one.loads_libraries():
                return f"a process does not go on after it loaded a library: {one.alive()} {states(one.pid)}"
        return "computed wrong" if any(one.wrong() for one in subjects) else ""
    finally:
        for one in subjects:
            one.end()


def main(words):
    """At length: so many random kills, then a sixth as many ends of a group."""
    import tempfile

    count, seed = int(words[0]), int(words[1])
    gdb, storms = os.environ.get("GDB", "gdb"), "STORMS" in os.environ
    with tempfile.TemporaryDirectory() as folder:
        rounds = Rounds(gdb, folder, seed, words[2].split(",") if len(words) > 2 else (), storms=storms)
        for number in range(count):
            seen = len(rounds.wrong) + rounds.trapped
            rounds.run(number)
            if len(rounds.wrong) + rounds.trapped > seen:
                print("lost", rounds.wrong[-1:], rounds.trapped, flush=True)
            if number % 20 == 19:
                print(number + 1, "rounds,", len(rounds.wrong), "wrong", flush=True)
        rounds.end()
        groups = []
        for number in range(0 if storms else count // 6):
            name = sorted(GROUP)[number % len(GROUP)]
            groups.append((name, end_of_a_group(gdb, folder, seed + number, name)))
            if groups[-1][1]:
                print("group", groups[-1], flush=True)
    print("kills:", sum(rounds.counts.values()), "trapped:", rounds.trapped)
    print("wrong:", len(rounds.wrong), *rounds.wrong, sep="\n ")
    print("ends of a group:", len(groups), "wrong:", sum(bool(text) for _, text in groups))
    print(sorted(rounds.counts.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
