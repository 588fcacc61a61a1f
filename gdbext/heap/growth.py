"""The growth between two looks at a heap: first containers that got longer, by the bytes that hang on them; then types whose
growth no such container explains."""

from __future__ import annotations

import collections
from typing import Any

from ..cpython import referrers
from .graph import ROOT, UNREACHED
from .listing import Census, Container
from .marks import TOP

MAX_KEPT = 300_000  # containers that a saved look remembers: those on which most hangs
MAX_NAMED = 40  # rows whose way is written
MIN_NEW = 10  # members of a new container; the dicts of linked objects do not count as containers that grew
MAX_ALIKE = 3  # new containers of one type with rows of their own; more are reported as their type's growth
MANY = 8  # containers of one family that got longer; others may have got shorter: requests that come and go
SHARE = 0.8  # of a type's new objects that hang on the reported holder


class Look:
    """The remembered part of a heap. `containers`: {address: (type, length, retained)}. `types`: {name: (count, bytes)}.
    `complete`: whether every container is in it. `process`: of which process it was."""

    def __init__(
        self, containers: dict[int, tuple[str, int, int]], types: dict[str, tuple[int, int]], complete: bool, process: str
    ) -> None:
        self.containers, self.types, self.complete, self.process = containers, types, complete, process


class Row:
    """One row of growth. `kind`: "container" or "type". `type`; `address` (None for a type); `path`. `before`, `after`: lengths
    or counts. `bytes`: how many more it holds."""

    def __init__(self, kind: str, type_: str, before: int, after: int, size: int) -> None:
        self.kind, self.type, self.before, self.after, self.bytes = kind, type_, before, after, size
        self.address: int | None = None
        self.path: referrers.Path | None = None


def look(census: Census, process: str) -> Look:
    """The part of a heap that is worth remembering."""
    nodes = census.container_nodes()
    complete = len(nodes) <= MAX_KEPT
    kept = (Container(census, node) for node in census.largest(nodes, census.retained, MAX_KEPT))
    types = {s.name: (s.count + s.held, s.bytes + s.held_bytes) for s in census.types()}
    return Look({c.address: (c.type, c.length, c.retained) for c in kept}, types, complete, process)


def compare(before: Look, census: Census) -> list[Row]:
    """`[Row]`, the largest growth first: old containers that got longer, new ones that none of those holds, and types whose new
    objects hang on none of these."""
    grown = _containers(before, census)
    rows = []
    for container, length, retained in grown[:MAX_NAMED]:
        row = Row("container", container.type, length, container.length, container.retained - retained)
        row.address, row.path = container.address, census.owner(container.node)
        rows.append(row)
    rows += _types(before, census, [c.node for c, _, _ in grown])
    return sorted(rows, key=lambda row: -row.bytes)


def compared(before: Look, census: Census) -> dict[str, int]:
    """How many types and containers both looks have."""
    there = {int(census.heap.addresses[node]) for node in census.container_nodes()}
    types = {s.name for s in census.types()}
    return {"types": len(types & before.types.keys()), "containers": len(there & before.containers.keys())}


def _containers(before: Look, census: Census) -> list[tuple[Container, int, int]]:
    """[(container, length before, retained before)] by growth."""
    known, new = [], []
    for node in _changed(before, census):
        c, old = Container(census, node), before.containers.get(int(census.heap.addresses[node]))
        if old is not None and old[0] == c.type:
            known.append((c, old[1], old[2]))
        elif old is not None or before.complete:
            new.append((c, 0, 0))
    more = _lengths(before, census) if new else {}
    new = [entry for entry in new if 2 * more.get(entry[0].type, 0) >= entry[0].length]  # else it replaces one that is gone
    under = census.ways.below([c.node for c, _, _ in known] + [c.node for c, _, _ in new])
    top = [entry for entry in new if not under[entry[0].node] and census.ways.parents[entry[0].node] != UNREACHED]
    alike = collections.Counter(entry[0].type for entry in top)
    top = [entry for entry in top if alike[entry[0].type] <= MAX_ALIKE]
    return sorted([*known, *top], key=lambda entry: -(entry[0].retained - entry[2]))


