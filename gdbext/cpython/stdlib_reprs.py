"""Objects of the standard library whose repr has one fixed form, second part: wrappers around containers, regular expressions,
loggers, threads and their synchronisation.

Sources: collections, logging, argparse, threading, concurrent.futures of each minor (Lib/); Modules/_sre/sre.h. Importing it
registers them with `adapters`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import log
from ..errors import GdbextError, LayoutError
from . import privacy
from .adapters import Adapter, register
from .objects import Object
from .types import STR

if TYPE_CHECKING:
    from .reprs import Repr

MAX_TEXT = 4096
PATTERN_CUT = 200  # characters of a pattern's repr, in that of a compiled one
_LEVELS = {0: "NOTSET", 10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR", 50: "CRITICAL"}
_STATES = {"PENDING": "pending", "RUNNING": "running", "FINISHED": "finished"}
_FLAGS = [("TEMPLATE", 1), ("IGNORECASE", 2), ("LOCALE", 4), ("MULTILINE", 8), ("DOTALL", 16)]
_FLAGS += [("UNICODE", 32), ("VERBOSE", 64), ("DEBUG", 128), ("ASCII", 256)]


def _text(value: Any) -> str:
    """A field that has to be a str."""
    if not isinstance(value, Object) or not value.type.flags & STR:
        raise LayoutError("no text where one belongs")
    return value.string(MAX_TEXT)


def _number(value: Any) -> int:
    """A field that has to be an int."""
    found = value.plain() if isinstance(value, Object) else value
    if not isinstance(found, int):
        raise LayoutError("no number where one belongs")
    return found


class _Fields(Adapter):
    """An adapter that reads the instance's own fields."""

    def _held(self) -> dict[str, Any]:
        return dict(self.own.fields())


# ---- wrappers around a container -------------------------------------------------------------------------------------
class WrapperAdapter(Adapter):
    """collections' UserDict, UserList, UserString: every answer comes from `data`."""

    reprs = ("collections.UserDict", "collections.UserList", "collections.UserString")

    def _data(self) -> Object:
        found = dict(self.own.instance_entries()).get("data")
        if found is None:
            raise LayoutError("no data in it")
        return self.own.rt.object(found)

    def _own(self, *names: str) -> bool:
        """Whether these methods are those of `collections`, not of a subclass."""
        definers = [self.own.type.python_definer(n) for n in names]
        return all(d is None or d.module in ("collections", "collections.abc", "_collections_abc") for d in definers)

    def text(self, printer: Repr, depth: int) -> str:
        return printer.show(self._data(), depth)

    def length(self) -> Any:
        return self._data().len() if self._own("__len__") else NotImplemented

    def item(self, key: Any) -> Any:
        if not self._own("__getitem__", "__missing__"):
            return NotImplemented
        from .containers import item

        return item(self._data(), key)

    def members(self, limit: int) -> Any:
        if not self._own("__iter__", "__getitem__"):
            return NotImplemented
        from .values import members

        return members(self._data(), limit)

    def truth(self) -> Any:
        return self._data().len() > 0 if self._own("__len__", "__bool__") else NotImplemented


# ---- regular expressions ------------------------------------------------------------------------------------
class PatternAdapter(Adapter):
    """re.Pattern, by the members that its type declares (`pattern`, `flags`)."""

    def text(self, printer: Repr, depth: int) -> Any:
        obj = self.own
        pattern, flags = obj.attr("pattern"), _number(obj.attr("flags"))
        is_text = bool(pattern.type.flags & STR)
        if is_text and flags & 0x124 == 0x20:  # a str has UNICODE anyhow
            flags &= ~0x20
        names = [f"re.{n}" for n, bit in _FLAGS if flags & bit and (bit != 1 or obj.rt.minor.names_re_template)]
        rest = flags & ~sum(bit for n, bit in _FLAGS if f"re.{n}" in names)
        shown = "|".join(names + ([hex(rest)] if rest else []))
        text = printer.show(pattern, depth + 1)[:PATTERN_CUT]
        return f"re.compile({text}{', ' if shown else ''}{shown})"


class MatchAdapter(Adapter):
    """re.Match: `string` and `re` are members; lastindex, groups and mark[] follow `endpos` (sre.h)."""

    def text(self, printer: Repr, depth: int) -> Any:
        obj = self.own
        string, pattern = obj.attr("string"), obj.attr("re")
        at = obj.address + obj.type.slots["endpos"][0]
        groups, start, end = (obj.rt.target.i64(at + 16 + 8 * i) for i in range(3))
        if groups != _number(pattern.attr("groups")) + 1 or not 0 <= start <= end <= string.len():
            return NotImplemented
        whole = string.string(end) if string.type.flags & STR else string.raw_bytes(end)
        return f"<{obj.type.raw_name} object; span=({start}, {end}), match={printer.show(whole[start:end], depth + 1)}>"


