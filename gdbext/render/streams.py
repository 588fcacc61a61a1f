"""Standard streams that may be closed, and encodings that do not hold every character."""

from __future__ import annotations

import codecs
import os
import sys
from typing import TextIO

_SPELLED = {"…": "...", "–": "-", "—": "-", "→": "->", "×": "x", "·": ".", "“": '"', "”": '"', "’": "'"}


def make_whole() -> None:
    """Opens those of the three streams that are closed on /dev/null, also so that no other file gets their number. Characters
    that an output's encoding does not have are spelled in ASCII."""
    while True:
        number = os.open(os.devnull, os.O_RDWR)
        if number > 2:
            os.close(number)
            break
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))
    codecs.register_error("gdbext.spelled", _spelled)
    for stream in (sys.stdout, sys.stderr):
        change = getattr(stream, "reconfigure", None)
        if change is not None:
            change(errors="gdbext.spelled")


def columns(stream: TextIO) -> int:
    """The columns of the terminal that a stream goes to; 0 where it goes to none."""
    return os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """How a character is written that the encoding has not: as ours is spelled, else escaped."""
    assert isinstance(error, UnicodeEncodeError)
    part = error.object[error.start : error.end]
    return "".join(_SPELLED.get(c) or c.encode("unicode_escape").decode() for c in part), error.end
