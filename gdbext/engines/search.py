"""The evidence that a process belongs to an engine.

Order of evidence: titles and command lines (one pass over /proc), relatives of the processes found, mapped libraries of the few
large Pythons that remain, the environment. Memory is read only where a doubt remains, or to verify. Memory has the last word.
"""

from __future__ import annotations

import os
import re
from typing import Callable, cast

from .. import log
from ..access.proctable import Process, ProcTable, is_python_name
from ..errors import GdbextError, NotFoundError
from .rank import Rank, rank_label
from .registry import ENGINES, SPECS
from .spec import EngineSpec, Match, Memory, environ_ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..cpython.runtime import Runtime

_ZOMBIE = "its memory is gone and comm is cut to 15 bytes: rank not known"
LARGE = 64 << 20  # bytes of RSS: no engine is smaller, and the maps of anything smaller are not worth reading


def could_have_started(parent: Process, process: Process) -> bool:
    """Whether `parent` may have started this engine process, or is a reaper that adopted it. Engines start their processes from a
    Python that has loaded the engine too, and in its own session."""
    if not parent.is_python or parent.session != process.session:
        return False
    return not parent.rss < LARGE <= process.rss


def is_init(process: Process) -> bool:
    """Whether it is the init that orphans end at. In a container pid 1 may be the engine's own server, a Python."""
    return process.pid <= 1 and not process.is_python


def label_of_title(title: str) -> str:
    """The label of a process of which only the title is known, a core's for example; '' where the title is no engine's own."""
    for spec in ENGINES:
        match = spec.match_title(title)
        if match is not None and match.prefix in spec.prefixes:
            return rank_label(Rank(cast("Process", None), spec.name, match, "title"))
    return ""