# ---- logging ---------------------------------------------------------------------------------------------------------
class LoggerAdapter(_Fields):
    """logging's loggers, the adapters around them and the handlers."""

    reprs = ("logging.Logger", "logging.LoggerAdapter", "logging.Handler", "logging.FileHandler")

    def text(self, printer: Repr, depth: int) -> Any:
        obj = self.own
        definer, held = obj.type.python_definer("__repr__"), self._held()
        if definer is None:
            return NotImplemented
        if definer.name == "LoggerAdapter":
            held = dict(held["logger"].fields())
        if definer.name in ("Logger", "LoggerAdapter"):
            return f"<{obj.type.name} {_text(held['name'])} ({self._level(self._effective(held))})>"
        file = f" {_text(held['baseFilename'])}" if definer.name == "FileHandler" else ""
        return f"<{obj.type.name}{file} ({self._level(_number(held['level']))})>"

    @staticmethod
    def _effective(held: dict[str, Any]) -> int:
        """A logger's own level, else the first that one of its parents has."""
        for _ in range(100):
            level = _number(held["level"])
            parent = held.get("parent")
            if level or not isinstance(parent, Object) or parent.is_none():
                return level
            held = dict(parent.fields())
        raise LayoutError("loggers without end")

    def _level(self, level: int) -> str:
        module = self.own.rt.module("logging")
        try:
            names = module.item("_levelToName") if module is not None else None
            return _text(names.item(level)) if names is not None else f"Level {level}"
        except GdbextError as e:
            log.passed_over(e)
            return _LEVELS.get(level, f"Level {level}")


class NamespaceAdapter(_Fields):
    """argparse.Namespace: its fields, those that are no identifiers last."""

    reprs = ("argparse._AttributeHolder",)

    def text(self, printer: Repr, depth: int) -> Any:
        pairs = [p for p in self._held().items() if p[0].isidentifier()]
        if len(pairs) < len(self._held()):
            return NotImplemented
        return printer.record(self.own.type.name, pairs, depth)


# ---- threads ---------------------------------------------------------------------------------------------------------
class ThreadAdapter(_Fields):
    """threading.Thread: its name and its state."""

    reprs = ("threading.Thread",)

    def text(self, printer: Repr, depth: int) -> Any:
        obj = self.own
        held = self._held()
        begun = held["_started"].attr("_flag").plain() is True
        status = "stopped" if begun and self._has_ended(held) else "started" if begun else "initial"
        status += " daemon" if held["_daemonic"].plain() is True else ""
        ident = held.get("_ident")
        status += f" {_number(ident)}" if isinstance(ident, Object) and not ident.is_none() else ""
        name = _text(held["_name"])
        if printer.private and not privacy.is_program_name(name):
            name = printer.count(held["_name"])
        return f"<{obj.type.name}({name}, {status})>"

    def _has_ended(self, held: dict[str, Any]) -> bool:
        obj = self.own
        if "_is_stopped" in held:  # up to 3.12
            return held["_is_stopped"].plain() is True
        module = obj.rt.module("threading")
        if module is None:
            raise LayoutError("threads without their module")
        try:
            found = module.item("_active").item(_number(held["_ident"]))
        except GdbextError as e:
            log.passed_over(e)
            return True
        return bool(found.address != obj.address)


class SynchroniserAdapter(_Fields):
    """threading's events, conditions and semaphores, as each minor words them."""

    reprs = ("threading.Event", "threading.Condition", "threading.Semaphore", "threading.BoundedSemaphore")

    def text(self, printer: Repr, depth: int) -> Any:
        obj = self.own
        definer, held = obj.type.python_definer("__repr__"), self._held()
        if definer is None:
            return NotImplemented
        if definer.name == "Condition":
            waiting = held["_waiters"].len()
            return f"<{obj.type.name}({printer.show(held['_lock'], depth + 1)}, {waiting})>"
        if definer.name == "Event":
            what = "set" if held["_flag"].plain() is True else "unset"
        else:
            first = f"/{_number(held['_initial_value'])}" if definer.name == "BoundedSemaphore" else ""
            what = f"value={_number(held['_value'])}{first}"
        return f"<{obj.type.module}.{obj.type.qualname} at {obj.address:#x}: {what}>"


class FutureAdapter(_Fields):
    """concurrent.futures.Future: its state, and the type of its result."""

    reprs = ("concurrent.futures._base.Future",)

    def text(self, printer: Repr, depth: int) -> Any:
        obj = self.own
        held = self._held()
        state, raised, result = _text(held["_state"]), held["_exception"], held["_result"]
        shown = _STATES.get(state, "cancelled" if state.startswith("CANCELLED") else state)
        if state == "FINISHED":
            ended = f" returned {result.type.name}" if raised.is_none() else f" raised {raised.type.name}"
            shown += ended
        return f"<{obj.type.name} at {obj.address:#x} state={shown}>"


register(WrapperAdapter.reprs, WrapperAdapter)
register(("re.Pattern",), PatternAdapter)
register(("re.Match",), MatchAdapter)
register(("logging.Logger", "logging.LoggerAdapter", "logging.Handler"), LoggerAdapter)
register(("argparse.Namespace",), NamespaceAdapter)
register(("threading.Thread",), ThreadAdapter)
register(("threading.Event", "threading.Condition", "threading.Semaphore"), SynchroniserAdapter)
register(FutureAdapter.reprs, FutureAdapter)
