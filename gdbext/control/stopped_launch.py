"""The kernel launch that the selected thread stands at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import GdbextError, NotFoundError
from ..kernels import launch, triton
from .kernel_breakpoints import breakpoints, last_stop
from .registers import dwarf_parameters, vector_register

if TYPE_CHECKING:
    from ..access.base import Target
    from ..cpython.runtime import Runtime
    from ..kernels.launch import Launch


def launch_here(target: Target, registers: dict[str, int], rt: Runtime | None) -> Launch:
    """The `Launch` of the thread with these registers; `NotFoundError` where it stands at none. `rt`: for what Triton
    compiled."""
    entry = launch.entry_at(target, registers["rip" if target.arch == "x86-64" else "pc"])
    function = launch.function_of(target, entry, registers) if entry else 0
    known, signature = last_stop(), None
    hosts = {address: s for b in breakpoints() for address, s in b.hosts.items()}

    def parameters_of(signature, function):
        return own.parameters if own is not None else dwarf_parameters(signature, function, hosts)

    if known is not None and known.function == function:
        signature = known.signature
    own = _by_triton(rt, function) if rt is not None and launch.is_driver(entry) else None
    if own is not None:
        signature = own.signature
    found = launch.launch_at(target, registers, vector_register(target.arch), parameters_of, signature)
    if found is None:
        raise NotFoundError("this thread stands at no launch: llm-break paged-attention, continue, and llm-launch where it stops")
    if own is not None:
        found.counted = own.whole
    return found


def _by_triton(rt: Runtime, function: int) -> triton.Compiled | None:
    try:
        return triton.compiled(rt).get(function)
    except GdbextError:
        return None  # its objects cannot be read now
