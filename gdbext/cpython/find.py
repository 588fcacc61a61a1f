"""Where the CPythons of a process are, initialised or not, and which release each is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .. import log
from ..errors import FaultError, GdbextError, LayoutError, NotFoundError
from . import layout as layouts

if TYPE_CHECKING:
    from ..access.base import Target
    from ..access.model import Module


def _python_modules(target: Target) -> list[tuple[int, Module]]:
    """Mapped files that may hold CPython with their ranks, the likeliest first: libpython (0), then python executables (1), then
    programs, whatever their names, and every other file (2): programs are renamed, and libpython is built into them."""

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
    """-> [(address of _PyRuntime, its Module)], the likeliest first. A process may have several: a program with CPython inside
    that has loaded a libpython too, a host of plugins. Where a file that is named as Python's, or the program, has one, other
    libraries are not looked through: they are large."""
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
    if not found:
        why = f" (looked in {', '.join(tried[:4])}{', …' if len(tried) > 4 else ''})" if tried else ""
        raise NotFoundError(f"{target.describe()} runs no CPython that can be found{why}")
    return found


_OF_PATH = re.compile(r"python3\.(\d+)").search
MAX_DATA = 64 << 20  # bytes of a file's own variables


def _written_version(target: Target, module: Module) -> re.Match[bytes] | None:
    """`sys.version` as Py_GetVersion has written it into its own buffer: of a CPython that is linked into a stripped program."""
    for mapping in target.mappings():
        near = module.base <= mapping.start <= module.end and "x" not in mapping.perms
        if near and (mapping.path == module.path or not mapping.path) and mapping.end - mapping.start <= MAX_DATA:
            try:
                data = target.read(mapping.start, mapping.end - mapping.start)
                found = re.search(rb"\b3\.(\d+)\.\d+\S* \([^()\0]{1,80}\)\s{1,2}\[", data)
            except FaultError as e:
                log.passed_over(e)
                continue
            if found:
                return found
    return None


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
