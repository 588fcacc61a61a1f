"""What /proc tells of a process's memory, on this process itself."""

import ctypes
import mmap
import os
import tracemalloc

import pytest

from gdbext.access import pagemap, resident
from gdbext.access.model import Mapping
from gdbext.access.proc import ProcTarget
from gdbext.access.procfs import parse_maps
from gdbext.errors import GdbextError

PAGE = mmap.PAGESIZE
MADV_GUARD_INSTALL = 102  # Linux 6.13


def test_memory_that_was_never_touched_is_passed_over():
    memory = mmap.mmap(-1, 1024 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (3, 5, 700):
        memory[page * PAGE] = 1
    target = ProcTarget(os.getpid())
    assert target.populated(start, start + 1024 * PAGE) == [
        (start + 3 * PAGE, start + 6 * PAGE),
        (start + 700 * PAGE, start + 701 * PAGE),
    ]
    assert target.populated(start + 8 * PAGE, start + 600 * PAGE) == []


def touched(memory, *pages):
    for page in pages:
        memory[page * PAGE] = 1
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def test_guard_pages_hold_nothing():
    """As the ends of thread stacks of glibc 2.42: their pagemap entries are those of pages in swap."""
    memory = mmap.mmap(-1, 64 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    start = touched(memory, *range(64))
    libc = ctypes.CDLL(None, use_errno=True)
    for first, count in ((0, 4), (20, 1), (60, 4)):
        if libc.madvise(ctypes.c_void_p(start + first * PAGE), ctypes.c_size_t(count * PAGE), MADV_GUARD_INSTALL) != 0:
            pytest.skip(f"no guard pages: {os.strerror(ctypes.get_errno())}")
    own = [(start + a * PAGE, start + b * PAGE) for a, b in ((4, 20), (21, 60))]
    target = ProcTarget(os.getpid())
    assert own[0][0] >= target.populated(start, start + 64 * PAGE)[0][0] > start
    maps = [Mapping(start, start + 64 * PAGE, "rw-p")]
    assert resident.select(os.getpid(), maps, 1 << 30).spans == own
    here, away = target.presence().split([(start, 64 * PAGE)])
    assert [(at, at + size) for at, size in here] == own and away == []
    with pytest.raises(GdbextError):
        target.read(start + 20 * PAGE, 8)


def test_pages_are_read_again_together_and_none_that_must_be_fetched(monkeypatch):
    memory = mmap.mmap(-1, 200 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    pages = [2, 3, 70, 199]
    start = touched(memory, *pages)
    target = ProcTarget(os.getpid())
    places = [start + page * PAGE + 8 for page in pages]
    assert [target.u64(at) for at in places] == [0] * 4
    for page in pages:
        memory[page * PAGE + 8] = page
    assert [target.u64(at) for at in places] == [0] * 4  # as they were read
    target.refresh_pages()
    with monkeypatch.context() as patched:
        patched.setattr(target, "_read", lambda *_: pytest.fail("they are read one by one"))
        assert [target.u64(at) for at in places] == pages
    assert bytes(target.gather(places, 8))[::8] == bytes(pages)
    assert target.gather([*places, start + 100 * PAGE], 8) is None  # never touched: no page of it is in memory
    target.u64(start + 100 * PAGE)
    target.refresh_pages()  # one by one then
    assert [target.u64(at) for at in places] == pages


def test_what_a_snapshot_takes_is_counted_without_a_list_of_every_page():
    """Of small and big mappings within a limit; a big one is given up as soon as it is too much, and named with what it holds."""
    small, big = (mmap.mmap(-1, n * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for n in (100, 4000))
    for one in (small, big):
        one.madvise(mmap.MADV_NOHUGEPAGE)
    a, b = touched(small, 0, 1, 50), touched(big, *range(1000, 3000))
    maps = [Mapping(b, b + 4000 * PAGE, "rw-p"), Mapping(a, a + 100 * PAGE, "rw-p"), Mapping(8, 9, "---p")]
    found = resident.select(os.getpid(), maps, 100 * PAGE)
    assert found.spans == [(a, a + 2 * PAGE), (a + 50 * PAGE, a + 51 * PAGE)] and found.size == 3 * PAGE
    assert found.left_out == [(b, 2000 * PAGE)]
    assert resident.select(os.getpid(), maps, 2003 * PAGE).size == 2003 * PAGE
    with open("/proc/self/pagemap", "rb", buffering=0) as f:
        assert resident.spans(f.fileno(), b, b + 4000 * PAGE, 1000 * PAGE) is None
        assert resident.spans(f.fileno(), b, b + 4000 * PAGE) == [(b + 1000 * PAGE, b + 3000 * PAGE)]


def test_pages_in_use_that_never_adjoin_fill_nobodys_memory(tmp_path, monkeypatch):
    """A pagemap of every other page, as a process makes it by reading zeros: no list of them all, and the mapping is named."""
    count = 1 << 20
    pagemap = tmp_path / "pagemap"
    pagemap.write_bytes((bytes(7) + b"\x80" + bytes(8)) * (count // 2))
    monkeypatch.setattr(resident, "MAX_SPANS", 1 << 12)
    with open(pagemap, "rb", buffering=0) as f:
        tracemalloc.start()
        assert resident.spans(f.fileno(), 0, count * PAGE) is None
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 16 << 20, most
        opened = open
        monkeypatch.setattr("builtins.open", lambda path, *a, **k: opened(pagemap if "pagemap" in str(path) else path, *a, **k))
        found = resident.select(os.getpid(), [Mapping(0, count * PAGE, "rw-p"), Mapping(0, 16 * PAGE, "rw-p")], 64 * PAGE)
    assert found.left_out == [(0, count * PAGE)] and found.size == 8 * PAGE


def test_what_is_used_after_a_sample_is_found_in_old_and_new_mappings():
    def anonymous(pages):
        memory = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        return memory

    def maps():
        with open("/proc/self/maps") as f:
            return parse_maps(f.read())

    old, large = anonymous(300), anonymous(600000)
    large.madvise(mmap.MADV_DONTDUMP)  # else the kernel makes them one mapping
    start, beyond = touched(old, 0, 1, 2), touched(large, 0)
    growth = resident.Growth(os.getpid(), maps(), 500000 * PAGE)
    new = anonymous(4000)  # larger than what the interpreter may have given back meanwhile
    fresh = touched(new, 5, 3000)
    touched(old, 2, 3, 250)
    touched(large, 1000)
    pages = [page for page, _ in growth.spans(maps())]
    assert [page for page in pages if start <= page < start + 300 * PAGE] == [start + n * PAGE for n in (3, 250)]
    assert fresh + 3000 * PAGE in pages  # others may lie where something was before
    assert beyond + 1000 * PAGE not in pages


def test_a_block_that_malloc_mapped_is_cut_out_of_what_shares_its_mapping():
    area = mmap.mmap(-1, 300 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    start = touched(area, *range(300))
    size = 200 * PAGE
    area[50 * PAGE + 8 : 50 * PAGE + 16] = (size | 2).to_bytes(8, "little")  # glibc: a chunk's size, IS_MMAPPED
    found = resident.select(os.getpid(), [Mapping(start, start + 300 * PAGE, "rw-p")], 120 * PAGE)
    assert found.spans == [(start, start + 50 * PAGE), (start + 250 * PAGE, start + 300 * PAGE)]
    assert found.left_out == [(start + 50 * PAGE, size)]


def test_a_path_makes_up_no_mapping():
    made_up = "7f0000002000-7f0000003000 rwxp 00000000 08:01 13 /tmp/b"
    for end in ("\v", "\f", "\r", "\x1c", "\x85", "\u2028"):
        (found,) = parse_maps(f"7f0000000000-7f0000001000 r--p 00000000 08:01 12 /tmp/a{end}{made_up}\n")
        assert found.path == f"/tmp/a{end}{made_up}" and found.perms == "r--p"


MAP_NORESERVE = 0x4000
HUGE = 16 << 40


@pytest.fixture
def sparse():
    """-> (address of 16 TiB, as a sanitizer maps them, where three pages were written to; those pages)"""
    try:
        memory = mmap.mmap(-1, HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    except OSError as e:
        pytest.skip(f"16 TiB of addresses cannot be had: {e}")
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    places = [0, (5 << 40) // PAGE, HUGE // PAGE - 1]
    yield touched(memory, *places), places


def test_addresses_that_were_never_touched_are_passed_over_however_many(sparse):
    start, places = sparse
    own = [(start + place * PAGE, start + (place + 1) * PAGE) for place in places]
    assert ProcTarget(os.getpid()).populated(start, start + HUGE) == own
    found = resident.select(os.getpid(), [Mapping(start, start + HUGE, "rw-p")], 1 << 20)
    assert found.spans == own and found.size == 3 * PAGE and not found.left_out


def test_where_the_kernel_cannot_skip_them_a_line_says_what_is_missing(sparse, monkeypatch):
    start, _ = sparse
    monkeypatch.setattr(pagemap, "_IOCTL", 0xDEAD)  # a kernel before 6.7
    monkeypatch.setattr(pagemap, "SECONDS", 0.0)
    with open("/proc/self/pagemap", "rb", buffering=0) as f, pytest.raises(GdbextError, match="GiB of addresses .* not read"):
        list(pagemap.ranges(f.fileno(), start, start + HUGE))
    with open("/proc/self/pagemap", "rb", buffering=0) as f:
        small = list(pagemap.ranges(f.fileno(), start, start + (1 << 30)))
    assert small == [(start, start + (1 << 30))], "of what is not big no kernel is asked"
