"""Names the library of a function when gdb makes a breakpoint on it pending. After llm-attach gdb has read the symbols of some
libraries only."""

from __future__ import annotations

import os
import re
from typing import Any

import gdb

from .. import log
from ..access import libraries
from ..access.proc import ProcTarget
from ..errors import GdbextError
from ..render.names import short
from ..render.text import escape
from . import attached_processes
from .events import listen
from .gdb_state import say

_NAME = re.compile(r"[A-Za-z_]\w*(::~?[A-Za-z_]\w*)*$")
SHOWN = 3


def watch() -> None:
    """From now on a pending breakpoint of the user is followed by a line that says what it waits for."""
    listen(breakpoint_created=_on_created)


def holders(pid: int, name: str) -> list[str]:
    """Paths of the libraries of a process that define a function `name` (C, or C++ with or without its namespaces) and whose
    symbols gdb has not read."""
    have, found = libraries.symbols_of(), []
    word = name.rpartition("::")[2].encode()
    for module in ProcTarget(pid).modules():
        if module.path in have or os.path.realpath(module.path) in have:
            continue
        try:
            symbols = module.elf.symbols_named([word])
        except GdbextError as e:
            log.passed_over(e)
            continue  # a file that is gone or damaged: gdb could read no symbols of it either
        if any(_is(symbol, name) for symbol, _, _ in symbols):
            found.append(module.path)
    return found


def _is(symbol: str, name: str) -> bool:
    plain = re.sub(r"<.*", "", short(symbol)).partition("(")[0]
    return plain == name or plain.endswith("::" + name)


def _on_created(breakpoint: Any) -> None:
    """gdb's event. It only reads files, and prints one line."""
    name = (breakpoint.location or "").strip()
    inferior = gdb.selected_inferior()
    if breakpoint.number <= 0 or not breakpoint.pending or not _NAME.match(name) or not inferior.pid:
        return
    if inferior.num not in attached_processes.numbers():
        return
    try:
        found = holders(inferior.pid, name)
    except GdbextError as e:
        say(f"(gdbext could not look for {name}: {escape(str(e))})")
        return
    if not found:
        say(f"(no library of the process has a function {name}; pybreak takes one of Python's, llm-break a kernel's name)")
        return
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    line = "llm-symbols " + escape(os.path.basename(found[0]))
    say(f"({name} is in {', '.join(map(escape, found[:SHOWN]))}{more}, which gdb has not read: {line} does it)")
