"""A core file that gdb has open: bytes from the file itself (`snapshot.CoreFileTarget`), stacks from gdb."""

from ..errors import GdbextError
from .live_gdb import GdbTarget, core_file
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

    gdb_threads = GdbTarget.gdb_threads
    unwind = GdbTarget.unwind
