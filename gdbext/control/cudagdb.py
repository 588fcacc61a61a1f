"""cuda-gdb's view of the device: the same interface over its MI (every release), its command line (10.2 base) and its Python
module (12.7 and later).

`device()` is a `CudaGdb`; in a gdb without CUDA it raises an error of one line. Run on an H100 in cuda-gdb 13.0 (tests/gpu), on
cores in cuda-gdb 11.8. The functions of gdb.cuda are used where they exist; each is tested for.
"""

from __future__ import annotations

import os
import re
from typing import Callable, Sequence

import gdb

from ..access import room
from ..access.cli_gdb import command, holds_gpu_core
from ..errors import FaultError, GdbextError, NotFoundError
from ..kernels import parameters

MAX_READ = 1 << 26
_TRIPLE = r"\((\d+),(\d+),(\d+)\)"


def is_cuda_gdb() -> bool:
    """Whether this gdb is cuda-gdb."""
    try:
        gdb.parameter("cuda break_on_launch")
        return True
    except RuntimeError:
        return False


def release() -> str:
    """Its release, such as "11.8"; "" where its version text has none."""
    found = re.search(r"^(\d+\.\d+) release", gdb.execute("show version", to_string=True), re.M)
    return found.group(1) if found else ""


def is_rocgdb() -> bool:
    """Whether this is AMD's gdb, by its own version text."""
    return "rocm" in gdb.execute("show version", to_string=True).split("\n", 1)[0].lower()


def has_working_none() -> bool:
    """Whether this gdb returns Python's own None. Debian's cuda-gdb 11.8 does not: frames and values cannot be used there."""
    return gdb.execute("echo", False, True) is not None and gdb.execute("echo") is None


def free_reader() -> Callable[[int, int], bytes] | None:
    """cuda-gdb's function that reads global memory independently of the focus. None where its Python has no such function, or
    cuda-gdb sees no device: the function then returns wrong bytes."""
    cuda = getattr(gdb, "cuda", None)
    function = getattr(cuda, "read_global_memory", None)
    if function is None or not getattr(cuda, "devices", list)():
        return None

    def read(address: int, size: int) -> bytes:
        try:
            return bytes(function(address, size))
        except (RuntimeError, gdb.error) as e:
            raise FaultError(address, size, str(e).strip()) from None

    return read


def device() -> CudaGdb:
    """A `CudaGdb`; `GdbextError` in a gdb that cannot see a device."""
    if is_cuda_gdb():
        return CudaGdb()
    if is_rocgdb():
        raise GdbextError(
            "this is rocgdb: its GPU waves are threads (info threads); the pack's device commands are for cuda-gdb and were "
            "never tried here"
        )
    raise GdbextError("this gdb does not see the GPU: run the same in cuda-gdb (the host side works here: llm-break, llm-launch)")


class Running:
    """A kernel that is on the device. `id`: cuda-gdb's number, `grid_id`: the launch's, `name`, `grid`, `block`: extents,
    `device`: number, `current`: in focus."""

    def __init__(self, row: dict[str, str]) -> None:
        self.id, self.grid_id, self.device = int(row["kernel"]), int(row["grid"]), int(row["device"])
        self.grid, self.block = triple(row["gridDim"]), triple(row["blockDim"])
        self.name = _without_arguments(row.get("invocation") or row.get("name") or "")
        self.status, self.current = row.get("status", ""), row.get("current", "").strip() == "*"


def _without_arguments(text: str) -> str:
    """A kernel's name without the bracket of its arguments at the end; one inside it, `(anonymous namespace)`, stays."""
    depth = 0
    for at in range(len(text) - 1, -1, -1) if text.endswith(")") else ():
        depth += (text[at] == ")") - (text[at] == "(")
        if not depth:
            return text[:at]
    return text


def triple(text: str) -> tuple[int, ...]:
    """The numbers of `(x,y,z)`; `GdbextError` for another text."""
    found = re.search(_TRIPLE, text)
    if not found:
        raise GdbextError(f"cuda-gdb said {text!r} where (x,y,z) was expected")
    return tuple(int(n) for n in found.groups())


