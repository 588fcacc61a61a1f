"""CUDA core dumps, read with the standard library alone: devices, grids, blocks, faulting threads, program counters.

Source of the format: cudacoredump.h of the public cuda-gdb sources ("Public format description"). The file is ELF64. Tables are
sections of type 0x80000000 + n; sh_link names the parent table's section and sh_info the row in it. Rows grow from driver to
driver, so they are walked by sh_entsize. Only two kinds of fields are read: those that every release has (`_ROWS`), and those for
which a row is long enough (`_LATER`).

A core is untrusted: rows, lanes and names are bounded. An offset that points out of the file is refused, or the item is left out
with a reason.
"""

from __future__ import annotations

import collections
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterator, Optional, Sequence, Tuple

from .. import log
from ..access import elf
from ..errors import GdbextError, LayoutError, NotFoundError

if TYPE_CHECKING:

    class Row(Tuple[int, ...]):
        """A row of a table: each field is a number."""

        def __getattr__(self, name: str) -> int: ...


Images = Optional[Sequence[int]]  # sections of a module's images
Place = Tuple[int, int, str, Optional[int]]  # warps, pc, function, offset

EM_CUDA, OSABI = 190, (0x33, 0x41)  # driver 580 (CUDA 13.0) writes 0x33; CUDA 13 marks its code with 0x41
MAX_ROWS = 1 << 20  # of one kind: a GPU of 256 SMs with 64 warps of 32 lanes has half of them
MAX_FAULTS = 4096
MAX_IMAGES = 2 << 30  # bytes of modules searched for names
NO_GRID = "no grid of that number is in the file"

(GLOBAL, SHARED, REGISTERS, IMAGE, RELOCATED, DEVICES, CONTEXTS, SMS, GRIDS, BLOCKS, WARPS, LANES, MODULES, META) = (
    0x80000000 + n for n in (2, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 22)
)

# table: (its name in messages, struct format, names of the fields)
_ROWS = {
    DEVICES: (
        "device table",
        "<QQQ12I",
        "name type sm_type id bus pci_device sms warps_per_sm lanes_per_warp registers predicates "
        "sm_major sm_minor instruction_size status",
    ),
    CONTEXTS: ("context table", "<4Q2I", "id shared_window local_window global_window device tid"),
    MODULES: ("module table", "<Q", "handle"),
    GRIDS: (
        "grid table",
        "<7Q12I",
        "id context function entry module parent parameters type origin status registers gx gy gz bx by bz blocking tid",
    ),
    SMS: ("SM table", "<2I", "id pad"),
    BLOCKS: ("block table", "<Q4I", "grid x y z pad"),
    WARPS: ("warp table", "<Q6I", "error_pc id valid active broken error_valid pad"),
    LANES: ("lane table", "<2Q8I", "pc physical_pc id x y z exception depth syscall_depth cc"),
}
# table: (row length that has them, offset, struct format, names of the fields)
_LATER = {SMS: (48, 8, "<2IQ4IQ", "exception error_valid error_pc cluster_valid cx cy cz text")}
_TUPLES: dict[int, Any] = {
    kind: collections.namedtuple("Row", names + (" " + _LATER[kind][3] if kind in _LATER else ""))
    for kind, (_, _, names) in _ROWS.items()
}

# CUDBGException_t of cudadebugger.h, as the cuda-gdb manual words them.
EXCEPTIONS = {
    1: "Lane Illegal Address",
    2: "Lane User Stack Overflow",
    3: "Device Hardware Stack Overflow",
    4: "Warp Illegal Instruction",
    5: "Warp Out-of-range Address",
    6: "Warp Misaligned Address",
    7: "Warp Invalid Address Space",
    8: "Warp Invalid PC",
    9: "Warp Hardware Stack Overflow",
    10: "Device Illegal Address",
    11: "Lane Misaligned Address",
    12: "Warp Assert",
    13: "Lane Syscall Error",
    14: "Warp Illegal Address",
    15: "Lane Nonmigratable Atomic",
    16: "Lane Invalid Atomic",
    17: "Cluster Out-of-range Address",
    18: "Cluster Block Not Present",
    19: "Warp Stack Canary",
    20: "Warp Tensor Memory Access Check",
    21: "Warp Tensor Memory Leak",
    22: "Warp Call Requires Newer Driver",
}


LATEST = 64  # instructions between the one at fault and the thread's current one
LOADS = (0x381, 0x980, 0x981)


