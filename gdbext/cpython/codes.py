"""The code objects of a file's line or a function's name, and the offsets at which that line begins.

Each code object begins with the address of PyCode_Type. The whole private memory is searched for this word. So closures,
decorated functions and those of a reloaded module are found too, whatever refers to them. `control` sets its Python breakpoints
at the places found here.
"""

from __future__ import annotations

import re
import struct
from typing import Any, Iterable, Iterator, Sequence

from .. import log, package
from ..errors import FaultError, GdbextError, LayoutError, NotFoundError
from .frames import CO_OPTIMIZED, Code
from .runtime import Runtime

CHUNK = 1 << 24
NEIGHBOURS = 1 << 16
MAX_MAPPING = 1 << 32  # larger anonymous mappings hold tensors; they are left out, and said so
MAX_CODES = 1_000_000
MAX_DEPTH = 50
MAX_PLAIN_NAME = 256  # characters of a function's name that are read together with its neighbours
MAX_BYTECODE = 1 << 24


class BytecodeLocation:
    """Where a bytecode watchpoint is set: `code` (a `Code`), `offset` in bytes of its bytecode, `address` of that instruction's
    two bytes, `line`."""

    def __init__(self, code: Code, offset: int, line: int | None) -> None:
        self.code, self.offset, self.line = code, offset, line
        self.address = bytecode(code) + offset


def bytecode(code: Code) -> int:
    """The address of a code object's instructions as the interpreter runs them."""
    rt = code.rt
    if "code.co_code_adaptive" in rt.layout:
        return code.address + rt.layout["code.co_code_adaptive"]
    return rt.target.u64(code.address + rt.layout["code.co_code"]) + rt.layout["bytes.ob_sval"]


# ---- lines -----------------------------------------------------------------------------------------------------------
def runs(code: Code) -> list[tuple[int, int, Any]]:
    """`[(offset, line, position)]` of each place where a line begins, by offset. `position` tells copies of one statement from
    other parts of it; it is None where the version keeps no columns."""
    found, before = [], object()
    for start, _, line, position in code.rt.dialect.spans(code.table, code.first):
        if line != before and line is not None:
            found.append((start, line, position))
        before = line
    return found


def starts(code: Code, line: int) -> list[BytecodeLocation]:
    """`[BytecodeLocation]` where a line of this code object begins: its first instruction, and the copies that the compiler made
    of it."""
    own = [(start, position) for start, at, position in runs(code) if at == line]
    if not own:
        return []
    first, position = own[0]
    if code.flags & CO_OPTIMIZED and line == code.first and first <= _resume(code):
        return [entry(code)]  # the line of the `def` stands for the function
    unit = _unit(code, first)
    found = [first]
    for start, other in own[1:]:
        same = other == position and _unit(code, start)[1] == unit[1] if position is not None else _unit(code, start) == unit
        if same:
            found.append(start)
    return [BytecodeLocation(code, start, line) for start in found]


def _unit(code: Code, offset: int) -> bytes:
    return code.rt.target.read(bytecode(code) + offset, 2)


def _resume(code: Code) -> int:
    """The offset of the RESUME that a function begins with; -1 in versions without one."""
    key = "code._co_firsttraceable"
    return 2 * code.rt.target.i32(code.address + code.rt.layout[key]) if key in code.rt.layout else -1


def entry(code: Code) -> BytecodeLocation:
    """The `BytecodeLocation` where a function's own work begins: after RESUME, at the first line that is not the `def`'s."""
    spans = [s for s in code.rt.dialect.spans(code.table, code.first) if s[2] is not None]
    resume = _resume(code)
    if resume < 0:
        line = next((s[2] for s in spans if s[1] > s[0]), code.first)
        return BytecodeLocation(code, 0, line)
    head = next((s[2] for s in spans if s[0] <= resume < s[1]), code.first)
    later = [s for s in spans if s[0] > resume]
    if not later:
        raise LayoutError(f"{code.qualname} has no instruction after its first")
    start, _, line, _ = next((s for s in later if s[2] != head), later[0])
    return BytecodeLocation(code, start, line)


