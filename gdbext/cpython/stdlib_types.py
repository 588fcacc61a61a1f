"""Objects of the standard library whose repr has one fixed form: paths, numbers, dates, UUIDs, enums.

Sources: pathlib, fractions, uuid, enum of each minor (Lib/), Modules/_decimal/_decimal.c, Include/datetime.h. Importing
it registers them with `adapters`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ..errors import GdbextError, LayoutError
from .adapters import Adapter, PlainAdapter, register
from .objects import Object

if TYPE_CHECKING:
    import datetime
    import decimal
    import fractions
    import pathlib
    import uuid

    from .reprs import Repr

MAX_DIGITS = 1 << 20
WORD_DIGITS = 19  # mpdecimal on 64 bits keeps 19 decimal digits in a word


class PathAdapter(PlainAdapter):
    """pathlib's pure and concrete paths."""

    reprs = ("pathlib.PurePath", "pathlib._local.PurePath", "pathlib._local.PosixPath")
    methods = frozenset(
        ("as_posix", "is_absolute", "is_relative_to", "joinpath", "match", "relative_to", "with_name", "with_suffix")
    )

    def make(self) -> pathlib.PurePath:
        import pathlib  # as those below: milliseconds each, and most processes hold none that is asked for

        obj = self.own
        held = dict(obj.fields())
        parts = held.get("_raw_paths") or held.get("_parts")
        if not isinstance(parts, Object):
            raise LayoutError(f"no path at {obj.address:#x}")
        windows = any(b.name == "PureWindowsPath" for b in obj.type.bases())
        kind = pathlib.PureWindowsPath if windows else pathlib.PurePosixPath
        return kind(*(p.string(1 << 16) for p in parts.elements(10_000)))

    def attribute(self, name: str) -> Any:
        return NotImplemented if name == "parser" else super().attribute(name)

    def text(self, printer: Repr, depth: int) -> str:
        return f"{self.own.type.name}({printer.cut(repr(self.make().as_posix()), 2 * printer.limits.string)})"


