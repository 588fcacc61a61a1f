"""What /proc tells of a process's memory, on this process itself."""

import ctypes
import mmap
import os

from gdbext.access.proc import ProcTarget

PAGE = mmap.PAGESIZE


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
