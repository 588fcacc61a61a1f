"""FAKE GPU core dumps: made from the public format (gdbext/kernels/gpucore.py names it), never written by a driver.

`write_core(path, …)` writes one with the kernels, faults and memory that a test asks for; `cubin(functions)` makes a module with
those functions, where no compiled one is given."""

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


class Grid:
    """A running kernel. `blocks`: [(block index, [faulting (warp, lane, exception)])]; every block has all of its warps. `error`:
    offset in bytes of the instruction at fault, None for an exception that is not precise; `at`: where the threads stand."""

    def __init__(self, function, grid, block, blocks=(), error=0x100, at=0x120, grid_id=1):
        self.function, self.grid, self.block, self.blocks, self.error, self.at, self.id = (
            function,
            grid,
            block,
            list(blocks),
            error,
            at,
            grid_id,
        )


def write_core(
    path, module, grids, memory=(), release="r400", parameters=b"", shared=b"", registers=None, devices=1, text="", sm=(7, 5)
):
    """Writes a core with one module, `grids` all on device 0. `memory`: [(address, bytes)] of global memory. `release`: "r400"
    rows, those that cuda-gdb 11.8 reads; "r525" and "newest" have the fields that later drivers added. -> {function: entry}"""
    pad = {"r400": (72, 104, 8, 24, 32, 48), "r525": (80, 120, 8, 40, 40, 48), "newest": (88, 120, 48, 52, 80, 56)}[release]
    dev_row, grid_row, sm_row, block_row, warp_row, lane_row = pad
    relocated, entries = relocate(module)
    strings, places = b"\0", {}
    for word in ("NVIDIA Fake GPU", "TU102", "sm_75", text or "?"):
        places[word] = len(strings)
        strings += word.encode() + b"\0"
    out = Sections(190, 4, 0x33, 7)
    out.add(".strtab", STRTAB, strings)

    def rows(size, layout, *fields):
        return struct.pack(layout, *fields).ljust(size, b"\0")

    devtbl = out.add(
        ".cudbg.devtbl",
        DEVICES,
        b"".join(
            rows(
                dev_row,
                "<QQQ15I" if dev_row >= 84 else "<QQQ14I" if dev_row == 80 else "<QQQ12I",
                places["NVIDIA Fake GPU"],
                places["TU102"],
                places["sm_75"],
                d,
                1 + d,
                0,
                2,
                32,
                32,
                256,
                7,
                *sm,
                16,
                0,
                *([63, 7, 16][: 3 if dev_row >= 84 else 2 if dev_row == 80 else 0]),
            )
            for d in range(devices)
        ),
        entsize=dev_row,
    )
    ctxtbl = out.add(
        ".cudbg.ctxtbl.dev0", CONTEXTS, struct.pack("<4Q2I", 1, 0x7F0000000000, 0x7F1000000000, 0, 0, 4242), devtbl, 0, 40
    )
    modtbl = out.add(".cudbg.modtbl.dev0.ctx0", MODULES, struct.pack("<Q", 0x5000), ctxtbl, 0, 8)
    out.add(".cudbg.relfimg.dev0.ctx0.module0", RELOCATED, relocated, modtbl, 0)
    out.add(".cudbg.elfimg.dev0.ctx0.module0", IMAGE, module, modtbl, 0)
    gridtbl = out.add(
        ".cudbg.gridtbl.dev0",
        GRIDS,
        b"".join(
            rows(
                grid_row,
                "<7Q12I",
                g.id,
                1,
                entries[g.function],
                entries[g.function],
                0x5000,
                0,
                0x160,
                2,
                0,
                2,
                32,
                *g.grid,
                *g.block,
                0,
                4242,
            )
            for g in grids
        ),
        devtbl,
        0,
        grid_row,
    )
    for i, _ in enumerate(grids):
        out.add(f".cudbg.param.dev0.grid{i}", PARAMETERS, parameters or bytes(32), gridtbl, i)
    faulty = [(e, error) for g in grids for _, raised in g.blocks for _, _, e in raised for error in [g.error]]
    sms = [rows(sm_row, "<2I", 0, 0), rows(sm_row, "<2I", 1, 0)]
    if sm_row >= 48 and faulty:
        first = grids[0]
        sms[0] = rows(
            sm_row,
            "<4IQ4IQ",
            0,
            0,
            faulty[0][0],
            1,
            entries[first.function] + (first.error or 0),
            0,
            0,
            0,
            0,
            places[text or "?"],
        )
    smtbl = out.add(".cudbg.smtbl.dev0", SMS, b"".join(sms), devtbl, 0, sm_row)
    resident = [(g, index, raised) for g in grids for index, raised in g.blocks]
    ctatbl = out.add(
        ".cudbg.ctatbl.dev0.sm0",
        BLOCKS,
        b"".join(rows(block_row, "<Q4I", g.id, *index, 0) for g, index, _ in resident),
        smtbl,
        0,
        block_row,
    )
    ids = itertools.count()  # of warps on the SM: 32 at most
    for c, (g, _index, raised) in enumerate(resident):
        out.add(f".cudbg.shared.dev0.sm0.cta{c}", SHARED, shared or bytes(64), ctatbl, c)
        threads = g.block[0] * g.block[1] * g.block[2]
        count, entry, table = (threads + 31) // 32, entries[g.function], b""
        for w in range(count):
            hit = [r for r in raised if r[0] == w]
            precise = bool(hit) and g.error is not None
            mask = (1 << min(32, threads - 32 * w)) - 1
            table += rows(warp_row, "<Q6I", entry + g.error if precise else 0, next(ids), mask, mask, 0, int(precise), 0)
        wptbl = out.add(f".cudbg.wptbl.dev0.sm0.cta{c}", WARPS, table, ctatbl, c, warp_row)
        for w in range(count):
            lanes, hit = b"", {lane: e for warp, lane, e in raised if warp == w}
            for lane in range(32):
                n = 32 * w + lane
                x, y, z = n % g.block[0], n // g.block[0] % g.block[1], n // (g.block[0] * g.block[1])
                lanes += rows(lane_row, "<2Q8I", entry + g.at, entry + g.at - BASE, lane, x, y, z, hit.get(lane, 0), 0, 0, 0)
            lntbl = out.add(f".cudbg.lntbl.dev0.sm0.cta{c}.wp{w}", LANES, lanes, wptbl, w, lane_row)
            out.add(f".cudbg.uregs.dev0.sm0.cta{c}.wp{w}", UNIFORM, bytes(63 * 4), wptbl, w)
            out.add(f".cudbg.upred.dev0.sm0.cta{c}.wp{w}", UNIFORM_PREDICATES, bytes(7 * 4), wptbl, w)
            for lane in range(32):
                values = (registers or {}).get((c, w, lane), ())
                out.add(
                    f".cudbg.regs.dev0.sm0.cta{c}.wp{w}.ln{lane}",
                    REGISTERS,
                    struct.pack("<255I", *values, *([0] * (255 - len(values)))),
                    lntbl,
                    lane,
                )
                out.add(f".cudbg.pred.dev0.sm0.cta{c}.wp{w}.ln{lane}", PREDICATES, bytes(7 * 4), lntbl, lane)
    for i, (address, data) in enumerate(memory):
        out.add(f".cudbg.global.{i}", GLOBAL, data, address=address)
    data = out.bytes()
    with open(path, "wb") as f:
        f.write(data)
    return entries