class DecimalAdapter(PlainAdapter):
    """decimal.Decimal of C code: PyDecObject {hash, mpd_t {flags, exp, digits, len, alloc, data}}."""

    methods = frozenset(("as_tuple", "is_nan", "is_finite", "is_infinite", "is_zero", "is_signed", "adjusted"))

    def make(self) -> decimal.Decimal:
        import decimal

        obj = self.own
        t, at = obj.rt.target, obj.address + obj.rt.layout["object.__size"] + 8
        flags = t.u8(at)
        exponent, digits, count, allocated = struct.unpack("<4q", t.read(at + 8, 32))
        sign = flags & 1
        if flags & 2:
            return decimal.Decimal("-Infinity" if sign else "Infinity")
        if not 0 <= digits <= MAX_DIGITS or not 0 <= count <= allocated or -(-digits // WORD_DIGITS) != count:
            raise LayoutError(f"no Decimal at {obj.address:#x}")
        words = t.words(t.u64(at + 40), count) if count else ()
        if any(w >= 10**WORD_DIGITS for w in words):
            raise LayoutError(f"no Decimal at {obj.address:#x}")
        text = "".join(f"{w:0{WORD_DIGITS}d}" for w in reversed(words)).lstrip("0")
        if not flags & 12 and len(text) != (digits if text else 0):
            raise LayoutError(f"no Decimal at {obj.address:#x}")
        if flags & 12:
            return decimal.Decimal(("-" if sign else "") + ("sNaN" if flags & 8 else "NaN") + text)
        return decimal.Decimal((sign, tuple(map(int, text or "0")), exponent))

    def text(self, printer: Repr, depth: int) -> str:
        return printer.cut(repr(self.make()), 2 * printer.limits.string)


class FractionAdapter(PlainAdapter):
    reprs = ("fractions.Fraction",)

    def make(self) -> fractions.Fraction:
        import fractions

        obj = self.own
        held = dict(obj.fields())
        return fractions.Fraction(held["_numerator"].integer(), held["_denominator"].integer())

    def text(self, printer: Repr, depth: int) -> str:
        made = self.make()
        return f"{self.own.type.name}({printer.integer(made.numerator)}, {printer.integer(made.denominator)})"


class UuidAdapter(PlainAdapter):
    reprs = ("uuid.UUID",)

    def make(self) -> uuid.UUID:
        import uuid

        obj = self.own
        return uuid.UUID(int=dict(obj.fields())["int"].integer())

    def text(self, printer: Repr, depth: int) -> str:
        return f"{self.own.type.name}('{self.make()}')"


# ---- dates -----------------------------------------------------------------------------------------------------------
class _DateAdapter(PlainAdapter):
    """The datetime family of C code: hash (8 bytes), hastzinfo (1), then `data`, big-endian (Include/datetime.h)."""

    def _data(self, size: int) -> tuple[bytes, bool, int]:
        """-> (`data` of that many bytes, whether a time zone follows, the address behind `data`)"""
        obj = self.own
        at = obj.address + obj.rt.layout["object.__size"] + 8
        raw = obj.rt.target.read(at, 1 + size)
        return raw[1:], bool(raw[0]), at + 1 + size

    def _zone(self, has: bool, after: int) -> Object | None:
        """The tzinfo object, whose pointer follows the fold byte."""
        obj = self.own
        return obj.rt.object(obj.rt.target.u64((after + 1 + 7) & ~7)) if has else None

    def _plain_zone(self, zone: Object | None) -> datetime.tzinfo | None:
        import datetime

        if zone is None:
            return None
        adapter = zone.adapter
        made = adapter.plain() if adapter is not None else NotImplemented
        if not isinstance(made, datetime.tzinfo):
            raise GdbextError(f"the time zone at {zone.address:#x} is code of its own: compare fields")
        return made

    def _shown(self, parts: list[Any], fold: int, zone: Object | None, printer: Repr, depth: int) -> str:
        shown = [str(p) for p in parts]
        shown += ["fold=1"] if fold else []
        shown += [f"tzinfo={printer.show(zone, depth + 1)}"] if zone is not None else []
        return f"{self.own.type.raw_name}({', '.join(shown)})"


class DateAdapter(_DateAdapter):
    methods = frozenset(("isoformat", "weekday", "isoweekday", "toordinal", "strftime"))

    def make(self) -> datetime.date:
        import datetime

        data = self._data(4)[0]
        return datetime.date(data[0] << 8 | data[1], data[2], data[3])

    def text(self, printer: Repr, depth: int) -> str:
        made = self.make()
        return self._shown([made.year, made.month, made.day], 0, None, printer, depth)


class _ClockAdapter(_DateAdapter):
    """The common part of datetime and time: fields of the value without its zone, which is an object of the process."""

    def _parts(self) -> tuple[Any, Object | None]:
        """-> (the value without its zone, its tzinfo object)"""
        raise NotImplementedError

    def make(self) -> Any:
        made, zone = self._parts()
        return made.replace(tzinfo=self._plain_zone(zone))

    def attribute(self, name: str) -> Any:
        if name == "tzinfo":
            return self._parts()[1]
        return getattr(self._parts()[0], name) if name in _DATE_FIELDS else super().attribute(name)


class DatetimeAdapter(_ClockAdapter):
    methods = frozenset(("isoformat", "weekday", "isoweekday", "toordinal", "strftime", "date", "time", "timestamp"))

    def _parts(self) -> tuple[datetime.datetime, Object | None]:
        import datetime

        data, has, after = self._data(10)
        fold = self.own.rt.target.u8(after)
        micro = int.from_bytes(data[7:10], "big")
        month, day, hour, minute, second = data[2:7]
        made = datetime.datetime(data[0] << 8 | data[1], month, day, hour, minute, second, micro, fold=fold)
        return made, self._zone(has, after)

    def text(self, printer: Repr, depth: int) -> str:
        made, zone = self._parts()
        parts = [made.year, made.month, made.day, made.hour, made.minute, *_seconds(made)]
        return self._shown(parts, made.fold, zone, printer, depth)


class TimeAdapter(_ClockAdapter):
    methods = frozenset(("isoformat", "strftime"))

    def _parts(self) -> tuple[datetime.time, Object | None]:
        import datetime

        data, has, after = self._data(6)
        hour, minute, second = data[:3]
        micro = int.from_bytes(data[3:6], "big")
        made = datetime.time(hour, minute, second, micro, fold=self.own.rt.target.u8(after))
        return made, self._zone(has, after)

    def text(self, printer: Repr, depth: int) -> str:
        made, zone = self._parts()
        shown = self._shown([made.hour, made.minute, *_seconds(made)], 0, zone, printer, depth)
        return f"{shown[:-1]}, fold=1)" if made.fold else shown


_DATE_FIELDS = ("year", "month", "day", "hour", "minute", "second", "microsecond", "fold")


def _seconds(made: datetime.datetime | datetime.time) -> list[int]:
    return [made.second, made.microsecond] if made.microsecond else [made.second] if made.second else []


class DeltaAdapter(PlainAdapter):
    methods = frozenset(("total_seconds",))

    def make(self) -> datetime.timedelta:
        import datetime

        obj = self.own
        at = obj.address + obj.rt.layout["object.__size"] + 8
        days, seconds, micro = struct.unpack("<3i", obj.rt.target.read(at, 12))
        return datetime.timedelta(days, seconds, micro)

    def text(self, printer: Repr, depth: int) -> str:
        return self.own.type.raw_name + repr(self.make())[len("datetime.timedelta") :]


class ZoneAdapter(PlainAdapter):
    """datetime.timezone: offset, name."""

    methods = frozenset(())

    def _parts(self) -> tuple[Object, str | None]:
        obj = self.own
        at = obj.address + obj.rt.layout["object.__size"]
        name = obj.rt.target.u64(at + 8)
        return obj.rt.object(obj.rt.target.u64(at)), obj.rt.object(name).string(1000) if name else None

    def make(self) -> datetime.timezone:
        import datetime

        offset, name = self._parts()
        made = offset.plain()
        if not isinstance(made, datetime.timedelta):
            raise LayoutError("no offset in a time zone")
        return datetime.timezone(made) if name is None else datetime.timezone(made, name)

    def text(self, printer: Repr, depth: int) -> str:
        return repr(self.make())


class EnumAdapter(Adapter):
    """Members of enums: `name` and `value`, whose descriptors enum.py defines in Python, and the truth of flags."""

    def _own(self, name: str, field: str) -> Any:
        obj = self.own
        definer = obj.type.python_definer(name)
        if definer is None or definer.module != "enum":
            return NotImplemented
        return dict(obj.fields()).get(field, NotImplemented)

    def attribute(self, name: str) -> Any:
        return self._own(name, f"_{name}_") if name in ("name", "value") else NotImplemented

    def truth(self) -> Any:
        found = self._own("__bool__", "_value_")
        return found if found is NotImplemented else bool(found.plain())


register(("pathlib.PurePath", "pathlib._local.PurePath"), PathAdapter)
register(("decimal.Decimal",), DecimalAdapter)
register(("fractions.Fraction",), FractionAdapter)
register(("uuid.UUID",), UuidAdapter)
register(("datetime.date",), DateAdapter)
register(("datetime.datetime",), DatetimeAdapter)
register(("datetime.time",), TimeAdapter)
register(("datetime.timedelta",), DeltaAdapter)
register(("datetime.timezone",), ZoneAdapter)
register(("enum.Enum",), EnumAdapter)
