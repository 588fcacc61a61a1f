"""What machine code is about to store: random straight programs, run by a processor or by qemu, have said what they stored."""

import os
import random
import shutil
import subprocess

import pytest

from gdbext.access import pending_stores
from gdbext.errors import GdbextError

PROGRAMS, LENGTH, BUFFER = 100, 10, 512
ARM_CC, ARM_QEMU = os.environ.get("GDBEXT_TEST_ARM_CC"), os.environ.get("GDBEXT_TEST_ARM_QEMU")
MAIN = """
#include <stdio.h>
#include <string.h>
struct program {{ void (*run)(unsigned char*); unsigned char *begin, *end; }};
{declared}
static struct program programs[] = {{ {listed} }};
static unsigned char buffer[{size}] __attribute__((aligned(64)));
static void show(unsigned char* from, unsigned char* to) {{ while (from < to) printf("%02x", *from++); printf(" "); }}
int main() {{
  for (int i = 0; i < {count}; i++) {{
    for (int j = 0; j < {size}; j++) buffer[j] = j * 7 + i;
    printf("%lu %lu ", (unsigned long)buffer, (unsigned long)programs[i].begin);
    show(programs[i].begin, programs[i].end);
    show(buffer, buffer + {size});
    programs[i].run(buffer);
    show(buffer, buffer + {size});
    printf("\\n");
  }}
}}
"""


class X86:
    values = ("rax", "rcx", "rdx", "rsi", "r8", "r9", "r11")
    bases, index = ("rdi", "r13"), "r10"
    begin = ["push %rbx", "push %r13", "lea 256(%rdi), %rdi", "lea 64(%rdi), %r13", "lea 9f(%rip), %rbx"]
    end = ["jmp *%rbx", "9:", "pop %r13", "pop %rbx", "ret"]

    @staticmethod
    def load(name, value):
        return [f"movabs ${value:#x}, %{name}"]

    @staticmethod
    def half(name):
        return {"rax": "eax", "rcx": "ecx", "rdx": "edx", "rsi": "esi"}.get(name, name + "d")

    @staticmethod
    def low(name, ending):
        short = {"rax": ("ax", "al"), "rcx": ("cx", "cl"), "rdx": ("dx", "dl"), "rsi": ("si", "sil")}
        return short.get(name, (name + "w", name + "b"))[ending == "b"]

    def one(self, rng):
        a, b, base = rng.choice(self.values), rng.choice(self.values), rng.choice(self.bases)
        i, d = rng.choice([1, -1, 8, 100, 127, -128, 300, 70000]), rng.choice([0, 8, -8, 16, -24, 40, 5])
        at = f"{d or ''}(%{base})"
        return rng.choice(
            [
                *[f"mov %{a}, {at}"] * 4,
                f"mov %{a}, {d}(%{base},%r10,{rng.choice([1, 2, 4, 8])})",
                f"mov %{self.half(a)}, {at}",
                f"movw %{self.low(a, 'w')}, {at}",
                f"movb %{self.low(a, 'b')}, {at}",
                f"movq ${i}, {at}",
                f"movl ${i}, {at}",
                f"movw ${i % 30000}, {at}",
                f"movb ${i % 100}, {at}",
                f"movups %xmm0, {at}",
                f"movq %xmm0, {at}",
                f"addq ${i}, {at}",
                f"incq {at}",
                f"mov {at}, %{a}",
                f"movzbl {at}, %{self.half(a)}",
                f"movb {d}(%rdi), %{rng.choice(['ah', 'ch', 'dh'])}",
                f"movslq %{self.half(b)}, %{a}",
                f"movzwl %{self.low(b, 'w')}, %{self.half(a)}",
                *[f"mov %{a}, %{b}"] * 2,
                f"mov %{self.half(a)}, %{self.half(b)}",
                f"mov ${i}, %{self.half(a)}",
                f"mov ${i}, %{a}",
                f"lea {i}(%{a}), %{b}",
                f"lea {i}(%{a},%{b},4), %{b}",
                f"lea 1f(%rip), %{a}\n1:",
                f"add ${i}, %{a}",
                f"sub ${i}, %{a}",
                f"add ${rng.choice([8, -8])}, %{base}",
                f"add %{a}, %{b}",
                f"add %{self.half(a)}, %{self.half(b)}",
                f"sub %{a}, %{b}",
                f"and ${i}, %{a}",
                f"or %{a}, %{b}",
                f"xor %{self.half(a)}, %{self.half(a)}",
                f"shl $3, %{a}",
                f"shr %{self.half(a)}",
                f"not %{a}",
                f"cmp %{a}, %{b}",
                f"cmpq ${i}, {at}",
                f"test ${i % 100}, %{self.low(a, 'b')}",
                f"testl ${i}, {at}",
                f"cmove %{a}, %{b}",
                f"sete %{self.low(a, 'b')}",
                f"inc %{a}",
                f"decl %{self.half(b)}",
                "nopw 0(%rax,%rax,1)",
                "jmp 1f\n.byte 0x06, 0x07\n1:",
                f"test ${i}, %{a}\nje 1f\nmov %{b}, {at}\n1:",
                f"test %{a}, %{a}\njs 1f\nadd $8, %{b}\n1:",
            ]
        )


