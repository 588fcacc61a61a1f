"""A core file that gdb has open: bytes, threads and registers from the file itself (`snapshot.CoreFileTarget`)."""

from __future__ import annotations

from typing import Any

import gdb

from ..errors import GdbextError
from .live_gdb import core_file
from .snapshot import CoreFileTarget


class CoreGdbTarget(CoreFileTarget):
    """An inferior that is a core."""

    kind = "core"

    def __init__(self, inferior: Any, label: str = "") -> None:
        path = core_file(inferior)
        if path is None:
            raise GdbextError("this inferior is no core file")
        super().__init__(path)
        self.inferior, self.label = inferior, label

    def root(self) -> str:
        """The folder of `set sysroot DIR`, for files of another machine or container; without it the process's own root, if the
        process still lives."""
        folder = str(gdb.parameter("sysroot") or "")
        return super().root() if folder.startswith("target:") or not folder.strip("/") else folder.rstrip("/")

    @property
    def epoch(self) -> object:
        """The root: other files, other caches."""
        return self.root()
