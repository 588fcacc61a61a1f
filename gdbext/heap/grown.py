"""What keeps growing, of looks at a process's memory and of samples of who takes pages: pure functions.

A kind of memory grows where the least that it had in each part of the window rises from part to part, and not ever more slowly:
what warms up ends, what is taken and given back falls again. A place in the code grows it where pages that it took in most parts
of the window are still there at the end."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field, replace
from typing import Callable, Iterable, Mapping, NamedTuple, Sequence

from .resident import HEAP_ALIGNMENT, Piece

PARTS = 6  # of the window
RISES = 0.75  # of the parts' rises that are more than nothing
FALLS = 0.25  # of the whole growth: what may be given back in one part
FADES = 1 / 3  # the second half grows at least by so much of what the first one did
SWING = 0.35  # of all that the series goes up and down: by so much its least values rise
CHANCE = 0.2  # of all that the kernel's counter goes up and down: less is moved between kinds, or rises by chance
LEAST = 256 << 10  # bytes
A_MINUTE = 1 << 20  # bytes a minute that count as growth, with a part of the process's memory (`PART`)
PART = 0.0005  # of its resident memory, a minute
AGAIN, SELDOM = 0.15, 0.05  # of the pages that a place touched first: where more were free later, another may keep them
MINOR = 0.1  # of a kind's growth: a place with less is not named
COVERED = 0.3  # of the parts after a place's first one in which it took pages that are there still
THREADS = 3  # that a process has more at the end
HEAP, ARENAS, ANONYMOUS, HUGE = "brk heap", "malloc arenas", "anonymous", "huge pages"
STACKS, SHARED, FILES, OTHER = "thread stacks", "shared memory", "files", "other"
LOCKED = "locked"
FAULT, MAPPING, LOOKS = "page faults", "mappings", "looks"
RISING, BESIDE = 0.8, 0.7  # parts of a line's comings and goings with a rise: of the one that makes it, of one beside it
MAX_SPANS = 20_000
PAGE = 4096
AT_ONCE = {HUGE: 512, FILES: 16, SHARED: 16}  # pages that one fault may bring
CHURNS = 2.3  # times what the process has grown by: who touches more than that gives it back
MOSTLY = 0.6  # of a thread's pages that speak for one function
VOTES, ALL = 3, 0.9  # of fewer looks at a thread all must agree
RESTING = 256 << 10  # bytes that a thread has which does nothing, at most
TOLD = 0.3  # of a growth: where page faults account for less, the kernel filled the mappings itself


class Look(NamedTuple):
    """One look: `time` in seconds since the first; `kinds`: {kind: resident bytes}; `paths`: {file: resident bytes} of shared
    memory and files; `huge`: bytes in huge pages; `locked`: VmLck; `threads`: how many."""

    time: float
    kinds: dict[str, int]
    paths: dict[str, int]
    huge: int
    locked: int
    threads: int


class Place(NamedTuple):
    """Who takes memory: the native function above the allocators, in `library`; the innermost Python function of the thread;
    '' and 0 where there is none."""

    library: str = ""
    native: str = ""
    function: str = ""
    file: str = ""
    line: int = 0


class Taken(NamedTuple):
    """Pages that thread `tid` took at `time`: `pages`, the one that was seen at `address` (0: not known). `way`: how that is
    known. `kind` as of the mapping; '' where it is not known. `stays`: whether it is there at the end. `sure`: how the Python
    line is known: 2: by the stack of that moment; 1: read at once, or memory grew meanwhile; 0: read later. `freed`: it was given
    back to the kernel or an allocator afterwards: what is there at the end another may have put there."""

    time: float
    tid: int
    place: Place
    pages: float
    address: int = 0
    way: str = "looks"
    kind: str = ""
    stays: bool = True
    sure: int = 2
    freed: bool = False


class Span(NamedTuple):
    """Two readings of thread `tid` while it ran, one right after the other: the lines that it was in, and what rose meanwhile."""

    tid: int
    before: Place
    after: Place
    rise: float


class Spans:
    """Which lines make a count rise, by spans. What rises while a thread stays in a line is that line's. A rise between two lines
    is of the one whose comings and goings both nearly all have one: of a line beside it either the ones or the others have."""

    def __init__(self) -> None:
        self._moves: dict[tuple[int, Place], list[int]] = {}  # comings, those with a rise; goings, those with a rise
        self._between: list[tuple[float, Span]] = []
        self.sure: list[tuple[float, int, Place, float]] = []  # time, tid, line, rise

    def add(self, time: float, span: Span) -> None:
        """Takes in one more."""
        if span.before == span.after:
            if span.rise > 0 and span.before.line and len(self.sure) < MAX_SPANS:
                self.sure.append((time, span.tid, span.before, span.rise))
            return
        for at, place in ((0, span.after), (2, span.before)):
            moves = self._moves.setdefault((span.tid, place), [0, 0, 0, 0])
            moves[at] += 1
            moves[at + 1] += span.rise > 0
        if span.rise > 0 and len(self._between) < MAX_SPANS:
            self._between.append((time, span))

    def told(self) -> list[tuple[float, int, Place, float]]:
        """[(time, tid, line, rise)] of all rises whose line is known."""
        found = list(self.sure)
        for time, span in self._between:
            rates = {place: self._rate(span.tid, place) for place in (span.before, span.after) if place.line}
            best = max(rates, key=lambda place: rates[place], default=Place())
            if best.line and rates[best] >= RISING and all(rate <= BESIDE for place, rate in rates.items() if place != best):
                found.append((time, span.tid, best, span.rise))
        return sorted(found)

    def _rate(self, tid: int, place: Place) -> float:
        comings, rises, goings, more = self._moves[tid, place]
        return min((rises + 0.5) / (comings + 1), (more + 0.5) / (goings + 1))


@dataclass
class Row:
    """One place that makes memory grow. `bytes`: in the window; `since`: seconds since its beginning, 0: from the first part on;
    `per_minute`: bytes a minute; `given_back`: the part of the sampled pages that it took and that are gone; None: not known.
    `path`: the file that grew; `source`: how it was found. `first`: where the place is not known, who touched most of the pages
    first: it gave them back, and another may keep them."""

    kind: str
    place: Place
    tids: list[int]
    bytes: int
    per_minute: int
    since: float
    given_back: float | None
    source: str
    samples: int = 0
    path: str = ""
    names: list[str] = field(default_factory=list)
    first: Place = Place()

    def doubted(self) -> Row:
        """The same, where who touched its pages first need not be who keeps them."""
        return replace(self, place=Place(), first=self.place, given_back=None)


def kind_of(piece: Piece, first_word: Callable[[int], int]) -> str:
    """The kind of a mapping. `first_word(address)`: what is at its beginning."""
    path = piece.path
    if path == "[heap]":
        return HEAP
    if not path or path.startswith("[anon"):
        arena = piece.start % HEAP_ALIGNMENT == 0 and 0 < first_word(piece.start) % HEAP_ALIGNMENT < 0x100
        return ARENAS if arena else ANONYMOUS
    if path.startswith(("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero")) or "s" in piece.perms and path.endswith(" (deleted)"):
        return SHARED
    return FILES if path.startswith("/") and not path.startswith("/dev/") else OTHER


def looked(time: float, pieces: Iterable[Piece], first_word: Callable[[int], int], locked: int, threads: int) -> Look:
    """A `Look` of a process's mappings."""
    kinds: collections.Counter[str] = collections.Counter()
    paths: collections.Counter[str] = collections.Counter()
    huge = 0
    for piece in pieces:
        kind = kind_of(piece, first_word)
        kinds[kind] += piece.rss
        huge += piece.huge
        if kind in (SHARED, FILES):
            paths[piece.path] += piece.rss
    return Look(time, dict(kinds), dict(paths), huge, locked, threads)


