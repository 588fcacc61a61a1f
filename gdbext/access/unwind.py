"""Native stacks from registers and memory alone: call-frame information of the mapped files, no symbols read ahead, no gdb.

It works on any Target that has mappings and a thread's registers: a stopped process, a core, a snapshot of a process that runs
on. Sources: System V ABI x86-64 section 3.6.2 (register numbers), "DWARF for the Arm 64-bit Architecture" section 4.1, DWARF 4
section 2.5 (expressions).
"""

from __future__ import annotations

import operator
import os
import struct
from typing import Callable, Dict, Optional, Tuple

from .. import log
from ..errors import FaultError, GdbextError, NotFoundError
from . import made_code
from .cfi import MASK, Cursor, Row, table_of
from .model import Mapping, Memory, Module, NativeFrame, Registers

Values = Dict[int, int]  # register values by DWARF number
Place = Tuple[Optional[Module], str, Optional[Row]]  # known facts of a pc: the module, the function's name, its row

# register names by DWARF number; the one for the return address is the caller's pc
NUMBERS = {
    "x86-64": ["rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp"] + [f"r{n}" for n in range(8, 16)] + ["rip"],
    "aarch64": [f"x{n}" for n in range(31)] + ["sp"],
}
ARGUMENTS = {"x86-64": ["rdi", "rsi", "rdx", "rcx", "r8", "r9"], "aarch64": [f"x{n}" for n in range(8)]}  # integers and pointers
PC = {"x86-64": "rip", "aarch64": "pc"}
SP = {"x86-64": 7, "aarch64": 31}
FP = {"x86-64": 6, "aarch64": 29}
SIGRETURN = b"\x68\x11\x80\xd2\x01\x00\x00\xd4"  # aarch64: mov x8, #139; svc #0
SIGNAL_REGISTERS = 128 + 176 + 8  # aarch64: behind siginfo, in ucontext the sigcontext, in that the address of a fault
LINK = 30  # aarch64: where a call leaves its return address
POPPED = [0, 2, 1, 3, 7, 6, 4, 5, *range(8, 16)]  # DWARF numbers by the number in an instruction of x86-64
EPILOGUE = 24  # bytes of code that are read behind a return address
MAX_FRAMES = 4096
MAX_GUESS = 1 << 24  # bytes between two frames that a guess may skip
VDSO = ("[vdso]", "linux-vdso.so.1")
NOWHERE: Place = (None, "", None)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _ordered(compare: Callable[[int, int], bool]) -> Callable[[int, int], int]:
    return lambda a, b: int(compare(_signed(a), _signed(b)))


_BINARY: dict[int, Callable[[int, int], int]] = {
    0x1A: operator.and_,
    0x1C: operator.sub,
    0x1E: operator.mul,
    0x21: operator.or_,
    0x22: operator.add,
    0x24: lambda a, b: a << (b & 63),
    0x25: lambda a, b: a >> (b & 63),
    0x27: operator.xor,
    0x29: operator.eq,
    0x2A: _ordered(operator.ge),
    0x2B: _ordered(operator.gt),
    0x2C: _ordered(operator.le),
    0x2D: _ordered(operator.lt),
    0x2E: operator.ne,
}
_CONSTANTS = {0x08: "B", 0x09: "b", 0x0A: "H", 0x0B: "h", 0x0C: "I", 0x0D: "i", 0x0E: "Q", 0x0F: "q"}


def evaluate(block: bytes, registers: Values, memory: Memory, first: int | None = None) -> int:
    """The value of a DWARF location expression, with the operations that call-frame information uses. `first`: the value on its
    stack at the start."""
    cursor, stack = Cursor(block, 0), [] if first is None else [first]
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
            stack.append(memory.u64(stack.pop()))
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


