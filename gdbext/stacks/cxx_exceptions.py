"""The C++ exception for which a thread ended its process: its class and, of the standard library's classes, its text.

std::terminate calls no code that says which exception it was. The frames of __cxa_throw and of what it called keep its address on
the stack. An object there is believed if it has the mark of the C++ library and a type_info. Sources: Itanium C++ ABI: Exception
Handling, 2.2.1; GCC, libstdc++-v3/libsupc++/unwind-cxx.h, tinfo.h.
"""

from __future__ import annotations

from typing import NamedTuple

from .. import log
from ..access.base import Target
from ..errors import GdbextError
from ..render.names import demangle
from .threads import ThreadView

MARK = int.from_bytes(b"GNUCC++\0", "big")  # of a primary exception
COUNT = -96  # of referenceCount, from the unwind header; zeroes fill it up to 16 bytes. A freed one is 0, or malloc's
TYPE = -80  # of exceptionType
NEXT, CAUGHT = -48, -40  # of nextException and handlerCount
OBJECT = 32  # of what was thrown
THROWS = ("__cxa_throw", "__cxa_rethrow")  # still on the stack, for no handler was found
MOST_WORDS, MOST_TEXT = 4096, 400
WHAT = 16  # of what() in the vtable of an exception: after two destructors
WITH_TEXT = ("_ZNKSt13runtime_error4whatEv", "_ZNKSt11logic_error4whatEv")  # it gives the pointer that follows the vtable's
STRING = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


class Thrown(NamedTuple):
    """`type`: the class's name in C++. `message`: what what() gives; None where that is computed."""

    type: str
    message: str | None


def thrown(target: Target, thread: ThreadView) -> Thrown | None:
    """The exception that a thread threw and nothing caught; None where it threw none, or more than one is found."""
    last = max((i for i, frame in enumerate(thread.native) if frame.function in THROWS), default=-1)
    if last < 0 or last + 1 >= len(thread.native):
        return None
    low, high = thread.native[0].sp, thread.native[last + 1].sp
    try:
        words = set(target.words(low, min((high - low) // 8, MOST_WORDS)))
        found = {header for word in words for header in (word, word - OBJECT) if _is_exception(target, header)}
        found -= {target.u64(header + NEXT) - TYPE for header in found}  # those within whose handlers the next one was thrown
        return _described(target, found.pop()) if len(found) == 1 else None
    except GdbextError as e:
        log.passed_over(e)
        return None


def _is_exception(target: Target, header: int) -> bool:
    """Whether there is an exception that is being handled, as __cxa_throw says of one for which no handler was found."""
    if header % 16 or target.mapping_at(header) is None:
        return False
    try:
        count, filler = target.words(header + COUNT, 2)
        is_handled = target.u64(header) == MARK and 0 < count < 1 << 16 and not filler and target.i32(header + CAUGHT) > 0
        return is_handled and target.module_at(target.u64(target.u64(header + TYPE))) is not None
    except GdbextError as e:
        log.passed_over(e)
        return False


def _described(target: Target, header: int) -> Thrown:
    name = target.cstring(target.u64(target.u64(header + TYPE) + 8), MOST_TEXT).decode("utf-8", "replace").lstrip("*")
    shown = demangle("_ZTI" + name)
    return Thrown(
        shown[len("typeinfo for ") :] if shown.startswith("typeinfo for ") else name, _message(target, name, header + OBJECT)
    )


def _message(target: Target, name: str, at: int) -> str | None:
    """The text of an object at `at` whose class has the mangled `name`."""
    if name == "PKc":
        return _text(target, target.u64(at))
    if name == STRING:
        return _text(target, target.u64(at), target.u64(at + 8))
    if name == "i":
        return str(target.i32(at))
    if len(name) < 2:  # another of the language's own types: it has no virtual functions
        return None
    what = target.u64(target.u64(at) + WHAT)
    module = target.module_at(what)
    known = [module.elf.symbol(one) for one in WITH_TEXT] if module is not None and module.elf is not None else []
    own = any(value is not None and module is not None and module.bias + value == what for value in known)
    return _text(target, target.u64(at + 8)) if own else None


def _text(target: Target, address: int, length: int = MOST_TEXT) -> str:
    text = target.cstring(address, min(length, MOST_TEXT) + 1)
    return text[:length].decode("utf-8", "replace")
