"""Programs in a pseudo terminal, and what a person sees there: the screen that pyte makes of the bytes."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import pyte

LINES = 2000  # of a screen that is never scrolled
WIDE = 4000  # columns of one on which nothing is wrapped


class Shown:
    """What a program has put on a terminal. `status`: its exit status; `data`: the bytes."""

    def __init__(self, status, data, columns):
        self.status, self.data, self.columns = status, data, columns

    def _lines(self, columns):
        screen = pyte.Screen(columns, LINES)
        pyte.ByteStream(screen).feed(self.data)
        rows = [dict(screen.buffer[y]) for y in range(screen.cursor.y + 1)]
        return [[row[x].data if x in row else " " for x in range(max(row, default=-1) + 1)] for row in rows]

    @property
    def lines(self):
        """The lines of the screen, without what is empty at their ends."""
        return ["".join(line).rstrip() for line in self._lines(self.columns)]

    @property
    def text(self):
        return "\n".join(self.lines).rstrip("\n")

    @property
    def unwrapped(self):
        """[(columns, text)] of the lines as they would stand on a screen on which none is too long."""
        lines = [[*line] for line in self._lines(WIDE)]
        for line in lines:
            while line and line[-1] == " ":
                line.pop()
        return [(len(line), "".join(line)) for line in lines if line]

    @property
    def coloured(self):
        """Whether a part of it has a colour or is bold."""
        return re.search(rb"\x1b\[(?:1|3\d|9\d|38;5;\d+)m", self.data) is not None


def shown(words, columns, lines=50, timeout=60, **options):
    """Runs a program in a terminal of so many columns and lines to its end. -> `Shown`"""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, **options) as process:
        os.close(theirs)
        data, deadline = b"", time.monotonic() + timeout
        while True:
            if time.monotonic() > deadline:
                process.kill()
                raise AssertionError((words, "does not end", data[-2000:]))
            if not select.select([ours], [], [], 0.1)[0]:
                if process.poll() is not None:
                    break  # a process that lives on may have it open
                continue
            try:
                part = os.read(ours, 65536)
            except OSError:  # nobody has it open any more
                break
            if not part:
                break
            data += part
    os.close(ours)
    return Shown(process.returncode, data, columns)
