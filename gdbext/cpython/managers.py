"""The objects that a frame holds by the context managers that it has entered: also those behind a generator of contextlib, on an
ExitStack, and behind a class whose `__enter__` acquires an attribute and whose `__exit__` releases it.

Source: Lib/contextlib.py (`_GeneratorContextManagerBase`, `_AsyncGeneratorContextManager`, `_BaseExitStack`).
"""

from __future__ import annotations

from typing import Iterable

from .. import log
from ..errors import GdbextError
from .expressions import evaluate
from .frames import PyFrame
from .locks import entered, method_pairs
from .objects import Object
from .tasks import frame_of

MAX_DEPTH = 4  # managers behind managers
MAX_HELD = 64
_TAKES, _GIVES = {"acquire", "__enter__", "__aenter__"}, {"release", "__exit__", "__aexit__"}  # names in the code


def behind(manager: Object) -> tuple[list[Object], list[PyFrame]]:
    """-> (the objects that an entered manager holds, itself first; the frames of the suspended generators among these)"""
    held: list[Object] = []
    frames: list[PyFrame] = []
    level = [manager]
    for _ in range(MAX_DEPTH):
        following: list[Object] = []
        for obj in level:
            if len(held) >= MAX_HELD or any(obj.address == one.address for one in held):
                continue
            held.append(obj)
            try:
                frame = _suspended(obj)
                following += entered(frame) if frame is not None else _inside(obj)
                frames += [frame] if frame is not None else []
            except (GdbextError, AttributeError) as e:
                log.passed_over(e)
        level = following
    return held, frames


def _suspended(manager: Object) -> PyFrame | None:
    """The frame in which the generator of a manager of contextlib is suspended; None for other managers."""
    if not manager.type.is_heap or "_GeneratorContextManagerBase" not in _classes(manager):
        return None
    generator: Object = manager.attr("gen")
    step, state = frame_of(manager.rt, generator.address)
    return PyFrame(manager.rt, step, 0) if step is not None and state in ("suspended", "awaiting") else None


def _classes(obj: Object) -> list[str]:
    return [name.rpartition(".")[2] for name in obj.mro_names()]


def _inside(manager: Object) -> list[Object]:
    if not manager.type.is_heap or "Condition" in _classes(manager):
        return []  # a Condition gives its lock back in `wait`
    if "_BaseExitStack" in _classes(manager):
        callbacks = [one.element_addresses(2)[1] for one in manager.attr("_exit_callbacks").elements(MAX_HELD)]
        rt = manager.rt
        bound = [one for one in map(rt.object, callbacks) if one.isa("method")]
        return [rt.object(rt.target.u64(one.address + rt.layout["method.im_self"])) for one in bound]
    return _kept_between(manager, ("__enter__", "__aenter__"), ("__exit__", "__aexit__"))


def _kept_between(owner: Object, first: Iterable[str], last: Iterable[str]) -> list[Object]:
    """The attributes of an object that its own method of `first` takes and keeps, and the one of `last` gives back."""
    taken, given = _names(owner, first), _names(owner, last)
    if not taken & _TAKES or not given & _GIVES or taken & _GIVES or given & {"acquire"}:
        return []  # it does not keep what it takes in between
    fields = dict(owner.fields())
    shared = [name for name in sorted(taken & given) if name not in fields and owner.type.lookup(name)]  # of its class
    values = [fields[name] for name in sorted(taken & given) if name in fields] + [owner.attr(name) for name in shared]
    return [value for value in values if isinstance(value, Object) and not value.isa("function")]


def acquired_by_methods(frame: PyFrame) -> list[tuple[Object, int, int]]:
    """`[(Object, line taken, line given back)]` of what a frame's source takes before its line by a method of an object of
    Python code that only acquires, and gives back after it by one that only releases."""
    found = []
    for path, first, taken, last, given in method_pairs(frame):
        try:
            owner = evaluate(frame.rt, path, frame)
            if isinstance(owner, Object) and owner.type.is_python:
                found += [(kept, taken, given) for kept in _kept_between(owner, (first,), (last,))]
        except (GdbextError, AttributeError) as e:
            log.passed_over(e)
    return found


def _names(manager: Object, methods: Iterable[str]) -> set[str]:
    """The names of globals and attributes that the code of a manager's own methods uses."""
    rt = manager.rt
    for base in manager.type.bases():
        for function in (rt.object(base.namespace[name]) for name in methods if base.is_python and name in base.namespace):
            if function.isa("function"):
                code = rt.target.u64(function.address + rt.layout["func.func_code"])
                names = rt.object(rt.target.u64(code + rt.layout["code.co_names"]))
                return {name.string(200) for name in names.elements(MAX_HELD)}
    return set()
