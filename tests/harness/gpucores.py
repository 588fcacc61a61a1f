"""FAKE GPU core dumps: made from the public format (gdbext/kernels/gpucore.py names it), never written by a driver.

`write_core(path, …)` writes one with the kernels, faults and memory that a test asks for; `cubin(functions)` makes a module with
those functions, where no compiled one is given."""

import dataclasses
import itertools
import struct

BASE = 0x7F1234500000  # where modules are "loaded"
STRTAB = 3
(
    GLOBAL,
    SHARED,
    REGISTERS,
    IMAGE,
    RELOCATED,
    DEVICES,
    CONTEXTS,
    SMS,
    GRIDS,
    BLOCKS,
    WARPS,
    LANES,
    MODULES,
    PREDICATES,
    PARAMETERS,
    UNIFORM,
    UNIFORM_PREDICATES,
) = (0x80000000 + n for n in (2, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20))


class Sections:
    """An ELF file of sections in the making."""

    def __init__(self, machine, kind, osabi, abiversion, flags=0):
        self.head = machine, kind, osabi, abiversion, flags
        self.rows = [("", 0, 0, 0, b"", 0, 0, 0)]  # name, type, flags, address, data, link, info, entsize

    def add(self, name, kind, data, link=0, info=0, entsize=0, address=0, flags=0):
        self.rows.append((name, kind, flags, address, data, link, info, entsize))
        return len(self.rows) - 1

    def bytes(self):
        machine, kind, osabi, abiversion, flags = self.head
        names = self.add(".shstrtab", STRTAB, b"")
        strings, offsets = b"\0", []
        for row in self.rows:
            offsets.append(len(strings))
            strings += row[0].encode() + b"\0"
        self.rows[names] = (*self.rows[names][:4], strings, 0, 0, 0)
        body, table = b"", b""
        for (_, type_, flags_, address, data, link, info, entsize), name in zip(self.rows, offsets):
            body += b"\0" * (-len(body) % 16)
            table += struct.pack(
                "<IIQQQQIIQQ", name, type_, flags_, address, 64 + len(body), len(data), link, info, 16 if type_ else 0, entsize
            )
            body += data
        body += b"\0" * (-len(body) % 16)
        ident = b"\x7fELF\x02\x01\x01" + bytes([osabi, abiversion]) + bytes(7)
        return (
            ident
            + struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, 0, 64 + len(body), flags, 64, 56, 0, 64, len(self.rows), names)
            + body
            + table
        )


def cubin(functions, sm=75):
    """A relocatable-looking module with `functions`: {mangled name: size in bytes, or its code}."""
    out = Sections(190, 2, 0x33, 7, sm << 16 | sm)
    strings, symbols = b"\0", bytes(24)
    for name, code in functions.items():
        code = bytes(code)
        section, size = out.add(".text." + name, 1, code, flags=6), len(code)
        symbols += struct.pack("<IBBHQQ", len(strings), 0x12, 0x10, section, 0, size)
        strings += name.encode() + b"\0"
    strtab = out.add(".strtab", STRTAB, strings)
    out.add(".symtab", 2, symbols, link=strtab, info=1, entsize=24)
    return out.bytes()


def relocate(image, base=BASE):
    """-> (a module as the driver holds it: code at absolute addresses, {function: address})."""
    image = bytearray(image)
    shoff, (shentsize, shnum, shstrndx) = struct.unpack_from("<Q", image, 40)[0], struct.unpack_from("<HHH", image, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, shoff + i * shentsize) for i in range(shnum)]

    def text(table, offset):
        start = heads[table][4] + offset
        return image[start : image.index(b"\0", start)].decode()

    at, moved, entries = base, {}, {}
    for i, head in enumerate(heads):
        if text(shstrndx, head[0]).startswith(".text."):
            moved[i] = at
            struct.pack_into("<Q", image, shoff + i * shentsize + 16, at)
            at += head[5] + 255 & -256
    for head in heads:
        if head[1] != 2:
            continue
        for pos in range(head[4], head[4] + head[5], 24):
            name, info, _, index, value, _ = struct.unpack_from("<IBBHQQ", image, pos)
            if index in moved:
                struct.pack_into("<Q", image, pos + 8, value + moved[index])
                if info & 15 == 2:
                    entries[text(head[6], name)] = value + moved[index]
    return bytes(image), entries