# ---- instructions ----------------------------------------------------------------------------------------------------
def opcodes(version: tuple[int, int]) -> dict[str, Any]:
    """The entry of layouts/opcodes.json (scripts/make-cpython-opcodes) for a minor; `LayoutError` where there is none."""
    known: dict[str, dict[str, Any]] = package.table("layouts/opcodes.json")
    name = "{}.{}".format(*version)
    if name not in known:
        raise LayoutError(
            f"the instructions of CPython {name} are not known here; add them with: scripts/make-cpython-opcodes python{name}"
        )
    return known[name]


def instructions(code: Code) -> list[tuple[int, int, int]]:
    """`[(offset, opcode, argument byte)]` as they are in memory now: specialised, without the cache entries between them."""
    rt = code.rt
    if "code.co_code_adaptive" in rt.layout:
        size = 2 * rt.target.u64(code.address + rt.layout["varobj.ob_size"])
    else:
        size = rt.object(rt.target.u64(code.address + rt.layout["code.co_code"])).len()
    if not 0 < size <= MAX_BYTECODE:
        raise LayoutError(f"the code object at {code.address:#x} claims {size} bytes of code")
    raw, caches, found, at = rt.target.read(bytecode(code), size), opcodes(rt.version)["caches"], [], 0
    while at < size - 1:
        found.append((at, raw[at], raw[at + 1]))
        at += 2 + 2 * caches.get(str(raw[at]), 0)
    return found


def brief_at(code: Code, offset: int) -> bool:
    """Whether the instruction at this offset only jumps, loads or compares. It then calls no C code that takes long, except on
    large objects and objects of extensions."""
    return code.rt.target.read(bytecode(code) + offset, 1)[0] in opcodes(code.rt.version)["brief"]


def returns(code: Code) -> list[tuple[BytecodeLocation, int | None]]:
    """`[(BytecodeLocation, index of the constant or None)]`: the instructions that leave a function with a value."""
    known = opcodes(code.rt.version)
    found: list[tuple[BytecodeLocation, int | None]] = []
    for at, opcode, argument in instructions(code):
        if opcode in known["return_value"]:
            found.append((BytecodeLocation(code, at, code.line(at)), None))
        elif opcode in known["return_const"]:
            found.append((BytecodeLocation(code, at, code.line(at)), argument))
    return found


# ---- all code objects ------------------------------------------------------------------------------------------------
class Found:
    """All code objects of a process.

    `by_file`: {co_filename: [(address, address of co_name)]}. `left_out`: why some may be missing. `compiled`: how many have code
    that CPython's JIT made, or traces of its second tier.
    """

    def __init__(self) -> None:
        self.compiled = 0
        self.by_file: dict[str, list[tuple[int, int]]] = {}
        self.left_out: list[str] = []


def every(rt: Runtime) -> Found:
    """`Found`, once per epoch."""
    return rt.target.cached(("code objects", rt.address), lambda: _every(rt))


def _every(rt: Runtime) -> Found:
    L, found = rt.layout, Found()
    by_name: dict[int, list[tuple[int, int]]] = {}
    name_at, title_at, size = L["code.co_filename"], L["code.co_name"], L["code.__size"]
    word = struct.Struct("<Q").unpack_from
    executors_at = L.get("code.co_executors", 0)
    for address, data, at in instances(rt, "PyCode_Type", found.left_out):
        if at + size > len(data):
            try:
                data, at = rt.target.read(address, size), 0
            except FaultError as e:
                log.passed_over(e)
                continue
        (file,), (title,) = word(data, at + name_at), word(data, at + title_at)
        by_name.setdefault(file, []).append((address, title))
        if executors_at and word(data, at + executors_at)[0]:
            found.compiled += _has_executors(rt, word(data, at + executors_at)[0])
    for pointer, entries in by_name.items():
        name = _string(rt, pointer)
        if name is not None:
            found.by_file.setdefault(name, []).extend(entries)
    return found


