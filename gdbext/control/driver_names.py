"""Names of the functions for which the CUDA or HIP driver hands out opaque handles.

A handle does not contain its name. Internal breakpoints on the functions of `_CALLS` learn it, where a function is registered or
requested by name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Callable

from .. import log
from ..access.unwind import ARGUMENTS
from ..errors import FaultError, NotFoundError
from ..kernels import catalogue, launch
from .launch_breakpoints import InternalBreakpoint
from .registers import selected_tid

if TYPE_CHECKING:
    from .kernel_breakpoints import KernelBreakpoint

handle_names: dict[tuple[int, int], str] = {}  # (pid, handle) -> name, of functions that were handed out since we watch


class DriverNames:
    """The internal breakpoints with which one `KernelBreakpoint` learns names. `found(address, name)` is called for each launch
    function of the driver that a runtime requests: those may differ from the ones that have symbols."""

    def __init__(self, owner: KernelBreakpoint, found: Callable[[int, str], None]) -> None:
        self.owner, self.found = owner, found
        self.watched: set[int] = set()  # addresses
        self.waiting: dict[
            int, dict[int, tuple[int, str, Callable[[int, str], None]]]
        ] = {}  # return address -> {tid: (slot, name, function to call)}
        self.returns: dict[int, InternalBreakpoint] = {}  # return address -> the breakpoint on it

    def watch(self) -> None:
        """Sets the breakpoints in the libraries of the driver and the runtimes that are loaded now."""
        for module in self.owner.target.modules():
            try:
                if not catalogue.launches_kernels(module.elf) and not re.search(r"lib(cuda|amdhip64)\.so", module.name):
                    continue
                found = [(module.symbol(symbol), work) for symbol, work in _CALLS.items()]
            except NotFoundError as e:
                log.passed_over(e)
                continue  # a mapped file that is no library
            for address, work in found:
                if address is not None:
                    self._watch(address, work)

    def _watch(self, address: int, work: Callable[[DriverNames], None]) -> None:
        if address not in self.watched:
            self.watched.add(address)
            self.owner.internal.append(InternalBreakpoint(address, lambda: work(self)))

    def _argument(self, registers: dict[str, int], index: int) -> int:
        return registers[ARGUMENTS[self.owner.target.arch][index]]

    def _text(self, registers: dict[str, int], index: int, limit: int = 4096) -> str:
        return self.owner.target.cstring(self._argument(registers, index), limit).decode("utf-8", "replace")

    def _registered(self) -> None:
        """__cudaRegisterFunction(handle, host function, …, device name, …), before main or at dlopen."""
        registers = self.owner.now()
        handle_names[self.owner.inferior.pid, self._argument(registers, 1)] = self._text(registers, 3)

    def _kernel_asked(self) -> None:
        """__cudaGetKernel(&handle, host function): CUDA 13's stubs launch by the handle."""
        registers = self.owner.now()
        name = handle_names.get((self.owner.inferior.pid, self._argument(registers, 1)), "")
        if name:
            self._at_return(registers, self._argument(registers, 0), name)

    def _function_asked(self) -> None:
        """cuModuleGetFunction(&function, module, name) and its kin."""
        registers = self.owner.now()
        self._at_return(registers, self._argument(registers, 0), self._text(registers, 2))

    def _entry_asked(self) -> None:
        """cuGetProcAddress(name, &function, …)."""
        registers = self.owner.now()
        name = self._text(registers, 0, 256)
        if name in _CALLS or name in catalogue.DRIVER_ENTRIES:
            self._at_return(registers, self._argument(registers, 1), name, self._entry_handed_out)

    def _entry_handed_out(self, address: int, name: str) -> None:
        if name in _CALLS:
            self._watch(address, _CALLS[name])
        else:
            self.found(address, name)

    def _named(self, handle: int, name: str) -> None:
        handle_names[self.owner.inferior.pid, handle] = name

    def _at_return(self, registers: dict[str, int], slot: int, name: str, then: Callable[[int, str], None] | None = None) -> None:
        """To be called when a call that fills `slot` has begun. When it returns, `then(value in the slot, name)` is called;
        without `then` the value is given the name `name`."""
        address = launch.return_address(self.owner.target, registers)
        waiting = self.waiting.setdefault(address, {})
        if not waiting:
            back = self.returns.get(address)
            if back is None:
                back = self.returns[address] = InternalBreakpoint(address, lambda: self._back(address))
                self.owner.internal.append(back)
            back.enabled = True
        waiting[selected_tid()] = slot, name, then or self._named

    def _back(self, address: int) -> None:
        self.owner.target.invalidate()
        waiting = self.waiting.get(address, {})
        found = waiting.pop(selected_tid(), None)
        if found is not None:
            try:
                value = self.owner.target.u64(found[0])
            except FaultError as e:
                log.passed_over(e)
                value = 0  # the call refused its own argument
            if value:
                found[2](value, found[1])
        if not waiting:
            self.returns[address].enabled = False


_CALLS: dict[str, Callable[[DriverNames], None]] = {
    "cuGetProcAddress": DriverNames._entry_asked,
    "cuGetProcAddress_v2": DriverNames._entry_asked,
    "cuModuleGetFunction": DriverNames._function_asked,
    "cuLibraryGetKernel": DriverNames._function_asked,
    "cuLibraryGetFunction": DriverNames._function_asked,
    "hipModuleGetFunction": DriverNames._function_asked,
    "__cudaRegisterFunction": DriverNames._registered,
    "__hipRegisterFunction": DriverNames._registered,
    "__cudaGetKernel": DriverNames._kernel_asked,
}