def rates(before: Mapping[str, int], after: Mapping[str, int], seconds: float) -> dict[str, float]:
    """{kind: bytes a minute} between two cheap looks (`grow_watch.counters`), `seconds` apart. One pair cannot tell growth from
    memory that comes and goes: `keeps_growing` of many can."""
    return {kind: 60.0 * (after[kind] - before[kind]) / max(seconds, 1e-9) for kind in after if kind in before}


def lows(series: Sequence[tuple[float, float]], parts: int = PARTS) -> list[float]:
    """The least value in each of so many equal parts of the time; a part without a value has that of the one before it."""
    begin, end = series[0][0], series[-1][0]
    found: list[float] = []
    for part in range(parts):
        low, high = (begin + (end - begin) * (part + i) / parts for i in (0, 1))
        inside = [value for time, value in series if low <= time <= high]
        found.append(min(inside) if inside else found[-1] if found else series[0][1])
    return found


def keeps_growing(series: Sequence[tuple[float, float]], least: float = LEAST) -> float:
    """By how much a series of (seconds, value) has grown, if it is one that keeps growing; 0.0 for any other."""
    if len(series) < PARTS:
        return 0.0
    least_ones = [*lows(series), series[-1][1]]
    rises = [b - a for a, b in zip(least_ones, least_ones[1:])]
    whole = series[-1][1] - series[0][1]
    inner = rises[:-1]  # the last one is of one value against the least of a part: it may be small
    half = len(inner) // 2
    late = sum(inner[-half:]) + max(rises[-1], 0.0)
    good = (
        whole >= least
        and sum(1 for rise in inner if rise > 0) >= RISES * len(inner)
        and min(rises) >= -FALLS * whole
        and late >= FADES * sum(inner[:half])
        and max(inner[-half:]) >= 0.2 * max(inner)
        and max(inner) <= 0.7 * max(sum(inner), 1.0)  # one step is no growth
        and sum(inner) >= SWING * (max(value for _, value in series) - min(value for _, value in series))
    )
    return float(whole) if good else 0.0