def _overlap(written: int, register: int) -> bool:
    """Whether an instruction that writes up to four registers, from `written` on, may change the address in `register` and the
    next one."""
    return written <= register + 1 and written + 3 >= register


def touches(code: bytes, major: int) -> tuple[int, int] | None:
    """(register, offset) by which a 16-byte instruction of compute capability 7.0 to 12.x addresses global memory: the address is
    in that register and the next one.

    None for any instruction other than LDG, STG, RED and, from 8.0 on, the generic LD and ST with a register. None also for a
    load into its own address registers: the core has the registers after the load. The encoding is that of nvdisasm 13.2 for code
    of nvcc 13.0 for sm_75 to sm_120. In cores of an H100 LDG gave the address at fault."""
    low = int.from_bytes(code[:8], "little")
    kinds = (
        (0x381, 0x386, 0x38E) if major < 8 else (0x381, 0x386, 0x38E, 0x980, 0x981, 0x985, 0x986, 0x98E, 0x9A6)
    )  # before 8.0 the second ones add a uniform register
    register, loaded = low >> 24 & 0xFF, low >> 16 & 0xFF
    if low & 0xFFF not in kinds or register == 0xFF or low & 0xFFF in LOADS and _overlap(loaded, register):
        return None
    return register, int.from_bytes(code[5:8], "little", signed=True)


def exception_name(code: int | None) -> str | None:
    """`CUDA_EXCEPTION_14 "Warp Illegal Address"`, None for 0."""
    if not code:
        return None
    return f'CUDA_EXCEPTION_{code} "{EXCEPTIONS[code]}"' if code in EXCEPTIONS else f"CUDA_EXCEPTION_{code}"


@dataclass
class Device:
    """`index`: its row; `name`, `architecture` (sm_90): from the file; `sms`: their number; `major`: of its compute
    capability."""

    index: int
    name: str
    architecture: str
    sms: int
    pci: tuple[int, int]
    major: int
    exception: int | None = None


class Kernel:
    """One grid. `grid`, `block`: extents (x, y, z). `blocks`, `warps`: how many of each were resident. `places`: of those warps,
    `[(warps, pc, function, offset)]`, the most first. `exception`: that of its first faulting thread or None."""

    def __init__(self, device: Device, row: Row, name: str) -> None:
        self.device, self.id, self.name, self.entry = device, row.id, name, row.entry
        self.grid, self.block = (row.gx, row.gy, row.gz), (row.bx, row.by, row.bz)
        self.host_tid, self.parameters = row.tid, b""
        self.blocks = self.warps = 0
        self.standing: list[int] = []  # program counters of the warps
        self.places: list[Place] = []
        self.exception: int | None = None


@dataclass
class Fault:
    """A thread that raised an exception.

    * `pc`: of the instruction at fault where the warp gives it (`precise`), else the thread's current one
    * `function` + `offset` (bytes): the same by the module's symbols
    * `lanes`: how many threads of the warp raised it; this is the first of them
    * `address`: the address that it accessed, None where neither the driver's `text` nor the instruction gives it
    * `told_by`: the source of `address`: "driver", "instruction" or ''"""

    device: Device
    kernel: Kernel | None
    block: tuple[int, ...] | None
    thread: tuple[int, ...] | None
    sm: int
    warp: int | None
    lane: int | None
    exception: int
    pc: int | None
    precise: bool
    function: str
    offset: int | None
    lanes: int
    address: int | None = None
    text: str = ""
    told_by: str = ""


