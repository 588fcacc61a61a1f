"""A name in a dict, found as CPython finds it: by its hash, in a few reads, however many names there are.

The thousands of names in an engine's sys.modules are on as many pages. Whoever reads them all has a collector copy them all.
Sources: Python/pyhash.c (siphash13, siphash24), Objects/dictobject.c (do_lookup).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Callable, Optional, Sequence

from .. import log
from ..errors import GdbextError

if TYPE_CHECKING:
    from .runtime import Runtime
Hash = Callable[[bytes], int]
Known = Optional[Hash]

ROUNDS = ((1, 3), (2, 4))  # of each word, and at the end: since 3.11, and before
MOST = 100  # places of a table that are tried: a table is at most two thirds full
EMPTY = -1  # DKIX_EMPTY; DKIX_DUMMY is -2
ALL = (1 << 64) - 1
_CODES = {1: "<b", 2: "<h", 4: "<i", 8: "<q"}  # of an index


def find(rt: Runtime, table: int, name: str, proof: str) -> list[tuple[int, int]] | None:
    """[(address of the key, of the value)] of `name` in the dict at `table`, with none or one; None where that cannot be told
    this way: the process hashes differently, or the table is of another kind. `proof`: a name that the dict has."""
    if not name.isascii() or not name:
        return None
    try:
        found = rt.target.cached(("hash of names", rt.address, table), lambda: _proved(rt, table, proof))
        return None if found is None else _looked_up(rt, table, name, found(name.encode()))
    except GdbextError as e:
        log.passed_over(e)
        return None


def _proved(rt: Runtime, table: int, proof: str) -> Known:
    """The process's hash of ASCII text, by which `proof` is found in the dict; None where it is not."""
    first, second = struct.unpack("<2Q", rt.target.read(rt.target.symbol("_Py_HashSecret", [rt.library]), 16))
    for rounds in ROUNDS:

        def hashed(text: bytes, rounds: Sequence[int] = rounds) -> int:
            return siphash(first, second, text, *rounds)

        if _looked_up(rt, table, proof, hashed(proof.encode())):
            return hashed
    return None


def _looked_up(rt: Runtime, table: int, name: str, wanted: int) -> list[tuple[int, int]] | None:
    L, t = rt.layout, rt.target
    keys = t.u64(table + L["dict.ma_keys"])
    if t.u64(table + L["dict.ma_values"]):
        return None  # it shares its keys with others
    entries, _, step, size = rt.dialect.dict_keys(rt, keys)
    indices = keys + L["dictkeys.dk_indices"]
    code, width = _CODES.get((entries - indices) // max(size, 1)), (entries - indices) // max(size, 1)
    if code is None:
        return None
    at, perturb = wanted & size - 1, wanted
    for _ in range(MOST):
        index = struct.unpack(code, t.read(indices + at * width, width))[0]
        if index == EMPTY:
            return []
        if index >= 0:
            key, value = t.words(entries + index * step + step - 16, 2)
            if value and t.u64(key + L["ascii.hash"]) == wanted and rt.object(key).equals(name):
                return [(key, value)]
        perturb >>= 5
        at = at * 5 + perturb + 1 & size - 1
    return None


def siphash(first: int, second: int, text: bytes, each: int, last: int) -> int:
    """SipHash of a text under a key of two words, as CPython has it of a str of these bytes."""
    v = [first ^ 0x736F6D6570736575, second ^ 0x646F72616E646F6D, first ^ 0x6C7967656E657261, second ^ 0x7465646279746573]
    whole = len(text) & -8
    words = [*struct.unpack_from(f"<{whole // 8}Q", text), (len(text) & 255) << 56 | int.from_bytes(text[whole:], "little")]
    for word in words:
        v[3] ^= word
        _mix(v, each)
        v[0] ^= word
    v[2] ^= 0xFF
    _mix(v, last)
    found = v[0] ^ v[1] ^ v[2] ^ v[3]
    return found - 1 if found == ALL else found  # -1 is an error in C


def _mix(v: list[int], rounds: int) -> None:
    a, b, c, d = v
    for _ in range(rounds):
        a = a + b & ALL
        c = c + d & ALL
        b = (b << 13 | b >> 51) & ALL ^ a
        d = (d << 16 | d >> 48) & ALL ^ c
        a = (a << 32 | a >> 32) & ALL
        c = c + b & ALL
        a = a + d & ALL
        b = (b << 17 | b >> 47) & ALL ^ c
        d = (d << 21 | d >> 43) & ALL ^ a
        c = (c << 32 | c >> 32) & ALL
    v[:] = a, b, c, d
