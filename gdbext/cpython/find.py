"""Where the CPythons of a process are, initialised or not, and which release each is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator

from .. import log
from ..access.model import PAGE, Module
from ..errors import FaultError, GdbextError, LayoutError, NotFoundError
from . import layout as layouts

if TYPE_CHECKING:
    from ..access.base import Target


def _python_modules(target: Target) -> list[tuple[int, Module]]:
    """[(rank, mapped file that may hold CPython)], the likeliest first: libpython (0), python executables (1), all other files
    (2). All others count because programs are renamed, and may have libpython built in."""

    def rank(module: Module) -> int:
        return (
            0
            if re.match(r"libpython3\.\d+", module.name)
            else 1
            if re.match(r"python(3(\.\d+)?)?t?( \(deleted\))?$", module.name)
            else 2
        )

    return sorted(((rank(m), m) for m in target.modules()), key=lambda found: (found[0], ".so" in found[1].name))


def places(target: Target) -> list[tuple[int, Module]]:
    """-> [(address of _PyRuntime, its Module)], the likeliest first.

    A process may have several: a program with CPython inside that has also loaded a libpython, a host of plugins. Once the
    program or a file with Python's name has one, the other libraries are not searched: they are large.
    """
    tried: list[str] = []
    found: list[tuple[int, Module]] = []
    for rank, module in _python_modules(target):
        if found and rank > 1 and ".so" in module.name:
            break
        try:
            address = module.symbol("_PyRuntime")
            if address is None and ".PyRuntime" in module.elf.sections:
                address = module.bias + module.elf.sections[".PyRuntime"][0]
        except (NotFoundError, OSError) as e:
            log.passed_over(e, f"{module.name} as a CPython")
            tried.append(str(e))
            continue
        if address is not None:
            found.append((address, module))
        else:
            tried.append(module.name)
    found = found or _by_cookie(target) or _by_shape(target)
    if not found:
        raise NotFoundError(f"{target.describe()} {_why_none(target, tried)}")
    return found


def _by_cookie(target: Target) -> list[tuple[int, Module]]:
    """As `places`, without a file. The state of CPython 3.13 and later begins with its debug offsets (Include/internal/
    pycore_debug_offsets.h). So a core holds them even where the process's files are missing here."""
    found: list[tuple[int, Module]] = []
    for mapping in target.mappings():
        size = mapping.end - mapping.start
        if "w" not in mapping.perms or not 0 < size <= MAX_DATA or mapping.path.startswith("["):
            continue
        data = target.read_partial(mapping.start, size)
        at = data.find(layouts.DEBUG_COOKIE)
        while at >= 0:
            number = int.from_bytes(data[at + 8 : at + 16], "little")
            if (mapping.start + at) % 8 == 0 and number >> 24 == 3 and number >> 16 & 255 >= 13:
                here = target.module_at(mapping.start + at)
                path = mapping.path or "CPython, of no file"
                found.append((mapping.start + at, here or Module(path, "", mapping.start, mapping.end)))
            at = data.find(layouts.DEBUG_COOKIE, at + 1)
    return found


