"""Stalls that are planted in engines while `gdbext watch` follows them, and what it wrote of each, when, and what came after.

`Ranks` are subjects/engine_of_ranks.py. A `Case` says what was true. Processes must be in a pid namespace of their own where
other engines may be on the machine: the watch is asked for `all`."""

import collections
import contextlib
import json
import os
import random
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field

from . import cgroups
from .gdb_run import ROOT
from .subjects import SUBJECTS, spawned

PLANTED = ("service", "lock", "queue", "pool", "fifo", "gil", "child", "network", "loops")  # ways of planted.py, anywhere
INSIDE = ("grammar", "full")  # in the scheduler alone
KINDS = ("stopped", *PLANTED, *INSIDE, "disk", "frozen", "killed", "memory")
ENDS = ("killed", "memory")  # the engine does not go on
QUIET = ("busy", "idle", "startup", "ending")
PATIENCE = 40.0  # seconds that a verdict, and what comes after, is waited for
RUN = "import gdbext.watch.box as box; box.BURST = 1000; import sys; import gdbext.__main__ as main; main.main(sys.argv[1:])"


@dataclass
class Case:
    """One stall. `late`: seconds from the limit (from the death, where there is none) to the line of the verdict; `boxed`: to
    that of the box; None where there was none. `how`: right, unknown, WRONG, none. `harm`: why the engine did not go on, ''."""

    kind: str
    who: str
    late: float = None
    boxed: float = None
    how: str = "none"
    said: str = ""
    harm: str = ""
    recovered: bool = False
    stood: float = None  # seconds that the watch had seen it stand when it began to look
    took: float = None  # that its examination took


class Watched:
    """A `gdbext watch` that runs. `after`: seconds."""

    def __init__(self, folder, after, what=("all",), env=None):
        self.folder, self.after, self.file = str(folder), after, os.path.join(str(folder), "events")
        words = ["watch", *what, "-after", str(after), "-events", self.file]
        words += ["-o", os.path.join(self.folder, "boxes"), "-keep", "4"]
        with open(os.path.join(self.folder, "log"), "w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RUN, *words], cwd=ROOT, stdout=said, stderr=said, env={**os.environ, **(env or {})}
            )
        self._seen, self._at, self._lock = [], 0, threading.Lock()

    def events(self):
        """All of them so far, the oldest first."""
        with self._lock, contextlib.suppress(OSError), open(self.file) as f:
            f.seek(self._at)
            for line in iter(f.readline, ""):
                if line.endswith("\n"):
                    self._seen.append(json.loads(line))
                    self._at += len(line.encode())
        return list(self._seen)

    def first(self, wanted, since, seconds=PATIENCE):
        """The first event after a time of which `wanted(event)` is true; None where there is none for so long."""
        end = time.monotonic() + seconds
        while True:
            found = next((one for one in self.events() if one["time"] >= since and wanted(one)), None)
            if found is not None or time.monotonic() > end or self.process.poll() is not None:
                return found
            time.sleep(0.05)

    def follows(self, pids, seconds=120):
        """Waits until it follows all of them."""
        for pid in pids:
            assert self.first(lambda one, pid=pid: one["kind"] == "came" and one["pid"] == pid, 0, seconds), self.log()

    def log(self):
        with open(os.path.join(self.folder, "log")) as f:
            return f.read()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.process.kill()
        self.process.wait()


