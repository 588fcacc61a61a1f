"""What is different on aarch64, by made-up processes: signed return addresses, the signal frame, the link register, system calls
that Linux sets back, kernel pages of 4, 16 and 64 KiB."""

import os
import struct
from types import SimpleNamespace

import pytest

from gdbext.access import debug_registers, elf, loaded, pagemap, ptrace, resident
from gdbext.access.core_writer import write_core
from gdbext.access.fake import FakeTarget
from gdbext.access.model import PAGE, Mapping, Thread
from gdbext.access.snapshot import CoreFileTarget
from gdbext.access.unwind import SIGNAL_REGISTERS, SIGRETURN, Unwinder
from gdbext.cpython import gil

CODE, OTHER, STACK, SIZE = 0x400000, 0x500000, 0xFFFF_8000_0000, 0x4000
SIGNED = 0x00A5 << 48
MAPS = [
    Mapping(CODE, CODE + SIZE, "r-xp"),
    Mapping(OTHER, OTHER + SIZE, "r-xp"),
    Mapping(STACK, STACK + SIZE, "rw-p", path="[stack]"),
]


def stack(*words):
    """Bytes of the stack: `(offset, value)`."""
    data = bytearray(SIZE)
    for offset, value in words:
        struct.pack_into("<Q", data, offset, value)
    return bytes(data)


def registers(**known):
    return {**dict.fromkeys(ptrace.REGISTERS["aarch64"], 0), "sp": STACK, **known}


def pcs(words, code=b"", arch="aarch64", **known):
    target = FakeTarget({STACK: stack(*words), CODE: code or bytes(SIZE)}, MAPS, arch=arch)
    return [f.pc for f in Unwinder(target).frames(registers(**known))]


def test_a_chain_of_frame_pointers_is_followed_through_signed_addresses():
    words = [(0x40, STACK + 0x80), (0x48, SIGNED | CODE + 0x100), (0x80, 0), (0x88, SIGNED >> 1 & 0xFFFF << 48 | CODE + 0x200)]
    assert pcs(words, pc=CODE + 4, x29=STACK + 0x40) == [CODE + 4, CODE + 0x100, CODE + 0x200]


@pytest.mark.parametrize("link,expected", [(OTHER + 8, True), (SIGNED | OTHER + 8, True), (CODE + 0x300, False), (0x1234, False)])
def test_a_leaf_in_other_code_was_called_from_where_the_link_register_says(link, expected):
    words = [(0x40, 0), (0x48, CODE + 0x100)]
    found = pcs(words, pc=CODE + 4, x29=STACK + 0x40, x30=link)
    assert found == ([CODE + 4, OTHER + 8, CODE + 0x100] if expected else [CODE + 4, CODE + 0x100])


def test_the_frame_under_a_signal_handler_is_the_one_that_was_interrupted():
    """Its registers come from the signal frame; its link register says who called it, as it is a leaf."""
    at = 0x50 + SIGNAL_REGISTERS
    words = [(0x40, 0), (0x48, CODE + 0x800), (at + 8 * 29, 0), (at + 8 * 30, OTHER + 0x20)]
    words += [(at + 8 * 31, STACK + 0x2000), (at + 8 * 32, CODE + 0x900)]
    code = bytes(0x800) + SIGRETURN + bytes(SIZE - 0x808)
    target = FakeTarget({STACK: stack(*words), CODE: code}, MAPS, arch="aarch64")
    frames = Unwinder(target).frames(registers(pc=CODE + 4, x29=STACK + 0x40))
    assert [f.pc for f in frames] == [CODE + 4, CODE + 0x800, CODE + 0x900, OTHER + 0x20]
    assert frames[1].function == "__kernel_rt_sigreturn" and frames[2].sp == STACK + 0x2000


def core(tmp_path, mask, words, **known):
    raw = struct.pack("<34Q", *registers(**known).values())
    pages = stack(*words)
    memory = {STACK + at: pages[at : at + PAGE] for at in range(0, SIZE, PAGE)}
    path = str(tmp_path / "core")
    write_core(path, "aarch64", 7, [(7, raw), (8, raw)], MAPS, memory, pac_mask=mask)
    return CoreFileTarget(path)


@pytest.mark.parametrize("bits", [48, 52])
def test_a_core_says_which_bits_are_the_signature(bits, tmp_path):
    """With addresses of 52 bits those above 48 belong to the address."""
    mask = (1 << 55) - (1 << bits)
    high = OTHER | 1 << bits - 1
    maps, MAPS[1:2] = MAPS[1], [Mapping(high, high + SIZE, "r-xp")]
    try:
        words = [(0x40, 0), (0x48, mask | high + 0x40)]
        target = core(tmp_path, struct.pack("<QQ", mask, mask), words, pc=CODE + 4, x29=STACK + 0x40)
        assert target.signature == mask and len(target.threads()) == 2
        assert [f.pc for f in target.unwind(target.threads()[0])] == [CODE + 4, high + 0x40]
    finally:
        MAPS[1:2] = [maps]


