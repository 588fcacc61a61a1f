# The door: `source gdbext/init.py` in gdb or cuda-gdb adds the pack's commands. Loads nothing heavy, changes no setting.
python = "a gdb that was built without Python takes this line for its command, and says that it has none"

import os
import sys

import gdb


def _load() -> None:
    # not __file__: where a Python script of the user's sources this, that is the script
    here = os.path.dirname(os.path.abspath(_load.__code__.co_filename))
    if sys.version_info < (3, 8):
        gdb.write(f"gdbext: this gdb's Python is {sys.version.split()[0]}; it needs 3.8 or newer. Nothing was loaded.\n")
        return
    parent = os.path.dirname(here)
    if parent not in sys.path:
        sys.path.insert(0, parent)
    from gdbext import dap, frame_filters, functions, printers
    from gdbext.commands import table
    from gdbext.session import gdb_commands
    from gdbext.wheels import use

    refused = use(sys.version_info[:2])
    if refused:
        gdb.write(f"gdbext: {refused}\n")
    for entry in table.entries():
        gdb_commands.register(entry.name, entry.group, entry.help, entry.once, table.load)
    for part in (frame_filters, functions, printers, dap):
        part.register()


_load()