def rows(text: str, name: str) -> list[dict[str, str]]:
    """[{field: value}] of an MI table, `name={...}` rows."""
    return [
        dict(re.findall(r'([\w-]+)="((?:[^"\\]|\\.)*)"', body))
        for body in re.findall(re.escape(name) + r'=\{((?:[^{}"]|"(?:[^"\\]|\\.)*")*)\}', text)
    ]


class Focus:
    """Where cuda-gdb's device focus is: `kernel` (its number), `block`, `thread`, and the hardware's device, sm, warp, lane."""

    def __init__(
        self,
        kernel: int,
        block: tuple[int, ...],
        thread: tuple[int, ...],
        *,
        sm: int | None = None,
        warp: int | None = None,
        lane: int | None = None,
        device: int = 0,
    ) -> None:
        self.kernel, self.block, self.thread = kernel, block, thread
        self.sm, self.warp, self.lane, self.device = sm, warp, lane, device


class CudaGdb:
    """Queries of cuda-gdb. Its errors are raised as `GdbextError` with its own words."""

    def execute(self, template: str, *values: str | int) -> str:
        """The output of a command (as `access.cli_gdb.command` takes it). `GdbextError` with cuda-gdb's own words where
        it fails."""
        try:
            return gdb.execute(command(template, *values), to_string=True) or ""
        except (gdb.error, RuntimeError) as e:
            raise GdbextError(f"cuda-gdb says to '{template.format(*values)}': {str(e).strip()}") from None

    def mi(self, name: str) -> str:
        """The result of one MI command.

        MI keeps the stream that it is first used with. With `to_string` that is a string's stream, which is freed afterwards; the
        next use ended cuda-gdb 13.0 and gdb 13.1. So MI writes to a file in place of standard output."""
        with room.nameless_file() as file:
            gdb.flush()
            kept = os.dup(1)
            try:
                os.dup2(file.fileno(), 1)
                try:
                    said = gdb.execute(command('interpreter-exec mi "{}"', name))
                    gdb.flush()
                except (gdb.error, RuntimeError) as e:
                    raise GdbextError(f"cuda-gdb says to '{name}': {str(e).strip()}") from None
            finally:
                os.dup2(kept, 1)
                os.close(kept)
            file.seek(0)
            return (said if isinstance(said, str) else "") + str(file.read(), "utf-8", "replace")

    def kernels(self) -> list[Running]:
        """[`Running`], none where nothing runs."""
        found = rows(self.mi("-cuda-info-kernels"), "InfoCudaKernelsRow")
        return [Running(row) for row in found]

    def focus(self) -> Focus | None:
        """The `Focus`, None where it is on the host."""
        text = self.execute("cuda kernel grid block thread device sm warp lane")
        kernel = re.search(r"kernel (\d+)", text)
        if not kernel:
            return None
        numbers = {k: int(v) for k, v in re.findall(r"\b(device|sm|warp|lane) (\d+)", text)}
        return Focus(
            int(kernel.group(1)),
            triple(text[text.find("block (") :]),
            triple(text[text.find("thread (") :]),
            sm=numbers.get("sm"),
            warp=numbers.get("warp"),
            lane=numbers.get("lane"),
            device=numbers.get("device", 0),
        )

    def set_focus(self, kernel: int, block: Sequence[int], thread: Sequence[int] = (0, 0, 0)) -> Focus:
        """Moves the focus to a thread of a block; -> `Focus`. For a block that is not resident the error says so."""
        try:
            gdb.execute(command("cuda kernel {} block ({},{},{}) thread ({},{},{})", kernel, *block, *thread), to_string=True)
        except (gdb.error, RuntimeError):
            pass  # only the present focus counts: the wording differs from release to release
        now = self.focus()
        if now is None or now.kernel != kernel or now.block != tuple(block) or now.thread != tuple(thread):
            raise NotFoundError(
                "block ({},{},{}) is not on the device now: it has run already or is still to come".format(*block)
                + " (info cuda blocks lists those that are)"
            )
        return now

    def read(self, address: int, size: int) -> bytes:
        """Bytes of global memory. Refused without a device, and without a focus where cuda-gdb's Python has no function for it:
        cuda-gdb then returns zeros, or arbitrary bytes, without an error."""
        if not 0 < size <= MAX_READ:
            raise FaultError(address, size, "not a size")
        reader = free_reader()
        if reader is not None:
            return reader(address, size)
        if self.focus() is None:
            raise GdbextError(
                "device memory is read under a device focus: llm-focus (or cuda kernel 0) first; without one cuda-gdb answers "
                "zeros"
            )
        return self._dumped("global", address, size)

    def parameter_bytes(self, offset: int, size: int) -> bytes:
        """Bytes of the focused kernel's parameters, from the first one on."""
        return self._dumped("parameter", parameters.first_address(self.capability()[0]) + offset, size)

    @staticmethod
    def _dumped(space: str, address: int, size: int) -> bytes:
        """The bulk path that every release has. Only readable bytes are written: a short file is a fault."""
        with room.nameless_file() as file:
            path = f"/proc/self/fd/{file.fileno()}"
            try:
                gdb.execute(
                    command("dump binary value {} *(@{} unsigned char*){}@{}", path, space, hex(address), size), to_string=True
                )
            except (gdb.error, RuntimeError) as e:
                raise FaultError(address, size, str(e).strip()) from None
            data = bytes(file.read())
        if len(data) != size:
            raise FaultError(address, size, "device memory, cuda-gdb gave less")
        return data

    def capability(self) -> tuple[int, int]:
        """(major, minor) of the focused device's compute capability."""
        current = self.focus()
        for row in rows(self.mi("-cuda-info-devices"), "InfoCudaDevicesRow"):
            found = re.search(r"sm_(\d+)(\d)", row.get("sm_type", "") or row.get("smType", ""))
            if found and (current is None or row.get("device") in (None, str(current.device))):
                return int(found.group(1)), int(found.group(2))
        raise GdbextError("cuda-gdb does not report the compute capability of the device in focus (info cuda devices)")

    def pc(self) -> int | None:
        """The focused thread's program counter, or None."""
        found = re.search(r"0x[0-9a-f]+", self.execute("output/x $pc"))
        return int(found.group(), 16) if found else None

    def warp(self, focus: Focus) -> tuple[int, int] | None:
        """(active lanes, divergent lanes) as masks of the focused warp, None where cuda-gdb does not report them."""
        if focus.sm is None or focus.warp is None:
            return None
        for line in self.execute("info cuda warps device {} sm {} warp {}", focus.device, focus.sm, focus.warp).splitlines():
            found = re.match(r"\*?\s*(\d+)\s+(0x[0-9a-f]+)\s+(0x[0-9a-f]+)", line)
            if found and int(found.group(1)) == focus.warp:
                return int(found.group(2), 16), int(found.group(3), 16)
        return None

    def has_lines(self) -> bool:
        """Whether the focused code has device line information."""
        return bool(re.search(r"^Line \d+ ", self.execute("info line *$pc"), re.M))

    def is_core(self) -> bool:
        return holds_gpu_core()

    def variable(self, name: str) -> int | None:
        """An integer variable of the focused code, None where it cannot be read (no -G, optimised out, another scope)."""
        try:
            text = gdb.execute(command("output (long) {}", name), to_string=True)
        except (gdb.error, RuntimeError):
            return None
        return int(text) if re.fullmatch(r"-?\d+", text.strip()) else None

    def open_core(self, path: str) -> bool:
        """Opens a GPU core where nothing else is open; -> whether it is open now."""
        if not self.is_core():
            if gdb.selected_inferior().pid:
                return False
            self.execute("target cudacore {}", path)
        return True
