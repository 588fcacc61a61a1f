"""Shared by the commands that act on gdb's own inferiors: the check for gdb, the options of Python breakpoints, labels of
attached processes."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, Iterable

from ..errors import GdbextError
from . import session as session_room
from .command import Answer, Option, UsageError
from .session import Session

ATTACHED = Option("on", "str", "only in this attached process: a label or pid", metavar="WHAT", was="rank")
DELETE = Option("delete", help="remove it: by number or place, or all of this command")
COUNT = Option("count", "int", "the first N-1 passes are let go by", 1, metavar="N")


def require_gdb(session: Session, name: str) -> ModuleType:
    """The module `name` of gdbext.control, which exists only inside gdb. `GdbextError` outside."""
    if not session.in_gdb:
        raise GdbextError(session_room.NEEDS_GDB)
    session_room.register_adapters()  # conditions and logs are read where no command of the session is at work
    return importlib.import_module("gdbext.control." + name)


def deleted(session: Session, command: str, which: str) -> Answer:
    """The answer of a command with -delete."""
    points = require_gdb(session, "pybreak")
    numbers = points.delete(command, which)
    others = "" if numbers else ", ".join(f"{p.command} {p.number}" for p in points.listed())
    more = f"; set are, each for -delete of its own command: {others}" if others else ""
    return Answer({"deleted": numbers, "breakpoints": []}, f"{len(numbers)} taken away{more}")


def labels_of_attached(session: Session) -> dict[int, str]:
    """{pid: label} of the attached processes, and of those that the last llm-ranks found."""
    found = {r.pid: r.label for r in session.ranks if not r.process.fate()}
    found.update({p.pid: p.label for p in require_gdb(session, "attach").attached() if p.label})
    return found


def check_condition(condition: str, command: str, what: str = "condition") -> None:
    """Raises `UsageError` for a condition or another expression that cannot be parsed: now, not when a breakpoint is hit."""
    if condition:
        from ..cpython.expressions import syntax_tree  # here: it takes long to load, and few conditions are given

        try:
            syntax_tree(condition.replace("$py", "py"))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise UsageError(f"{command}: cannot parse the {what} {condition!r}") from None


PENDING = Option("pending", help="wait for the place also where something nearly so called is loaded")


def refuse_typos(session: Session, where: Any, processes: list[Any]) -> None:
    """Raises `NotFoundError` for a place that only an unattached process has, or whose spelling is close to a loaded one."""
    pids = {p.pid for p in processes}
    families = {r.family for r in session.ranks if r.pid in pids}
    others = [r for r in session.ranks if r.pid not in pids and not r.process.fate()]
    others.sort(key=lambda r: r.family not in families)  # those of the same engine first
    require_gdb(session, "near_names").refuse_typos(where, processes, others)


def breakpoint_doubts(session: Session, processes: Iterable[Any]) -> list[str]:
    """Reasons for `partial` of a Python breakpoint: the search for code left something out, the start of a process will not be
    noticed, no guard watches."""
    from ..cpython import codes

    found = [text for p in processes for text in codes.every(p.rt).left_out]
    found += [doubt for p in processes for doubt in [codes.jit_doubt(p.rt)] if doubt]
    found += [require_gdb(session, "follow").blind(), require_gdb(session, "attach").guard_error()]
    return list(filter(None, found))