def _has_executors(rt: Runtime, array: int) -> bool:
    """Whether this address holds a `_PyExecutorArray` (Include/internal/pycore_optimizer.h): its sizes must fit. It may be empty
    again."""
    try:
        size, capacity = rt.target.u32(array), rt.target.u32(array + 4)
        return 0 < size <= capacity <= 256
    except FaultError as e:
        log.passed_over(e)
        return False


def jit_doubt(rt: Runtime) -> str:
    """Why the process may pass a place in the bytecode unseen: CPython's JIT (3.13 and later) is on. '' where it is not."""
    compiled = every(rt).compiled
    if not compiled and not jit_wanted(rt):
        return ""
    return (
        f"CPython's JIT is on here ({compiled} functions had compiled traces so far): what runs in a trace reads no bytecode, "
        "so passes of hot code are missed, without a word each; start the program with PYTHON_JIT=0, or llm-inject a debugger, "
        "whose tracing ends the traces (pytasks, pybt, pylocals and llm-record see what runs in them)"
    )


def jit_wanted(rt: Runtime) -> bool:
    """Whether the program was started with a JIT and its CPython has one."""
    try:
        return rt.minor.jit and rt.target.environ().get("PYTHON_JIT", "0") not in ("0", "") and _knows_jit(rt)
    except GdbextError as e:
        log.passed_over(e)
        return False


def _knows_jit(rt: Runtime) -> bool:
    return rt.library.elf.data.find(b"PYTHON_JIT\0") >= 0


def _string(rt: Runtime, pointer: int) -> str | None:
    try:
        if rt.object(pointer).type.builtin_name != "str":
            return None
        return rt.object(pointer).string(4096)
    except GdbextError as e:
        log.passed_over(e)
        return None


def instances(rt: Runtime, symbol: str, left_out: list[str]) -> Iterator[tuple[int, bytes, int]]:
    """Yields `(address, data, offset in data)` of each place that looks like an object of the static type `symbol`."""
    kind = rt.target.symbol(symbol, [rt.library])
    pattern, shift, count = struct.pack("<Q", kind), rt.layout["object.ob_type"], 0
    core = pattern.strip(b"\0")  # its zero bytes would slow the search down several times
    search, before = re.compile(re.escape(core)).finditer, pattern.index(core)
    for start, data in _private_memory(rt, shift, left_out):
        for match in search(data):
            at = match.start() - before
            if at % 8 == 0 and at >= shift and data[at : at + 8] == pattern:
                yield start + at - shift, data, at - shift
                count += 1
                if count > MAX_CODES:
                    left_out.append(f"more than {MAX_CODES} code objects")
                    return


def _private_memory(rt: Runtime, overlap: int, left_out: list[str]) -> Iterator[tuple[int, bytes]]:
    """Yields `(start, data)` of the memory in which Python's objects can lie, in pieces that overlap by `overlap` bytes."""
    for m in rt.target.mappings():
        if (
            m.perms[:2] != "rw"
            or m.perms[3:4] == "s"
            or (m.path.startswith("/") and m.path != rt.library.path)
            or m.path.startswith("[v")
        ):
            continue
        if m.end - m.start > MAX_MAPPING:
            left_out.append(f"{m.end - m.start >> 30} GiB at {m.start:#x} were not searched for code")
            continue
        parts = [(m.start, m.end)] if m.path.startswith("/") else rt.target.populated(m.start, m.end)
        for start, size in ((at, min(CHUNK, end - at)) for begin, end in parts for at in range(begin, end, CHUNK)):
            if start > m.start:  # with the head of an object that the cut went through
                start, size = start - overlap, size + overlap
            yield start, rt.target.read_partial(start, size)


def can_name(rt: Runtime, text: str) -> bool:
    """Whether some str of the process ends in `text`. False means: no code object has this name or lies in a file of this name.
    That costs half of `every`. Always True for text that is not ASCII."""
    wanted = text.encode() + b"\0"
    return not text.isascii() or any(wanted in data for _, data in _private_memory(rt, len(wanted), []))


