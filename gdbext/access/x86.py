"""Decodes one x86-64 instruction at a time: its length, and its operands.

Intel's Software Developer's Manual, volume 2: the instruction format (chapter 2) and the opcode maps (appendix A).
"""

from __future__ import annotations

RAX, RCX, RDX, RSP, RBP, RSI, RDI, R12 = 0, 1, 2, 4, 5, 6, 7, 12
CALL_SPOILS = (0, 1, 2, 6, 7, 8, 9, 10, 11)  # the registers that a call may change (System V ABI)

# One-byte opcodes that are followed.
LEA, MOV_LOAD, MOV_STORE = 0x8D, 0x8B, 0x89  # lea r, m; mov r, r/m; mov r/m, r
MOV_IMMEDIATE = range(0xB8, 0xC0)  # mov r, imm
STORE_IMMEDIATE = 0xC7  # mov r/m, imm32
PUSH_POP, POP = range(0x50, 0x60), range(0x58, 0x60)
PUSH_IMMEDIATE = (0x68, 0x6A)
COMPARE, TEST = range(0x38, 0x3C), (0x84, 0x85)  # they write no operand
WIDEN_RAX = (0x98, 0x99)  # cbw, cwde, cdqe; cwd, cdq, cqo
CALL, GROUP5, GROUP5_CALL, GROUP5_JUMP = 0xE8, 0xFF, 2, 4  # call rel32; FF /2 call r/m, FF /4 jmp r/m
RETURN, JUMP, JUMP_SHORT = 0xC3, 0xE9, 0xEB

# Prefixes and escapes.
OPERAND_SIZE = 0x66
PREFIXES = (OPERAND_SIZE, 0x67, 0xF2, 0xF3, 0x2E, 0x36, 0x3E, 0x26, 0x64, 0x65, 0xF0)
REX, REX_W, REX_R, REX_X, REX_B = 0x40, 8, 4, 2, 1
TWO_BYTES, MAP_0F38, MAP_0F3A = 0x0F, 0x0F38, 0x0F3A
VEX3, VEX2, EVEX = 0xC4, 0xC5, 0x62  # AVX and AVX-512

# The bytes that follow an opcode: sets by opcode map.
GROUP3 = (0xF6, 0xF7)  # test r/m, imm has an immediate, the group's others none
IMM_WORD_MODRM = (0x69, 0x81, STORE_IMMEDIATE)  # imul, group 1, mov
IMM_BYTE_MODRM = (0x6B, 0x80, 0x83, 0xC0, 0xC1, 0xC6)  # imul, group 1, shifts, mov
MODRM_ALONE = (0x63, *range(0x84, 0x90), *range(0xD0, 0xD4), *range(0xD8, 0xE0), *GROUP3, 0xFE, GROUP5)
MOV_OFFSET = range(0xA0, 0xA4)  # mov al/eax/rax, moffs64 and back
IMM_WORD, IMM_BYTE = (0x68, 0xA9), (0x6A, 0xA8, 0xCD, JUMP_SHORT)
RETURN_POP, ENTER = 0xC2, 0xC8
CONDITIONAL, MOV_IMM8, LOOP_IN_OUT = range(0x70, 0x80), range(0xB0, 0xB8), range(0xE0, 0xE8)
LONG_CONDITIONAL = range(0x80, 0x90)  # of the map 0F: jcc rel32
NO_OPERANDS_0F = (
    *(0x05, 0x06, 0x08, 0x09, 0x0B),  # syscall, clts, invd, wbinvd, ud2
    *(0x30, 0x31, 0x32, 0x34, 0x35),  # wrmsr, rdtsc, rdmsr, sysenter, sysexit
    *(0x77, 0xA0, 0xA1, 0xA2, 0xA8, 0xA9),  # emms, push fs, pop fs, cpuid, push gs, pop gs
    *range(0xC8, 0xD0),  # bswap
)
IMM_BYTE_0F = (0x70, 0x71, 0x72, 0x73, 0xA4, 0xAC, 0xBA, 0xC2, 0xC4, 0xC5, 0xC6)  # pshuf, shifts, shld, shrd, bt, cmpps, pinsrw …


class Instruction:
    """One decoded instruction.

    * `opcode`: 0x0Fnn, 0x0F38nn, 0x0F3Ann for longer ones; `vex`: it has the prefix of AVX
    * `prefixes`: the bytes before REX
    * `mode`, `operation`: of the ModRM byte; without one None, -1
    * `register`, `other`: the two registers of the ModRM byte with REX's bits; without one -1, -1
    * `base`, `index`, `scale` (a shift), `displacement`: of an operand in memory
    * `relative`: the displacement of an address relative to the next instruction
    * `immediate`: also how far a jump goes"""

    __slots__ = (
        *("length", "opcode", "vex", "prefixes", "rex", "mode", "operation", "register", "other"),
        *("base", "index", "scale", "displacement", "relative", "immediate"),
    )

    def __init__(self) -> None:
        self.length = self.opcode = self.rex = self.immediate = self.displacement = self.scale = 0
        self.operation = self.register = self.other = -1
        self.mode: int | None = None
        self.base: int | None = None
        self.index: int | None = None
        self.relative: int | None = None
        self.vex, self.prefixes = False, b""

    def slot(self) -> tuple[int, int] | None:
        """(RSP or RBP, displacement) of an operand on the stack, else None."""
        return (self.base, self.displacement) if self.base in (RSP, RBP, R12) and self.index is None else None


