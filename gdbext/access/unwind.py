"""Native stacks from registers and memory alone: call-frame information (.eh_frame) of the mapped files, no symbols, no gdb.

Works on any Target that has mappings and a thread's registers: a stopped process, a core, a snapshot, after the process went on. Sources:
DWARF 4 chapter 6.4, LSB "Exception Frames" (.eh_frame, .eh_frame_hdr), System V ABI x86-64 section 3.6.2 (register numbers),
"DWARF for the Arm 64-bit Architecture" section 4.1.
"""

import struct

from ..errors import FaultError, GdbextError, NotFoundError
from .base import NativeFrame
from .elf import PT_GNU_EH_FRAME, Elf

# register names by DWARF number; the one for the return address is the caller's pc
NUMBERS = {
    "x86-64": ["rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp"] + [f"r{n}" for n in range(8, 16)] + ["rip"],
    "aarch64": [f"x{n}" for n in range(31)] + ["sp"],
}
PC = {"x86-64": "rip", "aarch64": "pc"}
SP = {"x86-64": 7, "aarch64": 31}
FP = {"x86-64": 6, "aarch64": 29}
MAX_FRAMES = 4096
MASK = (1 << 64) - 1


class _Bytes:
    """A cursor over bytes of an ELF file at a virtual address."""

    def __init__(self, data, at, vaddr):
        self.data, self.at, self.delta = data, at, vaddr - at

    def take(self, code):
        value = struct.unpack_from("<" + code, self.data, self.at)[0]
        self.at += struct.calcsize("<" + code)
        return value

    def uleb(self):
        value = shift = 0
        while True:
            b = self.data[self.at]
            self.at += 1
            value |= (b & 127) << shift
            shift += 7
            if b < 128 or shift > 70:
                return value

    def sleb(self):
        start, value = self.at, self.uleb()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value

    def encoded(self, encoding, base=0):
        """A pointer in one of the DW_EH_PE encodings; 0xff: none."""
        if encoding == 0xFF:
            return None
        here = self.at + self.delta
        kind = encoding & 15
        value = (
            self.uleb()
            if kind == 1
            else self.sleb()
            if kind == 9
            else self.take({0: "Q", 2: "H", 3: "I", 4: "Q", 10: "h", 11: "i", 12: "q"}[kind])
        )
        relative = encoding & 0x70
        if relative == 0x10 and value:
            value += here
        elif relative == 0x30:
            value += base
        return value & MASK


class _Cie:
    def __init__(self, cursor, end):
        self.version = cursor.take("B")
        start = cursor.at
        augmentation = cursor.data[start : cursor.data.find(b"\0", start, end)]
        cursor.at = start + len(augmentation) + 1
        if self.version == 4:
            cursor.take("H")
        self.code_align, self.data_align = cursor.uleb(), cursor.sleb()
        self.return_register = cursor.take("B") if self.version == 1 else cursor.uleb()
        self.encoding, self.signal, self.sized = 0, b"S" in augmentation, augmentation.startswith(b"z")
        if self.sized:
            length = cursor.uleb()
            stop = cursor.at + length
            for c in augmentation[1:]:
                if c == ord("R"):
                    self.encoding = cursor.take("B")
                elif c == ord("P"):
                    cursor.encoded(cursor.take("B"))
                elif c == ord("L"):
                    cursor.take("B")
            cursor.at = stop
        self.program = (cursor.at, end)