def _changed(before: Look, census: Census) -> list[int]:
    """The containers that may have grown: old ones that got longer by more than their family varies, and new ones that are not
    short."""
    heap, np, nodes = census.heap, census.heap.numpy, census.container_nodes()
    known = np.array(sorted((a, length) for a, (_, length, _) in before.containers.items() if a < TOP), dtype=np.int64)
    addresses, lengths = known.reshape(-1, 2).T
    addresses, lengths = np.append(addresses, TOP), np.append(lengths, 0)
    place = np.searchsorted(addresses, heap.addresses[nodes])
    old = addresses[place] == heap.addresses[nodes]
    change = heap.lengths[nodes] - np.where(old, lengths[place], 0)
    some = np.flatnonzero(np.where(old, change != 0, change >= MIN_NEW))
    return _lasting(census, dict(zip(nodes[some].tolist(), change[some].tolist())))


def _lasting(census: Census, changes: dict[int, int]) -> list[int]:
    """The nodes of `changes` (by how much each changed) that got longer.

    In a family where many got longer and others shorter, objects come and go, and new ones reuse addresses. Then only nodes count
    that grew by far more than any shrank.
    """
    families: dict[tuple[int, ...], list[int]] = {}
    for node in changes:
        way: list[int] = []
        at = node
        while at >= 0 and len(way) < 3:
            way.append(census.heap.kind(at))
            at = int(census.ways.parents[at])
        families.setdefault(tuple(way), []).append(node)
    for chain in [chain for chain in families if len(chain) == 2]:  # a frame holds it: a new request, for example
        alike = [other for other in families if len(other) == 3 and other[:2] == chain]
        if alike:
            families[max(alike, key=lambda other: len(families[other]))] += families.pop(chain)
    found = []
    for nodes in families.values():
        longer = [node for node in nodes if changes[node] > 0]
        shorter = [changes[node] for node in nodes if changes[node] < 0]
        least = -4 * min(shorter) if len(longer) >= MANY and 2 * len(shorter) >= len(longer) else 0
        found += [node for node in longer if changes[node] > least]
    return found


def _lengths(before: Look, census: Census) -> dict[str, int]:
    """How many more members the containers of each type have, all of one type together."""
    heap, np, nodes = census.heap, census.heap.numpy, census.container_nodes()
    found: dict[str, int] = collections.Counter()
    totals = np.bincount(heap.types[nodes], heap.lengths[nodes])
    for number in np.flatnonzero(totals).tolist():
        found[heap.name(heap.numbers.values[number])] += int(totals[number])
    for kind, length, _ in before.containers.values():
        found[kind] -= length
    return found


def _types(before: Look, census: Census, grown: list[int]) -> list[Row]:
    heap, under = census.heap, None
    rows: list[Row] = []
    for own in census.types():
        count, size = before.types.get(own.name, (0, 0))
        more = own.count + own.held - count
        if more <= 0:
            continue
        row = Row("type", own.name, count, own.count + own.held, own.bytes + own.held_bytes - size)
        kinds = {k for k in heap.shapes if heap.name(k) == own.name} - set(heap.leaves)
        if row.bytes <= 0 or not kinds or len(rows) >= MAX_NAMED:
            continue
        if under is None:
            under = census.ways.below(grown)
        free = _instances(census, kinds, under)
        if not free or row.after - len(free) >= more * SHARE:
            continue  # those containers explain it
        row.path = _holder(census, kinds, free, more)
        rows.append(row)
    return rows


def _instances(census: Census, kinds: set[int], under: Any) -> list[int]:
    """The nodes of these types that do not hang on a container that grew."""
    return [node for node in census.heap.of_kinds(kinds) if not under[node]]


def _holder(census: Census, kinds: set[int], nodes: list[int], more: int) -> referrers.Path | None:
    """The way to the innermost object, not of `kinds`, on which most of `nodes` hang. None where nothing holds them: garbage that
    waits for the collector."""
    heap, np, ways = census.heap, census.heap.numpy, census.ways
    weights = np.zeros(len(heap.addresses), dtype=np.int64)
    lost = 0
    for node in nodes:
        weights[node] = 1
        lost += ways.parents[node] == UNREACHED
    if lost >= more * SHARE:
        return None
    total = ways.gather(weights)
    least = min(SHARE * min(more, len(nodes)), int(total.max()))  # two ways may share them: then the larger share counts
    for level in reversed(ways.levels):
        for node in level if isinstance(level, list) else level[total[level] >= least].tolist():
            if total[node] >= least and (heap.kind(node) not in kinds or ways.parents[node] == ROOT):
                chain = ways.chain(node)
                first = next((i for i, n in enumerate(chain) if heap.kind(n) in kinds), len(chain))
                return census.names.write(chain[: first + 1])  # of a chain of such objects the first
    return None
