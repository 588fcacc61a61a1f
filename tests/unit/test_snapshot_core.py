"""Cores read without gdb: what write_core writes, what is cut short, what is damaged."""

import gc
import os
import struct
import sys
import weakref

import pytest
from harness.subjects import spawned

from gdbext.access import cfi, core_writer, elf, ptrace
from gdbext.access.core_writer import write_core
from gdbext.access.model import PAGE, Mapping
from gdbext.access.proc import ProcTarget
from gdbext.access.snapshot import CoreFileTarget
from gdbext.errors import FaultError, GdbextError, NotFoundError


def registers(arch, **values):
    names = ptrace.REGISTERS[arch]
    return struct.pack(f"<{len(names)}Q", *[values.get(n, i) for i, n in enumerate(names)])


def page(byte):
    return bytes([byte]) * PAGE


@pytest.fixture
def backed(tmp_path):
    """A file of two pages that the process is said to have mapped."""
    path = tmp_path / "lib.so"
    path.write_bytes(page(1) + page(2) + b"tail")
    return path


def make(tmp_path, arch="x86-64", backed=None, note=None, memory=None):
    maps = [Mapping(0x10000, 0x14000, "rw-p"), Mapping(0x20000, 0x24000, "rw-p", path="[stack]")]
    if backed:
        maps.append(Mapping(0x40000, 0x43000, "r-xp", 0, str(backed)))
    sp = ptrace.STACK_POINTER[arch]
    threads = [(100, registers(arch, **{sp: 0x21010})), (101, registers(arch, **{sp: 0x11000}))]
    memory = {0x10000: page(10), 0x12000: page(12), 0x13000: page(13), 0x21000: page(21)} if memory is None else memory
    path = str(tmp_path / "core")
    size = write_core(path, arch, 100, threads, maps, memory, program="python3 -m vllm\x1b[31m", note=note)
    assert size == os.path.getsize(path)
    return path


@pytest.mark.parametrize("arch", ["x86-64", "aarch64"])
def test_what_was_written_is_read_back(tmp_path, arch):
    t = CoreFileTarget(make(tmp_path, arch))
    assert (t.arch, t.pid, t.is_live, t.is_stopped, t.cut_short) == (arch, 100, False, True, False)
    assert [th.tid for th in t.threads()] == [100, 101]
    main = t.threads()[0]
    assert main.stack == (0x21000, 0x22000) or main.stack == (0x20000, 0x24000)
    assert list(main.registers)[0] == ptrace.REGISTERS[arch][0]
    assert main.registers[ptrace.STACK_POINTER[arch]] == 0x21010
    assert t.read(0x10000, 4) == b"\x0a" * 4
    assert t.read(0x12FFE, 4) == b"\x0c\x0c\x0d\x0d"
    assert t.read(0x12000, 2 * PAGE) == page(12) + page(13)


@pytest.mark.parametrize("number, letter", [(0, "S"), (230, "S"), (24, "R"), ((1 << 64) - 1, "R")])
def test_whether_a_thread_ran_is_told_by_the_system_call_that_it_was_in(tmp_path, number, letter):
    """read, clock_nanosleep; sched_yield, which blocks nobody; none."""
    path = str(tmp_path / "core")
    write_core(path, "x86-64", 100, [(100, registers("x86-64", orig_rax=number))], [], {})
    assert [th.state for th in CoreFileTarget(path).threads()] == [letter]


@pytest.mark.parametrize("address", [0x11000, 0x20000, 0x13FFF + 1, 0x0, 0x7FFF00000000])
def test_memory_that_was_not_copied_faults(tmp_path, address):
    t = CoreFileTarget(make(tmp_path))
    with pytest.raises(FaultError):
        t.read(address, 8)
    assert t.read_partial(address, 8) == b""


def test_a_read_over_the_edge_of_the_copy_faults_its_beginning_reads(tmp_path):
    t = CoreFileTarget(make(tmp_path))
    with pytest.raises(FaultError):
        t.read(0x10FF8, 16)
    assert t.read_partial(0x10FF8, 16) == b"\x0a" * 8


def test_pages_that_were_not_copied_are_zeros_where_asked_for(tmp_path):
    t = CoreFileTarget(make(tmp_path))
    assert t.read_filled(0x10FF8, 2 * PAGE) == b"\x0a" * 8 + bytes(PAGE) + b"\x0c" * (PAGE - 8)
    assert t.read_filled(0x13FF0, 32) == b"\x0d" * 16 + bytes(16) and t.read_filled(0x20008, 24) == bytes(24)


def test_read_only_memory_of_a_file_comes_from_the_file(tmp_path, backed):
    t = CoreFileTarget(make(tmp_path, backed=backed))
    assert t.read(0x40FFE, 4) == b"\x01\x01\x02\x02"
    assert t.read(0x42000, 8) == b"tail\0\0\0\0"  # the rest of the file's last page is zero
    assert t.module_at(0x41000).path == str(backed)


