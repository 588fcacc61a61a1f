"""The present activity of processes: a few looks a second, and a report on the last second or so."""

from __future__ import annotations

import time
from typing import Callable, NamedTuple, Sequence

from .. import log
from ..access import permission
from ..access.proc import ProcTarget
from ..access.procfs import cpu_of, resident_bytes, state_of, task_ids
from ..access.proctable import called
from ..errors import GdbextError
from ..observe.loop import rounds
from ..observe.thread_files import Files
from . import flame
from .recording import DISK, DROPPED, GIL, QUEUED, RUNNING, STATES, STOPPED, Frame, ProcessTrack, Recording, ThreadTrack
from .sampler import ProcessSampler

LOOKS = 20.0  # a second
_LETTERS = {"R": STATES[RUNNING], "S": "sleeps", "D": STATES[DISK], "T": STATES[STOPPED], "t": STATES[STOPPED], "I": "sleeps"}


class Row(NamedTuple):
    """One process in the last frame.

    * `alive`: it has not ended
    * `state`: of its main thread for most of the time
    * `stack`: where the main thread was then, outermost first
    * `part`: of the time
    * `gil`: the part of the time in which its main thread had the GIL
    * `holder`: the thread that had it most
    * `waits`: the part in which some thread waited for it
    * `gc`: the part in which garbage was collected
    * `cpu`: CPUs used
    * `rss`: bytes
    * `steps_per_second`: of its engine's counter; `lag`: by how many steps it is behind the first of its replica; the frame fills
      them in
    * `program`: what a process without a label of its own is called
    """

    label: str
    pid: int
    alive: bool
    threads: int
    state: str
    stack: list[Frame]
    part: float
    gil: float
    holder: str
    waits: float
    gc: float
    cpu: float
    rss: int
    steps_per_second: float | None = None
    program: str = ""
    lag: int | None = None