class GpuCore:
    """A CUDA core dump. `devices`, `kernels`, `faults` (each a list); `memory`: `[(address, size)]` of global memory that it
    holds; `problems`: reasons why the answer is not the whole truth. `NotFoundError` for a file that is no core of a GPU."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.elf = elf.Elf(path)
        if self.elf.machine != EM_CUDA or self.elf.type != elf.ET_CORE:
            what = "a core of the CPU side: open it with core-file" if self.elf.type == elf.ET_CORE else "a program or library"
            raise NotFoundError(f"{path}: no CUDA core dump, but {what}; see: llm-gpucore -setup")
        if self.elf.data[7] not in OSABI:
            raise LayoutError(
                f"{path}: a CUDA core dump of ABI {self.elf.data[7]:#x}, which this pack does not know (it knows 0x33 and 0x41)"
            )
        self.problems: list[str] = []
        self._images: dict[int, elf.Elf | None] = {}
        self._names: dict[int, tuple[str, int | None]] = {}
        self._room = MAX_IMAGES
        self._heads = self.elf.section_heads
        if not self._heads:
            raise LayoutError(
                f"{path}: cut off: its section table is not there ({len(self.elf.data)} bytes); the dump did not finish"
            )
        self._strings = next((h for h in self._heads if h[0] == ".strtab" and h[1] == 3), None)
        self._children: dict[tuple[int, int], list[int]] = collections.defaultdict(list)  # (section, row) -> [section]
        for i, head in enumerate(self._heads):
            self._children[head[5], head[6]].append(i)
        self._of_type: dict[int, list[int]] = collections.defaultdict(list)
        for i, head in enumerate(self._heads):
            self._of_type[head[1]].append(i)
        self.devices: list[Device] = []
        self.kernels: list[Kernel] = []
        self.faults: list[Fault] = []
        self._left = dict.fromkeys(_ROWS, MAX_ROWS)
        if not self._of_type[DEVICES]:
            raise LayoutError(f"{path}: a CUDA core dump without a device table; the dump did not finish")
        for table in self._of_type[DEVICES]:
            for row, device in enumerate(self._rows(table)):
                self._device(table, row, device)
        self.memory = [(self._heads[i][2], self._heads[i][4]) for i in self._of_type[GLOBAL]]

    def needs(self) -> int:
        """The CUDA release (major) whose cuda-gdb knows the code in it: 11.8 may abort on code of ABI 8. 0: any."""
        heads = [self.elf.data[at : at + 9] for at, _ in map(self._extent, self._of_type[RELOCATED] + self._of_type[IMAGE])]
        return max((12 if h[7] == OSABI[1] or h[8] > 7 else 0 for h in heads if len(h) == 9), default=0)

    # ---- rows ----------------------------------------------------------------------------------------------------
    def _extent(self, index: int) -> tuple[int, int]:
        """(file offset, size in bytes) of the part of a section that the file has."""
        _, _, _, offset, size, _, _, _ = self._heads[index]
        if offset + size > len(self.elf.data):
            self._problem(f"section {self._heads[index][0] or index} is cut off")
        return min(offset, len(self.elf.data)), max(0, min(size, len(self.elf.data) - offset))

    def _rows(self, index: int) -> Iterator[Row]:
        kind, entsize = self._heads[index][1], self._heads[index][7]
        what, layout, _ = _ROWS[kind]
        need = struct.calcsize(layout)
        if entsize < need:
            raise LayoutError(f"{self.path}: rows of {entsize} bytes in the {what}, at least {need} were expected")
        make, later = _TUPLES[kind], _LATER.get(kind)
        start, size = self._extent(index)
        count = size // entsize
        if count > self._left[kind]:
            self._problem(f"more than {MAX_ROWS} rows in {what}s: the rest is left out")
            count = self._left[kind]
        self._left[kind] -= count
        data = self.elf.data[start : start + count * entsize]
        for at in range(0, count * entsize, entsize):
            fields = struct.unpack_from(layout, data, at)
            if later:
                fields += (
                    struct.unpack_from(later[2], data, at + later[1]) if entsize >= later[0] else (0,) * len(later[3].split())
                )
            yield make(*fields)

    def _under(self, kind: int, index: int, row: int) -> list[int]:
        """The sections of a type that hang on a row of a table."""
        return [i for i in self._children.get((index, row), ()) if self._heads[i][1] == kind]

    def _text(self, offset: int) -> str:
        if self._strings is None or not 0 < offset < self._strings[4]:
            return ""
        return self.elf.string(self._strings[3] + offset, 4096)

    def _problem(self, text: str) -> None:
        if text not in self.problems and len(self.problems) < 20:
            self.problems.append(text)

    # ---- the meaning of the tables -------------------------------------------------------------------------------
    def _device(self, table: int, row: int, raw: Row) -> None:
        architecture = self._text(raw.sm_type) or f"sm_{raw.sm_major}{raw.sm_minor}"
        device = Device(
            raw.id,
            self._text(raw.name) or self._text(raw.type) or "?",
            architecture,
            raw.sms,
            (raw.bus, raw.pci_device),
            raw.sm_major,
        )
        self.devices.append(device)
        modules: dict[int, list[int]] = {}
        for contexts in self._under(CONTEXTS, table, row):
            for i, _ in enumerate(self._rows(contexts)):
                for section in self._under(MODULES, contexts, i):
                    for j, module in enumerate(self._rows(section)):
                        modules.setdefault(module.handle, self._under(RELOCATED, section, j))
        grids: dict[int, tuple[Kernel, Images]] = {}
        for section in self._under(GRIDS, table, row):
            for grid in self._rows(section):
                name, _ = self._function(grid.entry, modules.get(grid.module))
                kernel = Kernel(device, grid, name)
                grids[grid.id] = kernel, modules.get(grid.module)
                self.kernels.append(kernel)
        for section in self._under(SMS, table, row):
            for i, sm in enumerate(self._rows(section)):
                self._sm(section, i, sm, device, grids)
        for kernel, images in grids.values():
            counted = collections.Counter(kernel.standing)
            kernel.places = [(n, pc, *self._function(pc, images)) for pc, n in counted.most_common(4)]
        if device.exception is None:
            device.exception = next((f.exception for f in self.faults if f.device is device), None)

    def _sm(self, section: int, row: int, sm: Row, device: Device, grids: dict[int, tuple[Kernel, Images]]) -> None:
        said = len(self.faults)
        for blocks in self._under(BLOCKS, section, row):
            for i, block in enumerate(self._rows(blocks)):
                kernel, images = grids.get(block.grid, (None, None))
                if kernel is None:
                    self._problem(f"block ({block.x},{block.y},{block.z}) of SM {sm.id}: {NO_GRID}")
                    continue
                kernel.blocks += 1
                for warps in self._under(WARPS, blocks, i):
                    for j, warp in enumerate(self._rows(warps)):
                        kernel.warps += 1
                        self._warp(warps, j, warp, sm, block, device, kernel, images)
        if sm.exception and len(self.faults) == said:
            # An SM's own exception, in no lane: only the SM and perhaps the instruction are known.
            function, offset = self._function(sm.error_pc, None) if sm.error_valid else ("", None)
            self._fault(
                Fault(
                    device,
                    None,
                    None,
                    None,
                    sm.id,
                    None,
                    None,
                    sm.exception,
                    sm.error_pc if sm.error_valid else None,
                    bool(sm.error_valid),
                    function,
                    offset,
                    0,
                    text=self._text(sm.text),
                )
            )

    def _warp(
        self, section: int, row: int, warp: Row, sm: Row, block: Row, device: Device, kernel: Kernel, images: Images
    ) -> None:
        first: Row | None = None
        place: int | None = None
        raised, where = 0, (0, 0)
        for lanes in self._under(LANES, section, row):
            for i, lane in enumerate(self._rows(lanes)):
                if lane.id < 32 and not warp.valid >> lane.id & 1:
                    continue
                if place is None:
                    place = lane.pc
                if lane.exception:
                    raised += 1
                    if first is None:
                        first, where = lane, (lanes, i)
        if place is not None:
            kernel.standing.append(place)
        if first is None and not warp.error_valid:
            return
        pc = warp.error_pc if first is None or warp.error_valid else first.pc
        code = first.exception if first is not None else sm.exception
        function, offset = self._function(pc, images)
        self._fault(
            Fault(
                device,
                kernel,
                (block.x, block.y, block.z),
                (first.x, first.y, first.z) if first is not None else None,
                sm.id,
                warp.id,
                first.id if first is not None else None,
                code,
                pc,
                bool(warp.error_valid),
                function,
                offset,
                raised,
                self._touched(device, images, pc, first.pc, where) if first is not None and warp.error_valid else None,
                self._text(sm.text),
            )
        )

    def _touched(self, device: Device, images: Images, pc: int, stands: int, where: tuple[int, int]) -> int | None:
        """The address that the instruction at fault was about to access, from the thread's registers; None where they may have
        changed since."""
        code = self._code(pc, stands + 16 - pc, images) if pc <= stands <= pc + 16 * LATEST else b""
        found = touches(code[:16], device.major) if len(code) >= 16 else None
        registers = self._under(REGISTERS, *where)
        if found is None or not registers:
            return None
        register, offset = found
        for at in range(16, len(code) - 16, 16):
            low = int.from_bytes(code[at : at + 8], "little")
            written = low >> 16 & 0xFF
            if low & 0xFFF == 0x918:
                continue  # NOP
            if low & 0xFF0 in (0x940, 0x950) or _overlap(written, register):  # a branch
                return None
        start, size = self._extent(registers[0])
        if 4 * register + 8 > size:
            return None
        return int.from_bytes(self.elf.data[start + 4 * register : start + 4 * register + 8], "little") + offset & (1 << 64) - 1

    def _code(self, pc: int, size: int, images: Images) -> bytes:
        """Bytes of a module's code."""
        for index in list(images or ()) + [i for i in self._of_type[RELOCATED] if i not in (images or ())]:
            image = self._image(index)
            if image is None:
                continue
            for _, kind, address, offset, length, _, _, _ in image.section_heads:
                if kind == 1 and address and address <= pc and pc + size <= address + length:
                    return image.data[offset + pc - address : offset + pc - address + size]
        return b""

    def _fault(self, fault: Fault) -> None:
        if len(self.faults) >= MAX_FAULTS:
            self._problem(f"more than {MAX_FAULTS} faulting warps: the rest is left out")
            return
        if fault.kernel is not None and fault.kernel.exception is None:
            fault.kernel.exception = fault.exception
        # No row of any release has a field for the address accessed (cudacoredump.h up to r575 checked); the text of
        # newer drivers may hold it.
        words = fault.text.replace(",", " ").split()
        near = [words[i + 1].rstrip(".") for i in range(len(words) - 1) if words[i].lower().rstrip(":") == "address"]
        told = next(
            (
                int(w, 16)
                for w in near
                if w.startswith("0x") and set(w[2:].lower()) <= set("0123456789abcdef") and 2 < len(w) <= 18
            ),
            None,
        )
        fault.told_by = "driver" if told is not None else "instruction" if fault.address is not None else ""
        fault.address = fault.address if told is None else told
        if fault.address is None and "Address" in EXCEPTIONS.get(fault.exception, ""):
            self._problem(
                "which address was touched is not known: a CUDA core has no field for it"
                + (", the text its driver wrote names none" if fault.text else ", its driver wrote no text (newer ones do)")
                + ", and the faulting instruction does not show it"
            )
        self.faults.append(fault)

    # ---- names ---------------------------------------------------------------------------------------------------
    def _function(self, pc: int, images: Images) -> tuple[str, int | None]:
        """(mangled name or '', offset in bytes or None) of a program counter; `images`: sections of the modules to search
        first."""
        if pc not in self._names:
            for index in list(images or ()) + [i for i in self._of_type[RELOCATED] if i not in (images or ())]:
                found = self._image(index)
                name, start = found.function_and_start(pc) if found is not None else ("", 0)
                if name:
                    self._names[pc] = name, pc - start
                    break
            else:
                self._names[pc] = "", None
        return self._names[pc]

    def _image(self, index: int) -> elf.Elf | None:
        if index not in self._images:
            self._images[index] = None
            start, size = self._extent(index)
            if size > self._room:
                self._problem(f"more than {MAX_IMAGES >> 20} MiB of modules: functions of the rest have no names")
                return None
            self._room -= size
            try:
                self._images[index] = elf.Elf(f"{self.path}, module {self._heads[index][0]}", self.elf.data[start : start + size])
            except (NotFoundError, struct.error) as e:
                log.passed_over(e)
                self._problem(f"module {self._heads[index][0]}: no ELF image, its functions have no names")
        return self._images[index]

    def read(self, address: int, size: int) -> bytes:
        """Bytes of global memory in the core. `GdbextError` where it has none (`skip_global_memory`, or not a device address)."""
        for i in self._of_type[GLOBAL]:
            _, _, start, offset, length, _, _, _ = self._heads[i]
            if start <= address and address + size <= start + length and offset + address - start + size <= len(self.elf.data):
                return self.elf.data[offset + address - start : offset + address - start + size]
        why = (
            "it holds no global memory (CUDA_COREDUMP_GENERATION_FLAGS=skip_global_memory?)"
            if not self.memory
            else "no segment of it has that range"
        )
        raise GdbextError(f"{self.path}: cannot read {size} bytes of device memory at {address:#x}: {why}")


def open_core(path: str) -> GpuCore:
    """A `GpuCore`; `NotFoundError` or `LayoutError`, one line, for a file that is none or is too damaged to read."""
    try:
        return GpuCore(path)
    except struct.error as e:
        raise LayoutError(f"{path}: damaged: {e}") from None