def least_of(resident: int, span: float) -> float:
    """Bytes that count as growth in so many seconds, of a process that has so many resident."""
    return (A_MINUTE + PART * resident) * span / 60


def judge(
    looks: Sequence[Look], taken: Sequence[Taken], born: Sequence[Taken], counted: Sequence[tuple[float, Mapping[str, int]]] = ()
) -> list[Row]:
    """The rows of what keeps growing, the fastest first. `born`: threads that were started, `tid`: by whom, `address`: the new
    one; `stays`: it lives. `counted`: [(seconds, `grow_watch.counters`)], more often than looks can be taken."""
    if len(looks) < PARTS:
        return []
    span = max(looks[-1].time - looks[0].time, 1e-9)
    resident = sum(looks[-1].kinds.values())
    least = max(LEAST, least_of(resident, span))
    rows: list[Row] = []
    taken = _without_churn(taken, sum(max(0, size - looks[0].kinds.get(kind, 0)) for kind, size in looks[-1].kinds.items()))
    threads = keeps_growing([(look.time, look.threads) for look in looks], THREADS)
    for kind in sorted({kind for look in looks for kind in look.kinds}):
        grown = keeps_growing([(look.time, look.kinds.get(kind, 0)) for look in looks], least)
        if grown and _risen(kind, counted, grown):
            rows += _rows(kind, int(grown), looks, [one for one in taken if one.kind in (kind, "")], span)
    if threads:
        rows = _threads(rows, int(threads), looks, born, span)
    return sorted(rows, key=lambda row: -row.per_minute)


def _without_churn(taken: Sequence[Taken], grown: int) -> list[Taken]:
    """The samples, those of looks without a place where the thread touched far more than the process has grown: it gives most of
    that back, and looks cannot tell which line's."""
    touched: collections.Counter[int] = collections.Counter()
    for one in taken:
        if one.way == LOOKS and not one.sure:
            touched[one.tid] += int(one.pages) * PAGE
    return [
        one._replace(place=Place(), sure=0) if one.way == LOOKS and touched[one.tid] > CHURNS * grown else one for one in taken
    ]


