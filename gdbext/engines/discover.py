"""Which processes of this machine belong to an engine, and what `WHAT` in a command names.

Order of evidence: titles and command lines (one pass over /proc), the relatives of what was found, mapped libraries of the few
large Pythons that are left, the environment; memory only where those leave a doubt, or when asked to verify. Memory wins.
"""

import os
import re

from ..access.proc import ProcTarget
from ..access.proctable import ProcTable, is_python_name
from ..cpython.runtime import open_runtime
from ..errors import GdbextError, NotFoundError
from .base import Match, Rank, environ_ranks, label_parts, set_labels
from .lmdeploy import LmDeploy
from .rtp_llm import RtpLlm
from .sglang import Sglang
from .trtllm import TrtLlm
from .vllm import Vllm

ENGINES = (Vllm(), Sglang(), RtpLlm(), TrtLlm(), LmDeploy())
SPECS = {spec.name: spec for spec in ENGINES}
_ZOMBIE = "its memory is gone and comm is cut to 15 bytes: rank not known"
LARGE = 64 << 20  # bytes of RSS: no engine is smaller, and the maps of anything smaller are not worth reading


def read_runtime(pid):
    """The Python runtime of a running process, read without stopping it. The caller closes `.target`."""
    return open_runtime(ProcTarget(pid))


def _could_have_started(parent, process):
    """Whether `parent` may have started this engine process, or is a reaper that adopted it. Engines start their processes from a
    Python that has loaded them too, and in its own session."""
    if not parent.is_python or parent.session != process.session:
        return False
    return not parent.rss < LARGE <= process.rss


