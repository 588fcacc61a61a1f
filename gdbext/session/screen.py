"""A terminal for one live view: keys without Enter, a screen of its own, and the former state restored at the end."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from typing import Any

from ..errors import GdbextError
from ..render.text import escape_output

OWN_SCREEN, OLD_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, END_OF_LINE, END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_ARROWS = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down"}


class Screen:
    """`with Screen() as screen:` takes the terminal. However the block is left (^C, SIGTERM, an error), its former state is
    restored.

    `moves`: whether the terminal has a movable cursor, by TERM; one without gets plain lines. `own_signals`: SIGTERM ends the
    block; not inside gdb, which has its own handlers. `GdbextError` without a terminal."""

    def __init__(self, own_signals: bool = True) -> None:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise GdbextError("a live view needs a terminal: -once prints one frame, -json a line for each")
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._own_signals = own_signals
        self.moves = os.environ.get("TERM", "") not in ("", "dumb", "unknown")
        self._before: Any = None
        self._handler: Any = None

    def __enter__(self) -> Screen:
        sys.stdout.flush()
        self._before = termios.tcgetattr(self._in)
        try:
            if self._own_signals:
                self._handler = signal.signal(signal.SIGTERM, _end)
            tty.setcbreak(self._in)
            self._send(OWN_SCREEN if self.moves else "")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._send(OLD_SCREEN if self.moves else "")
        except OSError:
            pass  # the terminal is gone
        finally:
            try:
                termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)
            except termios.error:
                pass
            if self._own_signals and self._handler is not None:
                signal.signal(signal.SIGTERM, self._handler)

    def _send(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(self._out, data) :]

    def size(self) -> tuple[int, int]:
        """(columns, lines)."""
        try:
            found = os.get_terminal_size(self._out)
        except OSError:
            return 80, 24
        return found.columns or 80, found.lines or 24

    def show(self, lines: Sequence[str], coloured: bool) -> None:
        """Shows the lines that fit, below the earlier ones where the cursor cannot be moved. Everything in them except `Style`'s
        colours is escaped."""
        rows = self.size()[1]
        text = escape_output("\n".join(lines[: rows - 1]), coloured)
        if not self.moves:
            self._send(text.replace("\n", "\r\n") + "\r\n\r\n")
            return
        self._send(HOME + text.replace("\n", END_OF_LINE + "\r\n") + END_OF_LINE + END_OF_SCREEN)

    def key(self, seconds: float) -> str:
        """The next key within so many seconds: a character, "up", "down", "enter", "escape"; '' where none was pressed."""
        ready, _, _ = select.select([self._in], [], [], max(0.0, seconds))
        if not ready:
            return ""
        data = os.read(self._in, 16)
        if not data:
            raise KeyboardInterrupt  # the terminal was closed
        if data in _ARROWS:
            return _ARROWS[data]
        if data[:1] == b"\x1b":
            return "escape"
        return "enter" if data[:1] in b"\r\n" else data[:1].decode("latin-1")


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)
