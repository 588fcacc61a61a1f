"""gdbext: a GDB / cuda-gdb extension pack for LLM inference engines. `source gdbext/init.py` in gdb loads it."""

import sys

__version__ = "0.3.0"


def _leave_the_current_folder() -> None:
    """`python3 -m gdbext` puts the current folder, an agent's workspace say, before all others on the path: what lies there is
    not imported, unless it is the folder that this very pack lies in."""
    import os  # the interpreter has loaded it itself

    try:
        here = os.getcwd()
    except OSError:  # the folder is gone
        here = ""
    if os.path.dirname(os.path.dirname(os.path.abspath(__file__))) != here:
        sys.path[:] = [entry for entry in sys.path if entry and os.path.realpath(entry) != here]


if sys.argv[:1] == ["-m"]:  # what -m runs is being looked up, and it is this pack
    _leave_the_current_folder()
