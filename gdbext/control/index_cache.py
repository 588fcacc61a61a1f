"""gdb's cache of indexes (access/kept_indexes.py), switched on while the pack has it read libraries."""

from __future__ import annotations

import contextlib
from typing import Iterator, Sequence

import gdb

from .. import log
from ..access.cli_gdb import command
from ..access.kept_indexes import Indexes
from ..errors import GdbextError

SWITCH, FOLDER = "index-cache enabled", "index-cache directory"


@contextlib.contextmanager
def kept(paths: Sequence[str]) -> Iterator[None]:
    """In this `with` block gdb takes the indexes of the libraries `paths` from the cache and adds those that it has to make. A
    user who has a cache of gdb's own keeps that; without any cache gdb reads the libraries as ever."""
    indexes = Indexes(gdb.VERSION, paths)
    try:
        if not indexes.folder or gdb.parameter(SWITCH):
            raise GdbextError("gdb's own index cache is on, or there is no folder for ours")
        before = str(gdb.parameter(FOLDER))
        indexes.check()
        gdb.execute(command("set {} {}", FOLDER, indexes.folder), to_string=True)
        gdb.execute(command("set {} on", SWITCH), to_string=True)
    except (gdb.error, RuntimeError, OSError, GdbextError) as e:
        log.passed_over(e, "indexes of debug information are not kept")
        yield
        return
    try:
        yield
    finally:
        with log.passing_over(gdb.error):
            gdb.execute(command("set {} off", SWITCH), to_string=True)
            gdb.execute(command("set {} {}", FOLDER, before), to_string=True)
            gdb.execute("maintenance wait-for-index-cache", to_string=True)  # gdb 14 and newer write behind
        indexes.seal()
