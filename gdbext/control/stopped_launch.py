"""The kernel launch at which the selected thread is stopped, or that the GPU's focus is in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence

from .. import log
from ..cpython.runtime import Runtime
from ..errors import GdbextError, NotFoundError
from ..kernels import launch, parameters, signatures, triton
from ..kernels.launch import Launch
from ..kernels.parameters import Parameter
from .kernel_breakpoints import breakpoints, last_stop
from .registers import dwarf_parameters, vector_register

if TYPE_CHECKING:
    from ..access.base import Target
    from .cudagdb import CudaGdb


def launch_here(target: Target, registers: dict[str, int], rt: Runtime | None) -> Launch:
    """The `Launch` of the thread with these registers; `NotFoundError` where it is at none. `rt`: for kernels that Triton
    compiled."""
    entry = launch.entry_at(target, registers["rip" if target.arch == "x86-64" else "pc"])
    function = launch.function_of(target, entry, registers) if entry else 0
    known, signature = last_stop(), None
    hosts = {address: s for b in breakpoints() for address, s in b.hosts.items()}

    def parameters_of(signature: signatures.Signature, function: int) -> Sequence[Parameter] | None:
        return own.parameters if own is not None else dwarf_parameters(signature, function, hosts)

    if known is not None and known.function == function:
        signature = known.signature
    own = _by_triton(rt, function) if rt is not None and launch.is_driver(entry) else None
    if own is not None:
        signature = own.signature
    found = launch.launch_at(target, registers, vector_register(target.arch), parameters_of, signature)
    if found is None:
        raise NotFoundError("this thread is not at a launch: llm-break paged-attention, continue, and llm-launch where it stops")
    if own is not None:
        found.counted = own.whole
    return found


def launch_on_device(device: CudaGdb, rt: Runtime | None) -> Launch:
    """In cuda-gdb: the `Launch` of the kernel in focus, with its arguments from its parameter memory. Their types are Triton's
    where Triton compiled the kernel, else the signature's, as far as it gives their sizes. `NotFoundError` without a focus."""
    kernel = next((k for k in device.kernels() if k.current), None)
    if kernel is None:
        raise NotFoundError("no kernel is in focus: llm-focus, or cuda kernel N (info cuda kernels lists them)")
    found = launch.Launch("", 0, signatures.parse(kernel.name))
    found.grid, found.block = kernel.grid, kernel.block
    own = [c for c in triton.compiled(rt).values() if c.name == found.base] if rt is not None else []
    shapes = {tuple(c.parameters) for c in own}
    if len(shapes) > 1:
        found.counted = False
        found.problems.append(
            f"Triton has compiled {found.base} with {len(shapes)} different lists of arguments: which one runs is not known"
        )
        return found
    plain = [("", kind, None) for kind in (found.signature.parameters if found.signature else None) or ()]
    wanted = list(shapes.pop()) if shapes else plain
    try:
        found.arguments = parameters.arguments(wanted, parameters.read(device)) if wanted else []
    except GdbextError as e:
        found.problems.append(f"its parameter memory cannot be read: {e}")
    found.counted = bool(wanted) and len(found.arguments) == len(wanted) and all(c.whole for c in own)
    return found


def _by_triton(rt: Runtime, function: int) -> triton.Compiled | None:
    try:
        return triton.compiled(rt).get(function)
    except GdbextError as e:
        log.passed_over(e)
        return None  # its objects cannot be read at this moment