def test_a_file_that_has_changed_since_is_not_read(tmp_path, backed):
    t = CoreFileTarget(make(tmp_path, backed=backed, memory={0x40000: page(1)}))
    assert t.read(0x41000, 1) == b"\x02"
    backed.write_bytes(page(9) + page(9) + page(9))
    t.invalidate()
    with pytest.raises(FaultError, match="not the file that was mapped"):
        t.read(0x41000, 1)


def test_a_file_that_is_gone_is_a_fault_that_names_it(tmp_path, backed):
    t = CoreFileTarget(make(tmp_path, backed=backed))
    backed.unlink()
    with pytest.raises(FaultError, match="lib.so"):
        t.read(0x40000, 8)


def test_a_cores_command_line_is_in_its_header_a_snapshot_has_none(tmp_path):
    t = CoreFileTarget(make(tmp_path))
    t.note.clear()  # as the kernel's
    assert t.argv() == ["python3", "-m", "vllm\x1b[31m"]
    (tmp_path / "2").mkdir()
    note = {"pid": 100, "label": "TP0", "threads": {"101": {"name": "w", "state": "D", "ns_tid": 7}}}
    t = CoreFileTarget(make(tmp_path / "2", note=note))
    assert t.kind == "snapshot" and t.label == "TP0"
    assert [(th.name, th.state, th.ns_tid) for th in t.threads()][1] == ("w", "D", 7)
    for ask in (t.argv, t.environ):
        with pytest.raises(GdbextError, match="may hold secrets"):
            ask()


def test_a_note_that_is_nested_deep_is_damage_and_no_traceback(tmp_path):
    path = make(tmp_path, note={"pid": 100, "padding": "x" * 5000})
    data = bytearray(open(path, "rb").read())
    start, end = data.index(b'{"version"'), data.index(b'x"}') + 3
    data[start:end] = b"[" * (end - start)
    (tmp_path / "deep").write_bytes(data)
    with pytest.raises(GdbextError, match="deep: its GDBEXT note is damaged"):
        CoreFileTarget(str(tmp_path / "deep"))


@pytest.mark.parametrize("keep", [0, 10, 63, 64, 100, 300, 700, 1500, 4096, 9000])
def test_a_core_cut_short_gives_clear_errors_and_what_is_left(tmp_path, keep):
    path = make(tmp_path, note={"pid": 100})
    whole = open(path, "rb").read()
    assert keep < len(whole)
    cut = tmp_path / "cut"
    cut.write_bytes(whole[:keep])
    try:
        t = CoreFileTarget(str(cut))
    except GdbextError as e:
        assert "\n" not in str(e) and str(cut) in str(e)
        return
    assert t.cut_short or not t._loads
    for address in (0x10000, 0x12000, 0x13000, 0x21000):
        try:
            assert t.read(address, 8) == whole_value(path, address)
        except FaultError as e:
            assert "cut short" in str(e) or "not mapped" in str(e)


def whole_value(path, address):
    return CoreFileTarget(path).read(address, 8)


def test_damaged_bytes_never_crash_the_reader(tmp_path):
    path = make(tmp_path, note={"pid": 100, "maps": "10000-14000 rw-p 00000000 00:00 0\n"})
    whole = bytearray(open(path, "rb").read())
    state = 12345
    for _ in range(300):
        broken = bytearray(whole)
        for _ in range(6):
            state = (state * 1103515245 + 12345) & 0x7FFFFFFF
            broken[state % min(len(broken), 2000)] = state >> 16 & 0xFF
        target = tmp_path / f"broken{state}"
        target.write_bytes(broken)
        try:
            t = CoreFileTarget(str(target))
            t.threads(), t.mappings(), t.modules()
            t.read(0x10000, 64)
        except GdbextError as e:
            assert "\n" not in str(e)
        target.unlink()


def test_a_newer_snapshot_and_a_file_that_is_no_core_are_refused(tmp_path):
    path = make(tmp_path, note={"pid": 1})
    data = open(path, "rb").read().replace(b'"version": 1', b'"version": 9')
    newer = tmp_path / "newer"
    newer.write_bytes(data)
    with pytest.raises(GdbextError, match="newer"):
        CoreFileTarget(str(newer))
    with pytest.raises(NotFoundError, match="not a core"):
        CoreFileTarget(os.path.realpath(sys.executable))
    with pytest.raises(NotFoundError):
        CoreFileTarget(str(tmp_path / "nothing"))


def test_notes_of_zeros_end_at_the_first_however_many_there_are():
    """A file with a hole may have a segment of notes of many TiB."""

    class Hole(bytes):
        asked = 0

        def __getitem__(self, at):
            self.asked += 1
            return bytes(at.stop - at.start)

    hole = Hole()
    assert list(elf.notes_in(hole, 0, 16 << 40)) == [] and hole.asked == 1
    note = struct.pack("<III", 4, 4, 1) + b"CORE" + b"data"
    assert list(elf.notes_in(note + bytes(120))) == [(b"CORE", 1, b"data")]


