"""A core file that gdb has open: bytes, threads and registers from the file itself (`snapshot.CoreFileTarget`)."""

import gdb

from ..errors import GdbextError
from .live_gdb import core_file
from .snapshot import CoreFileTarget


class CoreGdbTarget(CoreFileTarget):
    """An inferior that is a core."""

    kind = "core"

    def __init__(self, inferior, label=""):
        path = core_file(inferior)
        if path is None:
            raise GdbextError("this inferior is no core file")
        super().__init__(path)
        self.inferior, self.label = inferior, label

    def root(self):
        """`set sysroot DIR`: where the files of another machine or container lie."""
        folder = gdb.parameter("sysroot") or ""
        return "" if folder.startswith("target:") else folder.rstrip("/")

    @property
    def epoch(self):
        return self.root()
