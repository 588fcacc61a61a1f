"""How many collectives each process group of torch.distributed has begun in this process, and each communicator of NCCL.

A rank whose count lags behind the others' has not reached the collective in which they wait. Read from memory alone:

- torch: `_pg_group_ranks` and `_pg_names` of torch.distributed.distributed_c10d hold the groups as pybind11 objects. The word
  after the object's head leads to the C++ object. The class of its backend is found by type information of the vtable. The
  machine code of `getSequenceNumberForGroup`, one load and a return, gives the place of the counter: no table, no guess.
- NCCL 2.25 and later: `ncclComms` is its own list of communicators, kept for RAS (src/ras/ras.cc); NVIDIA's wheels keep the
  symbol. Offsets: layouts/nccl.json, proved on each communicator by the magic numbers at its ends (src/include/comm.h).
"""

from __future__ import annotations

import os
import re
import struct
from typing import TYPE_CHECKING, Any, Mapping

from .. import log, package
from ..access.model import Module
from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..errors import FaultError, GdbextError, NotFoundError
from . import rtti

if TYPE_CHECKING:
    from ..access.base import Target

MODULE = "torch.distributed.distributed_c10d"
BACKEND = re.compile(r"c10d::(ProcessGroup(?:Gloo|NCCL|MPI|UCC|XCCL))$")
MAX_GROUPS, MAX_RANKS = 4096, 1 << 20
GROUP_WORDS = 96  # of the C++ ProcessGroup that are searched for its backends
NCCL_MAGIC = 0x0280028002800280
NCCL_FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")  # ncclFunc_t, src/include/nccl_common.h
STORE_WORDS = 16  # of a Store that are searched
_HOST = re.compile(rb"[A-Za-z0-9._:-]+")
_LOAD = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\x48\x8b(?:\x87(....)|\x47(.))\xc3", re.S)  # endbr64; mov rax, [rdi + offset]; ret


class Count:
    """One group as one process sees it. `group`: equal in all processes of the group. `rank` in it, of `size`. `begun`:
    {operation: how often it was begun}; the operation is "" where all are counted together. `default`: it is torch's group of all
    ranks. `address`: of torch's object for it, 0 where there is none. `hosts`: {rank: the address of its machine}, as far as
    known."""

    address = 0
    hosts: Mapping[int, str] = {}

    def __init__(self, group: str, rank: int | None, size: int, begun: dict[str, int], default: bool = False) -> None:
        self.group, self.rank, self.size, self.begun, self.default = group, rank, size, begun, default

    @property
    def unique(self) -> bool:
        """Whether its name is that of no other job's group; torch names the groups of all jobs alike."""
        return self.group.startswith("NCCL communicator")

    def key(self, job: str) -> tuple[str, str]:
        """What its members share, and those of no other group."""
        return "" if self.unique else job, self.group


def find(rt: Runtime) -> list[Count]:
    """`[Count]` of a process; [] where it has none, or none that can be read."""
    found = []
    for read in (_of_torch, _of_nccl):
        try:
            found += read(rt)
        except (GdbextError, struct.error, UnicodeError) as e:
            log.passed_over(e)
            continue
    return found


# ---- torch.distributed -----------------------------------------------------------------------------------------------
def _of_torch(rt: Runtime) -> list[Count]:
    contents = rt.module(MODULE) if rt.has_module((MODULE,)) else None
    if contents is None:
        return []
    found: list[Count] = []
    names = {pg.address: name.string(256) for pg, name in contents.item("_pg_names").items(MAX_GROUPS)}
    default = _default_group(contents)
    for pg, ranks in contents.item("_pg_group_ranks").items(MAX_GROUPS):
        try:
            found += _of_group(rt, pg, names.get(pg.address, "?"), ranks.len(), pg.address == default)
        except (GdbextError, struct.error) as e:
            log.passed_over(e)
            continue  # a group that this rank is not in has a plain object for its key
    return found


def _default_group(contents: Object) -> int:
    """The address of torch's default group, 0 where it has none. Any group can become it (`_update_default_pg`), so its place
    among the groups says nothing."""
    try:
        group = contents.item("_world").attr("_default_pg")
    except GdbextError as e:
        log.passed_over(e)
        return 0
    return 0 if group.is_none() else group.address


def store_of(rt: Runtime) -> str:
    """HOST:PORT of the store through which the ranks found one another: the one of torch's default group, or of the one that is
    being set up. '' where it has none, or one that is no TCPStore."""
    try:
        contents = rt.module(MODULE) if rt.has_module((MODULE,)) else None
        default = _default_group(contents) if contents is not None else 0
        for pg, held in contents.item("_pg_map").items(MAX_GROUPS) if contents is not None and default else ():
            if pg.address == default:
                return _address_in(rt.target, rt.target.u64(held.item(1).address + rt.layout["object.__size"]), 4)
        return _store_of_start(rt) if contents is not None and not default else ""
    except (GdbextError, struct.error, UnicodeError) as e:
        log.passed_over(e)
    return ""


def _store_of_start(rt: Runtime) -> str:
    """The store of a main thread that is in `init_process_group`: its variable, or what it is made of."""
    for thread in rt.threads()[:1]:
        for frame in rt.frames(thread):
            if frame.function not in ("init_process_group", "_create_c10d_store"):
                continue
            own: dict[str, Any] = dict(frame.locals())
            store, host, port = (own.get(name) for name in ("store", "hostname", "port"))
            if host is not None and port is not None:
                return f"{host.string(256)}:{port.integer()}"
            if store is not None and not store.is_none():
                return _address_in(rt.target, rt.target.u64(store.address + rt.layout["object.__size"]), 4)
    return ""