def _risen(kind: str, counted: Sequence[tuple[float, Mapping[str, int]]], grown: float) -> bool:
    """Whether the kernel's counter of that memory, read often, has a least value that rises too: few looks at memory that goes up
    and down may be at ever higher moments by chance."""
    name = kind if kind in (SHARED, FILES) else ANONYMOUS
    series = [(at, float(kinds[name])) for at, kinds in counted if name in kinds]
    if len(series) < 2 * PARTS:
        return True
    least = lows(series)
    swing = max(value for _, value in series) - min(value for _, value in series)
    return least[-1] - least[0] >= max(grown / 2, CHANCE * swing)


def _rows(kind: str, grown: int, looks: Sequence[Look], taken: Sequence[Taken], span: float) -> list[Row]:
    """The places that make one kind of memory grow; one row without a place where none of them is known."""
    called = _called(kind, grown, looks)
    path = _path(kind, looks)
    taken = _best(called, grown, taken)
    by_place: dict[Place, list[Taken]] = {}
    for one in taken:
        by_place.setdefault(one.place._replace(native=""), []).append(one)
    held = {place: sum(one.pages for one in own if one.stays) for place, own in by_place.items()}
    again = {place: sum(one.pages for one in own if one.stays and one.freed) for place, own in by_place.items()}
    again = {place: held.pop(place) for place, pages in again.items() if pages > AGAIN * held[place]}
    lasting = {place: held[place] for place, own in by_place.items() if held.get(place) and _lasts(own, span)}
    whole = sum(held.values()) or 1.0
    named = {place: pages for place, pages in lasting.items() if pages >= MINOR * whole}
    if not named and lasting:  # many lines of one function
        named, by_place = _by_function(lasting, by_place, whole)
    if sum(again.values()) > sum(named.values()):
        toucher = max(again, key=lambda place: again[place])
        own = by_place[toucher]
        toucher = toucher._replace(native=_native(own))
        tids = [tid for tid, _ in collections.Counter(one.tid for one in own).most_common(4)]
        return [Row(called, toucher, tids, grown, int(60 * grown / span), 0.0, None, own[0].way, len(own), path).doubted()]
    if not named:
        return [Row(called, Place(), [], grown, int(60 * grown / span), 0.0, None, "differences", 0, path)]
    rows = []
    sure = sum(named.values())
    for place, pages in named.items():
        own = by_place[place]
        share = int(grown * pages / sure)
        kept = [one for one in own if one.stays]
        first = min(one.time for one in kept)
        all_pages = sum(one.pages for one in own)
        back = 1 - pages / all_pages if own[0].address else None
        tids = [tid for tid, _ in collections.Counter(one.tid for one in kept).most_common(4)]
        since = 0.0 if first < span / PARTS else first
        rows.append(
            Row(
                called,
                place._replace(native=_native(kept)),
                tids,
                share,
                int(60 * share / span),
                since,
                back,
                own[0].way,
                len(kept),
                path,
            )
        )
    return rows


def _native(own: Sequence[Taken]) -> str:
    """The function that most of the samples of one library have."""
    return collections.Counter(one.place.native for one in own).most_common(1)[0][0]


def _best(kind: str, grown: int, taken: Sequence[Taken]) -> list[Taken]:
    """The samples that tell most of a growth: page faults, if they account for it, with the Python line of that moment where a
    thread has such; else the mappings that were made; else looks at threads."""
    ways = {way: [one for one in taken if one.way == way] for way in (FAULT, MAPPING, LOOKS)}
    told = sum(one.pages for one in ways[FAULT] if one.stays) * PAGE * AT_ONCE.get(kind, 1)
    if told >= TOLD * grown or ways[FAULT] and not ways[MAPPING]:
        good = {one.tid for one in ways[FAULT] if one.sure and one.stays}
        return [one for one in ways[FAULT] if one.sure or one.tid not in good]
    return _voted(ways[MAPPING] or ways[LOOKS])


