"""The places where each engine schedules, finishes and samples, for `llm-break request|step|oom|nan`. They are in each engine's
spec."""

from __future__ import annotations

from ..cpython.runtime import Runtime
from . import registry
from .spec import Presets


def names() -> tuple[str, ...]:
    """The engines whose places are known."""
    return tuple(spec.name for spec in registry.ENGINES if spec.presets)


def of_process(rt: Runtime) -> tuple[str | None, Presets | None]:
    """(engine, its presets) of a process by the modules it has imported; (None, None) for another."""
    spec = next((one for one in registry.loaded_in(rt) if one.presets), None)
    return (spec.name, spec.presets) if spec is not None else (None, None)