def _address_in(target: Target, at: int, depth: int) -> str:
    """HOST:PORT of the C++ Store at an address: a TCPStore's `addr_`, a string and a port (TCPStore.hpp, detail::SocketAddress).
    Stores that only put a prefix before names are followed."""
    kind = rtti.class_hierarchy(target, at)[0][0] if depth and is_pointer(target, at) else ""
    for place in range(at + 8, at + 8 * STORE_WORDS, 8):
        word = target.u64(place)
        if kind.endswith("::TCPStore"):
            size = target.u64(place + 8)
            if 0 < size < 256 and (word == place + 16 or is_pointer(target, word)):
                host, port = target.read(word, size), target.u64(place + 32) & 0xFFFF
                if port and _HOST.fullmatch(host):
                    return f"{host.decode('ascii')}:{port}"
        elif kind.endswith("Store") and is_pointer(target, word):
            try:
                found = _address_in(target, word, depth - 1)
            except GdbextError as e:
                log.passed_over(e)  # a member of another kind
                continue
            if found:
                return found
    return ""


def _of_group(rt: Runtime, pg: Object, name: str, size: int, default: bool) -> list[Count]:
    """`[Count]` of one ProcessGroup, one for each backend of it."""
    found = []
    for kind, at in backends(rt.target, rt.target.u64(pg.address + rt.layout["object.__size"])):
        begun = {"": rt.target.u64(at + _offset(rt.target, kind))}
        group = f"{kind.replace('ProcessGroup', '').lower()} group {name} ({size} ranks)"
        found.append(Count(group, _rank(rt.target, at, size), size, begun, default))
        found[-1].address = pg.address
    return found


def backends(target: Target, group: int) -> list[tuple[str, int]]:
    """`[(class, address)]` of the backends of the C++ ProcessGroup at `group`. Its hash maps hold them in nodes of (next, device
    type, pointer)."""
    found = {}
    for word in target.words(group, words_of(target, group)):
        if not is_pointer(target, word):
            continue
        node = target.read_partial(word, 24)
        if len(node) < 24 or node[8] >= 64:
            continue
        at = struct.unpack_from("<Q", node, 16)[0]
        if at in found or not is_pointer(target, at):
            continue
        try:
            kind = BACKEND.match(rtti.class_hierarchy(target, at)[0][0])
        except GdbextError as e:
            log.passed_over(e)
            continue
        if kind:
            found[at] = kind.group(1)
    return [(kind, at) for at, kind in found.items()]


def words_of(target: Target, address: int) -> int:
    """How many words the object has at most. malloc keeps the size of its piece before it (glibc's malloc.c); used where
    plausible."""
    size = target.u64(address - 8) & -8
    return (size - 8) // 8 if 64 <= size <= 8 * GROUP_WORDS else GROUP_WORDS // 2


def _rank(target: Target, backend: int, size: int) -> int | None:
    """The rank of a Backend: `rank_` and `size_` follow each other behind its vtable and reference counts (Backend.hpp). None
    where they do not."""
    for word in target.words(backend + 8, 4):
        if word >> 32 == size and word & 0xFFFFFFFF < size:
            return word & 0xFFFFFFFF
    return None


def is_pointer(target: Target, word: int) -> bool:
    mapping = target.mapping_at(word) if word and not word % 8 else None
    return mapping is not None and "w" in mapping.perms


def _offset(target: Target, kind: str) -> int:
    """The offset of a backend's counter."""

    def read() -> int:
        code = target.read(target.symbol(f"_ZN4c10d{len(kind)}{kind}25getSequenceNumberForGroupEv", _torch_libraries(target)), 16)
        load = _LOAD.match(code)
        if not load:
            raise NotFoundError(f"{kind}'s counter: its getter is more than one load")
        near, far = load.group(2), load.group(1)
        return int.from_bytes(far or near, "little", signed=True)

    return target.cached(("collective counter", kind), read)


def _torch_libraries(target: Target) -> list[Module]:
    return [m for m in target.modules() if os.path.basename(m.path).startswith("libtorch_c")]


# ---- NCCL ------------------------------------------------------------------------------------------------------------
def _of_nccl(rt: Runtime) -> list[Count]:
    target, found = rt.target, []
    for module in target.modules():
        if not os.path.basename(module.path).startswith("libnccl.so"):
            continue
        try:
            listed, count = (target.symbol(name, [module]) for name in ("ncclComms", "nNcclComms"))
        except NotFoundError as e:
            log.passed_over(e)
            continue  # stripped, or older than RAS
        for comm in target.words(target.u64(listed), min(target.u32(count), MAX_GROUPS)) if target.u32(count) else ():
            if comm:
                found.append(_communicator(target, comm))
    return [one for one in found if one is not None]


def _communicator(target: Target, comm: int) -> Count | None:
    """The `Count` of one communicator; None where no layout fits it."""
    if target.u64(comm) != NCCL_MAGIC:
        return None
    for row in nccl_rows():
        try:
            rank, size = target.u32(comm + row["rank"]), target.u32(comm + row["nRanks"])
            if (
                target.u64(comm + row["endMagic"]) == NCCL_MAGIC
                and rank < size <= MAX_RANKS
                and row["functions"] == len(NCCL_FUNCTIONS)
            ):
                begun = dict(zip(NCCL_FUNCTIONS, target.words(comm + row["seqNumber"], row["functions"])))
                return Count(
                    f"NCCL communicator {target.u64(comm + row['commHash']):#x}",
                    rank,
                    size,
                    {k: n for k, n in begun.items() if n},
                )
        except FaultError as e:
            log.passed_over(e)
            continue  # another release's is larger
    return None


def nccl_rows() -> list[dict[str, Any]]:
    """The layouts of layouts/nccl.json, the newest first."""
    return [row for row in reversed(list(package.table("layouts/nccl.json").values())) if isinstance(row, dict)]
