"""In cuda-gdb: the block of a running kernel that works on a sequence and a head, and steps of the warp in focus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from .. import log
from ..errors import GdbextError, NotFoundError
from ..kernels import catalogue, parameters, signatures, triton
from ..kernels import focus as rules
from ..render.jsonline import Address
from ..render.text import escape

if TYPE_CHECKING:
    from ..cpython.runtime import Runtime
    from .cudagdb import CudaGdb, Focus, Running


def chosen(device: CudaGdb, number: int | None) -> tuple[Running, Any]:
    """(`Running`, its catalogue entry): the kernel that was asked for, the one in focus, or the first that the catalogue has a
    rule for."""
    running = device.kernels()
    if not running:
        raise NotFoundError(
            "no kernel is on the device: stop in one (cuda-gdb: set cuda break_on_launch application; llm-break; target cudacore "
            "FILE)"
        )
    if number is not None:
        running = [k for k in running if k.id == number]
        if not running:
            raise NotFoundError(
                f"there is no kernel {number}; there are {', '.join(str(k.id) for k in device.kernels())} (info cuda kernels)"
            )
    running.sort(key=lambda k: not k.current)
    for kernel in running:
        entry = catalogue.catalogue().entry_of(kernel.name)
        if entry is not None and entry.focus:
            return kernel, entry
    return running[0], catalogue.catalogue().entry_of(running[0].name)


def focus_on(device: CudaGdb, number: int | None, asked: dict[str, Any], runtime: Callable[[], Runtime]) -> dict[str, Any]:
    """Focuses the block that works on `asked` (fields of `kernels.focus.Question`). -> the JSON fields of llm-focus

    `number`: cuda-gdb's of the kernel; `runtime()`: of the process's Python. `GdbextError` where the block cannot be determined.
    """
    kernel, entry = chosen(device, number)
    if entry is None or not entry.focus:
        raise NotFoundError(f"{escape(kernel.name)}: {rules.refusal(entry, kernel.name)}")
    if not kernel.current:
        device.execute("cuda kernel {}", kernel.id)  # its parameters are those of the kernel in focus
    question = rules.Question(
        **asked,
        grid=kernel.grid,
        read=device.read,
        launched=lambda: parameters.read(device),
        facts=lambda: triton_facts(runtime, device, kernel),
        variable=device.variable,
        name=kernel.name,
    )
    block, lines = rules.block_of(entry.focus, question)
    now = device.set_focus(kernel.id, block)
    return {
        "kernel": escape(kernel.name),
        "number": kernel.id,
        "grid": kernel.grid,
        "block": block,
        "thread": now.thread,
        "arithmetic": lines,
        "device": now.device,
        "sm": now.sm,
        "warp": now.warp,
        "lane": now.lane,
    }


def triton_facts(runtime: Callable[[], Runtime], device: CudaGdb, kernel: Running) -> parameters.Facts:
    """The `parameters.Facts` of a kernel that Triton compiled."""
    name = signatures.parse(kernel.name).base
    try:
        own = [c for c in triton.compiled(runtime()).values() if c.name == name]
    except GdbextError as e:
        return parameters.Facts(
            why=f"what was compiled in is in Triton's own objects, and there is no Python to read them from ({e})"
        )
    try:
        data = parameters.read(device)
    except GdbextError as e:
        log.passed_over(e)
        data = b""
    return parameters.Facts([parameters.of_triton(c, data) for c in own], f"Triton has no compiled kernel {name} in this process")


def step(device: CudaGdb, focus: Focus, kind: str) -> tuple[dict[str, Any], str]:
    """One step of the warp in `focus`, by "line", "instruction" or "kv-block"; -> (the JSON fields of llm-step, a
    reason for `partial` or "")."""
    said = ""
    if kind == "line" and not device.has_lines():
        kind, said = "instruction", "the device code has no lines: one instruction instead"
    if kind == "line":
        device.execute("step")
    elif kind == "instruction":
        device.execute("stepi")
    else:
        where = " && ".join(
            f"{name}.{axis} == {at}"
            for name, t in (("blockIdx", focus.block), ("threadIdx", focus.thread))
            for axis, at in zip("xyz", t)
        )
        pc = device.pc()
        if pc is None:
            raise GdbextError("cuda-gdb does not report the program counter of the thread in focus: step by line or instruction")
        device.execute("tbreak *{} if {}", hex(pc), where)
        device.execute("continue")
    now = device.focus()
    if now is None:
        return {"kernel": None, "block": None, "thread": None, "ended": True, "step": kind}, said
    kernel = next((k for k in device.kernels() if k.id == now.kernel), None)
    entry = catalogue.catalogue().entry_of(kernel.name) if kernel is not None else None
    on = rules.works_on(entry.focus, now.block) if entry is not None else {}
    lanes = device.warp(now)
    return {
        "kernel": escape(kernel.name) if kernel else None,
        "block": now.block,
        "thread": now.thread,
        "ended": False,
        "step": kind,
        "pc": Address(device.pc() or 0),
        "sm": now.sm,
        "warp": now.warp,
        "active_lanes": bin(lanes[0]).count("1") if lanes else None,
        "sequence": on.get("seq"),
        "head": on.get("head"),
        "part": on.get("part"),
        "kv_block": device.variable("block_idx"),
    }, said