def test_a_core_without_that_note_has_addresses_of_48_bits(tmp_path):
    target = core(tmp_path, b"", [(0x40, 0), (0x48, 0xBFFF << 48 | CODE + 0x40)], pc=CODE + 4, x29=STACK + 0x40)
    assert [f.pc for f in target.unwind(target.threads()[0])] == [CODE + 4, CODE + 0x40]


@pytest.mark.parametrize(
    "pc,first,waits_on",
    [(4, 0x7000, 0x7000), (0, 0x7000, 0x7000), (8, 0x7000, 0), (4, 0, 0), (4, (1 << 64) - 110, 0)],
    ids=["in it", "to be made again", "elsewhere", "over", "over, with an error"],
)
def test_a_thread_stands_behind_its_system_call_or_at_it(pc, first, waits_on):
    """Linux sets the pc back for a call that is made again before a tracer sees it, on this architecture; and the first
    argument's register has the result."""
    svc = b"\x01\x00\x00\xd4" + bytes(12)
    thread = Thread(1, registers=registers(pc=CODE + pc, x8=98, x0=first))
    target = FakeTarget({CODE: svc}, MAPS, threads=[thread], arch="aarch64")
    assert gil.futex_of(target, thread) == waits_on


@pytest.mark.parametrize("page", [4 << 10, 16 << 10, 64 << 10])
def test_a_cores_unlisted_files_are_placed_by_the_process_s_own_pages(page):
    data = elf.Segment(elf.PT_LOAD, 6, 0xFD90, 0x1FD90, 0x700, 0x900)
    file = SimpleNamespace(segments=[elf.Segment(elf.PT_LOAD, 5, 0, 0, 0x5000, 0x5000), data])
    code, own = loaded._segments(file, 0x55_0000_0000, page, "/lib/x.so")
    assert code == (0x55_0000_0000, 0x55_0000_0000 + -(-0x5000 // page) * page, 0, "/lib/x.so")
    start, end, offset, _ = own
    assert start % page == end % page == offset % page == 0 and start <= 0x55_0001_FD90 < 0x55_0002_0490 <= end
    assert 0x55_0001_FD90 - start == 0xFD90 - offset  # the same byte


@pytest.mark.parametrize("page", [4 << 10, 16 << 10, 64 << 10])
def test_memory_in_use_is_counted_in_the_kernel_s_pages(page, tmp_path, monkeypatch):
    """One entry of pagemap is one page of the kernel's, whatever its size."""
    monkeypatch.setattr(pagemap, "KERNEL_PAGE", page)
    start, used = 1 << 20, {3, 4, 9}
    first, entries = start // page, (1 << 20) // page
    path = tmp_path / "pagemap"
    path.write_bytes(bytes(8 * first) + b"".join(struct.pack("<Q", (i in used) << 63) for i in range(entries)))
    fd = os.open(path, os.O_RDONLY)
    try:
        found = resident.spans(fd, start, start + entries * page)
        assert found == [(start + 3 * page, start + 5 * page), (start + 9 * page, start + 10 * page)]
        assert resident.spans(fd, start, start + entries * page, enough=3 * page) == found
        assert resident.spans(fd, start, start + entries * page, enough=3 * page - 1) is None
    finally:
        os.close(fd)


def test_watchpoints_are_disarmed_and_their_addresses_left(monkeypatch):
    """The kernel tells how many registers there are; no more may be set."""
    slots = [(0x7000, 0x1FF5), (0, 0), (0x8000, 0x1FF4), (0, 0)]
    sets = {
        kind: bytes([4, 0, 0, 0, 0, 0, 0, 0]) + b"".join(struct.pack("<QQ", *s) for s in held) + bytes(12 * 16)
        for kind, held in ((debug_registers.NT_ARM_HW_WATCH, slots), (debug_registers.NT_ARM_HW_BREAK, [(0, 0)] * 4))
    }
    written = {}
    monkeypatch.setattr(ptrace, "MACHINE", "aarch64")
    monkeypatch.setattr(ptrace, "register_set", lambda tid, kind: written.get(kind, sets[kind]))
    monkeypatch.setattr(ptrace, "set_registers", lambda tid, kind, data: written.update({kind: data}))
    assert debug_registers.clear_debug_registers(1)
    assert list(written) == [debug_registers.NT_ARM_HW_WATCH]
    assert list(struct.iter_unpack("<QQ", written[debug_registers.NT_ARM_HW_WATCH][8:])) == [
        (0x7000, 0),
        (0, 0),
        (0x8000, 0),
        (0, 0),
    ]
    assert not debug_registers.clear_debug_registers(1)
