"""Calls that take memory from the kernel, as threads' stacks show them. Nothing is stopped.

The frames of a call that has returned lie below the stack pointer until others overwrite them. A word there that is the address
behind a call of `brk`, `mprotect`, `mmap` tells by call-frame information who called: malloc that makes its heap larger, and the
library above it. A call counts if its frames have been written since the look before: what lies deep may be hours old.

Sources: System V ABI x86-64 section 3.2 (calls push their return address), malloc/malloc.c and arena.c of glibc (sysmalloc grows
the brk heap by sbrk, a thread's arena by mprotect, and gives large blocks a mapping of their own; systrim gives back).
"""

from __future__ import annotations

import bisect
import collections
import os
import re
import struct
import time
from typing import NamedTuple

from .. import log
from ..access.model import NativeFrame
from ..access.page_faults import SampledStack
from ..access.proc import ProcTarget
from ..access.procfs import read_syscall
from ..access.unwind import Unwinder
from ..errors import GdbextError
from .grown import ANONYMOUS, ARENAS, HEAP, HUGE, Place

# what a call takes or gives back
TAKES = {
    "brk": HEAP,
    "sbrk": HEAP,
    "mprotect": ARENAS,
    "mmap": ANONYMOUS,
    "mmap64": ANONYMOUS,
    "mremap": ANONYMOUS,
    "madvise": HUGE,
}
GIVES = ("munmap", "free")
BELOW, ABOVE = 12 << 10, 4 << 10  # bytes of a stack that are read, from its pointer on
DEPTH = 14
SHARE = 0.002  # of a CPU
LEAST = 3  # looks with a fresh call of the one library
MOSTLY, OFTEN = 0.4, 0.15  # of the looks at a thread that took pages, where it slept and where it ran
OTHERS = 0.1  # of those: the calls of all others
LIBC = re.compile(r"libc(-[\d.]+)?\.so[.\d]*$")
ALLOCATORS = re.compile(
    r"(libc|libc-[\d.]+|ld-.*|libpthread.*|libstdc\+\+|libc\+\+|libjemalloc|libtcmalloc.*|libmimalloc.*|libgcc_s)\.so[.\d]*$"
)
PYTHON = re.compile(r"(libpython3[\d.]*t?\.so[.\d]*|python3?[\d.]*t?)$")


class Call(NamedTuple):
    """A call of `name` by `library`, above the allocators; `gives`: it gives memory back."""

    name: str
    library: str
    native: str
    gives: bool


