"""One call of an agent: a command in a process of its own, which ends with the server, however the server ends.

`package.program(PYTHON, "gdbext.agents.look") SERVER NAME WORD...` does what `python -m gdbext NAME WORD...` does."""

from __future__ import annotations

import sys

from ..access.ptrace import end_with_parent
from ..setup import outside


def main(words: list[str] | None = None) -> int:
    """Runs the command for as long as the process `SERVER` lives. -> exit status."""
    words = sys.argv[1:] if words is None else words
    end_with_parent(int(words[0]))
    return outside.run(words[1], words[2:])
