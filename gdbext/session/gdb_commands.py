"""The commands as gdb knows them: name, class and help at the start. A command's code is loaded when the command is typed or
completed.

gdbext/init.py loads this at every start of gdb: nothing else of the pack is imported at the top.
"""

from __future__ import annotations

import gdb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .command import Command

_CLASSES = {"python": gdb.COMMAND_STACK, "tensors": gdb.COMMAND_DATA, "ranks": gdb.COMMAND_STATUS}


def register(name: str, group: str, help: str, once: bool, load: Callable[[str], type[Command]]) -> Any:
    """Makes one command of the table a gdb command. `once`: Enter does not repeat it; `load(name)` gives its class."""

    class GdbCommandAdapter(gdb.Command):
        __doc__ = help.replace("…", "...")  # gdb in the C locale takes ASCII only

        def __init__(self) -> None:
            super().__init__(name, _CLASSES.get(group, gdb.COMMAND_USER))
            if once:
                self.dont_repeat()

        def invoke(self, argument: str, from_tty: bool) -> None:
            from . import gdb_session

            gdb_session.run(load(name), argument, from_tty)

        def complete(self, text: str, word: str | None) -> Any:
            from . import gdb_session

            return gdb_session.complete(load(name), text, word)

    return GdbCommandAdapter()