def _codes(rt: Runtime, entries: Iterable[tuple[int, int]], name: str | None = None) -> list[Code]:
    """`[Code]` of entries of `Found.by_file`; with `name`, only those with this `co_name`."""
    found = []
    named = None if name is None else _equal(rt, {title for _, title in entries}, name)
    for address, title in entries:
        if named is not None and title not in named:
            continue
        try:
            code = rt.code(address)
            if 0 <= code.first < 1 << 24 and rt.target.u64(address) >> 62 != 3:
                found.append(code)
        except (GdbextError, UnicodeError) as e:
            log.passed_over(e)
            continue  # freed since, or no code object at all
    return found


def _equal(rt: Runtime, pointers: Iterable[int], text: str) -> set[int]:
    """Those of many pointers that point to a str equal to `text`. Neighbours are read together: names lie by the thousand in few
    places."""
    length, found, start, data = struct.pack("<Q", len(text)), set(), 0, b""
    for pointer in sorted(pointers):
        at = pointer + rt.layout["ascii.length"] - start
        if at + 8 > len(data):
            start, at = pointer, rt.layout["ascii.length"]
            data = rt.target.read_partial(start, NEIGHBOURS)
        if data[at : at + 8] == length and rt.object(pointer).equals(text):
            found.add(pointer)
    return found


# ---- from what the user types ----------------------------------------------------------------------------------------
def same_file(wanted: str, path: str) -> bool:
    """Whether the file that the user names is this `co_filename`: all of it, or its last parts."""
    return path == wanted or path.endswith("/" + wanted.lstrip("./"))


def at_line(rt: Runtime, file: str, line: int, codes: Sequence[Code] | None = None) -> list[BytecodeLocation]:
    """`[BytecodeLocation]` of FILE:LINE; [] where no code of that file is there (yet). `codes`: look among these `Code`s only.

    `NotFoundError` where the file is there and the line has no code."""
    if codes is None:
        paths = [p for p in every(rt).by_file if same_file(file, p)]
        if len(paths) > 1:
            more = f" and {len(paths) - 4} more" if len(paths) > 4 else ""
            raise GdbextError(f"{file} is {', '.join(sorted(paths)[:4])}{more}: write more of the path")
        codes = _codes(rt, every(rt).by_file[paths[0]]) if paths else []
    else:
        codes = [c for c in codes if same_file(file, c.file)]
    found = [p for c in codes for p in starts(c, line)]
    if codes and not found:
        lines = sorted({at for c in codes for _, at, _ in runs(c)})
        after = next((at for at in lines if at > line), None)
        hint = f"; the next line with code is {after}" if after else f"; the last line with code is {lines[-1]}" if lines else ""
        raise NotFoundError(f"line {line} of {codes[0].file} has no code{hint} (code that ran once, a module's own, is gone)")
    return _without_copies(found)


def _without_copies(places: list[BytecodeLocation]) -> list[BytecodeLocation]:
    seen: dict[int, BytecodeLocation] = {}
    for p in places:
        seen.setdefault(p.address, p)
    return list(seen.values())


def plain(qualname: str) -> str:
    """A qualified name without its `<locals>` parts."""
    return qualname.replace(".<locals>", "")


def at_function(rt: Runtime, module: str, name: str, codes: Sequence[tuple[Code, str]] | None = None) -> list[BytecodeLocation]:
    """`[BytecodeLocation]` of a function's entry, by qualified name (`Scheduler.schedule`, `outer.inner`), in `module` ("" =
    any)."""
    last = name.rpartition(".")[2]
    if codes is not None:  # `[(Code, qualified name)]` of a module that is being loaded
        found = [c for c, own in codes if own == name or own.endswith("." + name) and "." not in name]
        return [entry(c) for c in found]
    files = every(rt).by_file
    if module:
        path = _file_of(rt, module)
        if path is None:
            return []
        files = {path: files.get(path, [])}
    if "code.co_qualname" in rt.layout:
        return _without_copies(
            [entry(c) for c in _codes(rt, [e for f in files.values() for e in f], last) if plain(c.qualname) == name]
        )
    return _without_copies([entry(c) for c in _by_functions(rt, files, name, last)])


