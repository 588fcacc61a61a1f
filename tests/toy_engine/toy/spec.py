"""The toy engine of tests/toy_engine/serve.py: one process, known by its command line, whose rank stands in an object of its
own."""

from __future__ import annotations

from ..recognition import checked_rank, outer_frame
from ..spec import EngineSpec, Match, Memory, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ...cpython.runtime import Runtime
    from ..rank import Rank


class Toy(EngineSpec):
    name = "toy"
    display = "Toy"
    packages = ("toy_engine",)
    resting = {"scheduler": "wait_for_work"}
    kv_module = "kv"
    kv_releases = "Toy 1.0"
    kv_newest = (1, 0)
    sensitive = words("toy_prompt")

    def match_argv(self, kind: str, text: str, arguments: List[str]) -> Optional[Match]:
        if kind == "script" and text.rpartition("/")[2] == "toy_serve.py":
            return Match("scheduler")
        return None

    def ranks_in_memory(self, runtime: Runtime, rank: Rank) -> Optional[Memory]:
        if runtime.module("toy_engine") is None:
            return None
        frame = outer_frame(runtime, ("run",))
        scheduler = dict(frame.locals()).get("self") if frame is not None else None
        ranks = {"tp": checked_rank(scheduler.attr("rank").integer())} if scheduler is not None else {}
        return Memory("scheduler", ranks, {"tp": 2} if ranks else {})
