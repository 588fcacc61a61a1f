"""What a command that reads loads: each needless module costs every start, and an archive pays it twice."""

import subprocess
import sys

import pytest
from harness.gdb_run import ROOT
from tools import own_pids

LIST = """
import os, runpy, sys
sys.argv = ["gdbext", *(str(os.getppid()) if word == "PARENT" else word for word in sys.argv[1:])]
try:
    runpy.run_module("gdbext", run_name="__main__")
except SystemExit:
    pass
print("loaded", *sys.modules)
"""
# What starts programs, packs archives, talks to other machines, and what objects need that nobody asked for.
NEEDLESS = {"asyncio", "concurrent.futures", "decimal", "logging", "pathlib", "subprocess", "tempfile", "uuid", "zipfile"}


def loaded_by(*words):
    """The modules that a command loads, in a Python that has nothing but its standard library and sees no process but its own:
    what a machine's engines are decides what is needed to read them."""
    own = [sys.executable, own_pids.__file__, sys.executable, "-I", "-S", "-c"]
    line = [*own, "import sys; sys.path.insert(0, sys.argv.pop(1))\n" + LIST, ROOT, *words]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_llm_ranks_loads_nothing_that_only_other_commands_need():
    loaded = loaded_by("llm-ranks")
    assert {"gdbext.commands.llm_ranks", "gdbext.engines.discover"} <= loaded
    assert not loaded & NEEDLESS


# {command: (modules of the pack that it loads to look at a process, rooms and modules of which it loads nothing)}. Each module is
# a third of a millisecond of every look; a tenth more is room for what is split.
LOOKS = {
    "llm-stacks": (200, "verdict requests kvcache torch control heap timeline kernels.launch"),
    "llm-bt -all -on": (190, "verdict requests kvcache torch heap timeline kernels.launch"),
    "pybt -on": (165, "verdict requests kvcache torch heap timeline stacks.locks"),
}


@pytest.mark.parametrize("line", LOOKS)
def test_a_look_loads_what_it_shows_and_nothing_else(line):
    """At the Python that has started it, which waits."""
    most, others = LOOKS[line]
    loaded = loaded_by(*line.split(), "PARENT")
    own = {name for name in loaded if name.startswith("gdbext.")}
    assert f"gdbext.commands.{line.split()[0].replace('-', '_')}" in own
    assert not [name for name in own for other in others.split() if f"{name}.".startswith(f"gdbext.{other}.")]
    assert not loaded & {"decimal", "difflib", "fractions", "pathlib", "uuid", "zipfile", "asyncio", "logging"}
    assert len(own) <= most, len(own)


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