def _entries(rt: Runtime, module: str) -> list[tuple[int, int]]:
    """(code object, its name's address) of all code, or of a module's file."""
    files = every(rt).by_file
    if module:
        path = _file_of(rt, module)
        return files.get(path, []) if path is not None else []
    return [entry for entries in files.values() for entry in entries]


def names(rt: Runtime, module: str = "") -> dict[str, set[int]]:
    """{name (co_name): addresses of the texts that say it} of all functions that are loaded, or of those in a module's file."""
    found: dict[str, set[int]] = {}
    for pointer, text in _texts(rt, {title for _, title in _entries(rt, module)}):
        if not text.startswith("<"):
            found.setdefault(text, set()).add(pointer)
    return found


def _texts(rt: Runtime, pointers: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yields `(pointer, text)` for those of many pointers that point to a str. Neighbours are read together. Long text and text
    that is not ASCII are read one by one."""
    L, start, data = rt.layout, 0, b""
    kind_at, length_at, state_at, head = L["object.ob_type"], L["ascii.length"], L["ascii.state"], L["ascii.__size"]
    str_type = rt.target.symbol("PyUnicode_Type", [rt.library])
    word, half, bits = struct.Struct("<Q").unpack_from, struct.Struct("<I").unpack_from, rt.dialect.string_bits
    for pointer in sorted(pointers):
        at = pointer - start
        if at + head + MAX_PLAIN_NAME > len(data):
            start, at = pointer, 0
            data = rt.target.read_partial(start, NEIGHBOURS)
        if at + head <= len(data) and word(data, at + kind_at)[0] == str_type:
            (length,) = word(data, at + length_at)
            text = data[at + head : at + head + length]
            if length <= MAX_PLAIN_NAME and len(text) == length and bits(half(data, at + state_at)[0]) == (1, True, True):
                yield pointer, text.decode("latin-1")
                continue
        slow = _string(rt, pointer)
        if slow is not None:
            yield pointer, slow


def qualified(rt: Runtime, module: str, titles: set[int]) -> list[str]:
    """The qualified names of the functions whose names lie at `titles` (of `names`); before 3.11 the names alone."""
    return [plain(code.qualname) for code in _codes(rt, [e for e in _entries(rt, module) if e[1] in titles])]


def _by_functions(rt: Runtime, files: dict[str, list[tuple[int, int]]], name: str, last: str) -> list[Code]:
    """3.9, 3.10: only functions know qualified names."""
    wanted = {c.address: c for c in _codes(rt, [e for f in files.values() for e in f], last)}
    if "." not in name and len({c.file for c in wanted.values()}) == 1 and len({c.first for c in wanted.values()}) == 1:
        return list(wanted.values())
    found, L = {}, rt.layout
    for address, _, _ in instances(rt, "PyFunction_Type", []):
        try:
            code = rt.target.u64(address + L["func.func_code"])
            if code in wanted and plain(rt.object(rt.target.u64(address + L["func.func_qualname"])).string(4096)) == name:
                found[code] = wanted[code]
        except GdbextError as e:
            log.passed_over(e)
            continue
    return list(found.values())


def _file_of(rt: Runtime, module: str) -> str | None:
    contents = rt.module(module)
    if contents is None:
        return None
    try:
        path: str = contents.item("__file__").string(4096)
        return path
    except GdbextError as e:
        log.passed_over(e)
        return None


def nested(code: Code) -> list[tuple[Code, str]]:
    """`[(Code, qualified name)]` of a code object and all that lie in it, for a module that is about to run."""
    found: list[tuple[Code, str]] = []
    waiting = [(code, "", 0)]
    while waiting and len(found) < MAX_CODES:
        here, name, depth = waiting.pop()
        found.append((here, name))
        if depth >= MAX_DEPTH:
            continue
        consts = code.rt.object(code.rt.target.u64(here.address + code.rt.layout["code.co_consts"]))
        for member in consts.elements(100_000):
            if member.type.builtin_name == "code":
                inner = code.rt.code(member.address)
                waiting.append((inner, (name + "." if name else "") + inner.name, depth + 1))
    return found