def _voted(taken: Sequence[Taken]) -> list[Taken]:
    """The samples, each with the place that most pages of its thread speak for, of those whose line is of that moment; without
    one where it has no such, or they disagree: a thread may stand elsewhere by the time it is looked at."""
    votes: dict[int, dict[Place, float]] = {}
    heard = collections.Counter(one.tid for one in taken if one.sure)
    at_once = collections.Counter(one.tid for one in taken if one.sure == 2)
    for one in taken:
        if (one.place.function or one.place.library) and one.sure:
            places = votes.setdefault(one.tid, {})
            places[one.place] = places.get(one.place, 0.0) + one.pages
    chosen = {}
    for tid, places in votes.items():
        functions: dict[tuple[str, str], float] = {}
        for place, pages in places.items():
            functions[place.file, place.function] = functions.get((place.file, place.function), 0.0) + pages
        best = max(functions, key=lambda function: functions[function])
        few = heard[tid] < VOTES and not at_once[tid]
        if functions[best] >= (ALL if few else MOSTLY) * sum(functions.values()) and (heard[tid] > 1 or at_once[tid]):
            chosen[tid] = max((p for p in places if (p.file, p.function) == best), key=lambda p: places[p])
    return [one._replace(place=chosen.get(one.tid, Place())) for one in taken]


def _by_function(
    lasting: dict[Place, float], by_place: dict[Place, list[Taken]], whole: float
) -> tuple[dict[Place, float], dict[Place, list[Taken]]]:
    """The same with the lines of a function as one: that which took most."""
    groups: dict[Place, list[Place]] = {}
    for place in lasting:
        groups.setdefault(place._replace(line=0, native=""), []).append(place)
    named, merged = {}, {}
    for group in groups.values():
        pages = sum(lasting[place] for place in group)
        if pages >= MINOR * whole:
            best = max(group, key=lambda place: lasting[place])
            named[best] = pages
            merged[best] = [one for place in group for one in by_place[place]]
    return named, merged


def _lasts(own: Sequence[Taken], span: float) -> bool:
    """Whether pages that a place took in most parts of the window, from its first one on, are there still: not those of the end
    alone, which are given back later, nor those of the beginning alone."""
    parts = {min(PARTS - 1, int(PARTS * one.time / span)) for one in own if one.stays}
    first = min(parts)
    return first < PARTS // 2 and max(parts) >= PARTS - 2 and len(parts) >= max(2.0, COVERED * (PARTS - first))


def _called(kind: str, grown: int, looks: Sequence[Look]) -> str:
    """The kind, told apart: huge pages, locked memory."""
    if kind == ANONYMOUS and 2 * (looks[-1].huge - looks[0].huge) >= grown:
        return HUGE
    if kind in (ANONYMOUS, SHARED) and 2 * (looks[-1].locked - looks[0].locked) >= grown:
        return f"{kind}, {LOCKED}"
    return kind


def _path(kind: str, looks: Sequence[Look]) -> str:
    """The file of that kind that grew most; '' for memory without one."""
    if kind not in (SHARED, FILES):
        return ""
    return max(looks[-1].paths, key=lambda path: looks[-1].paths[path] - looks[0].paths.get(path, 0), default="")


def _threads(rows: list[Row], grown: int, looks: Sequence[Look], born: Sequence[Taken], span: float) -> list[Row]:
    """The rows with one of threads that do not end: it has the anonymous memory that nobody else is named for, that new threads
    took, or that is no more than so many threads have which rest."""
    alive = [one for one in born if one.stays]
    new = {one.address for one in alive}
    places = collections.Counter(one.place for one in alive if one.place != Place())
    place = places.most_common(1)[0][0] if places else Place()
    theirs = [row for row in rows if row.kind in (ANONYMOUS, ARENAS)]
    rest = sum(row.bytes for row in theirs) <= grown * RESTING
    theirs = [row for row in theirs if rest or not row.place.function or set(row.tids) & new]
    taken = sum(row.bytes for row in theirs)
    by = [tid for tid, _ in collections.Counter(one.tid for one in alive).most_common(4)]
    row = Row(STACKS, place, by, taken, int(60 * taken / span), 0.0, None, "threads", grown)
    return [one for one in rows if one not in theirs] + [row]