class Ranks:
    """One engine of stand-ins, and what is done to it. `release`: (folder, version) of vLLM's own scheduler."""

    def __init__(self, stack, python, release, workers=2, seconds=0.02):
        self.folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gdbext-planted-"))
        words = [python, os.path.join(SUBJECTS, "engine_of_ranks.py"), *release, self.folder, str(workers), str(seconds)]
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self.process = stack.enter_context(spawned(words, ready="{", start_new_session=True, env=env, stderr=subprocess.DEVNULL))
        self.pids, self.stack = json.loads(self.process.said), stack

    def steps(self):
        with contextlib.suppress(OSError, struct.error), open(os.path.join(self.folder, "steps"), "rb") as f:
            return struct.unpack("<Q", f.read(8))[0]
        return 0

    def do(self, who, word):
        path = os.path.join(self.folder, f"{who}.do")
        with open(path + ".new", "w") as f:
            f.write(word)
        os.rename(path + ".new", path)

    def guilty(self, who):
        """The pids of a process and of what it has started, ranks left out."""
        ranks = set(self.pids.values()) - {self.pids[who]}
        return {self.pids[who]} | {pid for pid in below(self.pids[who]) if pid not in ranks}

    def moves(self, seconds=PATIENCE):
        before, end = self.steps(), time.monotonic() + seconds
        while self.steps() <= before + 5:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    @contextlib.contextmanager
    def planted(self, kind, who):
        """A stall of one kind while the block runs."""
        place = os.path.join(self.folder, who)
        with contextlib.ExitStack() as stack:
            if kind == "stopped":
                os.kill(self.pids[who], signal.SIGSTOP)
                stack.callback(os.kill, self.pids[who], signal.SIGCONT)
            elif kind == "frozen":
                group = stack.enter_context(cgroups.made(cgroups.hierarchy("freezer")))
                before = stack.enter_context(in_group(group, self.pids[who]))
                del before
                cgroups.freeze(group)
                stack.callback(cgroups.thaw, group)
            elif kind == "killed":
                os.kill(self.pids[who], signal.SIGKILL)
            elif kind in INSIDE:
                self.do("core", kind)
                stack.callback(self.do, "core", "abort")
            else:
                stack.enter_context(WAYS.get(kind, contextlib.nullcontext)(self, place, who))
                self.do(who, kind)
            yield


STAND = """
import os, subprocess, sys
sys.path.insert(0, {subjects!r})
import planted
if not os.path.exists({go!r}):
    os.mkfifo({go!r})
planted.stand({word!r}, {place!r})
subprocess.Popen(["sh", "-c", "echo > " + {go!r}])
"""


class Real(Ranks):
    """A real engine (tools.engines) whose processes take texts (tests/engines/subject/sitecustomize.py): the main thread stands
    in the handler of a signal. The ways inside a scheduler are not for it."""

    def __init__(self, stack, engine, truth):
        self.folder, self.stack, self.engine, self.truth = engine.folder, stack, engine, truth
        self.pids = {title.rpartition("::")[2]: pid for pid, title in engine.titles().items() if "::" in title}

    def steps(self):
        return self.engine.answered()[0]

    def do(self, who, word):
        pid = self.pids[who]
        text = STAND.format(
            subjects=SUBJECTS, go=os.path.join(self.truth, f"{pid}.go"), word=word, place=os.path.join(self.folder, who)
        )
        path = os.path.join(self.truth, f"{pid}.do")
        with open(path + ".new", "w") as f:
            f.write(text)
        os.rename(path + ".new", path)
        os.kill(pid, signal.SIGUSR2)


@contextlib.contextmanager
def in_group(group, pid):
    """A process is in a group meanwhile, then back where it was."""
    name = os.path.basename(os.path.dirname(group))
    with open(f"/proc/{pid}/cgroup") as f:
        own = next(line.split(":")[2].strip() for line in f if name in line.split(":")[1].split(","))
    top = os.path.dirname(group)
    cgroups.join(group, pid)
    try:
        yield
    finally:
        cgroups.thaw(group)
        with contextlib.suppress(OSError):
            cgroups.join(top + own if os.path.isdir(top + own) else top, pid)


def below(pid):
    """All processes that came of one."""
    found = []
    for name in os.listdir(f"/proc/{pid}/task") if os.path.exists(f"/proc/{pid}/task") else ():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{name}/children") as f:
            for child in map(int, f.read().split()):
                found += [child, *below(child)]
    return found