def test_pieces_cover_every_mapping_once(tmp_path):
    maps = [Mapping(0x1000, 0x5000, "rw-p"), Mapping(0x8000, 0x9000, "r--p"), Mapping(0x9000, 0xB000, "rw-p")]
    memory = {p: page(0) for p in (0x1000, 0x3000, 0x4000, 0x9000)}
    found = [(start, end, len(data)) for start, end, _, data in core_writer._pieces(maps, memory)]
    assert found == [
        (0x1000, 0x2000, 1),
        (0x2000, 0x3000, 0),
        (0x3000, 0x5000, 2),
        (0x8000, 0x9000, 0),
        (0x9000, 0xA000, 1),
        (0xA000, 0xB000, 0),
    ]


def test_the_memory_map_of_a_process_survives_the_note(tmp_path):
    """Exact text in, the same mappings out; and from the segments alone the same addresses."""
    with spawned([sys.executable, "-c", "print(flush=True); input()"], ready="") as still:
        maps = [m for m in ProcTarget(still.pid).mappings() if m.path != "[vsyscall]"]
        with open(f"/proc/{still.pid}/maps") as f:
            text = f.read()
    write_core(str(tmp_path / "c"), "x86-64", os.getpid(), [(1, registers("x86-64"))], maps, {}, note={"maps": text})
    with_note = CoreFileTarget(str(tmp_path / "c"))
    write_core(str(tmp_path / "d"), "x86-64", os.getpid(), [(1, registers("x86-64"))], maps, {})
    without = CoreFileTarget(str(tmp_path / "d"))
    del without.note["version"]
    assert {(m.start, m.end, m.path) for m in maps} <= {(m.start, m.end, m.path) for m in with_note.mappings()}
    bare = [(m.start, m.end, m.offset, m.path) for m in without.mappings() if m.path.startswith("/")]
    assert bare == [(m.start, m.end, m.offset, m.path) for m in maps if m.path.startswith("/")]
    assert elf.open_elf(str(tmp_path / "d")).type == elf.ET_CORE


def test_a_file_without_frame_information_says_nothing_of_the_next(tmp_path):
    """What is known of a file ends with it: nothing is kept by its place in memory, which the next file may get."""
    whole = open(os.path.realpath(sys.executable), "rb").read(1 << 16)
    with_table = elf.Elf("with", open("/proc/self/exe", "rb").read())
    assert cfi.table_of(with_table) is cfi.table_of(with_table) is not None
    bare = bytearray(whole[:4096])
    struct.pack_into("<H", bare, 56, 0)  # no program headers
    gc.freeze()  # a collection then looks only at what is made here, not at all that pytest and the libraries hold
    try:
        for _ in range(50):
            without = elf.Elf("without", bytes(bare))
            assert cfi.table_of(without) is None
            del without
            again = elf.Elf("with", with_table.data)
            assert cfi.table_of(again) is not None
            gone = weakref.ref(cfi.table_of(again))
            del again
            gc.collect()
            assert gone() is None
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("what", ["replaced", "removed"])
def test_whose_a_core_is_and_what_it_holds_are_of_the_file_that_was_opened(tmp_path, what):
    """Its path may be another file's by the time, or nobody's, as that of a copy without a name."""
    path = make(tmp_path)
    if not os.geteuid():
        os.chown(path, 54321, 54321)
    mine = os.stat(path).st_uid
    t = CoreFileTarget(path)
    os.unlink(path)
    if what == "replaced":
        make(tmp_path, memory={0x10000: page(99)}, note={"pid": 100, "user": [0, []]})
    assert t.user().uid == mine and t.read(0x10000, 1) == b"\x0a"


def test_the_owner_that_a_note_names_counts_in_our_own_files_alone(tmp_path):
    if os.geteuid():
        pytest.skip("only root may give files away")
    path = make(tmp_path, note={"pid": 100, "user": [77, [78]]})
    assert CoreFileTarget(path).user() == (77, {78})
    os.chown(path, 54321, 54321)
    assert CoreFileTarget(path).user() == (54321, {54321})


@pytest.mark.parametrize("count", [65533, 65534, 65535, 70000])
def test_more_mappings_than_the_header_counts(tmp_path, count):
    """elf(5), PN_XNUM: with one segment for the notes, 65,535 and more are counted elsewhere."""
    first, step = 0x10000, 4 * PAGE
    maps = [Mapping(first + i * step, first + i * step + PAGE, "rw-p") for i in range(count)]
    memory = {m.start: page(i % 251 + 1) for i, m in enumerate(maps) if i in (0, count // 2, count - 1)}
    path = str(tmp_path / "core")
    write_core(path, "x86-64", 100, [(100, registers("x86-64", rsp=first))], maps, memory)
    with open(path, "rb") as f:
        assert struct.unpack_from("<H", f.read(64), 56)[0] == min(count + 1, 0xFFFF)
    core = CoreFileTarget(path)
    assert len(core.mappings()) == count and [th.tid for th in core.threads()] == [100]
    assert all(core.read(at, PAGE) == data for at, data in memory.items())
