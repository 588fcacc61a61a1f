"""Maps libraries as the loader would, relocates nothing and runs nothing of them: what a debugger can look through and set
breakpoints in.

maplib.py LIBRARY...      prints "ready", goes on when a line comes, ends with the standard input
"""

import ctypes
import os
import struct
import sys

READ, WRITE, EXECUTE, PRIVATE, FIXED, ANONYMOUS = 1, 2, 4, 2, 0x10, 0x20


def load(path):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    fd = os.open(path, os.O_RDONLY)
    head = os.pread(fd, 64, 0)
    phoff, (phentsize, phnum) = struct.unpack_from("<Q", head, 32)[0], struct.unpack_from("<HH", head, 54)
    segments = (struct.unpack("<IIQQQQQQ", os.pread(fd, 56, phoff + i * phentsize)) for i in range(phnum))
    loads = [s for s in segments if s[0] == 1]
    base = libc.mmap(None, max(s[3] + s[6] for s in loads) + 4096, 0, PRIVATE | ANONYMOUS, -1, 0)
    for _, flags, offset, vaddr, _, filesz, _, _ in loads:
        start = vaddr & -4096
        access = (READ if flags & 4 else 0) | (WRITE if flags & 2 else 0) | (EXECUTE if flags & 1 else 0)
        got = libc.mmap(base + start, vaddr - start + filesz, access, PRIVATE | FIXED, fd, offset & -4096)
        assert got == base + start, os.strerror(ctypes.get_errno())


for path in sys.argv[1:]:
    load(path)
print("ready", flush=True)
sys.stdin.read()