@dataclasses.dataclass
class Grid:
    """A running kernel. `blocks`: [(block index, [faulting (warp, lane, exception)])]; every block has all of its warps. `error`:
    offset in bytes of the instruction at fault, None for an exception that is not precise; `at`: where the threads stand."""

    function: str
    grid: tuple
    block: tuple
    blocks: list = dataclasses.field(default_factory=list)
    error: int = 0x100
    at: int = 0x120
    id: int = 1

    @property
    def warps(self):
        return (self.block[0] * self.block[1] * self.block[2] + 31) // 32


PREDICATES_OF_A_LANE = UNIFORM_PREDICATES_OF_A_WARP = 8  # cuda-gdb 13 ends where a core has fewer than it shows
read_by_cuda_gdb = "r400"  # the release whose rows the cuda-gdb of the tests reads; tests/gdb/conftest.py sets it
# Bytes of a row of each table by release: those that cuda-gdb 11.8 reads; later drivers added fields. r580 as its core has them.
ROWS = {
    "r400": (72, 104, 8, 24, 32, 48),
    "r525": (80, 120, 8, 40, 40, 48),
    "r580": (88, 136, 48, 56, 64, 56),
    "newest": (88, 120, 48, 52, 80, 56),
}


@dataclasses.dataclass
class Core:
    """A core with one module, `grids` all on device 0, written table by table. `registers`: {(block, warp, lane): values}."""

    module: bytes
    grids: list
    release: str = ""  # '': the one that the tests' cuda-gdb reads
    parameters: bytes = b""
    shared: bytes = b""
    registers: dict = dataclasses.field(default_factory=dict)
    devices: int = 1
    text: str = ""
    sm: tuple = (7, 5)

    def __post_init__(self):
        self.dev_row, self.grid_row, self.sm_row, self.block_row, self.warp_row, self.lane_row = ROWS[
            self.release or read_by_cuda_gdb
        ]
        self.relocated, self.entries = relocate(self.module)
        self.out = Sections(190, 4, 0x33, 7)
        self.warp_ids = itertools.count()  # of warps on the SM: 32 at most
        strings, self.places = b"\0", {}
        for word in ("NVIDIA Fake GPU", "TU102", "sm_75", self.text or "?"):
            self.places[word] = len(strings)
            strings += word.encode() + b"\0"
        self.out.add(".strtab", STRTAB, strings)

    def write(self):
        devices = self.out.add(".cudbg.devtbl", DEVICES, self.device_rows(), entsize=self.dev_row)
        context = struct.pack("<4Q2I", 1, 0x7F0000000000, 0x7F1000000000, 0, 0, 4242)
        contexts = self.out.add(".cudbg.ctxtbl.dev0", CONTEXTS, context, devices, 0, 40)
        modules = self.out.add(".cudbg.modtbl.dev0.ctx0", MODULES, struct.pack("<Q", 0x5000), contexts, 0, 8)
        self.out.add(".cudbg.relfimg.dev0.ctx0.module0", RELOCATED, self.relocated, modules, 0)
        self.out.add(".cudbg.elfimg.dev0.ctx0.module0", IMAGE, self.module, modules, 0)
        table = self.out.add(".cudbg.gridtbl.dev0", GRIDS, self.grid_rows(), devices, 0, self.grid_row)
        for i, _ in enumerate(self.grids):
            self.out.add(f".cudbg.param.dev0.grid{i}", PARAMETERS, self.parameters or bytes(32), table, i)
        sms = self.out.add(".cudbg.smtbl.dev0", SMS, self.sm_rows(), devices, 0, self.sm_row)
        resident = [(g, index, raised) for g in self.grids for index, raised in g.blocks]
        rows = b"".join(_row(self.block_row, "<Q4I", g.id, *index, 0) for g, index, _ in resident)
        blocks = self.out.add(".cudbg.ctatbl.dev0.sm0", BLOCKS, rows, sms, 0, self.block_row)
        for number, (grid, _, raised) in enumerate(resident):
            self.write_block(blocks, number, grid, raised)

    def device_rows(self):
        layout = "<QQQ15I" if self.dev_row >= 84 else "<QQQ14I" if self.dev_row == 80 else "<QQQ12I"
        more = [63, UNIFORM_PREDICATES_OF_A_WARP, 16][: 3 if self.dev_row >= 84 else 2 if self.dev_row == 80 else 0]
        names = [self.places[word] for word in ("NVIDIA Fake GPU", "TU102", "sm_75")]
        rows = [(*names, d, 1 + d, 0, 2, 32, 32, 256, PREDICATES_OF_A_LANE, *self.sm, 16, 0, *more) for d in range(self.devices)]
        return b"".join(_row(self.dev_row, layout, *row) for row in rows)

    def grid_rows(self):
        rows = []
        for g in self.grids:
            entry = self.entries[g.function]
            fields = (g.id, 1, entry, entry, 0x5000, 0, 0x160, 2, 0, 2, 32, *g.grid, *g.block, 0, 4242)
            rows.append(_row(self.grid_row, "<7Q12I", *fields))
        return b"".join(rows)

    def sm_rows(self):
        rows = [_row(self.sm_row, "<2I", number, 0) for number in (0, 1)]
        faulty = [e for g in self.grids for _, raised in g.blocks for _, _, e in raised]
        if self.sm_row >= 48 and faulty:
            at = self.entries[self.grids[0].function] + (self.grids[0].error or 0)
            text = self.places[self.text or "?"]
            rows[0] = _row(self.sm_row, "<4IQ4IQ", 0, 0, faulty[0], 1, at, 0, 0, 0, 0, text)
        return b"".join(rows)

    def write_block(self, blocks, number, grid, raised):
        self.out.add(f".cudbg.shared.dev0.sm0.cta{number}", SHARED, self.shared or bytes(64), blocks, number)
        threads, entry, rows = grid.block[0] * grid.block[1] * grid.block[2], self.entries[grid.function], b""
        for warp in range(grid.warps):
            precise = grid.error is not None and any(r[0] == warp for r in raised)
            mask = (1 << min(32, threads - 32 * warp)) - 1
            fields = (entry + grid.error if precise else 0, next(self.warp_ids), mask, mask, 0, int(precise), 0)
            rows += _row(self.warp_row, "<Q6I", *fields)
        warps = self.out.add(f".cudbg.wptbl.dev0.sm0.cta{number}", WARPS, rows, blocks, number, self.warp_row)
        for warp in range(grid.warps):
            self.write_warp(warps, number, warp, grid, {lane: e for w, lane, e in raised if w == warp})

    def write_warp(self, warps, number, warp, grid, hit):
        name, rows, at = f"dev0.sm0.cta{number}.wp{warp}", b"", self.entries[grid.function] + grid.at
        wide, high, _ = grid.block
        for lane in range(32):
            n = 32 * warp + lane
            x, y, z = n % wide, n // wide % high, n // (wide * high)
            rows += _row(self.lane_row, "<2Q8I", at, at - BASE, lane, x, y, z, hit.get(lane, 0), 0, 0, 0)
        lanes = self.out.add(f".cudbg.lntbl.{name}", LANES, rows, warps, warp, self.lane_row)
        self.out.add(f".cudbg.uregs.{name}", UNIFORM, bytes(63 * 4), warps, warp)
        self.out.add(f".cudbg.upred.{name}", UNIFORM_PREDICATES, bytes(4 * UNIFORM_PREDICATES_OF_A_WARP), warps, warp)
        for lane in range(32):
            values = self.registers.get((number, warp, lane), ())
            words = struct.pack("<255I", *values, *([0] * (255 - len(values))))
            self.out.add(f".cudbg.regs.{name}.ln{lane}", REGISTERS, words, lanes, lane)
            self.out.add(f".cudbg.pred.{name}.ln{lane}", PREDICATES, bytes(4 * PREDICATES_OF_A_LANE), lanes, lane)


def _row(size, layout, *fields):
    return struct.pack(layout, *fields).ljust(size, b"\0")


def write_core(path, module, grids, memory=(), **options):
    """Writes a `Core`; `memory`: [(address, bytes)] of global memory. -> {function: entry}"""
    core = Core(module, list(grids), **options)
    core.write()
    for i, (address, data) in enumerate(memory):
        core.out.add(f".cudbg.global.{i}", GLOBAL, data, address=address)
    with open(path, "wb") as f:
        f.write(core.out.bytes())
    return core.entries