def decode(code: bytes, at: int) -> Instruction:
    """The `Instruction` at `code[at]` (Intel's manual, volume 2): its length, and the parts of it that `Code` uses. `IndexError`
    past the end."""
    start, one = at, Instruction()
    while code[at] in PREFIXES:
        at += 1
    one.prefixes = code[start:at]
    if code[at] & 0xF0 == REX:
        one.rex = code[at]
        at += 1
    op, narrow = code[at], OPERAND_SIZE in one.prefixes and not one.rex & REX_W
    at += 1
    if op == TWO_BYTES:
        op = TWO_BYTES << 8 | code[at]
        at += 1
        if op in (MAP_0F38, MAP_0F3A):
            op = op << 8 | code[at]
            at += 1
    elif op in (VEX2, VEX3, EVEX):
        one.vex = True
        opcode_map = 1 if op == VEX2 else code[at] & (31 if op == VEX3 else 7)
        at += {VEX2: 1, VEX3: 2, EVEX: 3}[op]
        op = {2: MAP_0F38 << 8, 3: MAP_0F3A << 8}.get(opcode_map, TWO_BYTES << 8) | code[at]
        at += 1
    one.opcode = op
    has, size = _shape(op, narrow, one.rex)
    if has:
        byte = code[at]
        at += 1
        one.mode, one.operation = byte >> 6, byte >> 3 & 7
        one.register, low = one.operation | (one.rex & REX_R) << 1, byte & 7
        one.other = low | (one.rex & REX_B) << 3
        wide = {1: 1, 2: 4}.get(one.mode, 0)
        one.base = one.other if one.mode != 3 else None
        if one.mode != 3 and low == 4:
            sib = code[at]
            index, low, at = sib >> 3 & 7 | (one.rex & REX_X) << 2, sib & 7, at + 1
            one.base, one.index, one.scale = low | (one.rex & REX_B) << 3, index if index != RSP else None, sib >> 6
            if one.mode == 0 and low == 5:
                one.base, wide, low = None, 4, -1  # without a base
        if one.mode == 0 and low == 5:
            one.base, wide = None, 4
        if wide:
            one.displacement = int.from_bytes(code[at : at + wide], "little", signed=True)
            if one.mode == 0 and low == 5:
                one.relative = one.displacement
            at += wide
        if op in GROUP3 and one.operation < 2:
            size = 1 if op == GROUP3[0] else 2 if narrow else 4
    if size:
        one.immediate = int.from_bytes(code[at : at + size], "little", signed=size < 8)
        at += size
    code[at - 1]  # an IndexError where it is cut off
    one.length = at - start
    return one


def _shape(op: int, narrow: bool, rex: int) -> tuple[bool, int]:
    """(whether a ModRM byte follows, bytes of the immediate value) of an opcode."""
    if op >= TWO_BYTES << 8:
        return _shape_of_map(op)
    word = 2 if narrow else 4
    if op < 0x40:  # arithmetic: r/m with r, then al and eax with an immediate
        return op & 7 < 4, {4: 1, 5: word}.get(op & 7, 0)
    if op in IMM_WORD_MODRM:
        return True, word
    if op in IMM_BYTE_MODRM:
        return True, 1
    if op in MODRM_ALONE:
        return True, 0
    if op in MOV_IMMEDIATE:
        return False, 8 if rex & REX_W else word
    if op in MOV_OFFSET:
        return False, 8
    if op in IMM_WORD:
        return False, word
    if op in (CALL, JUMP):
        return False, 4
    if op in (RETURN_POP, ENTER):
        return False, 2 if op == RETURN_POP else 3
    return False, 1 if op in IMM_BYTE or op in CONDITIONAL or op in MOV_IMM8 or op in LOOP_IN_OUT else 0


def _shape_of_map(op: int) -> tuple[bool, int]:
    """As `_shape`, of an opcode of the maps 0F, 0F38 and 0F3A."""
    if op >= MAP_0F38 << 8:
        return True, 1 if op >= MAP_0F3A << 8 else 0
    low = op & 0xFF
    if low in LONG_CONDITIONAL:
        return False, 4
    return (False, 0) if low in NO_OPERANDS_0F else (True, 1 if low in IMM_BYTE_0F else 0)
