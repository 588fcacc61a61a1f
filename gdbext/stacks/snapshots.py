"""Snapshots of several processes at about the same moment. A collector process copies each; the process runs on while its copy is
read.

Processes that gdb has attached, and cores, are read directly.
"""

from __future__ import annotations

import collections
import os
import re
import time
from typing import TYPE_CHECKING, Any, Callable, Sequence

from ..access import elf, resident
from ..access.collect import Running
from ..access.procfs import resident_bytes
from ..access.room import LOOK, OWN, nameless_file, need, spare
from ..access.snapshot import CoreFileTarget, is_snapshot
from ..errors import GdbextError
from ..render.files import Draft
from . import threads

if TYPE_CHECKING:
    from ..engines.processes import ProcessRef
    from ..engines.targets import Targets

READER = "gdbext.stacks.prefetch"
THREADS = "gdbext.stacks.prefetch_threads"  # the reader where only threads and their frames are needed
BYTES = 512 << 20  # of private memory that a stop copies, to keep what answers need
MOST_HELD = 32  # collectors: each is a process
COPIES = 2.2  # times in which a copy is in memory while it is written
READY = 60.0  # seconds in which the collectors of several processes are to know what to copy
TIMEOUT = 600  # seconds for one collector on a machine at full load; the process itself is paused for milliseconds


class ProcessSnapshot:
    """The snapshot of one process, `ref`.

    * `label`: '' for a pid without one
    * `pid`
    * `rank`: the `Rank`, or None
    * `target`: None when the snapshot failed, then `reason` says why
    * `pauses`: seconds for which the process was paused
    * `woken`: number of threads that slept and were paused too
    * `partial`: what the copy lacks
    * `left_out`: bytes of private memory that were not asked for
    * `moment`: when it was copied, seconds after the epoch
    """

    def __init__(self, ref: ProcessRef) -> None:
        self.ref, self.label, self.pid, self.rank = ref, ref.label, ref.pid, ref.rank
        self.target: Any = None
        self.pauses: list[float] = []
        self.woken = self.left_out = 0
        self.moment = 0.0
        self.partial: list[str] = []
        self.reason, self.file, self.bytes = "", ref.core, 0

    @property
    def name(self) -> str:
        return self.label or (str(self.pid) if self.pid else os.path.basename(self.file))


def snapshots_of(found: Sequence[ProcessRef]) -> list[ProcessSnapshot]:
    """The `ProcessSnapshot`s, not taken yet, of the processes that `resolve_processes` gives. Labels that two engines share get
    the engine's name as a prefix ("sglang:TP0"). Labels of one engine that runs twice get the pid as a suffix."""
    taken = [ProcessSnapshot(one) for one in found]
    for same in ("{engine}:{label}", "{label}-{pid}"):
        count = collections.Counter(snap.label for snap in taken if snap.rank is not None)
        for snap in taken:
            if snap.rank is not None and count[snap.label] > 1:
                snap.label = same.format(engine=snap.rank.engine, label=snap.rank.short or snap.rank.label, pid=snap.pid)
    return taken


def _tell_apart(cores: Sequence[ProcessSnapshot]) -> None:
    """Names cores by their files too where two have one name: those of two machines may have the same pids."""
    count = collections.Counter(snap.name for snap in cores)
    files = collections.Counter(os.path.basename(snap.file) for snap in cores)
    for snap, name in [(snap, snap.name) for snap in cores]:
        if count[name] > 1:
            base = os.path.basename(snap.file)
            snap.label = f"{name} of {base if files[base] == 1 else snap.file}"


def limit(heap: bool = False, everything: bool = False, bound: int | None = None) -> int:
    """How many bytes of private memory a stop copies at most: `bound`, or with `heap` all; `everything`: shared memory too."""
    if everything:
        return resident.EVERYTHING
    if bound is not None:
        return bound
    return resident.EVERYTHING - 1 if heap else BYTES


def file_name(snap: ProcessSnapshot) -> str:
    """The file name of a snapshot. A label may come from a process's title, so it cannot name a folder."""
    label = re.sub(r"[^A-Za-z0-9._-]", "_", snap.label)
    return f"{label + '-' if label else ''}{snap.pid}.core"


