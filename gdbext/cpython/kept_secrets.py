"""What a program of Python keeps of its command line and environment, and the keys by which its processes know each other.

A program that writes itself a title (setproctitle, as the engines do) writes it over the command line that the kernel keeps; a
spawned child has its parent's words in sys.argv and never had them in a command line of its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import GdbextError
from .runtime import open_runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..access.base import Target
    from .objects import Object
    from .runtime import Runtime

MAX_WORDS = 10_000
MAX_WORD = 16 << 10  # bytes


def read(target: Target) -> tuple[list[bytes], list[bytes], set[bytes]]:
    """-> (words of its command lines, NAME=VALUE of its environment, keys), each as far as it can be read; empty where the
    process runs no CPython that is known here."""
    argv: list[bytes] = []
    environ: list[bytes] = []
    keys: set[bytes] = set()
    try:
        rt = open_runtime(target)
        for name in ("argv", "orig_argv"):
            argv += [b"--", *(_encoded(one) for one in _each(rt, "sys", name))]  # the last option of one has nothing of the next
        for one in _each(rt, "os", "environ"):
            environ += [_encoded(key) + b"=" + _encoded(value) for key, value in one.attr("_data").items(MAX_WORDS)]
        for process in ("_current_process", "_parent_process"):
            keys |= set(_authkeys(rt, process))
    except GdbextError:
        pass
    return argv, environ, keys


def _each(rt: Runtime, module: str, name: str) -> Iterator[Object]:
    """The items of a list in a module, or the one value that is there."""
    scope = rt.module(module)
    try:
        value = None if scope is None else scope.item(name)
    except GdbextError:
        return
    if value is not None:
        yield from value.elements(MAX_WORDS) if value.isa("list") else [value]


def _encoded(value: Object) -> bytes:
    """A str or bytes as the kernel was given it; b"" for what is neither, or cannot be read."""
    try:
        return value.raw_bytes(MAX_WORD) if value.isa("bytes") else os.fsencode(value.string(MAX_WORD))
    except (GdbextError, UnicodeEncodeError):
        return b""


def _authkeys(rt: Runtime, name: str) -> Iterator[bytes]:
    """multiprocessing's: `process._config["authkey"]` (Lib/multiprocessing/process.py)."""
    for process in _each(rt, "multiprocessing.process", name):
        try:
            key = process.attr("_config").item("authkey")
            yield key.raw_bytes(MAX_WORD)
        except (GdbextError, AttributeError):
            continue