class FrameTable:
    """The call-frame information of one file."""

    def __init__(self, elf):
        self.elf, self._cies, self._rows = elf, {}, {}
        segment = next((s for s in elf.segments if s.type == PT_GNU_EH_FRAME), None)
        if segment is None or segment.offset + 12 > len(elf.data):
            raise NotFoundError(f"{elf.path}: no .eh_frame_hdr")
        cursor = _Bytes(elf.data, segment.offset, segment.vaddr)
        self._base = segment.vaddr
        _, frame_encoding, count_encoding, table_encoding = (cursor.take("B") for _ in range(4))
        cursor.encoded(frame_encoding, self._base)
        self._count = cursor.encoded(count_encoding, self._base) or 0
        self._table = cursor.at
        if table_encoding != 0x3B or self._table + 8 * self._count > len(elf.data):
            raise NotFoundError(f"{elf.path}: its .eh_frame_hdr has no table that is known here")

    def find(self, vaddr):
        """-> (start of the function, `Row` of rules at `vaddr`), or None where no entry covers it."""
        if vaddr not in self._rows:
            self._rows[vaddr] = self._rules(vaddr)
        return self._rows[vaddr]

    def extent(self, vaddr):
        """-> (first address, first address behind it) of the function around `vaddr`, or None where no entry covers it."""
        found = self._entry(vaddr)
        return found and (found[0], found[0] + found[1])

    def _entry(self, vaddr):
        """-> (start of the function, its size, its CIE, cursor, end of the entry) of the entry that covers an address, or None."""
        low, high, data = 0, self._count, self.elf.data
        while low < high:
            middle = (low + high) // 2
            start = struct.unpack_from("<i", data, self._table + 8 * middle)[0] + self._base
            if start <= vaddr:
                low = middle + 1
            else:
                high = middle
        if not low:
            return None
        entry = struct.unpack_from("<i", data, self._table + 8 * (low - 1) + 4)[0] + self._base
        at = self.elf.offset_of(entry)
        if at is None:
            return None
        cursor = _Bytes(data, at, entry)
        length = cursor.take("I")
        if length in (0, 0xFFFFFFFF):
            return None
        end = cursor.at + length
        here = cursor.at
        cie_at = here - cursor.take("I")
        cie = self._cie(cie_at, entry - at)
        start = cursor.encoded(cie.encoding)
        size = cursor.encoded(cie.encoding & 15)
        return (start, size, cie, cursor, end) if start <= vaddr < start + size else None

    def _rules(self, wanted):
        found = self._entry(wanted)
        if found is None:
            return None
        start, _, cie, cursor, end = found
        if cie.sized:
            skip = cursor.uleb()
            cursor.at += skip
        row = Row(cie)
        _run(self.elf.data, *cie.program, row, cie, None, start, wanted)
        row.initial = dict(row.rules)
        _run(self.elf.data, cursor.at, end, row, cie, row.initial, start, wanted)
        return start, row

    def _cie(self, at, delta):
        if at not in self._cies:
            cursor = _Bytes(self.elf.data, at, at + delta)
            length = cursor.take("I")
            end = cursor.at + length
            cursor.take("I")
            self._cies[at] = _Cie(cursor, end)
        return self._cies[at]


class Row:
    """How to find the caller: `cfa` = (register, offset) or an expression's bytes; `rules`: {register: (kind, operand)}."""

    def __init__(self, cie):
        self.cfa, self.rules, self.initial, self.signal, self.return_register = (0, 0), {}, {}, cie.signal, cie.return_register


def _run(data, at, end, row, cie, initial, location, wanted):
    """Runs call-frame instructions up to the address `wanted`."""
    cursor, stack = _Bytes(data, at, 0), []
    while cursor.at < end:
        op = cursor.take("B")
        high, low = op & 0xC0, op & 0x3F
        if high == 0x40 or op in (1, 2, 3, 4):
            if op == 1:
                location = cursor.encoded(cie.encoding)
            else:
                step = low if high == 0x40 else cursor.take({2: "B", 3: "H", 4: "I"}[op])
                location += step * cie.code_align
            if location > wanted:
                return
        elif high == 0x80:
            row.rules[low] = ("offset", cursor.uleb() * cie.data_align)
        elif high == 0xC0:
            _restore(row, low, initial)
        elif op == 0x05:
            reg = cursor.uleb()
            row.rules[reg] = ("offset", cursor.uleb() * cie.data_align)
        elif op == 0x06:
            _restore(row, cursor.uleb(), initial)
        elif op in (0x07, 0x08):
            row.rules[cursor.uleb()] = ("undefined" if op == 7 else "same", 0)
        elif op == 0x09:
            reg = cursor.uleb()
            row.rules[reg] = ("register", cursor.uleb())
        elif op == 0x0A:
            stack.append((row.cfa, dict(row.rules)))
        elif op == 0x0B:
            if stack:
                row.cfa, row.rules = stack.pop()
        elif op == 0x0C:
            reg = cursor.uleb()
            row.cfa = (reg, cursor.uleb())
        elif op == 0x0D:
            row.cfa = (cursor.uleb(), row.cfa[1])
        elif op == 0x0E:
            row.cfa = (row.cfa[0], cursor.uleb())
        elif op == 0x0F:
            row.cfa = _block(cursor)
        elif op in (0x10, 0x16):
            reg = cursor.uleb()
            row.rules[reg] = ("expression" if op == 0x10 else "value expression", _block(cursor))
        elif op == 0x11:
            reg = cursor.uleb()
            row.rules[reg] = ("offset", cursor.sleb() * cie.data_align)
        elif op == 0x12:
            reg = cursor.uleb()
            row.cfa = (reg, cursor.sleb() * cie.data_align)
        elif op == 0x13:
            row.cfa = (row.cfa[0], cursor.sleb() * cie.data_align)
        elif op in (0x14, 0x15):
            reg = cursor.uleb()
            row.rules[reg] = ("value", (cursor.uleb() if op == 0x14 else cursor.sleb()) * cie.data_align)
        elif op == 0x2E:
            cursor.uleb()
        elif op == 0x2F:
            reg = cursor.uleb()
            row.rules[reg] = ("offset", -cursor.uleb() * cie.data_align)
        elif op not in (0x00, 0x2D):
            raise GdbextError(f"an unknown call-frame instruction {op:#x}")


