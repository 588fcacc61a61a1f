"""The machine of each rank of a gloo group, from the group's own connections in this process's memory.

A ProcessGroupGloo has gloo contexts, each with one pair for each other rank; a pair has the addresses of both of its ends, its
own first. Objects are known by the type information of their vtables, a list of pairs by its length, which is its context's size.
Sources: gloo's context.h, transport/context.h, transport/tcp/pair.h, transport/tcp/address.h.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Sequence

from .. import log
from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from . import rtti
from .collectives import MAX_GROUPS, MODULE, Count, backends, is_pointer, words_of

if TYPE_CHECKING:
    from ..access.base import Target

MOST = 512  # ranks of a group whose pairs are read
CONTEXT_WORDS = 12
TRANSPORT, PAIR, ADDRESS = "gloo::transport::Context", "gloo::transport::Pair", "gloo::transport::tcp::Address"
MAPPED = b"\0" * 10 + b"\xff\xff"  # an IPv4 address as one of IPv6


def read(rt: Runtime, counts: Sequence[Count]) -> dict[int, str]:
    """{rank among all of the job: the address of its machine}, as far as this process's gloo groups tell. Fills in the `hosts` of
    the groups."""
    found: dict[int, str] = {}
    groups = {count.address: count for count in counts if count.address and 1 < count.size <= MOST}
    try:
        contents = rt.module(MODULE) if groups else None
        for pg, numbers in contents.item("_pg_group_ranks").items(MAX_GROUPS) if contents is not None else ():
            count = groups.get(pg.address)
            if count is not None:
                ranks = {rank.integer(): number.integer() for rank, number in numbers.items(MOST)}
                known = {} if found.keys() >= ranks.keys() else of_group(rt, pg)
                found.update({rank: known[number] for rank, number in ranks.items() if number in known})
                count.hosts = {number: found[rank] for rank, number in ranks.items() if rank in found}
    except (GdbextError, struct.error) as e:
        log.passed_over(e)
    return found


def of_group(rt: Runtime, pg: Object) -> dict[int, str]:
    """{rank in a process group: the address of its machine}; {} where the group has no gloo, or cannot be read."""
    for kind, at in backends(rt.target, rt.target.u64(pg.address + rt.layout["object.__size"])):
        if kind == "ProcessGroupGloo":
            return _of_backend(rt.target, at)
    return {}


def _of_backend(target: Target, backend: int) -> dict[int, str]:
    for word in target.words(backend, words_of(target, backend)):
        context = target.u64(word) if is_pointer(target, word) else 0  # the first of a vector of shared pointers
        stored = target.read_partial(context, 8 * CONTEXT_WORDS) if is_pointer(target, context) else b""
        for (inner,) in struct.iter_unpack("<Q", stored[: len(stored) & -8]):
            if _is_a(target, inner, TRANSPORT):
                return _of_pairs(target, inner, *struct.unpack("<II", target.read(inner + 8, 8)))
    return {}


def _of_pairs(target: Target, transport: int, own: int, size: int) -> dict[int, str]:
    """The hosts of the ranks with which a context of `size` ranks has pairs, and its own."""
    words = target.words(transport, words_of(target, transport))
    for begin, end in zip(words, words[1:]):
        if own < size <= MOST and end - begin == 8 * size and is_pointer(target, begin):
            found: dict[int, str] = {}
            for rank, pair in enumerate(target.words(begin, size)):
                ends = _ends(target, pair) if _is_a(target, pair, PAIR) else []
                if rank != own and len(ends) == 2 and ends[1]:
                    found[own], found[rank] = ends
            return found
    return {}


def _ends(target: Target, pair: int) -> list[str]:
    """The addresses of the two ends of a pair, its own first."""
    places = range(pair, pair + 8 * words_of(target, pair), 8)
    return [_host(target.read(at + 8, 28)) for at in places if _classes(target, at)[:1] == [ADDRESS]]


def _host(stored: bytes) -> str:
    """The host of a sockaddr; '' where it is none of TCP."""
    family = int.from_bytes(stored[:2], "little")
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, stored[4:8])
    if family == socket.AF_INET6:
        far = stored[8:24]
        return socket.inet_ntop(socket.AF_INET, far[12:]) if far.startswith(MAPPED) else socket.inet_ntop(socket.AF_INET6, far)
    return ""


def _is_a(target: Target, address: int, kind: str) -> bool:
    """Whether there is an object of a class, or of one derived from it, at an address."""
    return is_pointer(target, address) and kind in _classes(target, address)


def _classes(target: Target, address: int) -> list[str]:
    """The class of the object at an address and those that it is derived from; [] where there is none."""
    try:
        return rtti.class_hierarchy(target, address)[0]
    except GdbextError as e:
        log.passed_over(e)
        return []
