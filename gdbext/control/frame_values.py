"""Values of a frame that have no name in Python: the number of its arguments, the value that it is about to return, and the word
that holds its current instruction."""

from __future__ import annotations

from typing import Any

from ..access import pending_stores
from ..cpython.frames import PyFrame
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from .registers import register


def arguments(frame: PyFrame) -> int:
    """How many of a frame's first variables are arguments, * and ** included."""
    rt, code = frame.rt, frame.code
    count = rt.target.i32(code.address + rt.layout["code.co_argcount"]) + rt.target.i32(
        code.address + rt.layout["code.co_kwonlyargcount"]
    )
    return max(0, min(count + bool(code.flags & 4) + bool(code.flags & 8), 65536))


def result(frame: PyFrame, constant: int | None, pc: int = 0) -> Any:
    """The value that a frame is about to return: a constant of its code, else the only value on its stack (Python/bytecodes.c:
    RETURN_VALUE leaves the stack empty).

    `pc`: where the selected thread has loaded the returning instruction. The result of the instruction before it may still be in
    a register there."""
    rt, L, t = frame.rt, frame.rt.layout, frame.rt.target
    if constant is not None:
        return rt.object(t.u64(frame.code.address + L["code.co_consts"])).item(constant)
    if "frameobj.f_valuestack" in L:
        at = t.u64(frame.address + L["frameobj.f_valuestack"])
    elif "iframe.localsplus" not in L:  # 3.10: the stack follows the variables
        at = frame.address + L["frameobj.f_localsplus"] + 8 * len(frame.code.variables)
    else:
        at = frame.address + L["iframe.localsplus"] + 8 * t.i32(frame.code.address + L["code.co_nlocalsplus"])
    raw = pending_stores.word_after(t.arch, t.read_partial, register, pc, at) if pc else None
    if raw is None:
        raw = t.u64(at)
    value = rt.dialect.untag(raw) if "iframe.localsplus" in L else raw
    if not value:
        raise GdbextError("its result is a small number kept in a tagged word" if raw else "its result is not on the stack")
    return rt.object(value)


def first_variable(frame: PyFrame, address: int = 0) -> int:
    """The address of the object in the first variable (`self` of a method) of a frame, or of the frame at `address` of the same
    thread; 0 where it is not set."""
    rt, L = frame.rt, frame.rt.layout
    at = L["iframe.localsplus"] if "iframe.localsplus" in L else L["frameobj.f_localsplus"]
    return rt.dialect.untag(rt.target.u64((address or frame.address) + at))


def instruction_word(rt: Runtime, frame: int) -> tuple[int, int]:
    """-> (address, size in bytes) of the word in which the frame at an address stores the instruction that it is about to run."""
    L = rt.layout
    if "frameobj.f_lasti" in L:
        return frame + L["frameobj.f_lasti"], 4
    return frame + L.frame_instruction, 8