class AArch64:
    values = ("x0", "x1", "x2", "x3", "x4", "x5", "x9")
    bases, index = ("x10", "x11"), "x12"
    begin = ["mov x10, x0", "add x10, x10, #256", "add x11, x10, #64", "adr x13, 9f"]
    end = ["br x13", "9:", "ret"]

    @staticmethod
    def load(name, value):
        return [f"mov{'k' if n else 'z'} {name}, #{value >> 16 * n & 65535}, lsl #{16 * n}" for n in range(4)]

    def one(self, rng):
        a, b, c, base = *(rng.choice(self.values) for _ in range(3)), rng.choice(self.bases)
        w, v = "w" + a[1:], "w" + b[1:]
        i, d = rng.choice([1, 8, 100, 4095]), rng.choice([0, 8, -8, 16, -24, 40])
        up = abs(d)
        stores = [
            *[f"str {a}, [{base}, #{up}]"] * 2,
            f"stur {a}, [{base}, #{d}]",
            f"str xzr, [{base}, #{up}]",
            f"str {a}, [{base}], #{rng.choice([8, -8])}",
            f"str {a}, [{base}, #{rng.choice([8, -8])}]!",
            f"str {a}, [{base}, x12]",
            f"str {a}, [{base}, x12, lsl #3]",
            f"str {a}, [{base}, w12, sxtw #3]",
            f"str {a}, [{base}, w12, uxtw]",
            f"str {w}, [{base}, #{up}]",
            f"strh {w}, [{base}, #{up}]",
            f"strb {w}, [{base}, #{up}]",
            f"str q0, [{base}, #{up & ~15}]",
            f"str d0, [{base}, #{up}]",
            f"stp {a}, {b}, [{base}, #{d}]",
            f"stp {a}, xzr, [{base}], #16",
            f"stp {w}, {v}, [{base}, #{d}]",
            f"stp {a}, {b}, [{base}, #-16]!",
            f"stp q0, q1, [{base}]",
            "ldp x1, x2, [x10]",
            f"ldr {a}, [{base}, #{up}]",
            f"ldr {a}, [{base}], #8",
            f"ldrb {w}, [{base}, w12, sxtw]",
            f"ldrsw {a}, [{base}, #{up}]",
            f"ldur {a}, [{base}, #{d}]",
            *[f"mov {a}, {b}"] * 2,
            f"mov {w}, {v}",
        ]
        return rng.choice(stores + self.others(rng, a, b, c, base, i))

    @staticmethod
    def others(rng, a, b, c, base, i):
        w, v = "w" + a[1:], "w" + b[1:]
        return [
            f"mov {a}, #{i}",
            f"mov {w}, #-{i}",
            f"movk {a}, #{i}, lsl #16",
            f"add {a}, {b}, #{i}",
            f"sub {a}, {b}, #{i}",
            f"add {w}, {v}, #{i}, lsl #12" if i < 4096 else "nop",
            f"add {base}, {base}, #8",
            f"sub {base}, {base}, #8",
            f"add {a}, {b}, {c}",
            f"add {a}, {b}, {c}, lsl #3",
            f"add {a}, {b}, {w}, sxtw #3",
            f"add {a}, {b}, {w}, uxtb",
            f"sub {a}, {b}, {c}, lsl #2",
            f"orr {a}, {b}, #{rng.choice([1, 0xFF, 0xF0F0F0F0F0F0F0F0, 0x8000000000000001])}",
            f"and {a}, {b}, #{rng.choice([1, 0xFF, 0xFFFFFFFFFFFFFFFC])}",
            f"and {w}, {v}, #0xff",
            f"eor {a}, {b}, #0x7f8",
            f"orr {a}, {b}, {c}",
            f"lsr {a}, {b}, #8",
            f"tst {a}, #1",
            f"cmp {a}, #0",
            f"ccmp {a}, #0, #4, ne",
            f"csel {a}, {b}, {c}, eq",
            f"csetm {w}, ne",
            f"madd {a}, {b}, {c}, {a}",
            f"fmov {a}, d0",
            f"adr {a}, 1f\n1:",
            f"adrp {a}, main",
            "b 1f\n.inst 0\n1:",
            f"tst {a}, #1\nb.eq 1f\nstr {b}, [{base}]\n1:",
            f"cbz {w}, 1f\nadd {a}, {a}, #8\n1:",
            f"tbnz {a}, #3, 1f\nmov {b}, #5\n1:",
            "nop",
        ]


MACHINES = {"x86-64": (X86, "gcc", []), "aarch64": (AArch64, ARM_CC, [ARM_QEMU])}


