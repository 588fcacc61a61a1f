"""The C++ class of an object, from its vtable's type information: no symbol table, no DWARF.

Itanium C++ ABI 2.9.5 (RTTI layout) and 5.1 (name mangling): the word before the vtable's address point is the type_info, whose
second word is the mangled name. Needs nothing from the file on disk where the target can read read-only data; in a core that
left such pages out, they come from the mapped file.
"""

import re
import struct

from ..errors import FaultError, GdbextError, LayoutError

_ABBREVIATIONS = {"St": "std", "Ss": "std::string", "Sa": "std::allocator"}


def _bytes(target, address, size):
    try:
        return target.read(address, size)
    except FaultError:
        module = target.module_at(address)
        if module is None:
            raise
        try:
            blob = module.elf.at(address - module.bias, size)
        except (GdbextError, OSError):
            blob = None
        if blob is None:
            raise
        return blob


def _string(target, address, limit):
    for size in (64, limit):
        try:
            blob = _bytes(target, address, size)
        except FaultError:
            if size == limit:
                raise
            blob = target.read_partial(address, size)
        end = blob.find(b"\0")
        if end >= 0:
            return blob[:end].decode("latin-1")
    raise LayoutError(f"no type name at {address:#x}")


def demangle(name):
    """"N3c1010TensorImplE" -> "c10::TensorImpl"; template arguments become <…>. None when it is no class's name."""
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
        elif name[i] == "I" and parts:  # arguments may nest anything: what follows is not worth a full demangler
            parts[-1] += "<…>"
            break
        elif name[i] == "E" and nested:
            break
        else:
            return None
    return "::".join(parts) or None


def class_of(target, address):
    """-> (class name, Mapping of its vtable) of the polymorphic C++ object at `address`.

    `LayoutError` when no vtable of a mapped file stands there: freed memory, or no such object.
    """
    vptr = target.u64(address)
    mapping = target.mapping_at(vptr)
    if mapping is None or not mapping.path.startswith("/") or vptr % 8:
        raise LayoutError(f"no C++ object with a vtable at {address:#x} (its first word is {vptr:#x}): freed, or not an object")
    try:
        top, info = struct.unpack("<qQ", _bytes(target, vptr - 16, 16))
        (pointer,) = struct.unpack("<Q", _bytes(target, info + 8, 8))
        text = _string(target, pointer & (1 << 63) - 1, 1024)  # the top bit marks names that are not unique (AArch64)
    except FaultError:
        raise LayoutError(f"the word at {address:#x} points into {mapping.path}, but not at a vtable with type information") from None
    name = demangle(text.lstrip("*")) if top == 0 else None
    if name is None:
        raise LayoutError(f"the word at {address:#x} points into {mapping.path}, but not at a vtable")
    return name, mapping