class _Search:
    def __init__(self, table, runtime_of, verify):
        self.table, self.runtime_of, self.verify = table, runtime_of, verify
        self.ranks = {}
        self.partial = list(table.reasons)
        self.hidden = 0

    def add(self, process, spec, match, source):
        rank = Rank(process, spec.name, match, source)
        self.ranks[process.pid] = rank
        return rank

    # ---- titles and command lines ----------------------------------------------------------------------------------
    def by_command(self):
        for process in self.table:
            if process.state in "ZX":
                self._zombie(process)
            elif process.single:
                self._title(process)
            elif process.cmdline:
                self._argv(process)

    def _zombie(self, process):
        """A zombie keeps 15 bytes of its title (the kernel's comm), which tell the role and not the rank."""
        for spec in ENGINES:
            for start, role in spec.zombies:
                if process.comm.startswith(start):
                    self.add(process, spec, Match(role), "comm").note(_ZOMBIE)
                    return

    def _title(self, process):
        """A title is believed of a Python only: others cannot have titled themselves so. setproctitle sets comm as well, so a
        comm that differs (`exec -a TITLE python`) is a doubt."""
        title = process.title
        for spec in ENGINES:
            match = spec.titled(title)
            if match is None:
                continue
            if not process.is_python:
                return
            rank = self.add(process, spec, match, "title")
            if title.encode("utf-8", "surrogateescape")[:15] != process.comm.encode("utf-8", "surrogateescape"):
                rank.title_is_comm = False
                rank.doubt = rank.doubt or "its comm is not that of its title"
            if "exe" in process.unreadable:
                rank.note("executable not readable: taken for a Python by its title")
            return

    def _argv(self, process):
        first = process.cmdline[:512]
        if b"python" not in first and b"pypy" not in first:
            return  # cheap: a Python's argv[0], or its interpreter's path, says python
        program = process.program()
        if program is None:
            return
        for spec in ENGINES:
            match = spec.argued(*program)
            if match is not None and not (match.needs_libraries and not spec.libraries.search(process.maps())):
                self.add(process, spec, match, "argv")
                return

    # ---- relatives ---------------------------------------------------------------------------------------------------
    def relate(self, fresh):
        """Parents and children of the Ranks `fresh`, until nothing new is found."""
        while fresh:
            found = []
            for rank in fresh:
                found += self._parent_of(rank) + self._children_of(rank)
            fresh = found

    def _parent_of(self, rank):
        spec = SPECS[rank.engine]
        role = spec.parent_roles.get(rank.role)
        parent = self.table.parent(rank.process)
        if role is None or parent is None or parent.pid <= 1 or parent.pid in self.ranks or parent.state in "ZX":
            return []
        if rank.doubt and rank.prefix:
            return []  # a title of someone else's, perhaps: its parent is nobody yet
        if not _could_have_started(parent, rank.process):
            return []
        if parent.is_spawned and role == "frontend":
            role = "api-server"
        new = self.add(parent, spec, Match(role), "tree")
        if role == "engine-core":
            new.note("the engine core runs in the user's own process")
        return [new]

    def _children_of(self, rank):
        spec, found = SPECS[rank.engine], []
        for process in self.table.children.get(rank.pid, ()):
            known = self.ranks.get(process.pid)
            if known is not None:
                continue
            if process.state in "ZX":
                if rank.role == "engine-core" and rank.prefix and process.comm.startswith(f"{rank.prefix}::W"[:15]):
                    self.add(process, spec, Match("worker"), "comm").note(_ZOMBIE)
                elif is_python_name(process.comm):
                    rank.note(f"its child {process.pid} ({process.comm}) is a zombie")
                continue
            if not process.is_python:
                continue
            match = spec.child(rank, process)
            if match is not None:
                found.append(self.add(process, spec, match, "title" if match.ranks else "tree"))
        return found

    # ---- mapped libraries ----------------------------------------------------------------------------------------------
    def by_libraries(self):
        """Large Pythons that nothing named yet: whoever maps an engine's own library, and their large or spawned relatives."""
        for process in self.table:
            if process.pid in self.ranks or process.rss < LARGE or process.state in "ZX" or not process.cmdline:
                continue
            if not process.is_python or process.pid == os.getpid():
                continue
            maps = process.maps()
            if not maps and "maps" in process.unreadable:
                self.hidden += 1
                continue
            spec = next((s for s in ENGINES if s.libraries and s.libraries.search(maps)), None)
            if spec is None:
                continue
            ranks = environ_ranks(spec, process.environ)
            parent = self.table.parent(process)
            spawned = process.is_spawned or (parent is not None and parent.cmdline == process.cmdline and parent.is_python)
            if spawned and parent is not None and parent.pid > 1 and parent.is_python and parent.pid not in self.ranks:
                up = self.table.parent(parent)
                top = parent if not (parent.is_spawned and up is not None and up.pid > 1 and up.is_python) else up
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

    # ---- memory ----------------------------------------------------------------------------------------------------------
    def by_memory(self):
        for rank in list(self.ranks.values()):
            if rank.zombie or rank.process.state in "ZX":
                continue
            if not (rank.doubt or self.verify):
                continue
            if self.runtime_of is None:
                if self.verify:
                    rank.note("memory not read")
                continue
            self._ask(rank)

    def _ask(self, rank):
        spec, said, why = SPECS[rank.engine], None, ""
        for attempt in range(5):  # it runs on while we read: a torn read is tried again
            runtime = None
            try:
                runtime = self.runtime_of(rank.pid)
                said, why = spec.memory(runtime, rank), ""
                if (
                    said is None
                    or said.role
                    or said.ranks
                    or rank.role in ("frontend", "api-server", "child")
                    or rank.from_libraries
                ):
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
        if why.startswith("no rank found") and rank.rank_source in ("tree", "argv"):
            rank.doubt = f"{rank.doubt}, no rank in its memory: starting?"
        elif why:
            rank.note(f"rank not read from memory: {why}")
        if why:
            return
        if said is None:
            if rank.doubt and (rank.from_libraries or not rank.title_is_comm or rank.prefix not in ("", "VLLM")):
                del self.ranks[rank.pid]  # neither its title nor its memory is the engine's
            elif rank.rank_source == "title":
                rank.note(f"its Python has not loaded {spec.display}: its title is not confirmed")
            return
        if rank.from_libraries and not said.role and not said.ranks:
            del self.ranks[rank.pid]  # it has the engine's libraries loaded and runs none: a client, a notebook
            return
        for group in sorted(g for g, r in said.ranks.items() if rank.ranks.get(g, r) != r):
            rank.note(f"{rank.rank_source} says {group.upper()}{rank.ranks[group]}, memory {group.upper()}{said.ranks[group]}")
        if said.role and said.role != rank.role:
            if rank.role not in ("child", "frontend", "engine-core") or rank.process.single:
                rank.note(f"its title says {rank.role}, its memory {said.role}")
            rank.role, rank.name = said.role, ""
        rank.ranks.update(said.ranks)
        rank.sizes.update(said.sizes)
        rank.parts.update({g: n for g, n in said.ranks.items() if g not in ("world", "local")})
        if said.role or said.ranks:
            rank.rank_source = "memory"
        rank.doubt, rank.from_libraries = "", False

    # ---- what is wrong, who belongs together ----------------------------------------------------------------------------
    def witnesses(self):
        """A custom title prefix needs a second witness: a relative with the same prefix, or a Python that started an engine core.
        The others' memory is asked. Workers whose title names no group while there are several have not titled themselves fully
        yet.
        """
        custom = [r for r in self.ranks.values() if r.prefix not in ("", "VLLM")]
        confirmed = []
        for rank in custom:
            kin = [r for r in custom if r.prefix == rank.prefix and r is not rank]
            parent = self.table.parent(rank.process)
            if (
                any(r.pid == rank.ppid or r.ppid == rank.pid for r in kin)
                or (rank.parts and any(r.parts and r.role == rank.role and r.process.pgrp == rank.process.pgrp for r in kin))
                or (rank.role == "engine-core" and parent is not None and parent.pid > 1 and parent.is_python)
            ):
                if rank.title_is_comm:
                    confirmed.append(rank)
        for rank in confirmed:
            rank.doubt = ""
        self.relate(confirmed)
        for rank in self.ranks.values():
            if rank.role == "worker" and rank.rank_source == "title" and not rank.parts and not rank.doubt:
                if any(r is not rank and r.role == "worker" and r.ppid == rank.ppid for r in self.ranks.values()):
                    rank.doubt = "its title names no group yet"

    def mark(self):
        for rank in self.ranks.values():
            rank.parent = self.ranks.get(rank.ppid)
        for rank in self.ranks.values():
            parent, process = self.table.parent(rank.process), rank.process
            if rank.parent is not None and rank.parent.engine != rank.engine:
                rank.parent = None
            if process.single and rank.parent is not None and rank.parent.process.cmdline == process.cmdline and rank.prefix:
                self._inherited(rank)
            if rank.role in ORPHANS and rank.parent is None and (rank.origin in ("title", "comm") or process.is_spawned):
                if parent is None or parent.pid <= 1:
                    rank.mark("orphan", "its parent is gone")
                elif not _could_have_started(parent, process):
                    rank.mark("orphan", f"its parent {parent.pid} ({parent.comm}) is no engine's")
            if rank.parent is not None and rank.parent.process.state in "ZX" and rank.role in ORPHANS:
                rank.mark("orphan", f"its parent {rank.ppid} is a zombie")
            if process.state in "Tt":
                rank.mark("stopped", "stopped by a tracer" if process.state == "t" else "")
            if process.state in "ZX":
                rank.mark("zombie")
                signal = process.exit_status & 0x7F
                if signal:
                    rank.mark("crashed", f"killed by signal {signal}")
                elif process.exit_status >> 8:
                    rank.mark("crashed", f"exited with status {process.exit_status >> 8}")
            rank.notes = [n for n in rank.notes if n]

    def _inherited(self, rank):
        """A child with the very title of its parent was forked by it and has not titled itself."""
        if rank.role == "engine-core" and rank.engine == "vllm" and rank.rank_source != "memory":
            rank.role, rank.prefix = "worker", ""
            rank.replica = rank.parts.pop("dp", None)
            rank.note("it has the title of its engine core: a worker of 0.10.1, or a fork")
        elif rank.role != "engine-core" and rank.rank_source != "memory":
            rank.mark("fork", f"forked from {rank.ppid}, with that one's title")

    def families(self):
        """Numbers the families: processes that started one another, and orphans of one process group."""
        top = {}

        def find(pid):
            while top.setdefault(pid, pid) != pid:
                pid = top[pid]
            return pid

        for rank in self.ranks.values():
            find(rank.pid)
            if rank.parent is not None:
                top[find(rank.pid)] = find(rank.parent.pid)
        lost = {}
        for rank in sorted(self.ranks.values(), key=lambda r: r.pid):
            if rank.parent is None and (rank.orphan or rank.zombie):
                key = (rank.engine, rank.prefix, rank.process.pgrp, rank.process.session)
                if key in lost:
                    top[find(rank.pid)] = find(lost[key])
                else:
                    lost[key] = rank.pid
        whole = {}  # families with a living top, by process group: what an orphan there came from, where it is the only one
        for rank in self.ranks.values():
            if rank.parent is None and not rank.orphan:
                whole.setdefault((rank.engine, rank.process.pgrp, rank.process.session), set()).add(find(rank.pid))
        for (name, _, pgrp, session), pid in lost.items():
            found = whole.get((name, pgrp, session), ())
            if len(found) == 1:
                top[find(pid)] = find(next(iter(found)))
        groups = {}
        for rank in self.ranks.values():
            groups.setdefault(find(rank.pid), []).append(rank)
        return sorted(groups.values(), key=lambda g: min((r.process.started, r.pid) for r in g))


