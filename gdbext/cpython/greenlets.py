"""Greenlets of a process (gevent's too): each with its state and the frames in which it is suspended.

A suspended greenlet is missing from every thread's list of frames. Its innermost frame hangs on the greenlet itself. Where
another greenlet uses the same part of the C stack, that part is copied to the heap. Sources (greenlet 2 and 3):
src/greenlet/greenlet.h (PyGreenlet), TGreenlet.hpp (Greenlet, StackState, PythonState), TStackState.cpp (`make_main`, `started`,
`active`, `main`), TExceptionState.cpp.
"""

from __future__ import annotations

from .. import log
from ..access.retry import retry_reading
from ..errors import GdbextError, LayoutError
from . import dialects, gc
from .dialects import RawFrame
from .frames import PyFrame
from .runtime import Runtime

MODULE = "greenlet._greenlet"
MAX_GREENLETS = 100_000
MAX_WALKED = 20_000_000  # tracked objects among which they are looked for: about six seconds
RETRY_SECONDS = 0.1
_MAIN = (1 << 64) - 1  # StackState::make_main: where the stack of a thread's first greenlet ends
_BEFORE = 9, 7  # words before StackState: exc_info and _PyErr_StackItem have two less from 3.11 on


class Greenlet:
    """One greenlet.

    `state`: "running" (its frames are its thread's), "suspended", "new" (never started), "ended" or "unknown" (`error` says why).
    `is_main`: it is the first of its thread. `tid`: of its thread, None where it is unknown. `frames`: `[PyFrame]` of a suspended
    one, innermost first.
    """

    def __init__(self, rt: Runtime, address: int) -> None:
        self.rt, self.address = rt, address
        self.type_name = rt.object(address).type_name
        self.state, self.error = "unknown", ""
        self.is_main = False
        self.tid: int | None = None
        self.frames: list[PyFrame] = []


def greenlets(rt: Runtime) -> tuple[list[Greenlet], list[str]]:
    """-> (`[Greenlet]` in the collector's order, reasons why some are missing). ([], []) where greenlet was not imported."""
    module = rt.module(MODULE)
    if module is None:
        return [], []
    try:
        base = module.item("greenlet").address
        addresses, reasons = _addresses(rt, base)
    except GdbextError as e:
        log.passed_over(e)
        return [], [f"its greenlets: {e}"]
    stacks = _stacks(rt)
    return [_read(rt, address, stacks) for address in addresses], reasons


def _addresses(rt: Runtime, base: int) -> tuple[list[int], list[str]]:
    """-> (each tracked object whose class derives from the type at `base`, reasons why some are missing)."""
    kinds: dict[int, bool] = {}
    found: dict[int, None] = {}
    for count, (address, kind) in enumerate(gc.tracked(rt)):
        known = kinds.get(kind)
        if known is None:
            known = kinds[kind] = base in rt.type(kind).mro
        if known:
            found[address] = None
        if count == MAX_WALKED or len(found) == MAX_GREENLETS:
            return list(found), [f"its greenlets: among the first {count + 1:,} objects of the garbage collector only"]
    return list(found), ["its greenlets: a garbage collection is under way"] if gc.collecting(rt) else []


def _stacks(rt: Runtime) -> dict[int, int]:
    """{start of the mapping that holds a thread's C stack: its tid}. A pthread id points to a block that glibc keeps above the
    thread's stack. The main thread has the kernel's [stack]."""
    t = rt.target
    found: dict[int, int] = {}
    for mapping in t.mappings():
        if mapping.path == "[stack]" and t.pid:
            found[mapping.start] = t.pid
    for thread in rt.threads():
        held = t.mapping_at(t.u64(thread.address + rt.layout["tstate.thread_id"]))
        if held is not None and thread.tid and thread.tid != t.pid:
            found[held.start] = 0 if held.start in found else thread.tid  # one mapping, two threads: neither's
    return found