class Unwinder:
    """Walks the stacks of one Target; `GdbextError` for an architecture that is not known here."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.arch = memory.arch
        if self.arch not in NUMBERS:
            raise GdbextError(f"{memory.describe()}: stacks of {self.arch} cannot be unwound here")

    def frames(self, registers: Registers, limit: int = MAX_FRAMES) -> list[NativeFrame]:
        """The frames from `{name: value}`, innermost first.

        A frame whose caller had to be guessed makes the older ones unreliable. The walk ends where no caller is known, and never
        loops."""
        sp_number = SP[self.arch]
        values = {i: registers[n] & MASK for i, n in enumerate(NUMBERS[self.arch]) if n in registers}
        pc, reliable, exact, doubt = registers[PC[self.arch]] & MASK, True, True, ""
        found: list[NativeFrame] = []
        known: dict[tuple[int, bool], Place] = self.memory.cached("unwound places", dict)  # many threads are at few places
        while len(found) < limit:
            sp = values.get(sp_number, 0)
            if (pc, exact) not in known:
                known[pc, exact] = self._look_up(pc, exact)
            module, function, row = known[pc, exact]
            if reliable and module is not None and module.doubt:
                reliable, doubt = False, module.doubt
            path = module.path if module else ""
            why = doubt or ("" if function and module is not None else self._unknown(module, pc, function))
            found.append(NativeFrame(len(found), pc, sp, function, library=path, reliable=reliable, doubt=why))
            ran = exact
            try:
                if row is not None:
                    pc, values = self._caller(row, values)
                    exact = row.signal  # the frame under a signal handler was interrupted: its pc is no return address
                elif self._returns_from_signal(pc):
                    found[-1].function = found[-1].function or "__kernel_rt_sigreturn"
                    pc, values = self._interrupted(values)
                    exact = True
                elif module is None and not exact and (left := self._leaves(pc, values)) is not None:
                    pc, values = left
                else:
                    if reliable:
                        where = f"at {pc:#x} in {os.path.basename(path)}" if path else f"at {pc:#x}"
                        doubt = f"guessed, for the code {where} has no call-frame information"
                    pc, values = self._guess(pc, values, exact)
                    reliable = exact = False
            except (KeyError, IndexError, GdbextError, struct.error) as e:
                log.passed_over(e)
                found[-1].cut = True
                break
            if not pc:
                break  # the outermost frame
            new_sp = values.get(sp_number, 0)
            grows = new_sp > sp or (new_sp == sp and ran)  # a function that runs may have put nothing on the stack
            is_code = known.get((pc, exact), NOWHERE)[0] is not None or self.memory.mapping_at(pc) is not None
            if not is_code or not grows and not (exact and len(found) > 1):
                found[-1].cut = True  # damage
                break
        return found

    def is_whole(self, registers: Registers) -> bool:
        """Whether the stack can be walked to its outermost frame by call-frame information, from these registers alone."""
        known: dict[tuple[int, bool], Row | None] = self.memory.cached("unwound rows", dict)
        values = {i: registers[n] for i, n in enumerate(NUMBERS[self.arch]) if n in registers}
        pc, exact, sp_number = registers.get(PC[self.arch], 0), True, SP[self.arch]
        for _ in range(MAX_FRAMES):
            if (pc, exact) not in known:
                known[pc, exact] = self._row(pc, exact)
            row, sp = known[pc, exact], values.get(sp_number, 0)
            if row is None:
                return False
            try:
                pc, values = self._caller(row, values)
            except (KeyError, IndexError, GdbextError, struct.error) as e:
                log.passed_over(e)
                return False
            if not pc:
                return True
            if values[sp_number] <= sp and not exact:
                return False  # damage
            exact = row.signal
        return False

    def _row(self, pc: int, exact: bool) -> Row | None:
        """The rules of call-frame information for `pc`; None where there is none."""
        module = self._module(pc)
        try:
            table = table_of(module.elf) if module is not None else None
            found = table.find(pc - module.bias - (0 if exact else 1)) if table and module is not None else None
        except (GdbextError, struct.error, IndexError, KeyError) as e:
            log.passed_over(e)
            return None
        return found[1] if found else None

    def _unknown(self, module: Module | None, pc: int, function: str = "") -> str:
        """Why the function at `pc` has no name, or none of a file."""
        if module is None:
            mapping = self.memory.mapping_at(pc)
            if mapping is None:
                return "nothing is mapped at its pc"
            written = made_code.of(self.memory) if function else None
            named = f"; the name is from {written.path}" if written is not None else ""
            return f"its code was made at run time, it lies in {mapping.path or 'memory of no file'}{named}"
        try:
            return "" if module.elf is None else f"no symbol of {os.path.basename(module.path)} covers it"
        except NotFoundError as e:
            return str(e)

    def _look_up(self, pc: int, exact: bool) -> Place:
        """`exact`: pc is an instruction that runs, not a return address."""
        module = self._module(pc)
        if module is None:
            written = made_code.of(self.memory)
            return (None, written.at(pc if exact else pc - 1), None) if written is not None else NOWHERE
        try:
            elf = module.elf
        except NotFoundError as e:
            log.passed_over(e)
            return module, "", None
        place = pc - module.bias - (0 if exact else 1)
        table = table_of(elf)
        try:
            found = table.find(place) if table else None
        except (GdbextError, struct.error, IndexError, KeyError) as e:
            log.passed_over(e)
            found = None
        if found is None:
            return module, elf.function_at(place), None
        start, row = found
        name = elf.function_from(start)
        if not name and row.signal:  # its entry begins one byte before the code that a signal handler returns to
            name = elf.function_from(start + 1)
        return module, name or elf.function_at(place), row

    def _module(self, pc: int) -> Module | None:
        module = self.memory.module_at(pc)
        if module is None:
            mapping = self.memory.mapping_at(pc)
            if mapping is not None and mapping.path in VDSO:
                return self.memory.cached(("vdso", mapping.start), lambda: self._vdso(mapping))
        return module

    def _vdso(self, mapping: Mapping) -> Module | None:
        try:
            data = self.memory.read(mapping.start, min(mapping.end - mapping.start, 1 << 16))
            return Module.of_bytes("[vdso]", mapping.start, mapping.end, data)
        except GdbextError as e:
            log.passed_over(e)
            return None

    def _caller(self, row: Row, values: Values) -> tuple[int, Values]:
        """-> (pc, registers) of the caller by call-frame information."""
        if isinstance(row.cfa, bytes):
            cfa = evaluate(row.cfa, values, self.memory)
        else:
            cfa = values[row.cfa[0]] + row.cfa[1] & MASK
        older = dict(values)
        for register, (kind, operand) in row.rules.items():
            if kind == "undefined":
                older.pop(register, None)
            elif isinstance(operand, bytes):
                value = evaluate(operand, values, self.memory, cfa)
                older[register] = self.memory.u64(value) if kind == "expression" else value
            elif kind == "offset":
                older[register] = self.memory.u64(cfa + operand & MASK)
            elif kind == "register":
                older[register] = values[operand]
            elif kind == "value":
                older[register] = cfa + operand & MASK
        if SP[self.arch] not in row.rules:
            older[SP[self.arch]] = cfa
        pc = older.get(row.return_register, 0)
        if self.arch != "aarch64":  # where the return address is in a register of its own, which is another function's by now
            older.pop(row.return_register, None)
        return self._code(pc), older

    def _returns_from_signal(self, pc: int) -> bool:
        """Whether a signal handler returns to `pc`. On aarch64 Linux has no call-frame information for that code
        (arch/arm64/kernel/vdso/sigreturn.S)."""
        if self.arch != "aarch64":
            return False
        try:
            return self.memory.read(pc, len(SIGRETURN)) == SIGRETURN
        except FaultError as e:
            log.passed_over(e)
            return False

    def _interrupted(self, values: Values) -> tuple[int, Values]:
        """-> (pc, registers) of the code that a signal interrupted, from the frame that the kernel put on the stack (struct
        rt_sigframe, arch/arm64/kernel/signal.c)."""
        *registers, pc = self.memory.words(values[SP[self.arch]] + SIGNAL_REGISTERS, 33)
        return pc, dict(enumerate(registers))  # x0 to x30 and sp, numbered as DWARF does

    def _leaves(self, pc: int, values: Values) -> tuple[int, Values] | None:
        """-> (pc, registers) of the caller of code made at run time, if that code goes straight from `pc`, a return address, to
        its `ret`. A trampoline does so (CPython's for perf, Python/asm_trampoline.S). None for any other code."""
        if self.arch != "x86-64":
            return None
        try:
            code, sp, older, at = self.memory.read(pc, EPILOGUE), values[SP[self.arch]], dict(values), 0
            while at < EPILOGUE:
                prefix = code[at] == 0x41
                op = code[at + prefix]
                if code[at : at + 3] == b"\x48\x83\xc4" and code[at + 3] < 0x80:  # add $imm8, %rsp
                    sp, at = sp + code[at + 3], at + 4
                elif 0x58 <= op <= 0x5F and op != 0x5C:  # pop
                    older[POPPED[op - 0x58 + 8 * prefix]] = self.memory.u64(sp)
                    sp, at = sp + 8, at + 1 + prefix
                elif op == 0xC3 and not prefix:  # ret
                    older[SP[self.arch]] = sp + 8
                    return self.memory.u64(sp), older
                else:
                    return None
        except (FaultError, IndexError, KeyError) as e:
            log.passed_over(e)
        return None

    def _guess(self, at: int, values: Values, exact: bool) -> tuple[int, Values]:
        """-> (pc, registers) of the caller of the code `at`, without call-frame information.

        It tries a return address on top of the stack or in its register (only where `at` is the current instruction), then the
        frame pointer's chain. `GdbextError` where neither leads to code."""
        sp, fp = values[SP[self.arch]], values.get(FP[self.arch], 0)
        if exact and self.arch == "x86-64":
            pc = self.memory.u64(sp)
            if self._is_code(pc):
                return pc, {**values, SP[self.arch]: sp + 8}
        if exact and self.arch == "aarch64":  # an address outside the running code is not left over from a call of its own
            pc, here = self._code(values.get(LINK, 0)), self.memory.mapping_at(at)
            if self._is_code(pc) and self.memory.mapping_at(pc) is not here:
                return pc, values
        if fp >= sp and fp - sp < MAX_GUESS and fp % 8 == 0:
            try:
                next_fp, pc = self.memory.words(fp, 2)
            except FaultError as e:
                log.passed_over(e)
                next_fp, pc = 0, 0
            pc = self._code(pc)
            if self._is_code(pc):
                return pc, {**values, SP[self.arch]: fp + 16, FP[self.arch]: next_fp}
        raise GdbextError("the stack cannot be followed")

    def _code(self, pc: int) -> int:
        """A return address without the signature that pointer authentication puts above its 48, or 52, bits (Linux,
        Documentation/arch/arm64/pointer-authentication.rst)."""
        return pc & ~self.memory.signature if self.arch == "aarch64" else pc

    def _is_code(self, pc: int) -> bool:
        mapping = self.memory.mapping_at(pc)
        return mapping is not None and ("x" in mapping.perms or not mapping.perms)
