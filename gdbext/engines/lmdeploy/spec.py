"""LMDeploy sets no titles. Its server is recognised by its command line, and its executors (multiprocessing name
`ExecutorProc-{id}`, pytorch/engine/executor/mp_executor.py) by being the server's children. Their ranks come from Python's memory
or the environment."""

from __future__ import annotations

import re

from ... import log
from ...errors import NotFoundError
from ..recognition import memory_environ
from ..spec import EngineSpec, Match, Memory, environ_names, environ_ranks, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from ...cpython.runtime import Runtime
    from ..rank import Rank


class LmDeploy(EngineSpec):
    name = "lmdeploy"
    display = "LMDeploy"
    unproven = True
    packages = ("lmdeploy",)
    libraries = r"/lmdeploy/lib/\S*\.so"
    environ_ranks = (("world", ("RANK",)), ("local", ("LOCAL_RANK",)))
    sensitive = words("all_ids history_ids messages history_cache history_token_ids prompt_text input_token_ids")
    kernels = "lmdeploy"

    def match_argv(self, kind: str, text: str, arguments: list[str]) -> Match | None:
        if arguments[:2] == ["serve", "api_server"] or arguments[:2] == ["serve", "gradio"]:
            if (kind == "module" and text in ("lmdeploy", "lmdeploy.cli.entrypoint")) or (
                kind == "script" and text.rpartition("/")[2] == "lmdeploy"
            ):
                return Match("api-server")
        return None

    match_child = EngineSpec.match_untitled_child

    def infer_world(self, ranks: Sequence[Rank]) -> None:
        for rank in ranks:
            if rank.role == "child" and rank.rank_source != "memory":
                found = environ_ranks(self, rank.process.environ)
                if "world" in found:
                    rank.role, rank.rank_source, rank.name = "worker", "environ", f"rank-{found['world']}"
                    rank.ranks.update(found)

    def ranks_in_memory(self, runtime: Runtime, rank: Rank) -> Memory | None:
        if runtime.module("lmdeploy") is None:
            return None
        ranks = environ_ranks(self, memory_environ(runtime, environ_names(self)))
        scope = runtime.module("multiprocessing.process")
        try:
            name = scope.item("_current_process").attr("_name").string() if scope is not None else ""
        except NotFoundError as e:
            log.passed_over(e)
            name = ""
        m = re.fullmatch(r"ExecutorProc-([0-9]{1,6})", name)
        if m:
            ranks.setdefault("world", int(m.group(1)))
        return Memory("worker" if m else "", ranks)
