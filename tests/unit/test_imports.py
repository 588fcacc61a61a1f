"""What a command that reads loads: each needless module costs every start, and an archive pays it twice."""

import subprocess
import sys

from harness.gdb_run import ROOT
from tools import own_pids

LIST = """
import runpy, sys
sys.argv = ["gdbext", "llm-ranks"]
try:
    runpy.run_module("gdbext", run_name="__main__")
except SystemExit:
    pass
print("loaded", *sys.modules)
"""
# What starts programs, packs archives, talks to other machines, and what objects need that nobody asked for.
NEEDLESS = {"asyncio", "concurrent.futures", "decimal", "logging", "pathlib", "subprocess", "tempfile", "uuid", "zipfile"}


def test_llm_ranks_loads_nothing_that_only_other_commands_need():
    done = subprocess.run(
        [  # without the machine's engines: what they are decides what is needed to read them
            sys.executable,
            own_pids.__file__,
            sys.executable,
            "-I",
            "-S",
            "-c",
            "import sys; sys.path.insert(0, sys.argv.pop(1))\n" + LIST,
            ROOT,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert {"gdbext.commands.llm_ranks", "gdbext.engines.discover"} <= loaded
    assert not loaded & NEEDLESS


# What `source gdbext/init.py` loads of the pack.
AT_START = "package wheels log errors session session.gdb_commands commands commands.table frame_filters functions printers dap"
AT_START = {"gdbext", *(f"gdbext.{name}" for name in AT_START.split())}
GDB = """
import sys, types
registered = []
class Command:
    def __init__(self, name, kind):
        registered.append((name, self.__doc__))
    def dont_repeat(self):
        pass
class Function:
    def __init__(self, name):
        pass
gdb = types.ModuleType("gdb")
gdb.Command, gdb.Function, gdb.write, gdb.pretty_printers, gdb.frame_filters = Command, Function, print, [], {}
gdb.COMMAND_STACK = gdb.COMMAND_DATA = gdb.COMMAND_STATUS = gdb.COMMAND_USER = 0
sys.modules["gdb"] = gdb
before = set(sys.modules)
path = sys.argv[1] + "/gdbext/init.py"
exec(compile(open(path).read(), path, "exec"))
print(*(name for name, text in registered if text))
print(*(set(sys.modules) - before))
"""


def said_alone(code):
    """The lines that Python prints which has nothing but its standard library."""
    return subprocess.check_output([sys.executable, "-I", "-S", "-c", code, ROOT], text=True).splitlines()


def test_the_door_loads_the_table_of_commands_and_nothing_else():
    """FAKE: a module gdb that takes what is registered."""
    names, loaded = (set(line.split()) for line in said_alone(GDB))
    assert {"llm-ranks", "pyprint"} <= names and len(names) > 50
    assert {name for name in loaded if name.startswith("gdbext")} == AT_START
    assert not loaded & {"numpy", "typing", "dataclasses", "inspect", "json", "subprocess", "ctypes", "argparse", "difflib"}


def test_every_command_loads_without_gdb_and_is_what_the_table_says():
    said = said_alone(
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from gdbext.commands import table\n"
        "loaded = table.load_all()\n"
        "assert len(loaded) == len(table.names()) and all(c.name == n for c, n in zip(loaded, table.names()))\n"
        "told = [(e.name, e.group, e.help, e.gdb_only, e.once) for e in table.entries()]\n"
        "assert told == [(c.name, c.group, c.help(), c.gdb_only, c.resumes and not c.repeats) for c in loaded]\n"
        "print(sorted({'numpy', 'torch', 'pygments', 'matplotlib', 'gdb'} & set(sys.modules)))"
    )
    assert said == ["[]"]