def _block(cursor):
    size = cursor.uleb()
    cursor.at += size
    return bytes(cursor.data[cursor.at - size : cursor.at])


def _restore(row, reg, initial):
    if initial and reg in initial:
        row.rules[reg] = initial[reg]
    else:
        row.rules.pop(reg, None)


_BINARY = {
    0x1A: lambda a, b: a & b,
    0x1C: lambda a, b: a - b,
    0x1E: lambda a, b: a * b,
    0x21: lambda a, b: a | b,
    0x22: lambda a, b: a + b,
    0x24: lambda a, b: a << (b & 63),
    0x25: lambda a, b: a >> (b & 63),
    0x27: lambda a, b: a ^ b,
    0x29: lambda a, b: a == b,
    0x2A: lambda a, b: _signed(a) >= _signed(b),
    0x2B: lambda a, b: _signed(a) > _signed(b),
    0x2C: lambda a, b: _signed(a) <= _signed(b),
    0x2D: lambda a, b: _signed(a) < _signed(b),
    0x2E: lambda a, b: a != b,
}
_CONSTANTS = {0x08: "B", 0x09: "b", 0x0A: "H", 0x0B: "h", 0x0C: "I", 0x0D: "i", 0x0E: "Q", 0x0F: "q"}


def _signed(value):
    return value - (1 << 64) if value >> 63 else value


def _expression(block, registers, target, first=None):
    """The value of a DWARF location expression as compilers and libc use them in call-frame information."""
    cursor, stack = _Bytes(block, 0, 0), [] if first is None else [first]
    while cursor.at < len(block):
        op = cursor.take("B")
        if 0x70 <= op <= 0x8F:
            stack.append(registers[op - 0x70] + cursor.sleb() & MASK)
        elif 0x30 <= op <= 0x4F:
            stack.append(op - 0x30)
        elif op in _CONSTANTS:
            stack.append(cursor.take(_CONSTANTS[op]) & MASK)
        elif op == 0x10:
            stack.append(cursor.uleb())
        elif op == 0x11:
            stack.append(cursor.sleb() & MASK)
        elif op == 0x06:
            stack.append(target.u64(stack.pop()))
        elif op == 0x12:
            stack.append(stack[-1])
        elif op == 0x13:
            stack.pop()
        elif op == 0x16:
            stack[-1], stack[-2] = stack[-2], stack[-1]
        elif op == 0x23:
            stack.append(stack.pop() + cursor.uleb() & MASK)
        elif op in _BINARY:
            right = stack.pop()
            stack.append(int(_BINARY[op](stack.pop(), right)) & MASK)
        else:
            raise GdbextError(f"an unknown operation {op:#x} in call-frame information")
    return stack[-1]


_tables = {}


def _table(elf):
    """The `FrameTable` of a file, shared by all targets; None when it has none."""
    key = id(elf)
    if key not in _tables:
        try:
            _tables[key] = FrameTable(elf)
        except (GdbextError, struct.error, IndexError, KeyError):
            _tables[key] = None
    return _tables[key]


