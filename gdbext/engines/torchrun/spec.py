"""The ranks of a job are large Pythons with torch, whose environment says which rank of how many they are and where all meet. It
is set by torchrun, by launchers on clusters, and by operators of Kubernetes. What a rank has started has the same environment
and is no rank."""

from __future__ import annotations

import re

from ..spec import EngineSpec, Match, environ_ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...access.proctable import Process

_LIBRARIES = re.compile(r"/libtorch(_cpu|_cuda|_hip)?\.so")


class Torchrun(EngineSpec):
    name = "torchrun"
    display = "torchrun"
    packages = ("torch.distributed.run",)
    serves = False
    environ_ranks = (("world", ("RANK",)), ("local", ("LOCAL_RANK",)))

    def match_environ(self, process: Process) -> Match | None:
        found = environ_ranks(self, process.environ)
        size = process.environ.get("WORLD_SIZE", "")
        sound = re.fullmatch("[0-9]{1,6}", size) is not None and found.get("world", int(size)) < int(size)
        if not sound or not self.meets_at(process):
            return None
        return Match("rank", found, name=f"R{found['world']}") if _LIBRARIES.search(process.maps()) else None

    def meets_at(self, process: Process) -> str:
        host, port = (process.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
        return f"{host}:{port}" if host and port else ""