def _read(rt: Runtime, address: int, stacks: dict[int, int]) -> Greenlet:
    def read() -> Greenlet:
        found = Greenlet(rt, address)
        before = _words(rt, address)
        _fill(found, before, stacks)
        if not rt.target.is_stopped:
            rt.target.drop_pages()
            if _words(rt, address) != before:
                raise LayoutError(f"the greenlet at {address:#x} ran while it was read")
        return found

    try:
        return retry_reading(rt.target, read, RETRY_SECONDS, before_retry=rt.target.drop_pages)
    except GdbextError as e:
        log.passed_over(e)
        found = Greenlet(rt, address)
        found.error = str(e)
        return found


def _words(rt: Runtime, address: int) -> list[int]:
    """StackState and the first two words of PythonState: start, stop, copy, saved, previous, context, innermost frame.
    `LayoutError` where the C++ object does not name its greenlet, or a word does not fit its purpose."""
    t = rt.target
    at = t.u64(address + rt.layout["object.__size"] + 16)  # after the list of weak references and the dict
    before = _BEFORE[not rt.minor.frame_objects]
    words = list(t.words(at, before + 7)) if at else [0, 0]
    if words[1] != address:
        raise LayoutError(f"the greenlet at {address:#x} is of a release that is not known here (2 and 3 are)")
    start, stop, copy, saved, _, context, frame = words = words[before:]
    whole = bool(copy) == bool(saved) and saved < 1 << 40 and (not start or start < stop)
    for pointer, name in ((context, "Context"), (frame, "frame")):
        whole = whole and (not pointer or rt.object(pointer).type.raw_name.rpartition(".")[2] == name)
    if not whole:
        raise LayoutError(f"the greenlet at {address:#x} has another layout than those of greenlet 2 and 3")
    return words


def _fill(found: Greenlet, words: list[int], stacks: dict[int, int]) -> None:
    start, stop, _, _, _, _, frame = words
    found.is_main = stop == _MAIN
    mapping = found.rt.target.mapping_at(start if found.is_main else stop)
    found.tid = (mapping and stacks.get(mapping.start)) or None
    if not start:
        found.state = "ended" if stop else "new"
    elif not frame:
        found.state = "running"
    else:
        found.state = "suspended"
        found.frames = [PyFrame(found.rt, step, i) for i, step in enumerate(_walk(found.rt, frame, words))]
        for one in found.frames:
            one.stack, one.tid = found.frames, found.tid
        if found.frames:
            found.frames[-1].is_cut = len(found.frames) >= dialects.MAX_FRAMES


def _walk(rt: Runtime, frame: int, words: list[int]) -> list[RawFrame]:
    """The complete frames from a frame object outward. Frames in the saved part of the C stack are read from the copy: only the
    frames with which C code called Python lie there (3.12 on)."""
    L, t = rt.layout, rt.target
    start, _, copy, saved = words[:4]
    objects = "frameobj.f_lasti" in L
    at = frame if objects else t.u64(frame + L["frameobj.f_frame"])
    seen: set[int] = set()
    steps: list[RawFrame] = []
    while at and at not in seen and len(steps) < dialects.MAX_FRAMES:
        seen.add(at)
        held = at - start + copy if start <= at < start + saved else at
        if objects:
            steps.append(dialects.raw_frame(rt, at))
            at = t.u64(at + L["frameobj.f_back"])
            continue
        if not rt.minor.shim_frames or t.u8(held + L["iframe.owner"]) < dialects.OWNED_BY_C:
            if held != at:
                raise LayoutError(f"a Python frame at {at:#x} lies on a C stack")
            steps.append(dialects.raw_frame(rt, at))
        at = t.u64(held + L["iframe.previous"])
    if at in seen:
        raise LayoutError(f"the frames of a greenlet at {frame:#x} run in a ring")
    return [step for step in steps if step.complete]
