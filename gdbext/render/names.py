"""C++ names for people."""

from __future__ import annotations

import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


@functools.lru_cache(maxsize=65536)
def demangle(name: str) -> str:
    """`_ZN2at4_ops3mul4callE…` -> `at::_ops::mul::call(…)`, by the C++ library's own demangler; anything else as it is."""
    if not name.startswith("_Z"):
        return name
    work = _demangler()
    if work is None:
        return name
    return work(name)


@functools.lru_cache(maxsize=1)
def _demangler() -> Callable[[str], str] | None:
    import ctypes

    try:
        library = ctypes.CDLL("libstdc++.so.6")
        libc = ctypes.CDLL(None)
    except OSError:
        return None
    library.__cxa_demangle.restype = ctypes.c_void_p
    library.__cxa_demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    libc.free.argtypes = [ctypes.c_void_p]

    def work(name: str) -> str:
        status = ctypes.c_int()
        pointer = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
        if not pointer or status.value:
            return name
        try:
            return ctypes.string_at(pointer).decode("utf-8", "replace")
        finally:
            libc.free(pointer)

    return work


def short(name: str, limit: int = 100) -> str:
    """A function's name without its arguments, its template arguments folded when it is long."""
    text = demangle(name)
    depth, braces, out = 0, 0, []
    if len(text) <= limit:
        return text
    for c in text.replace("(anonymous namespace)", "{anonymous}"):
        if depth == 0:
            braces += (c == "{") - (c == "}")  # {lambda(int)#1} is a name, its parentheses are none of the arguments'
        if c == "<":
            if depth == 0:
                out.append("<…>")
            depth += 1
        elif c == ">" and depth:
            depth -= 1
        elif c == "(" and depth == 0 and braces == 0 and out:
            break
        elif depth == 0:
            out.append(c)
    folded = "".join(out)
    return folded if folded.strip() else text[:limit]
