"""What several processes did during a short while: CPU clocks, states and Python stacks seen without stopping anything, then one
look with every stack whole. `facts` of `verdict` are made from it."""

import os
import re
import signal
import time

from ..access.proc import ProcTarget, read_proc
from ..access.proctable import ProcTable, is_python_name
from ..cpython import gil
from ..cpython.runtime import open_runtime
from ..engines import shm_rings
from ..engines.recognition import memory_environ
from ..errors import GdbextError
from ..torch import collectives
from . import ipc_locks, locks, snapshots, threads

GIL_LOOKS = 12
STACK_LOOKS = 6


class Clock:
    """A thread's clock: `run` seconds on a processor, `queued` seconds that it waited for one, `sleeps`: times it went to sleep of
    itself, `state`."""

    __slots__ = ("run", "queued", "sleeps", "state")

    def __init__(self, run, queued, sleeps, state):
        self.run, self.queued, self.sleeps, self.state = run, queued, sleeps, state


def clocks(pid):
    """{tid: Clock}; {} where the process is gone."""
    found = {}
    try:
        tids = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for tid in tids:
        try:
            stat = read_proc(pid, f"task/{tid}/stat").rpartition(b")")[2].split()
            status = read_proc(pid, f"task/{tid}/status")
            try:
                run, queued = (int(n) / 1e9 for n in read_proc(pid, f"task/{tid}/schedstat").split()[:2])
            except (GdbextError, ValueError):
                queued, run = 0.0, (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
            sleeps = next((int(line.split()[1]) for line in status.splitlines() if line.startswith(b"voluntary_ctxt")), 0)
            found[int(tid)] = Clock(run, queued, sleeps, stat[0].decode())
        except (GdbextError, IndexError, ValueError):
            continue  # it ended while we looked
    return found


class ProcessSamples:
    """One process over the while: `snapshot`, `view` (None: `why`), `edges`, `before` and `after` (`clocks`), `window` seconds between them,
    `stacks`: {tid: [stack at each look]}, `gil`: `Samples` or None, `state`: of the process, `world`: (rank, size) of its
    torch.distributed group or None."""

    def __init__(self, snapshot):
        self.snapshot, self.pid, self.rank = snapshot, snapshot.pid, snapshot.rank
        self.view, self.why, self.edges, self.before, self.after, self.window = None, "", [], {}, {}, 0.0
        self.stacks, self.gil, self.state, self.world, self.partial = {}, None, "", None, []
        self.pipe, self.writers = (
            "",
            [],
        )  # the pipe that the main thread reads from, and the other processes looked at that write to it
        self.serves = []  # its children that write to it and were not looked at
        self.ended = ""  # how it has ended, where it has
        self.zombies = []  # (pid, what happened to it) of children that have failed
        self.rings = []  # `shm_rings.Ring`: the ends of broadcast rings that it holds
        self.counts = []  # `collectives.Count`: how many collectives each of its groups has begun

    @property
    def name(self):
        return self.view.name if self.view is not None else self.snapshot.name

    def ran(self, tid):
        """Seconds that a thread ran during the while, None where that is not known."""
        a, b = self.before.get(tid), self.after.get(tid)
        return b.run - a.run if a and b else None

    def wanted(self, tid):
        """Seconds that a thread ran or waited for a processor, None where that is not known."""
        a, b = self.before.get(tid), self.after.get(tid)
        return b.run + b.queued - a.run - a.queued if a and b else None

    def woke(self, tid):
        """How often a thread went to sleep anew during the while."""
        a, b = self.before.get(tid), self.after.get(tid)
        return b.sleeps - a.sleeps if a and b else 0

    def moved(self, tid):
        """Whether two looks show different Python stacks of a thread."""
        return len(set(self.stacks.get(tid, ()))) > 1


def sample(found, held, seconds, words=()):
    """Looks at what `resolve` gave for `seconds`, then stops each process once, for milliseconds. -> [ProcessSamples]. `words` as for `snapshots.take_snapshots`."""
    seen = [ProcessSamples(snap) for snap in snapshots.snapshots_of(found)]
    live = [s for s, one in zip(seen, found) if not isinstance(one, str) and held(one) is None]
    open_ = {}
    for s in live:
        s.state = state_of(s.pid)
        if s.state in ("", "Z", "X"):
            process = ProcTable().processes.get(s.pid)
            s.ended = how_ended(process.exit_status) if process is not None and process.exit_status else ""
            continue
        try:
            open_[s.pid] = open_runtime(ProcTarget(s.pid))
        except GdbextError:
            pass  # no Python that can be read: clocks and native stacks are left
    began = time.monotonic()
    for s in live:
        s.before = clocks(s.pid)
    for number in range(STACK_LOOKS):
        for s in live:
            rt = open_.get(s.pid)
            if rt is not None:
                _python_stacks(s, rt)
                _gil(s, rt, number)
        left = began + seconds * (number + 1) / STACK_LOOKS - time.monotonic()
        if left > 0:
            time.sleep(left)
    for s in live:
        s.zombies = failed_children(s.pid)
        s.after = clocks(s.pid)
        s.window = time.monotonic() - began
    for rt in open_.values():
        rt.target.close()
    with snapshots.take_snapshots(found, held, words) as taken:
        for s, snap in zip(seen, taken):
            s.snapshot = snap
            s.pid = snap.pid
            now = state_of(s.pid) if s in live else ""
            s.state = now or s.state
            if s in live and not now:
                s.state = "X"  # it was there when we began
            if snap.target is None:
                s.why = snap.reason
                continue
            try:
                s.view = threads.view_of(snap)
                s.edges, why = locks.find(s.view)
                s.partial = s.view.partial + snap.partial + why
                if s.view.rt is not None:
                    s.rings, s.counts = shm_rings.find(s.view.rt), collectives.find(s.view.rt)
                    s.world = world(s.view.rt)
                    if s.world is None and s.rank is None:  # an engine's default group may span many engines
                        s.world = next(((c.rank, c.size) for c in s.counts if c.default and c.rank is not None), None)
                for th in s.view.threads:
                    if th.python:
                        s.stacks.setdefault(th.tid, []).append(stack_key(th.python))
            except GdbextError as e:
                s.why = str(e)
    ipc_locks.resolve([s.view for s in seen if s.view is not None], [e for s in seen for e in s.edges])
    _pipes([s for s in seen if s in live])
    return seen


def _pipes(seen):
    """Finds out who writes to the pipes that main threads read from. Source: proc(5), /proc/PID/fd and fdinfo."""
    for s in seen:
        main = s.view.main if s.view is not None else None
        if main is None or not main.native or not re.match(r"_*(libc_)?read$", main.native[0].function or ""):
            continue
        try:
            registers = s.view.target.registers(main.thread)
            s.pipe = os.readlink(f"/proc/{s.pid}/fd/{registers[gil.FIRST_ARGUMENT[s.view.target.arch]]}")
        except (GdbextError, OSError, KeyError):
            continue
        if not s.pipe.startswith("pipe:"):
            continue
        s.writers = [o for o in seen if o is not s and _writes(o.pid, s.pipe)]
        known = {o.pid for o in seen}
        s.serves = [
            f"{c.comm} ({c.pid})" for c in ProcTable().children.get(s.pid, ()) if c.pid not in known and _writes(c.pid, s.pipe)
        ]


def _writes(pid, link):
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            if os.readlink(f"/proc/{pid}/fd/{fd}") == link:
                flags = re.search(rb"flags:\s+([0-7]+)", read_proc(pid, f"fdinfo/{fd}"))
                if flags and int(flags.group(1), 8) & os.O_ACCMODE != os.O_RDONLY:
                    return True
    except (GdbextError, OSError):
        pass  # it has closed it, or may not be looked into
    return False


def state_of(pid):
    try:
        return read_proc(pid, "stat").rpartition(b")")[2].split()[0].decode()
    except (GdbextError, IndexError):
        return ""


def failed_children(pid):
    """[(pid, what)] of Pythons that this process started, that have failed and that it has not asked about."""
    table, found = ProcTable(), []
    for child in table.children.get(pid, ()):
        if child.state == "Z" and child.exit_status and (is_python_name(child.comm) or "::" in child.comm):
            found.append((child.pid, f"{child.comm}, {how_ended(child.exit_status)}"))
    return found


def how_ended(status):
    """What the status of a process that has ended says (wait(2))."""
    number = status & 0x7F
    if not number:
        return f"exit status {status >> 8}"
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"


def stack_key(frames):
    """What of a Python stack stays equal while its thread stands: code, instruction, and the words of each frame's variables. A loop that
    comes round to the same call has other objects in its variables by then."""
    return tuple((f.code.address, f.raw.lasti, _variables(f)) for f in frames)


def _variables(frame):
    rt = frame.rt
    L, t = rt.layout, rt.target
    count = rt.target.cached(("variables", frame.code.address), lambda: len(frame.code.variables))
    at = frame.address + (L["frameobj.f_localsplus"] if "frameobj.f_localsplus" in L else L["iframe.localsplus"])
    return t.read_partial(at, 8 * min(count, 256))


def _python_stacks(s, rt):
    rt.target.invalidate()
    try:
        pythons = rt.threads()
    except GdbextError:
        return
    for py in pythons:
        try:
            s.stacks.setdefault(py.tid, []).append(stack_key(rt.frames(py)))
        except GdbextError:
            s.stacks.setdefault(py.tid, []).append(("torn", time.monotonic()))  # it changed while it was read: it moves


def _gil(s, rt, number):
    try:
        got = gil.sample(rt, GIL_LOOKS // STACK_LOOKS, 0.005)
    except GdbextError:
        return
    if s.gil is None:
        s.gil = got
        return
    s.gil.count += got.count
    s.gil.free += got.free
    for mine, theirs in ((s.gil.held, got.held), (s.gil.waited, got.waited)):
        for tid, n in theirs.items():
            mine[tid] = mine.get(tid, 0) + n


def world(rt):
    """(rank, size) of a torch.distributed process from os.environ, else from the frame that sets the group up; None for others."""
    try:
        if not rt.has_module(("torch.distributed",)):
            return None
        said = memory_environ(rt, ("RANK", "WORLD_SIZE"))
        if said.get("RANK", "").isdigit() and said.get("WORLD_SIZE", "").isdigit():
            return int(said["RANK"]), int(said["WORLD_SIZE"])
        for thread in rt.threads()[:1]:
            for frame in rt.frames(thread):
                if frame.function == "init_process_group":
                    own = dict(frame.locals())
                    rank, size = (own[k].integer() for k in ("rank", "world_size"))
                    if 0 <= rank < size:
                        return rank, size
    except (GdbextError, KeyError, AttributeError):
        pass
    return None
