"""The toy engine of tests/toy_engine: a copy of the pack that knows it, and its processes."""

import contextlib
import json
import os
import shutil
import sys

from .gdb_run import ROOT
from .subjects import spawned

TOY = os.path.join(ROOT, "tests", "toy_engine")
ROW = "FOLDERS = ("


def pack_with_toy(root):
    """Makes a copy of the pack with the toy engine in it, in the folder `root` (a Path) -> root"""
    shutil.copytree(os.path.join(ROOT, "gdbext"), root / "gdbext", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(os.path.join(TOY, "toy"), root / "gdbext" / "engines" / "toy", ignore=shutil.ignore_patterns("__pycache__"))
    listing = root / "gdbext" / "engines" / "__init__.py"
    text = listing.read_text()
    assert text.count(ROW) == 1, f"{listing} has no line that begins with {ROW}"
    listing.write_text(text.replace(ROW, ROW + '"toy", '))
    return root


@contextlib.contextmanager
def toy(rank):
    """-> (pid, what it says of itself) of a process of the toy engine"""
    with spawned([sys.executable, os.path.join(TOY, "toy_serve.py"), str(rank)], ready="{") as process:
        yield process.pid, json.loads(process.said)
