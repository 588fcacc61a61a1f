"""Which processes of this machine belong to an engine."""

from __future__ import annotations

from typing import Any, Callable, Collection

from ..access.proc import ProcTarget
from ..access.proctable import ProcTable
from ..cpython.runtime import Runtime, open_runtime
from ..errors import GdbextError
from . import families, instances
from .rank import Rank, set_labels
from .registry import ENGINES, SPECS
from .search import Search, is_init

_HIDDEN = {
    "exe": "executable",
    "status": "pid in its container",
    "environ": "environment",
    "fd": "open files (GPUs)",
    "maps": "libraries",
}


def read_runtime(pid: int) -> Runtime:
    """The Python runtime of a running process, read without stopping it. The caller closes `.target`."""
    return open_runtime(ProcTarget(pid))


def discover(
    proc_root: str = "/proc",
    engine: str | None = None,
    verify: bool = False,
    runtime_of: Callable[[int], Runtime] | None = None,
    about: Collection[int] | None = None,
) -> tuple[list[Rank], list[str]]:
    """`survey` without the count: `([Rank], [reasons why that may not be all])`."""
    return survey(proc_root, engine, verify, runtime_of, about)[:2]


def find_routers(ranks: list[Rank]) -> list[dict[str, Any]]:
    """The routers on this machine, and their connections to the instances of `ranks`."""
    from . import routers

    return routers.of_table(ProcTable(), ranks)


def survey(
    proc_root: str = "/proc",
    engine: str | None = None,
    verify: bool = False,
    runtime_of: Callable[[int], Runtime] | None = None,
    about: Collection[int] | None = None,
) -> tuple[list[Rank], list[str], int]:
    """The engine processes that `proc_root` shows -> `([Rank], [reasons why that may not be all], processes looked at)`.

    * `engine`: only that one (a name in `SPECS`)
    * `verify`: read the rank of every process from its memory
    * `runtime_of(pid)`: how a Python runtime is opened (default: through /proc; none for a made-up `proc_root`)
    * `about`: the pids of the only processes of interest; if none is an engine's, no ranks are returned and no memory is read

    Indices count from 0 over the list.
    """
    if engine is not None and engine not in SPECS:
        raise GdbextError(f"no engine named {engine!r}; there are {', '.join(SPECS)}")
    table = ProcTable(proc_root)
    if runtime_of is None and proc_root == "/proc":
        runtime_of = read_runtime
    search = Search(table, runtime_of, verify)
    _by_command_and_title(search)
    trees = [_tree(search, pid) for pid in about or ()]
    if trees and not _are_an_engines(search, trees):
        return [], search.partial, len(table)
    search.by_libraries()
    search.by_environment()
    _gather(search)
    families.mark(search.ranks, table, runtime_of)
    found: list[Rank] = []
    for number, group in enumerate(families.families(search.ranks)):
        _complete(number, group)
        found += sorted(group, key=families.sort_key)
    instances.set_names({r.family: r.instance for r in found if r.instance is not None}.values())
    instances.tell_apart(found)
    if engine is not None:
        found = [r for r in found if r.engine == engine]
    for index, rank in enumerate(found):
        rank.index = index
    if search.hidden:
        search.partial.append(
            f"{len(search.hidden)} large Python processes are another user's, and may be an engine's: run this as root, or as "
            "that user, to see"
        )
    for rank in found:
        rank.process.gpus, rank.process.ns_pids  # noqa: B018  (their reading notes what is not readable)
    for what, words in _HIDDEN.items():
        count = sum(what in r.process.unreadable for r in found)
        if count:
            search.partial.append(
                f"{words}: not readable for {count} of the {len(found)} processes (run as root, or as their user)"
            )
    return found, search.partial, len(table)


def _by_command_and_title(search: Search) -> None:
    """Asks the kinds of evidence that cost least, in their order."""
    search.by_command()
    search.relate(list(search.ranks.values()))
    search.confirm_prefixes()


def _are_an_engines(search: Search, trees: list[set[int]]) -> bool:
    """Whether a process of these trees may belong to an engine, without a look at any memory. An empty tree may."""
    if not all(trees) or any(tree & search.ranks.keys() for tree in trees):
        return True
    search.by_libraries(set().union(*trees))
    search.by_environment(set().union(*trees))
    return any(tree & search.ranks.keys() for tree in trees)


def _tree(search: Search, pid: int) -> set[int]:
    """The pids of the whole tree of a process, below init; none for a number that may be an index of the list."""
    process = search.table.processes.get(pid)
    if process is None or pid < len(search.table):
        return set()
    top, seen = process, {pid}
    while True:
        parent = search.table.parent(top)
        if parent is None or is_init(parent) or parent.pid in seen:
            break
        top = parent
        seen.add(top.pid)
    tree, left = set(), [top.pid]
    while left:
        one = left.pop()
        if one not in tree:
            tree.add(one)
            left += [child.pid for child in search.table.children.get(one, ())]
    return tree


def _gather(search: Search) -> None:
    """Reads memory where evidence from outside leaves a doubt, and drops processes that nothing confirms."""
    for spec in ENGINES:  # before memory: facts that argv proves need no read
        ranks = [r for r in search.ranks.values() if r.engine == spec.name]
        for rank in ranks:
            rank.parent = search.ranks.get(rank.ppid)
        spec.infer_order(ranks)
    search.by_memory()
    search.relate([r for r in search.ranks.values() if r.rank_source == "memory"])
    for rank in list(search.ranks.values()):
        if rank.unconfirmed and rank.prefix not in SPECS[rank.engine].prefixes:
            del search.ranks[rank.pid]  # Foo::Worker of some other program
        elif rank.role == "child" and rank.parent is not None and rank.parent.role == "frontend" and rank.rank_source == "tree":
            if any(r.parent is rank.parent and r.rank_source in ("title", "memory") for r in search.ranks.values()):
                del search.ranks[rank.pid]  # the user's own helper process, next to a running engine
        if rank.unconfirmed:
            rank.note(rank.unconfirmed)


def _complete(number: int, group: list[Rank]) -> None:
    """Fills in the facts that need all processes of one engine: its number, global ranks, replicas, labels."""
    SPECS[group[0].engine].infer_world(group)
    for rank in group:
        rank.family, rank.kin = number, group
        core = rank.parent
        if rank.role != "worker" or core is None or core.role != "engine-core":
            continue
        if "dp" in core.label_ranks and "dp" not in rank.label_ranks:
            rank.replica = core.label_ranks["dp"]  # a dense model's replicas do not say DP in their workers' titles
            rank.ranks["dp"] = rank.replica
    set_labels(group)
    instance = instances.of_family(group, SPECS[group[0].engine])
    for rank in group:
        rank.instance = instance
