"""The C++ library's demangler. A name may expand without end or nest too deeply. So a process of its own demangles such names,
with limits of memory and time for each; only that process dies."""

from __future__ import annotations

import functools
import resource
import signal
import sys
from typing import BinaryIO, Callable

SECONDS = 0.5  # of CPU time, for a name
MAX_NAME = 1 << 16  # bytes of a name, mangled or not
MEMORY = 256 << 20  # bytes of address space, beyond what the process has when it begins


def work(name: str) -> str:
    """A name's text, or the name itself."""
    return _library()(name)


@functools.lru_cache(maxsize=1)
def _library() -> Callable[[str], str]:
    import ctypes

    try:
        library = ctypes.CDLL("libstdc++.so.6")
        libc = ctypes.CDLL(None)
    except OSError:
        return str
    library.__cxa_demangle.restype = ctypes.c_void_p
    library.__cxa_demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    libc.free.argtypes = [ctypes.c_void_p]

    def demangled(name: str) -> str:
        status = ctypes.c_int()
        pointer = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
        if not pointer or status.value:
            return name
        try:
            return ctypes.string_at(pointer).decode("utf-8", "replace")
        finally:
            libc.free(pointer)

    return demangled


def serve(asked: BinaryIO, told: BinaryIO) -> None:
    """Answers each name of `asked`, `LENGTH\\nBYTES`, with its text, alike; nothing where that does not fit. It sets the limits
    of the whole process."""
    _library()("_Z1fv")
    with open("/proc/self/statm", "rb") as f:
        most = int(f.read().split()[0]) * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    while True:
        size = asked.readline()
        if not size:
            return
        name = asked.read(int(size)).decode()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # SIGPROF ends it
        try:
            text = work(name).encode()
        except MemoryError:
            text = b""
        text = text if len(text) <= MAX_NAME else b""
        signal.setitimer(signal.ITIMER_PROF, 0)
        told.write(b"%d\n" % len(text) + text)
        told.flush()


def main() -> int:
    """The process that was started as this module: `serve`s its standard streams."""
    serve(sys.stdin.buffer, sys.stdout.buffer)
    return 0