ORPHANS = ("engine-core", "worker", "scheduler", "detokenizer", "rank", "coordinator", "child")
_ROLE_ORDER = ("frontend", "api-server", "coordinator", "backend", "engine-core", "scheduler", "detokenizer", "worker", "rank")


def _place(rank):
    role = _ROLE_ORDER.index(rank.role) if rank.role in _ROLE_ORDER else len(_ROLE_ORDER)
    numbers = [rank.parts.get(g, 0) for g in ("dp", "pp", "pcp", "tp", "local")]
    if rank.replica is not None:
        numbers[0] = rank.replica
    return (
        "fork" in rank.marks,
        role,
        "zombie" in rank.marks,
        numbers,
        rank.ranks.get("world", 0),
        rank.process.started,
        rank.pid,
    )


def discover(proc_root="/proc", engine=None, verify=False, runtime_of=None):
    """`survey` without the count: `([Rank], [reasons why that may not be all])`."""
    return survey(proc_root, engine, verify, runtime_of)[:2]


def survey(proc_root="/proc", engine=None, verify=False, runtime_of=None):
    """The engine processes that `proc_root` shows -> `([Rank], [reasons why that may not be all], processes looked at)`.

    `engine`: only that one (a name in `SPECS`). `verify`: read the rank of every process from its memory. `runtime_of(pid)`:
    how a Python runtime is opened (default: through /proc; none for a made-up `proc_root`). Indices count from 0 over the list.
    """
    if engine is not None and engine not in SPECS:
        raise GdbextError(f"no engine named {engine!r}; there are {', '.join(SPECS)}")
    table = ProcTable(proc_root)
    if runtime_of is None and proc_root == "/proc":
        runtime_of = read_runtime
    search = _Search(table, runtime_of, verify)
    search.by_command()
    search.relate(list(search.ranks.values()))
    search.witnesses()
    search.by_libraries()
    for spec in ENGINES:  # before memory: what argv proves needs no reading
        ranks = [r for r in search.ranks.values() if r.engine == spec.name]
        for rank in ranks:
            rank.parent = search.ranks.get(rank.ppid)
        spec.order(ranks)
    search.by_memory()
    search.relate([r for r in search.ranks.values() if r.rank_source == "memory"])
    for rank in list(search.ranks.values()):
        if rank.doubt and rank.prefix not in ("", "VLLM"):
            del search.ranks[rank.pid]  # Foo::Worker of some other program
        elif rank.role == "child" and rank.parent is not None and rank.parent.role == "frontend" and rank.rank_source == "tree":
            if any(r.parent is rank.parent and r.rank_source in ("title", "memory") for r in search.ranks.values()):
                del search.ranks[rank.pid]  # the user's own helper process, beside an engine that is up
        if rank.doubt:
            rank.note(rank.doubt)
    search.mark()
    found = []
    for family, group in enumerate(search.families()):
        spec = SPECS[group[0].engine]
        spec.world(group)
        for rank in group:
            rank.family = family
            core = rank.parent
            if (
                rank.role == "worker"
                and core is not None
                and core.role == "engine-core"
                and "dp" in core.parts
                and "dp" not in rank.parts
            ):
                rank.replica = core.parts["dp"]  # a dense model's replicas do not say DP in their workers' titles
                rank.ranks["dp"] = rank.replica
        set_labels(group)
        found += sorted(group, key=_place)
    if engine is not None:
        found = [r for r in found if r.engine == engine]
    for index, rank in enumerate(found):
        rank.index = index
    if search.hidden:
        search.partial.append(f"{search.hidden} large Python processes may not be looked into")
    for what in ("exe", "status", "environ", "fd", "maps"):
        for rank in found:
            rank.process.gpus, rank.process.ns_pids  # noqa: B018  (their reading notes what is not readable)
        count = sum(what in r.process.unreadable for r in found)
        if count:
            search.partial.append(f"{_HIDDEN[what]} of {count} of {len(found)} processes not readable")
    return found, search.partial, len(table)