class Search:
    """The engine processes found so far (`ranks`, by pid), and the kinds of evidence, to be used in the order of `survey`.
    `partial`: why that may not be all; `hidden`: large processes that could not be read."""

    def __init__(self, table: ProcTable, runtime_of: Callable[[int], Runtime] | None, verify: bool) -> None:
        self.table, self.runtime_of, self.verify = table, runtime_of, verify
        self.ranks: dict[int, Rank] = {}
        self.partial = list(table.reasons)
        self.hidden: set[int] = set()

    def add(self, process: Process, spec: EngineSpec, match: Match, source: str) -> Rank:
        """Takes a process in as a `Rank` of that engine."""
        rank = Rank(process, spec.name, match, source)
        rank.serves = spec.serves
        self.ranks[process.pid] = rank
        return rank

    # ---- titles and command lines ----------------------------------------------------------------------------------
    def by_command(self) -> None:
        """Titles and command lines."""
        for process in self.table:
            if process.state in "ZX":
                self._zombie(process)
            elif process.single:
                self._title(process)
            elif process.cmdline:
                self._argv(process)

    def _zombie(self, process: Process) -> None:
        """Judges a zombie by the 15 bytes of its title that remain (the kernel's comm): they give the role and not the rank."""
        for spec in ENGINES:
            for start, role in spec.zombies:
                if process.comm.startswith(start):
                    self.add(process, spec, Match(role), "comm").note(_ZOMBIE)
                    return

    def _title(self, process: Process) -> None:
        """Judges a process by its title. A title is believed of a Python only: other programs cannot have set such a title.
        setproctitle sets comm as well, so a comm that differs (`exec -a TITLE python`) is a doubt."""
        title = process.title
        for spec in ENGINES:
            match = spec.match_title(title)
            if match is None:
                continue
            if not process.is_python:
                log.note("process %d has a title of %s and is no Python", process.pid, spec.display)
                return
            rank = self.add(process, spec, match, "title")
            if title.encode("utf-8", "surrogateescape")[:15] != process.comm.encode("utf-8", "surrogateescape"):
                rank.title_is_comm = False
                rank.unconfirmed = rank.unconfirmed or "its comm is not that of its title"
            if "exe" in process.unreadable:
                rank.note("executable not readable: taken for a Python by its title")
            return

    def _argv(self, process: Process) -> None:
        first = process.cmdline[:512]
        if b"python" not in first and b"pypy" not in first:
            return  # cheap: a Python's argv[0], or its interpreter's path, says python
        program = process.program()
        if program is None:
            return
        for spec in ENGINES:
            match = spec.match_argv(*program)
            if match is not None and not (match.needs_libraries and not re.search(spec.libraries, process.maps())):
                self.add(process, spec, match, "argv")
                return

    # ---- relatives ---------------------------------------------------------------------------------------------------
    def relate(self, fresh: list[Rank]) -> None:
        """Parents and children of the Ranks `fresh`, until nothing new is found."""
        while fresh:
            found = []
            for rank in fresh:
                found += self._parent_of(rank) + self._children_of(rank)
            fresh = found

    def _parent_of(self, rank: Rank) -> list[Rank]:
        spec = SPECS[rank.engine]
        role = spec.parent_roles.get(rank.role)
        parent = self.table.parent(rank.process)
        if role is None or parent is None or is_init(parent) or parent.pid in self.ranks or parent.state in "ZX":
            return []
        if rank.unconfirmed and rank.prefix:
            log.note("parent %d of process %d is not taken: its title may be another program's", parent.pid, rank.pid)
            return []
        if not could_have_started(parent, rank.process):
            log.note("parent %d of process %d is not taken: it cannot have started it", parent.pid, rank.pid)
            return []
        if parent.is_spawned and role == "frontend":
            role = "api-server"
        new = self.add(parent, spec, Match(role), "tree")
        if role == "engine-core":
            new.note("the engine core runs in the user's own process")
        return [new]

    def _children_of(self, rank: Rank) -> list[Rank]:
        spec, found = SPECS[rank.engine], []
        for process in self.table.children.get(rank.pid, ()):
            known = self.ranks.get(process.pid)
            if known is not None:
                continue
            if process.state in "ZX":
                match = spec.match_dead_child(rank, process)
                if match is not None:
                    self.add(process, spec, match, "comm").note(_ZOMBIE)
                elif is_python_name(process.comm):
                    rank.note(f"its child {process.pid} ({process.comm}) is a zombie")
                continue
            if not process.is_python:
                continue
            match = spec.match_child(rank, process)
            if match is not None:
                found.append(self.add(process, spec, match, "title" if match.ranks else "tree"))
        return found

    # ---- mapped libraries ----------------------------------------------------------------------------------------------
    def by_libraries(self, among: set[int] | None = None) -> None:
        """Adds large Pythons without other evidence that have an engine's own library mapped (of all, or `among` some pids), and
        their large or spawned relatives."""
        for process in self.table:
            if among is not None and process.pid not in among:
                continue
            if process.pid in self.ranks or process.rss < LARGE or process.state in "ZX" or not process.cmdline:
                continue
            if not process.is_python or process.pid == os.getpid():
                continue
            maps = process.maps()
            if not maps and "maps" in process.unreadable:
                self.hidden.add(process.pid)
                continue
            spec = next((s for s in ENGINES if s.libraries and re.search(s.libraries, maps)), None)
            if spec is None:
                log.note("process %d (%s) is a large Python without libraries of an engine", process.pid, process.comm)
                continue
            ranks = environ_ranks(spec, process.environ)
            parent = self.table.parent(process)
            spawned = process.is_spawned or (parent is not None and parent.cmdline == process.cmdline and parent.is_python)
            if spawned and parent is not None and parent.is_python and parent.pid not in self.ranks:
                up = self.table.parent(parent)
                top = parent if not (parent.is_spawned and up is not None and up.is_python) else up
                if top.pid not in self.ranks:
                    role = "engine-core" if top.is_spawned else "frontend"
                    self.relate(
                        [self.add(top, spec, Match(role, {}, "only its children's libraries name the engine"), "libraries")]
                    )
                if process.pid in self.ranks:
                    continue
            role = "worker" if "world" in ranks else "engine-core"
            rank = self.add(
                process, spec, Match(role, ranks, "only its libraries name the engine"), "environ" if ranks else "libraries"
            )
            rank.from_libraries = True
            rank.note(f"known by the {spec.display} libraries it has loaded")

    def by_environment(self, among: set[int] | None = None) -> None:
        """Adds large Pythons whose environment makes them a rank of a job, without those that such a one has started."""
        found: dict[int, tuple[Process, EngineSpec, Match]] = {}
        for process in self.table:
            if among is not None and process.pid not in among or process.pid in self.ranks or process.rss < LARGE:
                continue
            if process.state in "ZX" or not process.is_python or process.pid == os.getpid():
                continue
            matches = [(spec, match) for spec in ENGINES for match in [spec.match_environ(process)] if match is not None]
            if matches:
                found[process.pid] = (process, *matches[0])
        for process, spec, match in found.values():
            if not any(above in found or above in self.ranks for above in self._above(process)):
                self.add(process, spec, match, "environ")

    def _above(self, process: Process) -> list[int]:
        """The pids of those that have started it, directly or not."""
        pids: list[int] = []
        parent = self.table.parent(process)
        while parent is not None and not is_init(parent) and parent.pid not in pids:
            pids.append(parent.pid)
            parent = self.table.parent(parent)
        return pids

    # ---- memory ----------------------------------------------------------------------------------------------------------
    def by_memory(self) -> None:
        """Reads Python's own objects, where evidence from outside leaves a doubt, or of every process to verify."""
        for rank in list(self.ranks.values()):
            if rank.zombie or rank.process.state in "ZX":
                continue
            if not (rank.unconfirmed or self.verify):
                continue
            if self.runtime_of is None:
                if self.verify:
                    rank.note("memory not read")
                continue
            self._ask(rank, self.runtime_of)

    def _ask(self, rank: Rank, runtime_of: Callable[[int], Runtime]) -> None:
        said, why = _in_memory(rank, runtime_of)
        if why.startswith("no rank found") and rank.rank_source in ("tree", "argv"):
            rank.unconfirmed = f"{rank.unconfirmed}, no rank in its memory: starting?"
        elif why:
            rank.note(f"rank not read from memory: {why}")
        elif said is not None and not (rank.from_libraries and not said.role and not said.ranks):
            _believe(rank, said)
        elif said is not None:
            self._drop(rank, "it has the engine's libraries loaded and runs none: a client, a notebook")
        elif rank.unconfirmed and (
            rank.from_libraries or not rank.title_is_comm or rank.prefix not in SPECS[rank.engine].prefixes
        ):
            self._drop(rank, "neither its title nor its memory is the engine's")
        elif rank.rank_source == "title":
            rank.note(f"its Python has not loaded {SPECS[rank.engine].display}: its title is not confirmed")

    def _drop(self, rank: Rank, why: str) -> None:
        log.note("process %d is no %s: %s", rank.pid, SPECS[rank.engine].display, why)
        del self.ranks[rank.pid]

    # ---- faults, families ------------------------------------------------------------------------------------------------
    def confirm_prefixes(self) -> None:
        """Confirms custom title prefixes: each needs a second witness. That is a relative with the same prefix, or a Python that
        started an engine core. The memory of the other processes has to be read. So has that of workers whose title names no
        group while there are several: they have not set their full title yet.
        """
        custom = [r for r in self.ranks.values() if r.prefix not in SPECS[r.engine].prefixes]
        confirmed = []
        for rank in custom:
            relatives = [r for r in custom if r.prefix == rank.prefix and r is not rank]
            parent = self.table.parent(rank.process)
            if (
                any(r.pid == rank.ppid or r.ppid == rank.pid for r in relatives)
                or (
                    rank.label_ranks
                    and any(r.label_ranks and r.role == rank.role and r.process.pgrp == rank.process.pgrp for r in relatives)
                )
                or (rank.role == "engine-core" and parent is not None and parent.is_python)
            ):
                if rank.title_is_comm:
                    confirmed.append(rank)
        for rank in confirmed:
            rank.unconfirmed = ""
        self.relate(confirmed)
        for rank in self.ranks.values():
            if rank.role == "worker" and rank.rank_source == "title" and not rank.label_ranks and not rank.unconfirmed:
                if any(r is not rank and r.role == "worker" and r.ppid == rank.ppid for r in self.ranks.values()):
                    rank.unconfirmed = "its title names no group yet"


