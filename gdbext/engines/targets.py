"""The Target of each process and core file that commands read: opened once, and kept as long as it is the same process or
file."""

from __future__ import annotations

import os
from typing import Any, Callable

from ..access import proc
from ..access.base import Target
from ..bundle import paths
from ..errors import NotFoundError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .processes import ProcessRef

MOST_ARCHIVES = 8  # that are kept open


class Targets:
    """`debugger(pid)` gives the Target of a process that the debugger has attached, None for any other."""

    def __init__(self, debugger: Callable[[int], Target | None] = lambda pid: None) -> None:
        self._debugger = debugger
        self._opened: dict[int | str, tuple[Any, Target]] = {}  # pid or path -> (a mark that differs for a later one, Target)

    def attached(self, one: ProcessRef) -> Target | None:
        """The debugger's own Target of a process; None where it has not attached it, and for a core file."""
        return self._debugger(one.pid) if one.pid is not None else None

    def why_still(self, one: ProcessRef) -> str:
        """Why nothing moves in it, so that there is nothing to record; '' for a process that runs."""
        if one.pid is None:
            return "a core does not move"
        attached = self.attached(one)
        return "gdb holds it stopped: llm-continue or llm-detach first" if attached is not None and attached.is_stopped else ""

    def of(self, one: ProcessRef) -> Target:
        """The Target of a process or core file: the debugger's own where it has attached the process, else one that reads through
        /proc. The caches of a process that runs are dropped at each call. `NotFoundError` where there is no such process."""
        from ..access import ptrace  # it loads ctypes, which llm-ranks does without

        attached = self.attached(one)
        if attached is not None:
            return attached
        key: int | str = one.pid if one.pid is not None else one.core
        identity = ptrace.start_time(key) if isinstance(key, int) else _file_identity(key)
        known = self._opened.get(key)
        if known is None or known[0] != identity:
            if known is not None and isinstance(key, int):
                known[1].close()  # of a process that had this pid before
            self._opened.pop(key, None)
            known = self._opened[key] = identity, self._open(key)
            self._forget()
        target = known[1]
        target.label = one.label or target.label
        if not target.is_stopped:
            target.invalidate()
        return target

    def running(self) -> list[Target]:
        """The Targets of running processes."""
        return [target for _, target in self._opened.values() if not target.is_stopped]

    def rest(self) -> None:
        """Nothing is asked for a while: lets go of what was read of processes, and of those that have ended."""
        for key, (_, target) in list(self._opened.items()):
            if isinstance(key, int) and target.is_live and not target.is_stopped:
                target.invalidate()
                if target.has_ended():
                    target.lasting.clear()
                    target.close()
                    del self._opened[key]

    def _forget(self) -> None:
        """Lets those in archives go that are not among the last few: each archive keeps what it unpacked."""
        archives = [getattr(one, "archive", None) for _, one in self._opened.values()]
        few = list(dict.fromkeys(id(one) for one in reversed(archives) if one is not None))[:MOST_ARCHIVES]
        self._opened = {key: known for (key, known), one in zip(self._opened.items(), archives) if one is None or id(one) in few}

    @staticmethod
    def _open(key: int | str) -> Target:
        if isinstance(key, int):
            if not os.path.exists(f"/proc/{key}"):
                raise NotFoundError(f"process {key} does not exist (any more); see: llm-ranks")
            opened: Target = proc.ProcTarget(key)
        else:
            from ..access import snapshot
            from .search import label_of_title

            file, word = paths.split(key)
            inside = None
            if paths.is_bundle(file):
                from ..bundle.format import open_bundle  # only here: archives load much

                inside = open_bundle(file)
            opened = core = snapshot.CoreFileTarget(key) if inside is None else inside.core(word)
            core.label = core.label or label_of_title(core.title)
        return opened


def _file_identity(path: str) -> Any:
    try:
        found = os.stat(paths.split(path)[0])
    except OSError:
        return None  # the error of opening it says why
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
