"""A place that no attached process has yet: pybreak waits for it, or refuses it with the nearest names if it looks like a
typo."""

from __future__ import annotations

import builtins
import difflib
import os
from typing import TYPE_CHECKING, Any, Iterable

from .. import log
from ..access.proc import ProcTarget
from ..cpython import codes
from ..cpython.runtime import Runtime, open_runtime
from ..errors import GdbextError, NotFoundError
from ..render.text import escape

if TYPE_CHECKING:
    from .hw_breakpoints import Process
    from .pybreak import Where

SHOWN = 4
ALIKE = 0.75  # of difflib's ratio: from here on one is taken for a slip of the pen of the other
EXCEPTIONS = [name for name, one in vars(builtins).items() if isinstance(one, type) and issubclass(one, BaseException)]
MAX_PROCESSES = 8  # that are not attached, searched for the place


def refuse_typos(where: Where, processes: Iterable[Process], others: Iterable[Any]) -> None:
    """Raises `NotFoundError` for a place that is in none of `processes` but in one of `others` (`Rank`s that are not attached),
    or whose spelling is close to an existing one. Returns where the place exists, and where nothing similar is loaded: pybreak
    then waits for it."""
    runtimes = [p.rt for p in processes]
    if not runtimes or any(where.places(rt) for rt in runtimes):
        return
    for rank in list(others)[:MAX_PROCESSES]:
        if _has(where, rank.pid):
            name = escape(rank.label) or str(rank.pid)
            raise NotFoundError(f"{where.text} is in {name} (pid {rank.pid}), which is not attached: llm-attach {name} first")
    near = list(
        dict.fromkeys(
            text for rt in runtimes for text in (_files(rt, where) if where.line is not None else _functions(rt, where))
        )
    )
    if near:
        raise NotFoundError(
            f"nothing that is loaded is called {where.text}; near it: {', '.join(map(escape, near[:SHOWN]))} (-pending waits for "
            "it all the same)"
        )


def refuse_exception_typos(kind: str, runtimes: Iterable[Runtime]) -> None:
    """Raises `NotFoundError` for the name of an exception class that no module of the processes has and whose spelling is close
    to one of Python's own."""
    last = kind.rpartition(".")[2]
    near = [] if last in EXCEPTIONS else difflib.get_close_matches(last, EXCEPTIONS, SHOWN, ALIKE)
    if near and not any(_in_a_module(rt, last) for rt in runtimes):
        raise NotFoundError(
            f"no module that is loaded has an exception class {kind}; near it: {', '.join(near)} (-pending waits for it all the "
            "same)"
        )


def _in_a_module(rt: Runtime, name: str) -> bool:
    for module in rt.modules().values():
        try:
            found = rt.module_dict(module)
            if found is not None:
                found.item(name)
                return True
        except GdbextError as e:
            log.passed_over(e)
            continue
    return False


def _has(where: Where, pid: int) -> bool:
    try:
        rt = open_runtime(ProcTarget(pid))
        name = os.path.basename(where.file) if where.line is not None else where.function.rpartition(".")[2]
        return codes.can_name(rt, name) and bool(where.places(rt))
    except GdbextError as e:
        log.passed_over(e)
        return False


def _files(rt: Runtime, where: Where) -> list[str]:
    """Source files whose base name is close to the requested one, as FILE:LINE."""
    by_name: dict[str, list[str]] = {}
    for path in codes.every(rt).by_file:
        by_name.setdefault(os.path.basename(path), []).append(path)
    names = difflib.get_close_matches(os.path.basename(where.file), by_name, SHOWN, ALIKE)
    return [f"{path}:{where.line}" for name in names for path in by_name[name]]


def _functions(rt: Runtime, where: Where) -> list[str]:
    """Qualified names of functions that are close to the requested one; in a MODULE that is loaded, also less similar ones."""
    loaded = where.module and rt.module(where.module) is not None
    cutoff = 0.4 if loaded else ALIKE
    names = codes.names(rt, where.module)
    last = where.function.rpartition(".")[2]
    # of a dotted name the whole is compared too, so its last part may differ more
    near = difflib.get_close_matches(last, names, 4 * SHOWN, min(cutoff, 0.6) if last != where.function else cutoff)
    wanted = [last] if last in names else near
    found = codes.qualified(rt, where.module, {title for one in wanted for title in names[one]})
    if last == where.function:  # of a name without a dot the last part alone was meant
        return list(dict.fromkeys(found))
    return difflib.get_close_matches(where.function, list(dict.fromkeys(found)), SHOWN, cutoff)