@contextlib.contextmanager
def service(ranks, place, who):
    """Takes a question, and answers as the block ends."""
    path = place + ".service"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
        s.listen(4)
        yield
        s.settimeout(5)
        with contextlib.suppress(OSError), s.accept()[0] as asked:
            asked.sendall(b"x")


@contextlib.contextmanager
def fifo(ranks, place, who):
    with contextlib.suppress(FileExistsError):
        os.mkfifo(place + ".fifo")
    yield
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with contextlib.suppress(OSError):  # until somebody reads
            os.close(os.open(place + ".fifo", os.O_WRONLY | os.O_NONBLOCK))
            return
        time.sleep(0.02)


@contextlib.contextmanager
def child(ranks, place, who):
    yield
    for pid in ranks.guilty(who) - {ranks.pids[who]}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
            if open_words(pid)[:1] == ["sleep"]:
                os.kill(pid, signal.SIGTERM)


def open_words(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as f:
        return f.read().split("\0")
    return []


@contextlib.contextmanager
def disk(ranks, place, who):
    """A file system that is frozen: what writes to it sleeps uninterruptibly."""
    image, folder = place + ".image", place + ".disk"
    if not os.path.exists(image):
        with open(image, "wb") as f:
            f.truncate(8 << 20)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        os.mkdir(folder)
    subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    try:
        subprocess.run(["fsfreeze", "-f", folder], check=True)
        try:
            yield
        finally:
            subprocess.run(["fsfreeze", "-u", folder], check=True)
    finally:
        time.sleep(0.5)
        subprocess.run(["umount", "-l", folder], check=True)


@contextlib.contextmanager
def loops(ranks, place, who):
    open(place + ".loops", "w").close()
    yield
    os.unlink(place + ".loops")


@contextlib.contextmanager
def memory(ranks, place, who):
    """Its control group has little memory; for ever, since that ends it."""
    group = ranks.stack.enter_context(cgroups.made(cgroups.hierarchy("memory")))
    cgroups.limit(group, 200 << 20)
    cgroups.join(group, ranks.pids[who])
    with open(f"/proc/{ranks.pids[who]}/oom_score_adj", "w") as f:
        f.write("0")
    yield


WAYS = {
    "service": service, "lock": service, "queue": service, "pool": service, "fifo": fifo, "gil": fifo, "child": child,
    "network": child, "disk": disk, "loops": loops, "memory": memory,
}  # fmt: skip


def judge(case, event, guilty):
    """Fills in what an event of a verdict says of a case."""
    data = event
    named = {c["pid"] for c in data["culprits"]}
    case.said = f"{data['verdict']} {sorted(named)} {data['sentence'][:160]}"
    if data["verdict"] == "unknown":
        case.how = "unknown"
    elif data["verdict"] in QUIET or not named <= guilty:
        case.how = "WRONG"
    elif not named and case.kind not in (*INSIDE, *ENDS):
        case.how = "unknown"
    else:
        case.how = "right"


def watched(watch, ranks, kind, who, holds=0.5):
    """Plants a stall, waits for its verdict, lifts it, and looks what comes after. -> the `Case`"""
    case, pids, mine = Case(kind, who), set(ranks.pids.values()), {ranks.pids[who]}
    engine = next((e["engine"] for e in watch.events() if e["kind"] == "came" and e["pid"] in pids), "")

    def is_of(event, what):
        data = event
        named = {c["pid"] for c in data.get("culprits", ())} | {data.get("pid")}
        return event["kind"] == what and (bool(named & pids) or data.get("engine") == engine)

    began = time.time()
    with ranks.planted(kind, who):
        time.sleep(0.2)
        mine |= ranks.guilty(who)
        verdict = watch.first(lambda one: is_of(one, "verdict") or is_of(one, "died") and kind in ENDS, began)
        mine |= ranks.guilty(who)
        if verdict is not None and verdict["kind"] == "died":
            began = verdict["time"]
            verdict = watch.first(lambda one: is_of(one, "verdict"), began)
        if verdict is not None:
            stalled = next((e for e in watch.events() if e["time"] >= began and is_of(e, "stalled")), {})
            limit = 0.0 if kind in ENDS else stalled.get("limit", watch.after)
            case.stood, case.took = stalled.get("seconds"), verdict["seconds"] - stalled.get("seconds", 0.0)
            case.late = verdict["time"] - began - limit
            box = watch.first(lambda one: one["kind"] in ("box", "no-box"), verdict["time"], 20)
            case.boxed = box["time"] - began - limit if box is not None and box["kind"] == "box" else None
            judge(case, verdict, mine)
        time.sleep(holds)
        lifted = time.time()
    if kind not in ENDS:
        case.harm = "" if ranks.moves() else "it does not go on"
        gone = [name for name, pid in ranks.pids.items() if not os.path.exists(f"/proc/{pid}")]
        case.harm = case.harm or (f"{', '.join(gone)} gone" if gone else "")
        case.recovered = watch.first(lambda one: is_of(one, "recovered"), lifted - 1) is not None
    return case


def drawn(seed, kinds=KINDS):
    """Yields (kind, process), for ever: all kinds in turn, each time in another order."""
    draw = random.Random(seed)
    while True:
        for kind in draw.sample(kinds, len(kinds)):
            yield kind, "core" if kind in INSIDE or kind not in ("memory", "disk") and draw.random() < 0.25 else "Worker"


def table(cases):
    """Lines of a Markdown table."""
    rows = collections.defaultdict(list)
    for case in cases:
        rows[case.kind].append(case)
    rows["all"] = list(cases)
    heads = "kind|planted|right|unknown|wrong|none|verdict, s after N|most|box|within 5 s|recovered|harm"
    lines = ["| " + heads.replace("|", " | ") + " |"]
    lines.append("|---" * 12 + "|")
    for kind, some in rows.items():
        late, boxed = ([getattr(c, name) for c in some if getattr(c, name) is not None] for name in ("late", "boxed"))
        how = collections.Counter(c.how for c in some)
        asked = (statistics.median, late), (max, late), (statistics.median, boxed)
        middle = [f"{f(times):.1f}" if times else "" for f, times in asked]
        cells = [kind, len(some), *(how[word] for word in ("right", "unknown", "WRONG", "none")), *middle]
        cells += [sum(t <= 5 for t in late), f"{sum(c.recovered for c in some)} of {sum(c.kind not in ENDS for c in some)}"]
        cells.append(sum(bool(c.harm) for c in some))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


@dataclass
class Runs:
    """Many stalls, in engines of their own that one watch follows."""

    python: str
    release: tuple
    after: float = 6.0
    workers: int = 2
    said: object = print
    cases: list = field(default_factory=list)

    def run(self, seed, count, engines, folder, kinds=KINDS):
        """Fills `cases`."""
        draw, left, lock = drawn(seed, kinds), [count], threading.Lock()

        def next_one():
            with lock:
                left[0] -= 1
                return next(draw) if left[0] >= 0 else None

        def lives(number):
            random_ = random.Random(f"{seed} {number}")
            while True:
                with contextlib.ExitStack() as stack:
                    ranks = Ranks(stack, self.python, self.release, self.workers, random_.choice((0.01, 0.03, 0.08)))
                    watch.follows(ranks.pids.values())
                    while True:
                        drawn_one = next_one()
                        if drawn_one is None:
                            return
                        kind, who = drawn_one
                        who = who if who == "core" else f"Worker_TP{random_.randrange(self.workers)}"
                        assert ranks.moves(), "it made no steps before"
                        time.sleep(random_.uniform(2.5, 5))
                        case = watched(watch, ranks, kind, who)
                        self.cases.append(case)
                        self.said(f"{len(self.cases)} {case}")
                        if kind in ENDS or case.harm:
                            break

        watch = Watched(folder, self.after)
        try:
            threads = [threading.Thread(target=lives, args=(n,)) for n in range(engines)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
        finally:
            watch.end()
        self.log = watch.log()
        return self.cases
