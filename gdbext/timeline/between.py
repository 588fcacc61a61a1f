"""What changed between two moments of the same processes: threads that moved or stand, memory and objects that grew, requests
that came and went. Pure: two lists of plain facts, and what they have in common."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping, Sequence, Tuple

CAME, GONE, MOVED, STILL = "came", "gone", "moved", "still"
Place = Tuple[str, str, int]  # function, file, line (0: not known)


@dataclass
class Thread:
    """A thread at one moment. `stack`: its Python frames, without any its native ones, innermost first; `read`: whether they
    could be read; `cpu`: seconds that it had run, None where that is not known."""

    tid: int
    name: str
    stack: Sequence[Place]
    read: bool = True
    cpu: float | None = None


@dataclass
class Moment:
    """A process at one moment. `identity`: what only this process has (pid and start), () where it is not known; `memory`: {kind:
    mapped bytes}; `types`: {type: (objects, bytes)}, None where its heap was not read; `requests`: {id: numbers} of what it
    schedules."""

    label: str
    pid: int | None
    identity: tuple[Any, ...] = ()
    threads: list[Thread] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)
    types: dict[str, tuple[int, int]] | None = None


@dataclass
class ThreadChange:
    """`change`: CAME, GONE, MOVED, STILL (the same stack twice), "" where one of the two was not read; `cpu`: seconds that it ran
    in between, None where that is not known."""

    label: str
    pid: int | None
    tid: int
    name: str
    change: str
    before: Place | None
    after: Place | None
    cpu: float | None = None


@dataclass
class Growth:
    """Of `what` in a process: `before` and `after` in bytes; of a type also its `objects`, before and after."""

    label: str
    pid: int | None
    what: str
    before: int
    after: int
    objects: tuple[int, int] = (0, 0)


@dataclass
class ProcessChange:
    """`same`: it is proven to be the same process; False: another, or it is not known which."""

    label: str
    before: int | None
    after: int | None
    same: bool


@dataclass
class RequestChange:
    """`before`, `after`: its numbers, None where it was not there. `change`: CAME, GONE, MOVED, or STILL, where none changed."""

    request_id: str
    change: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


def paired(before: Sequence[Moment], after: Sequence[Moment]) -> Iterator[tuple[Moment | None, Moment | None]]:
    """Processes that belong together: the same one, else those with one label, else, of one each, these two; the others alone."""
    left = dict(enumerate(after))
    places: dict[Any, deque[int]] = defaultdict(deque)
    for number, other in left.items():
        for key in (("label", other.label), ("same", other.identity) if other.identity else ("label alone", other.label)):
            places[key].append(number)

    def taken(*key: Any) -> Moment | None:
        """The first that is left with that key."""
        while places.get(key):
            number = places[key].popleft()
            if number in left:
                return left.pop(number)
        return None

    found: list[tuple[Moment | None, Moment | None]] = []
    rest: list[Moment] = []
    alone: list[Moment] = []
    for one in before:
        twin = taken("same", one.identity) or taken("label alone" if one.identity else "label", one.label)
        if twin is None:
            rest.append(one)
        else:
            found.append((one, twin))
    for one in rest:
        twin = taken("label", one.label) or (left.pop(0, None) if len(before) == len(after) == 1 else None)
        if twin is None:
            alone.append(one)
        else:
            found.append((one, twin))
    return iter([*found, *((one, None) for one in alone), *((None, one) for one in left.values())])


def is_same(one: Moment, other: Moment) -> bool:
    """Whether two moments are of the same process, as far as that is proven."""
    return bool(one.identity) and one.identity == other.identity


def threads(one: Moment, other: Moment) -> Iterator[ThreadChange]:
    """What the threads of a process did: by tid; of another process by name, in their order."""
    same = is_same(one, other)
    old, new = (_keyed(moment.threads, same) for moment in (one, other))
    for key in dict.fromkeys([*new, *old]):
        a, b = old.get(key), new.get(key)
        known = b or a
        if known is None:
            continue
        places = [next(iter(t.stack), None) if t is not None else None for t in (a, b)]
        if a is None or b is None:
            change, cpu = (CAME if a is None else GONE), None
        elif not (a.read and b.read):
            change, cpu = "", _ran(a, b, same)
        else:
            change, cpu = (STILL if list(a.stack) == list(b.stack) else MOVED), _ran(a, b, same)
            if change == MOVED:
                places = list(_apart(a.stack, b.stack))
        yield ThreadChange(other.label, other.pid, known.tid, known.name, change, places[0], places[1], cpu)


def _keyed(found: Sequence[Thread], by_tid: bool) -> dict[Any, Thread]:
    keyed: dict[Any, Thread] = {}
    numbers: Counter[str] = Counter()
    for thread in found:
        keyed[thread.tid if by_tid else (thread.name, numbers[thread.name])] = thread
        numbers[thread.name] += 1
    return keyed


def _ran(a: Thread, b: Thread, same: bool) -> float | None:
    return max(0.0, b.cpu - a.cpu) if same and a.cpu is not None and b.cpu is not None else None


def _apart(old: Sequence[Place], new: Sequence[Place]) -> tuple[Place | None, Place | None]:
    """The outermost frames at which two stacks part."""
    for a, b in zip(reversed(old), reversed(new)):
        if a != b:
            return a, b
    common = min(len(old), len(new))
    return tuple(stack[-common - 1] if len(stack) > common else stack[0] if stack else None for stack in (old, new))  # type: ignore[return-value]


def memory(one: Moment, other: Moment) -> Iterator[Growth]:
    """Kinds of memory with more or fewer bytes than before, the largest change first."""
    rows = [
        Growth(other.label, other.pid, k, one.memory.get(k, 0), other.memory.get(k, 0)) for k in {**one.memory, **other.memory}
    ]
    return iter(sorted((r for r in rows if r.before != r.after), key=lambda r: -abs(r.after - r.before)))


def types(one: Moment, other: Moment) -> Iterator[Growth]:
    """Types with more or fewer objects or bytes than before, the largest change first; nothing where a heap was not read."""
    if one.types is None or other.types is None:
        return iter(())
    none, rows = (0, 0), []
    for name in {**one.types, **other.types}:
        a, b = one.types.get(name, none), other.types.get(name, none)
        if a != b:
            rows.append(Growth(other.label, other.pid, name, a[1], b[1], (a[0], b[0])))
    return iter(sorted(rows, key=lambda r: (-abs(r.after - r.before), -abs(r.objects[1] - r.objects[0]), r.what)))


def requests(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]) -> Iterator[RequestChange]:
    """Requests of both moments, {id: numbers}: those that came first, then those that are gone, stand, moved."""
    found = []
    for name in {**before, **after}:
        a, b = before.get(name), after.get(name)
        change = CAME if a is None else GONE if b is None else STILL if a == b else MOVED
        found.append(RequestChange(name, change, a, b))
    order = (CAME, GONE, STILL, MOVED)
    return iter(sorted(found, key=lambda r: order.index(r.change)))


def mapped(path: str, stack: bool = False) -> str:
    """The kind of a mapping by its path."""
    if path == "[heap]":
        return "heap (brk)"
    if stack or path.startswith("[stack"):
        return "stacks"
    if path.startswith(("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero")):
        return "shared memory"
    if path.startswith(("/dev/", "anon_inode:")):
        return "devices"
    if not path or path.startswith("["):
        return "anonymous"
    return "libraries" if ".so" in path.rpartition("/")[2] else "files"
