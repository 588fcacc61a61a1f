"""The command line and environment as a Python program keeps them, and the keys by which its processes know each other.

A program that sets its own title (setproctitle, as the engines do) writes it over the command line that the kernel keeps. A
spawned child has its parent's words in sys.argv; its own command line never had them.
"""

from __future__ import annotations

import os
from typing import Iterator

from .. import log
from ..access.base import Target
from ..access.secrets import is_kept, pairs
from ..errors import GdbextError
from .objects import Object
from .runtime import Runtime, open_runtime

MAX_WORDS = 10_000
MAX_WORD = 16 << 10  # bytes


def read(target: Target) -> tuple[list[bytes], list[bytes], set[bytes], list[tuple[int, int, int]]]:
    """-> (words of its command lines, NAME=VALUE of its environment, keys, places of values that a snapshot does not keep).

    A place is (address, bytes, bytes of a character). Each part is as complete as it can be read. All are empty where the process
    runs no CPython that is known here.
    """
    argv: list[bytes] = []
    environ: list[bytes] = []
    keys: set[bytes] = set()
    places: list[tuple[int, int, int]] = []
    try:
        rt = open_runtime(target)
        for name in ("argv", "orig_argv"):
            words = [(_encoded(one), one) for one in _each(rt, "sys", name)]
            argv += [b"--", *(word for word, _ in words)]  # so that the last option takes no value of the next one
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
    """The places of those words of a command line that a snapshot does not keep: values of unknown options, and in
    `--option=value` the value. The first word, the program, is always kept."""
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
    """The place of the characters of a str or bytes, from `skipped` on. None for a single character: others share that object."""
    try:
        if value.len() > 1:
            at, count, unit = value.characters()
            yield at + skipped * unit, (count - skipped) * unit, unit
    except GdbextError as e:
        log.passed_over(e)
        return


def _each(rt: Runtime, module: str, name: str) -> Iterator[Object]:
    """The items of a list in a module, or the single value where it is no list."""
    scope = rt.module(module)
    try:
        value = None if scope is None else scope.item(name)
    except GdbextError as e:
        log.passed_over(e)
        return
    if value is not None:
        yield from value.elements(MAX_WORDS) if value.isa("list") else [value]


def _encoded(value: Object) -> bytes:
    """A str or bytes as the kernel received it; b"" for other objects, and for unreadable ones."""
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