_HIDDEN = {
    "exe": "executable",
    "status": "pid in its container",
    "environ": "environment",
    "fd": "open files (GPUs)",
    "maps": "libraries",
}


# ---- WHAT --------------------------------------------------------------------------------------------------------------
def _describe(rank):
    return f"{rank.index}: {rank.label} ({rank.engine}, pid {rank.pid})"


def _thread_group(number):
    """The pid of the process that `number` (a pid or tid) belongs to; None when there is none. /proc shows threads by number
    too."""
    try:
        with open(f"/proc/{number}/status") as f:
            return int(re.search(r"^Tgid:\s*([0-9]+)", f.read(), re.M).group(1))
    except (OSError, AttributeError, ValueError):
        return None


def resolve(what, ranks):
    """What `WHAT` names -> a list of `Rank`, `int` (a pid that is in no list) or `str` (an existing file).

    `all`, a pid, an index of `ranks`, a label without regard to case (`TP0`, `DP1.TP3`, `sglang:scheduler`, or parts of one:
    `EP3`), a title, or a file. A number that is both an index and a pid is the index. `GdbextError` lists the candidates of an
    ambiguous name.
    """
    what = what.strip()
    if not what:
        raise GdbextError("name a process: an index or label of llm-ranks, a pid, a core file, or all")
    if what.lower() == "all":
        found = [r for r in ranks if not r.zombie and "fork" not in r.marks]
        if not found:
            raise NotFoundError("all: no engine process is running; see llm-ranks")
        return found
    if re.fullmatch("[0-9]{1,10}", what):
        number = int(what)
        for rank in ranks:
            if rank.index == number:
                return [rank]
        for rank in ranks:
            if rank.pid == number:
                return [rank]
        process = _thread_group(number)
        if process == number:
            return [number]
        if process:
            raise GdbextError(f"{number} is a thread of process {process}: name that one")
        inside = [r for r in ranks if r.ns_pid == number]
        if inside:
            raise NotFoundError(
                f"there is no process {number} here; in its container that is {'; '.join(map(_describe, inside))}"
            )
        raise NotFoundError(
            f"no process {number}, and llm-ranks lists {f'indices 0 to {len(ranks) - 1}' if ranks else 'nothing'}"
        )
    found = _named(what, ranks)
    if len(found) == 1:
        return found
    if found:
        raise GdbextError(f"{what} is ambiguous: {'; '.join(map(_describe, found))}; give the index or the pid")
    if os.path.isfile(what):
        return [what]
    if not ranks:
        raise NotFoundError(f"no engine process is named {what}: llm-ranks lists none, and there is no such file")
    raise NotFoundError(f"nothing is named {what}; there are {', '.join(r.label for r in ranks)} (and no such file)")


def _named(what, ranks):
    """All ranks that a word names, by the strictest reading that names any."""
    engine, colon, rest = what.partition(":")
    if colon and engine.lower() in SPECS and not rest.startswith(":"):
        ranks, what = [r for r in ranks if r.engine == engine.lower()], rest
    word = what.lower()
    plain = word.replace("_", ".")
    parts = label_parts(word)
    alive = [r for r in ranks if not r.zombie]
    readings = (
        lambda r: r.label.lower() == word,
        lambda r: r.process.single and word in (r.process.title.lower(), r.process.title.lower().rpartition("::")[2]),
        lambda r: r.label.lower().replace("_", ".") == plain,
        lambda r: word in (a.lower() for a in r.aliases),
        lambda r: bool(parts) and r.runs_model and "fork" not in r.marks and all(r.ranks.get(g) == n for g, n in parts.items()),
        lambda r: r.role == word,
    )
    for reading in readings:
        for group in (alive, ranks):
            found = [r for r in group if reading(r)]
            if found:
                return found
    return []
