"""Which processes, engines and caches a command or a program means: the one place that says so."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .. import log
from ..access import proc
from ..access.base import Target
from ..access.proctable import ProcTable
from ..bundle import paths
from ..engines import discover, registry
from ..engines import group as groups
from ..engines.group import Engine
from ..engines.processes import ProcessRef
from ..engines.rank import Rank
from ..engines.spec import SCHEDULERS
from ..engines.what import is_path
from ..errors import GdbextError, NotFoundError
from ..render.text import escape
from ..session.command import Option
from ..session.session import Session

if TYPE_CHECKING:
    from ..engines.kv_view import NativeView, View

POOL = Option(
    "pool",
    "str",
    "a Python expression of a Scheduler, KVCacheManager or BlockPool instead of the one that is found",
    metavar="EXPR",
)
SHOWN = 6  # Pythons that an error names
CONTENT = Option("show-content", help="with token ids of prompts and outputs", for_agents=False)


def resolve_processes(session: Session, text: str, routers: bool = False) -> list[ProcessRef]:
    """Resolves `WHAT...`, each process once: names separated by blanks or commas, or one path of a file. Empty text means gdb's
    selected process, else all engine processes. `routers`: to `all` belong the routers before them that are Pythons."""
    if not text:
        pid = session.selected_pid()
        if pid is not None:
            return [session.process(pid)]
        session.ranks = []  # "all" means now, not at the last llm-ranks
        try:
            found = session.resolve("all")
            return found + _routers(session, found) if routers else found
        except NotFoundError:
            here = ", ".join(f"{pid} {escape(name)}" for pid, name in pythons()[:SHOWN])
            known = f"one of the Pythons here ({here})" if here else "pids"
            raise NotFoundError(
                f"no engine process is running here: name {known}, labels of llm-ranks, or snapshots (./FILE)"
            ) from None
    words = [text] if "/" in text and os.path.isfile(paths.split(os.path.expanduser(text))[0]) else text.replace(",", " ").split()
    if "all" in words:
        session.ranks = []
    found = session.resolve_each(words)
    return found + _routers(session, found) if routers and "all" in words else found


def pythons() -> list[tuple[int, str]]:
    """(pid, what it is called) of the other Pythons on this machine, the busiest first."""
    table, own = ProcTable(), {os.getpid()}
    here = table.get(os.getpid())
    while here is not None:  # what this command was started by
        own.add(here.pid)
        here = table.parent(here)
    found = [one for one in table if one.pid not in own and one.is_python and not one.exits]
    return [(one.pid, one.called) for one in sorted(found, key=lambda one: -one.cpu / (one.age or 1.0))]


def _routers(session: Session, found: list[ProcessRef]) -> list[ProcessRef]:
    """The routers on this machine that are Pythons, and not among the processes that were found."""
    from ..engines import routers as routing  # not for a process that is named

    pids = [pid for pid in routing.pids_of(ProcTable(), session.ranks) if pid not in {one.pid for one in found}]
    return [ProcessRef(pid, f"router#{i}" if i > 1 else "router") for i, pid in enumerate(pids, 1)]


def moving(session: Session, found: list[ProcessRef], failed: list[dict[str, Any]]) -> list[tuple[proc.ProcTarget, ProcessRef]]:
    """The processes of `found` that run, each to be read as it runs, past the debugger. The others, which cannot move, are added
    to `failed`; `GdbextError` where none is left."""
    targets = []
    for one in found:
        why = session.targets.why_still(one)
        if why or one.pid is None:
            failed.append({"label": one.name, "pid": one.pid, "reason": why})
        else:
            targets.append((proc.ProcTarget(one.pid, one.name), one))
    if not targets:
        raise GdbextError(f"{failed[0]['label']}: {failed[0]['reason']}" if failed else "no process is named")
    return targets


# ---- engines -----------------------------------------------------------------------------------------------------------
def engine_of(session: Session, target: Target) -> Engine | None:
    """The running engine that a process belongs to, with its siblings opened by the session. None for a core and for a process of
    no engine."""
    if not session.is_running(target):
        return None
    ranks = session.ranks
    if not any(r.pid == target.pid for r in ranks):
        ranks, _ = discover.discover()
        session.ranks = session.ranks or ranks
    rank = next((r for r in ranks if r.pid == target.pid), None)
    if rank is None:
        return None
    return groups.Engine([r for r in ranks if r.family == rank.family], session.open)


def of_instance(session: Any, wanted: str) -> tuple[str, str]:
    """(the pid of the scheduler of the instance that INSTANCE/ID names, ID); ('', the id itself) where none of here has that
    name."""
    name, _, rest = wanted.partition("/")
    if not rest:
        return "", wanted
    ranks, _ = (session.ranks, None) if session.ranks else discover.discover()
    for engine in groups.engines_of([r for r in ranks if r.family is not None], session.open):
        if engine.instance.lower() == name.lower() and engine.replicas():
            return str(engine.replicas()[0][0].pid), rest
    return "", wanted


def only_scheduler(session: Any) -> Rank:
    """The process that schedules for the one engine that runs on this machine. `GdbextError` where there is none, or more than
    one, naming them. Where the ranks of one model each have a scheduler and all do the same (SGLang's), it is the first."""
    ranks, _ = discover.discover()
    session.ranks = session.ranks or ranks
    engines = groups.engines_of([r for r in ranks if r.family is not None], session.open)
    found = [ranks[0] for engine in engines for ranks in engine.replicas()]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFoundError("no engine's scheduler is running here: add -on PID, a label of llm-ranks, or a core file (./FILE)")
    names = ", ".join(f"{r.engine}:{r.label} (pid {r.pid})" for r in found[:8])
    raise GdbextError(f"{len(found)} schedulers run here, each with a KV cache of its own: add -on with one of {names}")


def cores_of(session: Any, on: str | None) -> list[ProcessRef]:
    """The cores of several processes that `-on` names, in their order; [] where it names one process."""
    named = resolve_processes(session, on) if on is not None and is_path(on) else []
    return named if len(named) > 1 and all(one.core for one in named) else []


def view_of(session: Any, args: Any, target: Target | None = None) -> View | NativeView:
    """A view of the KV cache of the engine that a command's process (or `target`) belongs to, or of the object that `-pool`
    names.

    Where no process is named and none is selected, it is the only engine that runs on this machine. `-on` may name the cores of
    several processes of one engine."""
    from ..cpython import expressions, objects
    from ..engines import kv_view

    on = getattr(args, "on", None)
    cores: list[Target] = []
    if target is None:
        if on is None and session.selected_pid() is None:
            on = args.on = str(only_scheduler(session).pid)  # also for a retry
        cores = [session.open(one) for one in cores_of(session, on)]
        target = cores[0] if cores else session.target(on)
    root = None
    if getattr(args, "pool", None):
        root = expressions.evaluate(session.runtime(on), args.pool, session.frame(on))
        if not isinstance(root, objects.Object):
            raise GdbextError(f"-pool {args.pool} is a {type(root).__name__}, no Scheduler, KVCacheManager or BlockPool")
    try:
        view = kv_view.View(target, engine_of(session, target), root, getattr(args, "show_content", False), cores)
    except GdbextError:  # no Python engine: a C++ one, if a frame runs its methods
        for spec in registry.with_native_kv() if on is None and root is None else ():
            found = session.this_of(spec.kv_classes, spec.kv_types)
            if found is not None:
                return kv_view.NativeView(target, spec.kv, found)
        raise
    view.unstopped(target)
    return view


def tables_here(session: Any, on: str | None) -> tuple[list[Engine], Rank | None]:
    """-> (the engines whose workers may be of a scheduler on another machine, the scheduler here that was asked for). With `on`:
    the engine of that process. `GdbextError` where several schedulers might be meant, or no engine runs here."""
    what = session.resolve_one(on) if on is not None else None
    if what is not None and what.rank is None:
        raise NotFoundError(f"{on} is no process of a running engine: see llm-ranks")
    try:
        scheduler = only_scheduler(session) if what is None else None
    except NotFoundError as e:
        log.passed_over(e)
        scheduler = None
    ranks = session.ranks
    if what is not None:
        cores = Engine([r for r in ranks if r.family == what.rank.family], session.open).schedulers_for(what.rank)
        scheduler = what.rank if what.rank in cores else cores[0] if cores else None
        ranks = [r for r in ranks if r.family == what.rank.family]
    engines = groups.engines_of([r for r in ranks if r.family is not None], session.open)
    if scheduler is None and not any(engine.with_role(*SCHEDULERS, "worker") for engine in engines):
        raise NotFoundError("no engine's scheduler or worker is running here: see llm-ranks")
    return engines, scheduler


def engines_for(session: Any, what: str | None) -> tuple[list[Engine], list[Target]]:
    """The running engines, and the cores, for a command about requests: those of `what`, else the selected process's,
    else all."""
    target = None
    if what:
        found = resolve_processes(session, what)
        if all(one.rank is not None for one in found):
            instances = {one.instance for one in found}
            return groups.engines_of([r for r in session.ranks if r.family in instances], session.open), []
        if len(found) > 1:
            running = [one.name for one in found if one.pid is not None]
            if running:
                raise GdbextError(f"several at once: cores, or processes of engines (llm-ranks); {running[0]} is neither")
            return [], [session.open(one) for one in found]
        target = session.open(found[0])
    elif session.in_gdb:
        target = session.target() if session.selected_pid() is not None else None
    if target is not None:
        engine = engine_of(session, target)
        return ([engine], []) if engine is not None else ([], [target])
    session.ranks, _ = discover.discover()
    if not session.ranks:
        raise NotFoundError("no engine process is running here: see llm-ranks")
    return groups.engines_of(session.ranks, session.open), []
