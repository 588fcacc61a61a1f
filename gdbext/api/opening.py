"""How processes are opened: `attach`, `open`, `ranks`, `selected`. The session chooses processes as it does for commands."""

from __future__ import annotations

import collections
import os
import sys
from typing import Any, Sequence

from ..access.base import Target
from ..access.snapshot import CoreFileTarget
from ..engines import what as naming
from ..engines.processes import ProcessRef
from ..errors import GdbextError, NotFoundError
from ..session.session import Session
from ..stacks import prefetch, snapshots
from . import choosing, elsewhere
from .choosing import engine_of
from .engines import Engine
from .processes import Process, Ranks, Thread
from .verdicts import Verdict, judged
from .waits import Look

WORDS = (prefetch.KV,)  # what is copied in any case, beside threads and locks


def attach(what: int | str, *, live: bool = False, show_content: bool = False, max_bytes: int | None = None) -> Process:
    """The one process that `what` names: a pid (an int), or as text whatever `-on` of a command takes: a label (`"TP0"`), an
    index of `llm-ranks`, a pid that is none, `"decode:TP0"`, a file (`"./x.core"`), a process of another machine
    (`"TP0@ssh:HOST"`). It is copied in a pause of milliseconds and runs on; what is read is of that moment.

    `live`: it is read as it runs, without any pause, anew at each reading. `show_content`: also what users sent and got.
    `max_bytes`: of private memory in the copy (512 MiB); big mappings are left out first. `GdbextError` where nothing is meant,
    or more than one process."""
    opened = Opened(here(), live, show_content, max_bytes)
    mine, theirs = elsewhere.parted([str(what)])
    found = opened.processes([opened.meant(what)] if mine else [], theirs)
    if len(found) != 1:
        raise GdbextError(f"{what} names {len(found)} processes: choose one of {', '.join(p.name for p in found)}")
    return found[0]


def open(file: str | os.PathLike[str], *, show_content: bool = False) -> Process:
    """The process in a core or snapshot file, or in a bundle or box that holds one; `FILE/LABEL` is one of several, which
    `ranks(FILE)` opens together."""
    path = os.path.abspath(os.path.expanduser(os.fspath(file)))
    found = naming.resolve(path, ())
    if len(found) != 1:
        raise GdbextError(f"{path} holds {len(found)} processes: gdbext.ranks({path!r}), or one: {found[0].core}")
    return Opened(here(), False, show_content, 0).processes(found)[0]


def ranks(*what: int | str, live: bool = False, show_content: bool = False, max_bytes: int | None = None) -> Ranks:
    """The processes that several `what`, as of `attach`, name, all copied in one moment; those of all engines here without any.
    An engine (`"vllm"`) or an instance (`"decode"`, `":8100"`) means all of its processes. Those that cannot be opened are in
    `failed`; `GdbextError` where none can."""
    opened = Opened(here(), live, show_content, max_bytes)
    texts, theirs = elsewhere.parted(one for one in what if not isinstance(one, int))
    mine: list[int | str] = [*(one for one in what if isinstance(one, int)), *texts]
    found = opened.all_meant(mine) if mine or not theirs else []
    return Ranks(opened, opened.processes(found, theirs))


def pythons() -> list[tuple[int, str]]:
    """(pid, what it is called) of the other Pythons on this machine, the busiest first. They are listed, not opened."""
    return choosing.pythons()


def selected(*, show_content: bool = False) -> Process:
    """Inside gdb: the process, or core, that gdb has selected, as it stands; `thread()` is its selected thread."""
    session = here()
    if not session.in_gdb:
        raise GdbextError("no gdb here: gdbext.selected() is for Python inside gdb; outside, gdbext.attach(PID)")
    target = session.target()
    opened = Opened(session, False, show_content, 0)
    ref = session.process(target.pid) if target.pid else ProcessRef()
    opened.tid = session.tid()
    return opened.made([(ref, target)])[0]


def here() -> Session:
    """gdb's own session inside gdb, else a new one."""
    if "gdb" not in sys.modules:
        return Session()
    from ..session import gdb_session

    return gdb_session.session