def pauses(taken: Sequence[ProcessSnapshot]) -> list[dict[str, Any]]:
    """The JSON field `pauses`."""
    return [{"pid": snap.pid, "seconds": sum(snap.pauses), "woken": snap.woken} for snap in taken if snap.pauses]


def failed(taken: Sequence[ProcessSnapshot]) -> list[dict[str, Any]]:
    """The JSON field `failed`."""
    return [{"label": snap.label, "pid": snap.pid, "reason": snap.reason} for snap in taken if snap.target is None]


def _nothing() -> None:
    pass


def collect(
    taken: Sequence[ProcessSnapshot],
    paths: Sequence[str] | None,
    words: Sequence[str] = (),
    heap: int = 0,
    *,
    reader: str = READER,
    seconds: float = TIMEOUT,
    then: Callable[[int, ProcessSnapshot], None] = lambda number, snap: None,
    held: Held | None = None,
    force: bool = False,
    folders: bool = False,
    meanwhile: Callable[[], object] = _nothing,
) -> None:
    """Copies the processes of `taken` and fills the results in. `paths[i]`: the file of the i-th copy, which is written whole or
    not at all. `force`: it may replace an earlier snapshot; `folders`: missing folders are made. Without `paths` each copy is
    opened and has no name that could be found.

    Several collectors run at once, as many as there are CPUs; each may take `seconds`. `then` is called with each copied one (its
    number, itself) while others are being copied, `meanwhile` once while the first are. `held`: collectors that wait already."""
    # without a pid it is a core file, opened already
    waiting = [(s, s.pid, n) for n, s in enumerate(taken) if s.target is None and not s.reason and s.pid is not None]
    running: list[tuple[int, ProcessSnapshot, Running, Any]] = []
    copied: list[tuple[int, ProcessSnapshot]] = []
    try:
        while waiting or running or copied:
            while waiting and len(running) < max(2, os.cpu_count() or 2):
                snap, pid, number = waiting.pop(0)
                known = held.pop(pid) if held is not None else None
                try:
                    if known is None:
                        need(LOOK, f"a copy of process {pid}")
                    file = known[1] if known is not None else _file(number, paths, force, folders)
                except GdbextError as e:
                    snap.reason = str(e)
                    continue
                work = known[0] if known is not None else Running(pid, file.fileno(), reader, snap.label, words, heap=heap)
                work.go()
                running.append((number, snap, work, file))
            meanwhile()
            meanwhile = _nothing
            if copied:
                then(*copied.pop())
            if not running:
                continue
            number, snap, work, file = running.pop(0)
            try:
                result = work.finish(seconds)
                snap.pauses, snap.partial, snap.file, snap.bytes = result.pauses, result.partial, result.file, result.bytes
                snap.woken, snap.left_out, snap.moment = result.woken, result.left_out, result.moment
                _copied(snap, file)
            except GdbextError as e:
                snap.reason = str(e).replace(f"/proc/self/fd/{file.fileno()}", getattr(file, "path", "the copy"))
            finally:
                file.close()
            copied.append((number, snap))
    finally:
        for _, _, work, file in running:  # an interrupt: a collector that ends lets its process run on
            work.end()
            file.close()


def _copied(snap: ProcessSnapshot, file: Any) -> None:
    """Gives a copy its name, or opens it where it has none."""
    if isinstance(file, Draft):
        snap.file, snap.target = file.keep(), True
    else:
        snap.target = CoreFileTarget(snap.file, snap.label)
        elf.drop_cached(snap.file)


def _file(number: int, paths: Sequence[str] | None, force: bool, folders: bool) -> Any:
    """An empty file for the copy with this number."""
    if paths is None:
        return nameless_file()
    return Draft(paths[number], "-o", force, mode=0o600, may_replace=is_snapshot, folders=folders)


