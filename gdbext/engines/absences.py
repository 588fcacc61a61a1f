"""Attributes that the readers ask an engine's objects for and that these do not have. Absent is not zero: a default holds only
where the engine's table of names (`NAMES` of its `kv` module) says that the release, or the class, has no such attribute."""

from __future__ import annotations

import contextlib
import re
from collections import namedtuple
from typing import Any, Callable, Iterator, Mapping, Sequence, TypeVar

from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..cpython.types import TypeInfo
from ..errors import FaultError, GdbextError, MissingError, NotFoundError
from .spec import EngineSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..kvcache.rules import Rule
    from .columns import Records
T = TypeVar("T")

Name = namedtuple("Name", "since until of", defaults=("", "", ""))
Name.__doc__ = """Which objects have an attribute. `since`, `until`: the first and the last release, '' for no limit; `of`: names
of the only classes that have it, they or a base of theirs, separated by blanks, '' for all. An attribute without a row is one
that all objects of all releases have."""

FIRST = (0, 2)  # a release before it is a build without a release's number (0.1.dev…): not known


def release_of(version: str) -> tuple[int, ...]:
    """The numbers of a release, () where it is not known."""
    found = _numbers(version)
    return found if found >= FIRST else ()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)[:3])


class Absences:
    """What objects of one process did not have, from the moment at which it is `watching` on."""

    def __init__(self, spec: EngineSpec, version: str) -> None:
        self.spec, self.version, self.release = spec, version, release_of(version)
        self.names: Mapping[str, Name] = getattr(spec.kv, "NAMES", {})
        self.found: dict[tuple[str, str], None] = {}  # (class, attribute), in order

    def __call__(self, kind: TypeInfo, name: str) -> None:
        """An object was asked for an attribute that it does not have."""
        if (kind.name, name) in self.found or not kind.is_heap or kind.module.partition(".")[0] not in self.spec.packages:
            return
        if not self.lacks(kind, name):
            self.found[kind.name, name] = None

    def lacks(self, kind: TypeInfo, name: str) -> bool:
        """Whether the table says that objects of a class have no such attribute in this release."""
        row = self.names.get(name)
        if row is None:
            return False
        if row.of and {base.name for base in kind.bases()}.isdisjoint(row.of.split()):
            return True
        if not self.release:  # as the newest
            return bool(row.until)
        return self.release < _numbers(row.since) or bool(row.until) and self.release > (*_numbers(row.until), 99999)

    @property
    def is_new(self) -> bool:
        """Whether the release is newer than each that was tried."""
        newest = self.spec.kv_newest
        return self.release[: len(newest)] > newest

    @property
    def new(self) -> str:
        """How a sentence begins that says what is not there: the release, where it is newer than each that was tried."""
        newest = ".".join(map(str, self.spec.kv_newest))
        return f"{self.spec.name} {self.version} is newer than what was tried ({newest}): " if self.is_new else ""

    def notes(self) -> list[str]:
        """A sentence that names what is not there; none where nothing is missing."""
        if not self.found:
            return []
        names = ", ".join(f"{kind}.{name}" for kind, name in self.found)
        return [f"{self.new}{names} {'is' if len(self.found) == 1 else 'are'} not there"]

    def unjudged(self) -> dict[str, str]:
        """{name of a rule that rests on what is not there: the attribute}"""
        rests: Mapping[str, tuple[Rule, ...]] = getattr(self.spec.kv, "RESTS_ON", {})
        return {rule.name: f"{kind}.{name}" for kind, name in self.found for rule in rests.get(name, ())}


@contextlib.contextmanager
def watching(rt: Runtime, spec: EngineSpec) -> Iterator[Absences]:
    """-> the `Absences` of what is read of a process meanwhile; it begins anew with each. `NotFoundError` at the end where an
    attribute is not there without which no number would be true (`VITAL` of the engine's `kv` module)."""
    reader: Any = spec.kv
    version: Callable[[Runtime], str] = getattr(reader, "version", lambda rt: "")
    outer, found = rt.target.missed, Absences(spec, version(rt))
    rt.target.missed = found
    vital: frozenset[str] = getattr(reader, "VITAL", frozenset())
    try:
        yield found
        if any(name in vital for _, name in found.found):
            gone = NotFoundError(f"{found.notes()[0]}: no number would be true without")
            gone.final = True  # the class has no such attribute: to read again does not help
            raise gone
    except FaultError:
        raise
    except GdbextError as e:
        unsaid = [name for kind, name in found.found if name not in str(e)]
        if unsaid and not isinstance(e, MissingError):
            e.args = (f"{e}: {found.notes()[0]}", *e.args[1:])
        raise
    finally:
        rt.target.missed = outer


def holds_default(obj: Object | Records, name: str) -> bool:
    """Whether an attribute that an object does not have counts as its default: nobody watches, or its release lacks it."""
    found = obj.rt.target.missed
    return not isinstance(found, Absences) or found.lacks(obj.type, name)


def numbers(records: Records, name: str, default: int | None) -> Sequence[int | None]:
    """The ints of a member of many objects. Where they do not have it: the default where that holds, else None for each."""
    if records.has(name):
        return records.integers(name, 0)
    return [default if not records.addresses or holds_default(records, name) else None] * len(records.addresses)


def forgetting(rt: Runtime, read: Callable[[], T]) -> Callable[[], T]:
    """`read`, which may fail on memory that changes: what a failed try missed was perhaps no such object."""

    def tried() -> T:
        found = rt.target.missed
        before = dict(found.found) if isinstance(found, Absences) else {}
        try:
            return read()
        except GdbextError:
            if isinstance(found, Absences):
                found.found = before
            raise

    return tried
