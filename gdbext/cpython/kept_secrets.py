"""What a program of Python keeps of its command line and environment, and the keys by which its processes know each other.

A program that writes itself a title (setproctitle, as the engines do) writes it over the command line that the kernel keeps; a
spawned child has its parent's words in sys.argv and never had them in a command line of its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .. import log
from ..access.secrets import is_kept, pairs
from ..errors import GdbextError
from .runtime import open_runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..access.base import Target
    from .objects import Object
    from .runtime import Runtime

MAX_WORDS = 10_000
MAX_WORD = 16 << 10  # bytes


def read(target: Target) -> tuple[list[bytes], list[bytes], set[bytes], list[tuple[int, int, int]]]:
    """-> (words of its command lines, NAME=VALUE of its environment, keys, (address, bytes, bytes of a character) of values that
    a snapshot does not keep), each as far as it can be read; empty where the process runs no CPython that is known here."""
    argv: list[bytes] = []
    environ: list[bytes] = []
    keys: set[bytes] = set()
    places: list[tuple[int, int, int]] = []
    try:
        rt = open_runtime(target)
        for name in ("argv", "orig_argv"):
            words = [(_encoded(one), one) for one in _each(rt, "sys", name)]
            argv += [b"--", *(word for word, _ in words)]  # the last option of one has nothing of the next
            places += _places_of_words(words)
        for one in _each(rt, "os", "environ"):
            for key, value in one.attr("_data").items(MAX_WORDS):
                pair = _encoded(key), _encoded(value)
                environ.append(b"=".join(pair))
                if not is_kept(os.fsdecode(pair[0]), pair[1], variable=True):
                    places += _place(value)
        for process in ("_current_process", "_parent_process"):
            keys |= set(_authkeys(rt, process))
    except GdbextError as e:
        log.passed_over(e)
    return argv, environ, keys, places


def _places_of_words(words: list[tuple[bytes, Object]]) -> Iterator[tuple[int, int, int]]:
    """Where the words of a command line lie that a snapshot does not keep, but for the first, the program: values of options that
    are not known, and of `--option=value` the value."""
    option = b""
    for word, one in words[1:]:
        name, mark, value = word.partition(b"=")
        if word.startswith(b"-") and mark:
            if not is_kept(*next(pairs([word], ())), variable=False):
                yield from _place(one, len(name) + 1)
        elif word.startswith(b"-"):
            option = word
        elif not is_kept(*list(pairs([option, word] if option else [word], ()))[-1], variable=False):
            yield from _place(one)


def _place(value: Object, skipped: int = 0) -> Iterator[tuple[int, int, int]]:
    """Where the characters of a str or bytes lie, from `skipped` on; not of what is one character, which others share."""
    try:
        if value.len() > 1:
            at, count, unit = value.characters()
            yield at + skipped * unit, (count - skipped) * unit, unit
    except GdbextError as e:
        log.passed_over(e)
        return


def _each(rt: Runtime, module: str, name: str) -> Iterator[Object]:
    """The items of a list in a module, or the one value that is there."""
    scope = rt.module(module)
    try:
        value = None if scope is None else scope.item(name)
    except GdbextError as e:
        log.passed_over(e)
        return
    if value is not None:
        yield from value.elements(MAX_WORDS) if value.isa("list") else [value]


def _encoded(value: Object) -> bytes:
    """A str or bytes as the kernel was given it; b"" for what is neither, or cannot be read."""
    try:
        return value.raw_bytes(MAX_WORD) if value.isa("bytes") else os.fsencode(value.string(MAX_WORD))
    except (GdbextError, UnicodeEncodeError) as e:
        log.passed_over(e)
        return b""


def _authkeys(rt: Runtime, name: str) -> Iterator[bytes]:
    """multiprocessing's: `process._config["authkey"]` (Lib/multiprocessing/process.py)."""
    for process in _each(rt, "multiprocessing.process", name):
        try:
            key = process.attr("_config").item("authkey")
            yield key.raw_bytes(MAX_WORD)
        except (GdbextError, AttributeError) as e:
            log.passed_over(e)
            continue
