"""Names under which engines keep users' prompts and tokens. What stands under them is shown only with -show-content."""

from __future__ import annotations

from . import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import FrozenSet

    from ..cpython.runtime import Runtime


def names_for(rt: Runtime) -> FrozenSet[str]:
    """The sensitive names of a process: those of all engines in a process of an engine, none elsewhere."""
    return registry.sensitive_names() if rt.has_module(registry.packages()) else frozenset()