class Calls:
    """What the stacks of one process's threads show, look by look. `share`: of a CPU, that the looks may take."""

    def __init__(self, target: ProcTarget, share: float = SHARE) -> None:
        self.share = share
        self._target, self.why_not, self._next = target, "", 0.0
        self._entries: dict[int, str] = {}
        self._callees: dict[int, str] = {}
        self._pointers: dict[int, int] = {}  # stack pointers, by thread
        self._before: dict[int, dict[tuple[int, int], bytes]] = {}  # by thread: by place and return address, the frames
        self.looks: collections.Counter[tuple[int, bool]] = collections.Counter()  # by thread, and whether it ran
        self.seen: collections.Counter[tuple[int, bool, Call]] = collections.Counter()  # fresh calls, as those
        if target.arch != "x86-64":
            self.why_not = f"calls are not told on {target.arch}"
            return
        try:
            libc = [module for module in target.modules() if LIBC.match(os.path.basename(module.path))]
            for name in (*TAKES, *GIVES):
                with log.passing_over(GdbextError):
                    self._entries.setdefault(target.symbol(name, libc), name)
        except GdbextError as e:
            log.passed_over(e)
        if not self._entries:
            self.why_not = "the process has no libc.so of its own"

    def look(self, tid: int, runs: bool = False) -> None:
        """Looks at a thread that took pages lately, asleep or as it `runs`, if it is time; `GdbextError`, `struct.error` where
        it is gone."""
        if self.why_not or time.monotonic() < self._next:
            return
        spent = time.thread_time()
        stands = read_syscall(self._target.pid or tid, tid)
        if stands is not None:
            self._pointers[tid] = stands.sp
        if tid in self._pointers:
            self._look(tid, self._pointers[tid], runs)
        self._next = time.monotonic() + (time.thread_time() - spent) / self.share

    def _look(self, tid: int, pointer: int, runs: bool) -> None:
        stack = self._target.mapping_at(pointer)
        if stack is None:
            return
        begin = max(stack.start, pointer - BELOW)
        data = self._target.read_now(begin, min(stack.end, pointer + ABOVE) - begin)
        code = [mapping for mapping in self._target.mappings() if "x" in mapping.perms]
        starts, low, high = [mapping.start for mapping in code], code[0].start, code[-1].end
        before, now = self._before.get(tid), {}
        found: set[Call] = set()
        for number, word in enumerate(struct.unpack(f"<{len(data) // 8}Q", data)):
            if not low < word < high:
                continue
            name = self._callees.get(word)
            if name is None:
                at = bisect.bisect_right(starts, word) - 1
                name = self._callees[word] = self._callee(word) if code[at].start + 6 <= word < code[at].end else ""
            if not name:
                continue
            at = begin + 8 * number
            memory = SampledStack(self._target, begin, data)
            frames = Unwinder(memory).frames({"rip": word, "rsp": at + 8}, DEPTH)  # type: ignore[arg-type]
            call, top = _told(name, frames)
            if call is not None:
                frame = now[at, word] = data[at - begin : top - begin]
                if before is not None and before.get((at, word)) != frame:
                    found.add(call)
        self._before[tid] = now
        if before is not None:
            self.looks[tid, runs] += 1
            self.seen.update((tid, runs, call) for call in found)

    def _callee(self, behind: int) -> str:
        """The function known here that the instruction before `behind` calls, by itself or over a table; '' for any other."""
        with log.passing_over(GdbextError, struct.error):
            code = self._target.read_now(behind - 6, 6)
            (offset,) = struct.unpack_from("<i", code, 2)
            if code[:2] == b"\xff\x15":  # call *offset(%rip)
                return self._entries.get(self._target.u64(behind + offset), "")
            if code[1:2] == b"\xe8":
                to = behind + offset
                if to in self._entries:
                    return self._entries[to]
                jump = self._target.read_now(to, 16)
                at = jump.find(b"\xff\x25", 0, 6)  # jmp *offset(%rip), behind endbr64, bnd
                if at >= 0:
                    (offset,) = struct.unpack_from("<i", jump, at + 2)
                    return self._entries.get(self._target.u64(to + at + 6 + offset), "")
        return ""

    def place(self, kind: str, tid: int) -> Place:
        """The library and function that alone took memory of a kind in a thread, and was not seen to give any back; an empty one
        where none stands out, or Python itself does."""
        gives = {call.library for own, _, call in self.seen if own == tid and call.gives}
        for runs in (True, False):
            takes: collections.Counter[str] = collections.Counter()
            functions: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
            for (own, when, call), count in self.seen.items():
                taken = TAKES.get(call.name, "") if (own, when) == (tid, runs) and not call.gives else ""
                if taken and (kind.startswith(taken) or kind == HUGE and taken == ANONYMOUS):
                    takes[call.library] = max(takes[call.library], count)
                    functions[call.library][call.native] += count
            best, count = (takes.most_common(1) or [("", 0)])[0]
            looks = self.looks[tid, runs]
            few = count < max(LEAST, (OFTEN if runs else MOSTLY) * looks) or sum(takes.values()) - count > OTHERS * looks
            if not few and best not in gives and not PYTHON.match(best):
                return Place(best, functions[best].most_common(1)[0][0])
        return Place()


def _told(name: str, frames: list[NativeFrame]) -> tuple[Call | None, int]:
    """(the call of these frames, where the frame of its caller above the allocators ends); (None, 0) where none is seen."""
    gives = name in GIVES
    for frame, above in zip(frames, frames[1:]):
        library = os.path.basename(frame.library).replace(" (deleted)", "")
        if not library or not frame.reliable:
            break
        if not ALLOCATORS.match(library):
            return Call(name, library, frame.function, gives), above.sp
        gives = gives or frame.function in ("free", "__libc_free", "cfree", "munmap")
    return None, 0
