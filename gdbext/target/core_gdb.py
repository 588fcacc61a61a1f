"""A core file that gdb has open: bytes, threads and registers from the file itself (`snapshot.CoreFileTarget`)."""

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

