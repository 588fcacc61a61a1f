"""The collector's reader for -still (stillness.py): it runs the command, in a process of its own, to learn which memory
it reads."""

from __future__ import annotations

import importlib
import json
from typing import Any

from .. import log
from ..access import made_code
from ..access.base import Target
from ..engines import kv_view
from ..engines.processes import ProcessRef
from ..errors import FaultError, GdbextError, LayoutError
from ..render.text import Style
from .command import Args
from .session import Session, register_adapters

WAYS = 4  # runs of a command on memory that changes meanwhile


class _Alone(Session):
    """The session in which the collector runs the command. Every name means the process that is copied, and no other is read."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self._target = target

    def resolve(self, what: str) -> list[ProcessRef]:
        return [ProcessRef(self._target.pid)]

    def open(self, one: ProcessRef) -> Target:
        return self._target

    def is_running(self, target: Target) -> bool:
        return False  # its engine's other processes have collectors of their own


def read(target: Target, module: str, name: str, values: str, operand: str, once: str = "") -> str:
    """The collector's reader: runs a command of `Copies` on `target`. It also reads the memory that other processes' answers need
    from this one.

    `once`: the run is not repeated to learn its pages exactly, because the memory around them is copied too. Returns '' even
    where it fails: the command itself then fails on the copy, and says why."""
    if once and target.read_log is not None and (target.read_log.repeated or target.read_log.of_copy):
        return ""
    run(getattr(importlib.import_module(module), name), Args({**json.loads(values), "on": str(target.pid)}, operand), target)
    return ""


def run(command: Any, args: Args, target: Target) -> None:
    """Runs a command on `target` alone for the memory that it reads."""
    register_adapters()
    before = target.is_stopped
    target.is_stopped = True  # only its pages matter: repeated readings until two agree would read no other pages
    made_code.read_small(target)
    try:
        _run(command, args, target)
    finally:
        target.is_stopped = before


def _run(command: Any, args: Args, target: Target) -> None:
    for _ in range(WAYS):
        try:
            command().run(_Alone(target), args).in_style(Style())
            break
        except (FaultError, LayoutError) as e:
            log.passed_over(e)
            target.invalidate()
        except GdbextError as e:
            log.passed_over(e)
            break
    if command.group == "kv":
        with log.passing_over(GdbextError):
            kv_view.View(target).workers()
