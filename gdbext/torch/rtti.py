"""The C++ class of an object, from its vtable's type information: no symbol table, no DWARF.

Itanium C++ ABI 2.9.5 (RTTI layout) and 5.1 (name mangling): the word before the vtable's address point is the type_info, whose
second word is the mangled name. Needs nothing from the file on disk where the target can read read-only data; in a core that
left such pages out, they come from the mapped file.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from .. import log
from ..errors import FaultError, GdbextError, LayoutError

if TYPE_CHECKING:
    from ..access.base import Target
    from ..access.model import Mapping

MAX_BASES = 64
_ABBREVIATIONS = {"St": "std", "Ss": "std::string", "Sa": "std::allocator"}


def _bytes(target: Target, address: int, size: int) -> bytes:
    try:
        return target.read(address, size)
    except FaultError as e:
        log.passed_over(e)
        module = target.module_at(address)
        if module is None:
            raise
        try:
            there = module.elf.at(address - module.bias, size)
        except (GdbextError, OSError) as e:
            log.passed_over(e)
            there = None
        if there is None:
            raise
        return there


def _string(target: Target, address: int, limit: int) -> str:
    for size in (64, limit):
        try:
            blob = _bytes(target, address, size)
        except FaultError as e:
            log.passed_over(e)
            if size == limit:
                raise
            blob = target.read_partial(address, size)
        end = blob.find(b"\0")
        if end >= 0:
            return blob[:end].decode("latin-1")
    raise LayoutError(f"no type name at {address:#x}")


def demangle(name: str) -> str | None:
    """ "N3c1010TensorImplE" -> "c10::TensorImpl"; template arguments become <…>. None when it is no class's name."""
    parts, i = [], 0
    nested = name.startswith("N")
    i = 1 if nested else 0
    while i < len(name):
        m = re.compile(r"(\d+)").match(name, i)
        if m:
            length = int(m.group(1))
            word = name[m.end() : m.end() + length]
            if len(word) != length or not length:
                return None
            parts.append("(anonymous namespace)" if word.startswith("_GLOBAL__N") else word)
            i = m.end() + length
        elif name[i : i + 2] in _ABBREVIATIONS and not parts:
            parts.append(_ABBREVIATIONS[name[i : i + 2]])
            i += 2
        elif name[i] == "I" and parts:  # arguments may nest anything: the rest is not worth a full demangler
            parts[-1] += "<…>"
            break
        elif name[i] == "E" and nested:
            break
        else:
            return None
    return "::".join(parts) or None


def class_hierarchy(target: Target, address: int) -> tuple[list[str], Mapping]:
    """-> ([class, its first base, that one's, …], Mapping of the vtable) of the polymorphic C++ object at `address`.

    Follows single inheritance, and the first base where there are several. `LayoutError` where no vtable of a mapped file is
    found: freed memory, or no such object.
    """
    vptr = target.u64(address)

    def read() -> tuple[list[str], Mapping]:
        mapping = target.mapping_at(vptr)
        if mapping is None or not mapping.path.startswith("/") or vptr % 8:
            raise LayoutError(
                f"no C++ object with a vtable at {address:#x} (its first word is {vptr:#x}): freed, or not an object"
            )
        try:
            top, info = struct.unpack("<qQ", _bytes(target, vptr - 16, 16))
            names = _names(target, info) if top == 0 else []
        except FaultError as e:
            log.passed_over(e)
            names = []
        if not names:
            raise LayoutError(f"the word at {address:#x} points into {mapping.path}, but not at a vtable with type information")
        return names, mapping

    return target.cached(("rtti", vptr), read)


def _names(target: Target, info: int) -> list[str]:
    found: list[str] = []
    seen: set[int] = set()
    while info and info not in seen and len(found) < MAX_BASES:
        seen.add(info)
        (kind, pointer) = struct.unpack("<QQ", _bytes(target, info, 16))
        name = demangle(_string(target, pointer & (1 << 63) - 1, 1024).lstrip("*"))  # the top bit marks names that are not unique
        if name is None:
            break
        found.append(name)
        if name.startswith("__cxxabiv1::"):
            break
        # The type_info's own vtable tells its kind, by the name of its class.
        (_, own) = struct.unpack("<QQ", _bytes(target, kind - 16, 16))
        kind_name = _string(target, struct.unpack("<Q", _bytes(target, own + 8, 8))[0] & (1 << 63) - 1, 256)
        if kind_name == "N10__cxxabiv120__si_class_type_infoE":
            (info,) = struct.unpack("<Q", _bytes(target, info + 16, 8))
        elif kind_name == "N10__cxxabiv121__vmi_class_type_infoE":
            (info,) = struct.unpack("<Q", _bytes(target, info + 24, 8))
        else:
            break
    return found