class Held:
    """Collectors that wait for the word to copy. Meanwhile they learn which pages a copy needs, and their processes are only
    sampled. `words` as for `take_snapshots`, `reader` and `heap` as for `collect`."""

    def __init__(self, taken: Sequence[ProcessSnapshot], words: Sequence[str] = (), reader: str = READER, heap: int = 0) -> None:
        self._waiting: dict[int, tuple[Running, Any]] = {}
        self._how = reader, words, heap
        left = spare()[0]
        for snap in taken[:MOST_HELD]:
            if snap.pid is not None and left > LOOK + OWN:  # those that were just started have not taken theirs yet
                self.add(snap, snap.pid, nameless_file())
                left -= LOOK

    def add(self, snap: ProcessSnapshot, pid: int, file: Any) -> None:
        """Starts the collector of one process, which is to fill `file`."""
        reader, words, heap = self._how
        self._waiting[pid] = Running(pid, file.fileno(), reader, snap.label, words, heap=heap, held=True), file

    def go(self, seconds: float) -> None:
        """Lets all of them stop their processes in the same moment, as soon as each knows what to copy; it waits for that at most
        so long."""
        end = time.monotonic() + seconds
        for work, _ in self._waiting.values():
            work.ready(max(0.0, end - time.monotonic()))
        for work, _ in self._waiting.values():
            work.go()

    def pop(self, pid: int) -> tuple[Running, Any] | None:
        """The collector of a process and its file, which are no longer held; None where it has none."""
        return self._waiting.pop(pid, None)

    def end(self) -> None:
        """Ends the collectors that were not used."""
        while self._waiting:
            work, file = self._waiting.popitem()[1]
            work.end()
            file.close()


def at_one_moment(
    taken: Sequence[ProcessSnapshot],
    paths: Sequence[str] | None,
    words: Sequence[str],
    heap: int,
    *,
    reader: str = READER,
    force: bool = False,
) -> None:
    """As `collect`, of several processes: all are copied first, within milliseconds, and then what is kept is chosen and written.
    Where memory has no room for all copies they are made one after the other. Missing folders are made."""
    held = Held((), words, reader, heap)
    sizes = [LOOK + OWN + COPIES * min(heap or resident_bytes(snap.pid), resident_bytes(snap.pid)) for snap in taken if snap.pid]
    try:
        if len(taken) <= MOST_HELD and spare()[0] > sum(sizes):
            for number, snap in enumerate(taken):
                try:
                    if snap.pid is not None:
                        held.add(snap, snap.pid, _file(number, paths, force, True))
                except GdbextError as e:
                    snap.reason = str(e)
            held.go(READY)
        collect(taken, paths, words, heap, reader=reader, held=held, force=force, folders=True)
    finally:
        held.end()


def take_snapshots(
    found: Sequence[ProcessRef],
    targets: Targets,
    words: Sequence[str] = (),
    then: Callable[[int, ProcessSnapshot], None] = lambda number, snap: None,
    held: Held | None = None,
    reader: str = READER,
    meanwhile: Callable[[], object] = _nothing,
) -> list[ProcessSnapshot]:
    """`[ProcessSnapshot]` of the processes that `resolve_processes` gives. Cores, and processes that the debugger of `targets`
    has attached, are read directly; `then` is not called for these. `words`: what else is to be copied (`prefetch.read`); `then`,
    `held`, `reader`, `meanwhile`: as for `collect`. No copy has a name on the disk."""
    taken = snapshots_of(found)
    for snap, one in zip(taken, found):
        try:
            snap.target = targets.of(one) if one.pid is None else targets.attached(one)
            if one.pid is None:
                snap.label, snap.pid = snap.target.label, snap.target.pid
        except GdbextError as e:
            snap.reason = str(e)
    _tell_apart([snap for snap in taken if snap.pid is not None and snap.ref.pid is None])
    collect(taken, None, words, then=then, held=held, reader=reader, meanwhile=meanwhile)
    return taken


def read_all(
    taken: Sequence[ProcessSnapshot],
) -> tuple[list[threads.ProcessView], list[str], list[dict[str, Any]]]:
    """-> (`[ProcessView]` of what could be read, reasons for `partial`, `failed`)"""
    views: list[threads.ProcessView] = []
    partial: list[str] = []
    not_read = failed(taken)
    for look in taken:
        if look.target is None:
            continue
        try:
            view = threads.view_of(look)
        except GdbextError as e:
            not_read.append({"label": look.label, "pid": look.pid, "reason": str(e)})
            continue
        views.append(view)
        partial += [f"{view.name}: {reason}" for reason in view.partial + look.partial]
        partial += [f"{view.name} {reason}" for reason in threads.reasons_of(view.threads)]
    if not views:
        raise GdbextError("; ".join(dict.fromkeys(f["reason"] for f in not_read)))
    return views, partial, not_read