def _by_shape(target: Target) -> list[tuple[int, Module]]:
    """As `places`, for a CPython up to 3.10 that is linked into a stripped program: nothing names the place of its state there.

    Among the program's variables the state has a pointer to the newest interpreter and one to the main interpreter
    (Include/internal/pycore_runtime.h). An interpreter's first thread points back at it."""
    for _, module in _python_modules(target):
        written = _written_version(target, module)
        if written is None:
            continue
        try:
            layout = layouts.load((3, int(written.group(1))), arch=target.arch)
        except LayoutError as e:
            log.passed_over(e)
            continue
        head, main = layout["runtime.interpreters.head"], layout["runtime.interpreters.main"]
        found = []
        for start, data in variables(target, module):
            words = memoryview(data)[: len(data) & ~7].cast("Q")
            for i in range(head // 8, len(words) - (main - head) // 8):
                newest, first = words[i], words[i + (main - head) // 8]
                if _is_interpreter(target, layout, newest) and (first == newest or _is_interpreter(target, layout, first)):
                    found.append((start + 8 * i - head, module))
        if found:
            return found
    return []


def _is_interpreter(target: Target, layout: layouts.Layout, at: int) -> bool:
    """Whether what may be an interpreter's state has a thread that points back at it."""
    if at < PAGE or at & 7 or at >> 47:
        return False

    def look() -> bool:
        key = "interp.threads.head" if "interp.threads.head" in layout else "interp.tstate_head"
        thread = int.from_bytes(target.read_partial(at + layout[key], 8), "little")
        back = target.read_partial(thread + layout["tstate.interp"], 8) if PAGE <= thread < 1 << 47 else b""
        return back == at.to_bytes(8, "little")

    return target.cached(("an interpreter", at), look)


_OLDER = re.compile(r"(?:lib)?python(2\.\d+|3\.[0-6])(?!\d)").match


def _has(module: Module, symbol: str) -> bool:
    try:
        return module.symbol(symbol) is not None
    except (NotFoundError, OSError) as e:
        log.passed_over(e)
        return False


def _why_none(target: Target, tried: list[str]) -> str:
    """A description of a process in which no CPython is found. `tried`: the files that were searched, or why they could not
    be."""
    modules = target.modules()
    if any(target.read_partial(m.base, 5) == b"\x7fELF\x01" for m in modules):
        return "is a 32-bit process: 64-bit ones are read"
    for module in modules:
        if re.match(r"(lib)?pypy", module.name) and _has(module, "rpython_startup_code"):
            return f"runs PyPy ({module.name}): only CPython's objects can be read"
        older = _OLDER(module.name)
        if older:
            known = layouts.known()
            return f"runs CPython {older.group(1)}: {known[0]} to {known[-1]} are read"
    if not modules and target.cut_short:
        return "is cut short: what it would say of the files it runs is missing"
    why = f" (looked in {', '.join(tried[:4])}{', …' if len(tried) > 4 else ''})" if tried else ""
    if target.cut_short:
        why += "; the core is cut short"
    elif not modules:
        why = " (it says of no file that it was mapped, and the loader's list of them cannot be read)"
    return f"runs no CPython that can be found{why}"


_OF_PATH = re.compile(r"python3\.(\d+)").search
MAX_DATA = 64 << 20  # bytes of a file's own variables


def variables(target: Target, module: Module) -> Iterator[tuple[int, bytes]]:
    """Yields (address, bytes) of the mappings that hold a file's own data, zeros for what cannot be read of them."""
    for mapping in target.mappings():
        near = module.base <= mapping.start <= module.end and "x" not in mapping.perms
        size = mapping.end - mapping.start
        if near and (mapping.path == module.path or not mapping.path) and size <= MAX_DATA:
            yield mapping.start, target.read_filled(mapping.start, size)


def _written_version(target: Target, module: Module) -> re.Match[bytes] | None:
    """`sys.version` as Py_GetVersion wrote it into its own buffer. For a CPython that is linked into a stripped program."""
    written = re.compile(rb"\b3\.(\d+)\.\d+\S* \([^()\0]{1,80}\)\s{1,2}\[")
    return next(filter(None, (written.search(data) for _, data in variables(target, module))), None)


def version(target: Target, runtime: int, module: Module) -> tuple[tuple[int, int], bool]:
    """-> ((major, minor), free_threaded): from the debug offsets, Py_Version in the file, else the file's name."""
    try:
        head = target.read(runtime, 24)
    except FaultError:
        raise GdbextError(
            f"{target.describe()}: its Python's state at {runtime:#x} cannot be read"
            + ("" if target.is_live else ": the core is cut or trimmed")
        ) from None
    if head[:8] == layouts.DEBUG_COOKIE:
        number = int.from_bytes(head[8:16], "little")
        version = number >> 24 & 255, number >> 16 & 255
        if version[0] == 3 and version[1] >= 13:
            return version, bool(int.from_bytes(head[16:24], "little"))
    value = module.elf.symbol("Py_Version")
    raw = module.elf.at(value, 8) if value else None
    if raw:
        number = int.from_bytes(raw, "little")
        if number >> 24 & 255 == 3:
            return (3, number >> 16 & 255), False
    by_name = re.search(r"python3\.(\d+)", module.name)
    found = by_name or _written_version(target, module) or next(filter(None, (_OF_PATH(m.path) for m in target.modules())), None)
    if found:
        return (3, int(found.group(1))), False
    raise LayoutError(f"{target.describe()}: cannot tell which Python {module.path} is")