class Unwinder:
    """Walks the stacks of one `Target`."""

    def __init__(self, target):
        self.target = target
        self.arch = target.arch
        if self.arch not in NUMBERS:
            raise GdbextError(f"{target.describe()}: stacks of {self.arch} cannot be unwound here")

    def frames(self, registers, limit=MAX_FRAMES):
        """`[NativeFrame]`, innermost first, from `{name: value}`. A frame whose caller had to be guessed makes the older ones
        unreliable; the walk ends where nothing is known, never in a loop."""
        names = NUMBERS[self.arch]
        values = {i: registers[n] & MASK for i, n in enumerate(names) if n in registers}
        pc, reliable, found, exact = registers[PC[self.arch]] & MASK, True, [], True
        while len(found) < limit:
            sp = values.get(SP[self.arch], 0)
            module, place, function, row = self._look(pc, exact)
            found.append(NativeFrame(len(found), pc, sp, function, library=module.path if module else "", reliable=reliable))
            try:
                if row is not None:
                    pc, values = self._caller(row, values)
                    exact = row.signal  # the frame under a signal handler was interrupted: its pc is no return address
                else:
                    reliable = False
                    pc, values = self._guess(values, len(found) == 1)
                    exact = False
            except (FaultError, KeyError, IndexError, GdbextError, struct.error):
                break
            if not pc or values.get(SP[self.arch], 0) <= sp and not (exact and len(found) > 1):
                break  # the outermost frame, or a stack that does not grow: damage
            if self.target.mapping_at(pc) is None:
                break
        return found

    def _look(self, pc, exact):
        """-> (module, address in the file, function name, `Row` or None)"""
        module = self._module(pc)
        if module is None:
            return None, 0, "", None
        try:
            elf = module.elf
        except NotFoundError:
            return module, 0, "", None
        place = pc - module.bias - (0 if exact else 1)
        table = _table(elf)
        try:
            found = table.find(place) if table else None
        except (GdbextError, struct.error, IndexError, KeyError):
            found = None
        if found is None:
            return module, place, elf.function_at(place), None
        return module, place, elf.function_from(found[0]) or elf.function_at(place), found[1]

    def _module(self, pc):
        module = self.target.module_at(pc)
        if module is None:
            mapping = self.target.mapping_at(pc)
            if mapping is not None and mapping.path in ("[vdso]", "linux-vdso.so.1"):
                return self.target.cached(("vdso", mapping.start), lambda: self._vdso(mapping))
        return module

    def _vdso(self, mapping):
        from .base import Module

        module = Module("[vdso]", "", mapping.start, mapping.end)
        try:
            module._elf = Elf("[vdso]", self.target.read(mapping.start, min(mapping.end - mapping.start, 1 << 16)))
        except GdbextError:
            return None
        return module

    def _caller(self, row, values):
        if isinstance(row.cfa, bytes):
            cfa = _expression(row.cfa, values, self.target)
        else:
            cfa = values[row.cfa[0]] + row.cfa[1] & MASK
        older = dict(values)
        for reg, (kind, operand) in row.rules.items():
            if kind == "offset":
                older[reg] = self.target.u64(cfa + operand & MASK)
            elif kind == "undefined":
                older.pop(reg, None)
            elif kind == "register":
                older[reg] = values[operand]
            elif kind == "value":
                older[reg] = cfa + operand & MASK
            elif kind == "expression":
                older[reg] = self.target.u64(_expression(operand, values, self.target, cfa))
            elif kind == "value expression":
                older[reg] = _expression(operand, values, self.target, cfa)
        if SP[self.arch] not in row.rules:
            older[SP[self.arch]] = cfa
        pc = older.get(row.return_register, 0)
        if self.arch == "aarch64":
            pc &= (1 << 48) - 1  # pointer authentication keeps its signature above
        else:
            older.pop(row.return_register, None)
        return pc, older

    def _guess(self, values, innermost):
        """No call-frame information: a return address on top of the stack (only in the innermost frame), else the frame pointer's chain."""
        sp, fp = values[SP[self.arch]], values.get(FP[self.arch], 0)
        if innermost and self.arch == "x86-64":
            pc = self.target.u64(sp)
            if self._is_code(pc):
                return pc, {**values, SP[self.arch]: sp + 8}
        if fp >= sp and fp - sp < 1 << 24 and fp % 8 == 0:
            next_fp, pc = self.target.words(fp, 2)
            if self._is_code(pc):
                return pc, {**values, SP[self.arch]: fp + 16, FP[self.arch]: next_fp}
        raise GdbextError("the stack cannot be followed")

    def _is_code(self, pc):
        mapping = self.target.mapping_at(pc)
        return mapping is not None and ("x" in mapping.perms or not mapping.perms)