def ran(arch, seed, folder):
    """[(values of the registers, buffer's address, where the code begins, its bytes, the buffer before, after)]"""
    kind, compiler, runner = MACHINES[arch]
    if not compiler or None in runner or not shutil.which(compiler) or (not runner and os.uname().machine != "x86_64"):
        pytest.skip(f"nothing here compiles and runs programs of {arch}")
    rng, machine, text, initial = random.Random(seed), kind(), [".text"], []
    for n in range(PROGRAMS):
        values = {**{name: rng.getrandbits(64) for name in machine.values}, machine.index: 3}
        initial.append(values)
        text += [f".globl run{n}, begin{n}, end{n}", f"run{n}:", *machine.begin]
        for name, value in values.items():
            text += machine.load(name, value)
        text += [f"begin{n}:", *(machine.one(rng) for _ in range(LENGTH)), *machine.end, f"end{n}:"]
    text.append('.section .note.GNU-stack,"",%progbits' if arch == "aarch64" else '.section .note.GNU-stack,"",@progbits')
    numbers = range(PROGRAMS)
    main = MAIN.format(
        declared="".join(f"void run{n}(unsigned char*); extern unsigned char begin{n}[], end{n}[];\n" for n in numbers),
        listed=", ".join(f"{{run{n}, begin{n}, end{n}}}" for n in numbers),
        size=BUFFER,
        count=PROGRAMS,
    )
    (folder / "a.s").write_text("\n".join(text) + "\n")
    (folder / "a.c").write_text(main)
    subprocess.run([compiler, "-O1", "-static", "-o", folder / "a", folder / "a.c", folder / "a.s"], check=True)
    said = subprocess.check_output([*runner, folder / "a"], text=True)
    for values, line in zip(initial, said.splitlines()):
        at, begin, code, before, after = line.split()
        base = int(at) + 256
        yield (
            {**values, **dict(zip(machine.bases, (base, base + 64)))},
            int(at),
            int(begin),
            *map(bytes.fromhex, (code, before, after)),
        )


@pytest.mark.parametrize("arch", MACHINES)
def test_what_is_stored_on_the_way_to_the_jump_is_what_was(arch, tmp_path):
    seed, tally = (
        random.SystemRandom().getrandbits(32),
        {"stored": 0, "as it was": 0, "not told": 0, "missed": 0, "too many ways": 0},
    )
    for number, (values, at, begin, code, before, after) in enumerate(ran(arch, seed, tmp_path)):

        def register(name, values=values):
            return values.get(name, 0xDEAD << 40)  # rbx, x13: where it jumps to

        def read(address, size, code=code, begin=begin):
            return code[address - begin :][:size]

        try:
            pending_stores.ways(arch, read, register, begin)  # which can be followed
        except GdbextError as e:
            assert "too many ways" in str(e), (seed, number, code.hex())
            tally["too many ways"] += 1  # of a program that happens to branch that often
            continue
        for place in range(0, BUFFER, 8):
            was, became = (int.from_bytes(raw[place : place + 8], "little") for raw in (before, after))
            try:
                found = pending_stores.word_after(arch, read, register, begin, at + place)
            except GdbextError:
                tally["not told" if was == became else "missed"] += 1
                continue
            tally["as it was" if found is None else "stored"] += 1
            assert became == (was if found is None else found), (seed, number, place, code.hex())
    assert tally["too many ways"] < PROGRAMS / 20, (seed, tally)
    assert tally["stored"] > PROGRAMS / 5 and tally["as it was"] > 10 * PROGRAMS, (seed, tally)


def test_a_word_about_to_be_stored_is_reported_or_refused():
    registers = {"x1": 0x7000, "x24": 0x9000, "x20": 0x100, "x7": 5, "x11": 3}
    store, mask, load, jump = 0xF8008701, 0x12001CEB, 0xF86BDA81, 0xD61F0020
    branch, over, call, unknown = 0x54000060, 0x54000040, 0x94000000, 0xF9000021  # b.eq twice; bl; str x1, [x1]

    def word(*instructions, address=0x9000):
        code = b"".join(i.to_bytes(4, "little") for i in instructions)
        return pending_stores.word_after("aarch64", lambda at, n: code[at:][:n], lambda name: registers[name], 0, address)

    assert word(store, mask, load, jump) == 0x7000
    assert word(mask, store, jump, address=0x9008) is None and word(jump) is None
    assert word(branch, store, jump, store, jump) == word(store, call) == 0x7000 and word(call, store, jump) is None
    for instructions in ([over, store, jump], [store, mask], [load, unknown, jump]):
        with pytest.raises(GdbextError):
            word(*instructions)
    with pytest.raises(GdbextError, match="about to be stored"):
        word(load, store, jump)  # what was loaded is not known
    with pytest.raises(GdbextError, match="about to be stored"):
        word(store, jump, address=0x9004)


def test_a_register_whose_second_byte_was_loaded_is_not_known():
    code = bytes.fromhex("8a2748894708ffe3")  # mov (%rdi), %ah; mov %rax, 8(%rdi); jmp *%rbx

    def word(begin):
        registers = {"rax": 0x1234, "rdi": 0x9000, "rbx": 0}
        return pending_stores.word_after("x86-64", lambda at, n: code[at:][:n], lambda name: registers[name], begin, 0x9008)

    assert word(2) == 0x1234
    with pytest.raises(GdbextError, match="about to be stored"):
        word(0)