def _in_memory(rank: Rank, runtime_of: Callable[[int], Runtime]) -> tuple[Memory | None, str]:
    """-> (the facts of a process's own objects, why they were not read). (None, ""): it is no process of the engine."""
    spec, said, why = SPECS[rank.engine], None, ""
    for attempt in range(5):  # it runs on while we read: a torn read is tried again
        runtime = None
        try:
            runtime = runtime_of(rank.pid)
            said, why = spec.ranks_in_memory(runtime, rank), ""
            known = said is None or said.role or said.ranks
            if known or rank.role in ("frontend", "api-server", "child") or rank.from_libraries:
                break
            why = f"no rank found in its {spec.display} objects"
            if attempt:
                break
        except NotFoundError as e:
            why = str(e)
            if not os.path.exists(f"/proc/{rank.pid}"):
                break
        except GdbextError as e:
            why = str(e)
            if "permission" in why:
                break
        finally:
            close = getattr(getattr(runtime, "target", None), "close", None)
            if close:
                close()
    return said, why


def _believe(rank: Rank, said: Memory) -> None:
    """Takes over what a process's own objects say, and notes where its title or tree says something else."""
    for group in sorted(g for g, r in said.ranks.items() if rank.ranks.get(g, r) != r):
        rank.note(f"{rank.rank_source} says {group.upper()}{rank.ranks[group]}, memory {group.upper()}{said.ranks[group]}")
    if said.role and said.role != rank.role:
        if rank.role not in ("child", "frontend", "engine-core") or rank.process.single:
            rank.note(f"its title says {rank.role}, its memory {said.role}")
        rank.role, rank.name = said.role, ""
    rank.ranks.update(said.ranks)
    rank.sizes.update(said.sizes)
    rank.label_ranks.update({g: n for g, n in said.ranks.items() if g not in ("world", "local")})
    if said.role or said.ranks:
        rank.rank_source = "memory"
    rank.unconfirmed, rank.from_libraries = "", False