class Opened:
    """What one call opened: processes of one moment, or that run. `tid`: of the thread that gdb has selected; `failed`: those
    that could not be opened."""

    def __init__(self, session: Session, live: bool, show_content: bool, max_bytes: int | None) -> None:
        self.session, self._live, self.show_content, self._max = session, live, show_content, max_bytes
        self.tid: int | None = None
        self.failed: list[dict[str, Any]] = []
        self._taken: dict[ProcessRef, snapshots.ProcessSnapshot] = {}
        self._sent: dict[ProcessRef, tuple[list[dict[str, Any]], list[str]]] = {}  # of other machines, as `told_of`
        self._made: list[Process] = []
        self._look: Look | None = None

    def meant(self, what: int | str) -> ProcessRef:
        """The one process that a `what` of `attach` names."""
        found = self.session.resolve_one(str(what))
        if isinstance(what, int) and found.pid != what:  # it is an index, too
            naming.resolve(str(what), ())
            return self.session.process(what)
        return found

    def all_meant(self, what: Sequence[int | str]) -> list[ProcessRef]:
        """The processes that some `what` name, each once; those of all engines without any. One that is not there is in
        `failed`; `NotFoundError` where none is."""
        if not what:
            return choosing.resolve_processes(self.session, "all")
        found, gone = [], []
        for one in what:
            try:
                found += [self.meant(one)] if isinstance(one, int) else choosing.resolve_processes(self.session, one)
            except NotFoundError as e:
                gone.append(e)
                self.failed.append({"label": str(one), "pid": one if isinstance(one, int) else None, "reason": str(e)})
        if gone and not found:
            raise gone[0]
        return list(dict.fromkeys(found))

    def processes(self, found: Sequence[ProcessRef], theirs: Sequence[tuple[str, list[str]]] = ()) -> list[Process]:
        """The processes, opened together, with those of other machines (`elsewhere.parted`); `GdbextError` where none can be."""
        targets: list[tuple[ProcessRef, Target]] = []
        if theirs and self._live:
            raise GdbextError(f"{theirs[0][0]}: a process of another machine is read from a copy: without live=True")
        for ref, copy, answer in elsewhere.fetched(theirs, self._max, self.failed) if theirs else ():
            self._sent[ref] = [one for one in answer["pauses"] if one["pid"] == ref.pid], answer["partial"]
            targets.append((ref, copy))
        copied = [] if self._live else [one for one in found if one.pid is not None and not self.session.targets.attached(one)]
        taken = snapshots.snapshots_of(copied)
        if taken:
            snapshots.at_one_moment(taken, None, WORDS, snapshots.limit(bound=self._max))
        self._taken = dict(zip(copied, taken))
        for one in found:
            try:
                targets.append((one, self._target(one)))
            except GdbextError as e:
                if len(found) == 1:
                    raise
                self.failed.append({"label": one.label, "pid": one.pid, "reason": str(e)})
        if not targets:
            raise GdbextError("; ".join(dict.fromkeys(one["reason"] for one in self.failed)))
        return self.made(targets)

    def _target(self, one: ProcessRef) -> Target:
        copy = self._taken.get(one)
        if copy is None:
            return self.session.open(one)
        if copy.target is None:
            raise GdbextError(copy.reason)
        found: Target = copy.target
        return found

    def made(self, targets: Sequence[tuple[ProcessRef, Target]]) -> list[Process]:
        """The processes of targets that are open."""
        self._made = [Process(self, ref, target) for ref, target in targets]
        count = collections.Counter(one.name for one in self._made)
        for number, one in enumerate(self._made):  # cores, and processes of several machines, may have one name
            if count[one.name] > 1:
                one.name = one.label = f"{one.name}#{number}"
        return list(self._made)

    def told_of(self, ref: ProcessRef, target: Target) -> tuple[list[dict[str, Any]], list[str]]:
        """-> (`pauses` of a process, what its copy lacks)"""
        copy = self._taken.get(ref)
        if copy is not None:
            return snapshots.pauses([copy]), copy.partial
        lacks = target.lacks if isinstance(target, CoreFileTarget) else []
        return self._sent.get(ref, ([], lacks))

    def again(self, ref: ProcessRef) -> Process:
        """A process at one moment, now."""
        opened = Opened(self.session, False, self.show_content, self._max)
        if ref.node:
            return opened.processes([], [(ref.node, [str(ref.pid)])])[0]
        return opened.processes([ref])[0]

    def judged(self, found: Sequence[ProcessRef], seconds: float) -> Verdict:
        """The verdict on some of the processes."""
        if any(one.node for one in found):
            return elsewhere.judged(found, seconds)
        return judged(found, self.session.targets, seconds)

    def look(self) -> Look:
        """The waits of all of them."""
        if self._look is None:
            self._look = Look([one.view for one in self._made])
        return self._look

    def thread_at(self, node: Any) -> Thread | None:
        """The thread of a node of `look`; None where it is none, or of no process here."""
        for one in self._made:
            if one.view.name == node[0] and isinstance(node[1], int):
                return next((thread for thread in one.threads if thread.tid == node[1]), None)
        return None

    def family_of(self, process: Process) -> Any:
        """A value that the processes of one engine share; None for those of none."""
        rank = process.ref.rank
        if rank is not None:
            return rank.family
        return (process.ref.node, process.engine_name) if process.engine_name else None

    def engine_of(self, process: Process) -> Engine | None:
        """The engine of a process: with all of its processes where they run, else with those of the same moment."""
        family = self.family_of(process)
        if family is None:
            return None
        mine = [one for one in self._made if self.family_of(one) == family]
        return Engine(mine, process.engine_name, engine_of(self.session, process.target), self.show_content)

    def close(self) -> None:
        """Frees the copies, and what keeps them."""
        for one in self._made:
            if one.ref in self._taken:
                one.target.close()
                one.target.invalidate()
        self._taken, self._made, self._look = {}, [], None
