"""The specs of all engines, and questions of other rooms to all engines at once. The list itself is `engines.FOLDERS`."""

from __future__ import annotations

import importlib

from .. import log
from ..errors import GdbextError
from . import FOLDERS
from .spec import SCHEDULERS, joined, named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, Sequence

    from ..cpython.runtime import Runtime
    from .spec import EngineSpec

FOLDER = __name__.rpartition(".")[0]  # not __package__: zipimport before Python 3.10 sets it later
ENGINES: tuple[EngineSpec, ...] = tuple(importlib.import_module(f"{FOLDER}.{folder}").ENGINE for folder in FOLDERS)
SPECS: dict[str, EngineSpec] = {spec.name: spec for spec in ENGINES}


def spec_of(name: str | None) -> EngineSpec | None:
    """The spec of the engine that `Rank.engine` names; None for '' and for other names."""
    return SPECS.get(name or "")


def spec_of_runtime(runtime: Runtime) -> EngineSpec | None:
    """The spec of the engine whose process it is, None for another program's."""
    return next(iter(loaded_in(runtime)), None)


def loaded_in(rt: Runtime, among: Sequence[EngineSpec] = ENGINES) -> list[EngineSpec]:
    """Those of some engines whose package the process has imported. Where there are several, the one whose scheduler it has comes
    first: an engine may import parts of another, and a folder named like one is a package too. Then those whose package has a
    file of its own."""
    found = [spec for spec in among if rt.has_module(spec.packages)]
    if len(found) < 2:
        return found
    return sorted(found, key=lambda spec: (not _schedules(rt, spec), not any(_has_file(rt, name) for name in spec.packages)))


def _schedules(rt: Runtime, spec: EngineSpec) -> bool:
    """Whether a frame holds a scheduler of the engine's own class, or it runs a function of the engine's own files."""
    reader: Any = spec.kv if spec.kv_module and not spec.kv_classes else None
    try:
        found = reader.find_scheduler(rt) if reader is not None else None
        if found is not None and found.type.module.partition(".")[0] in spec.packages:
            return True
        return any(spec.owns(frame.file) for frame in rt.frames(rt.threads()[0]))
    except (GdbextError, IndexError) as e:
        log.passed_over(e)
        return False


def _has_file(rt: Runtime, package: str) -> bool:
    try:
        module = rt.module(package)
        return module is not None and not module.item("__file__").is_none()
    except GdbextError as e:
        log.passed_over(e)
        return False


def packages() -> tuple[str, ...]:
    """The names of all engines' Python packages."""
    return tuple(name for spec in ENGINES for name in spec.packages)


def reporting() -> frozenset[tuple[str, str]]:
    """(end of a file's path, function) of all engines that catch every exception only to report it."""
    return frozenset(place for spec in ENGINES for place in spec.reporting)


def sensitive_names() -> frozenset[str]:
    """The names under which any engine keeps users' prompts and tokens."""
    return frozenset().union(*(spec.sensitive for spec in ENGINES))


# ---- places of processes of any engine -----------------------------------------------------------------------------------
def starts_in(function: str) -> bool:
    """Whether, in any engine, a process in `function` is starting up."""
    return named(joined(spec.starting for spec in ENGINES), function)


def waits_for_answer_in(function: str) -> bool:
    """Whether, in any engine, a process in `function` waits for the answer of another process."""
    return named(joined(spec.answering for spec in ENGINES), function)


def collective_files() -> tuple[str, ...]:
    """Ends of the paths of all engines' files whose functions communicate with other ranks."""
    return tuple(dict.fromkeys(name for spec in ENGINES for name in spec.collective_files))


def schedules_nothing_in(function: str) -> bool:
    """Whether a scheduler's main thread waits for work in a function."""
    return any(spec.rests_in(role, function) for spec in ENGINES for role in SCHEDULERS)


def spins_in(function: str, file: str) -> bool:
    """Whether, in any engine, a process in this function polls in a loop until another rank has work for it."""
    return any(function == name and file.endswith(end) for spec in ENGINES for name, end in spec.spins)


def owner_of(file: str) -> EngineSpec | None:
    """The engine that a source file belongs to, None for another program's."""
    return next((spec for spec in ENGINES if spec.owns(file)), None)


# ---- KV caches -----------------------------------------------------------------------------------------------------------
def with_kv() -> list[EngineSpec]:
    """The engines whose KV cache is read from Python objects."""
    return [spec for spec in ENGINES if spec.kv_module and not spec.kv_classes]


def with_native_kv() -> list[EngineSpec]:
    """The engines whose KV cache is read from C++ objects, by debug information."""
    return [spec for spec in ENGINES if spec.kv_module and spec.kv_classes]


def kv_releases() -> str:
    """The releases whose KV cache is read, for help texts and errors."""
    told = [spec.kv_releases + " (unproven)" * spec.unproven for spec in with_kv()]
    for mark in (False, True):
        native = " and ".join(spec.display for spec in with_native_kv() if spec.unproven == mark)
        told += [f"{native} by debug information" + " (unproven)" * mark] if native else []
    return ", ".join(told)


def unproven(names: Collection[str]) -> list[str]:
    """For people: those of some engines whose readers were never tried on the engine itself."""
    return [spec.display for spec in ENGINES if spec.unproven and {spec.name, spec.display} & set(names)]


def displayed() -> str:
    """The engines' names for people: `vLLM, SGLang, … and LMDeploy`."""
    names = [spec.display for spec in ENGINES]
    return ", ".join(names[:-1]) + " and " + names[-1]


def kernels_of(package: str) -> str:
    """The catalogue's word for the engine that a Python package belongs to; '' for another package."""
    return next((spec.kernels for spec in ENGINES if package in spec.packages), "")
