"""What a command that reads loads: each needless module costs every start, and an archive pays it twice."""

import subprocess
import sys

from harness.gdb_run import ROOT

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
        [sys.executable, "-I", "-S", "-c", "import sys; sys.path.insert(0, sys.argv.pop(1))\n" + LIST, ROOT],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert {"gdbext.commands.llm_ranks", "gdbext.engines.discover"} <= loaded
    assert not loaded & NEEDLESS