class Live:
    """Looks at processes. `failed`: those that cannot be read yet. A process that is just starting, or changes too fast, is tried
    again with each frame."""

    def __init__(self, targets: Sequence[tuple[ProcTarget, str]]) -> None:
        self.failed: list[dict[str, object]] = []
        self._rec, self._files = Recording(LOOKS, time.time()), Files()
        self._targets = targets
        self._found: dict[int, ProcessSampler] = {}
        self._plain: dict[int, str] = {}  # {pid: label} of those whose memory may not be read
        self._cpu: dict[int, float] = {}
        self._open()
        if not self._found and not self._plain:
            raise GdbextError(str(self.failed[0]["reason"]) if self.failed else "no process to watch")

    def _open(self) -> None:
        self.failed = []
        for target, label in self._targets:
            old = self._found.get(target.pid)
            if old is None and permission.is_refused(target.pid):
                self._plain[target.pid] = label
                self._cpu.setdefault(target.pid, cpu_of(target.pid))
                continue
            self._plain.pop(target.pid, None)
            if old is None or old.execed:  # it runs another program
                if old is not None:
                    target.invalidate()
                try:
                    self._found[target.pid] = ProcessSampler(target, label, self._rec, self._files)
                    self._cpu[target.pid] = cpu_of(target.pid)
                    if old is not None:
                        self._rec.processes.remove(old.track)
                        old.finish(0.0)
                except GdbextError as e:
                    target.invalidate()
                    self.failed.append({"label": label, "pid": target.pid, "reason": str(e)})

    @property
    def _samplers(self) -> list[ProcessSampler]:
        """In the order in which the processes were named."""
        return [self._found[target.pid] for target, _ in self._targets if target.pid in self._found]

    def frame(self, seconds: float, meanwhile: Callable[[float], bool]) -> list[Row]:
        """Looks for the given seconds. -> a row for each process. `meanwhile(seconds)` waits between two looks, and ends the
        frame early where it returns true."""
        self._open()
        samplers, began = self._samplers, time.monotonic()
        if self._rec.tree.full:
            self._rec.tree.clear()
            for sampler in samplers:
                sampler.forget()
        for sampler in samplers:
            sampler.restart()
        for _ in rounds(1.0 / LOOKS, seconds=seconds, rest=lambda took: 1.0 / LOOKS, wait=meanwhile):
            for sampler in samplers:
                if sampler.alive:
                    with log.passing_over(GdbextError):
                        sampler.look(began)
        passed = time.monotonic() - began
        plain = [self._plain_row(pid, label, passed) for pid, label in self._plain.items()]
        rows = [*(self._row(sampler, passed) for sampler in samplers), *plain]
        return [row._replace(program=called(row.pid)) if row.label == str(row.pid) else row for row in rows]

    def functions(self) -> list[tuple[str, float, float]]:
        """[(function, part of the last frame's time in it itself, in it and in its calls)] while it ran, the most first; of
        several threads at once more than 1."""
        whole = max((track.finish for track in self._rec.processes), default=0.0)
        spent = flame.functions(flame.stacks(self._rec, flame.Counted(cpu=True)).items())
        return [(name, itself / whole, total / whole) for name, itself, total in spent] if whole else []

    def _plain_row(self, pid: int, label: str, passed: float) -> Row:
        """Of a process whose memory may not be read: what /proc says of it to everybody."""
        state, spent = state_of(pid), cpu_of(pid)
        used, self._cpu[pid] = max(0.0, spent - self._cpu[pid]) / passed, spent
        threads = len(task_ids(pid)) if state else 0
        alive = state not in ("", "Z", "X")
        return Row(
            label, pid, alive, threads, _LETTERS.get(state, "ended"), [], 1.0, 0.0, "", 0.0, 0.0, used, resident_bytes(pid)
        )

    def close(self) -> None:
        """Ends the sampling of all processes."""
        for sampler in self._samplers:
            sampler.finish(0.0)

    def _row(self, sampler: ProcessSampler, passed: float) -> Row:
        track = sampler.track
        track.finish = passed
        spent = cpu_of(track.pid)
        used, self._cpu[track.pid] = max(0.0, spent - self._cpu[track.pid]) / passed, spent
        here = [th for th in track.threads if th.ended is None]
        main = here[0] if here else None
        state, node, part = _most(track, main) if main is not None else (RUNNING, 0, 0.0)
        holders = [0.0] * len(track.threads)
        for begin, end, index in track.spans(track.gil):
            if index >= 0:
                holders[index] += (end - begin) / passed
        first = max(range(len(holders)), key=holders.__getitem__, default=-1)
        waits = max((_part(track, th, GIL) for th in here), default=0.0)
        collected = sum(end - begin for begin, end, on in track.spans(track.gc) if on) / passed
        return Row(
            track.label,
            track.pid,
            sampler.alive,
            len(here),
            STATES[state] if sampler.alive and main is not None else _without(sampler),
            self._rec.tree.stack(node) if node != DROPPED else [],
            part,
            holders[track.threads.index(main)] if main is not None else 0.0,
            (track.threads[first].name or str(track.threads[first].tid)) if first >= 0 and holders[first] > 0 else "",
            waits,
            collected,
            used if sampler.alive else 0.0,
            resident_bytes(track.pid),
        )


def _without(sampler: ProcessSampler) -> str:
    """The state of a process without a Python thread that can be read."""
    return "no Python thread" if sampler.alive else "another program" if sampler.execed else "ended"


def _most(track: ProcessTrack, thread: ThreadTrack) -> tuple[int, int, float]:
    """(the state of a thread for most of the time, the node where it was for most of that, that part of the time)."""
    spent: dict[tuple[int, int], float] = {}
    states: dict[int, float] = {}
    whole = 0.0
    for run in track.runs(thread):
        state = RUNNING if run.state == QUEUED else run.state
        spent[state, run.node] = spent.get((state, run.node), 0.0) + run.end - run.begin
        states[state] = states.get(state, 0.0) + run.end - run.begin
        whole += run.end - run.begin
    if not states:
        return RUNNING, 0, 0.0
    state = max(states, key=states.__getitem__)
    node = max((key for key in spent if key[0] == state), key=spent.__getitem__)[1]
    return state, node, spent[state, node] / (whole or 1.0)


def _part(track: ProcessTrack, thread: ThreadTrack, state: int) -> float:
    return sum(r.end - r.begin for r in track.runs(thread) if r.state == state) / (track.finish or 1.0)
