"""LMDeploy: no titles; the server by its command line, its executors (multiprocessing name `ExecutorProc-{id}`,
pytorch/engine/executor/mp_executor.py) by being its children, their ranks by Python's memory or the environment."""

import re

from ..errors import NotFoundError
from .base import EngineSpec, Match, Memory, environ_ranks, memory_environ


class LmDeploy(EngineSpec):
    name = "lmdeploy"
    display = "LMDeploy"
    libraries = re.compile(r"/lmdeploy/lib/\S*\.so")
    environ_ranks = (("world", ("RANK",)), ("local", ("LOCAL_RANK",)))

    def argued(self, kind, text, arguments):
        if arguments[:2] == ["serve", "api_server"] or arguments[:2] == ["serve", "gradio"]:
            if (kind == "module" and text in ("lmdeploy", "lmdeploy.cli.entrypoint")) or (
                kind == "script" and text.rpartition("/")[2] == "lmdeploy"
            ):
                return Match("api-server")
        return None

    child = EngineSpec.untitled_child

    def world(self, ranks):
        for rank in ranks:
            if rank.role == "child" and rank.rank_source != "memory":
                found = environ_ranks(self, rank.process.environ)
                if "world" in found:
                    rank.role, rank.rank_source, rank.name = "worker", "environ", f"rank-{found['world']}"
                    rank.ranks.update(found)

    def memory(self, runtime, rank):
        if runtime.module("lmdeploy") is None:
            return None
        ranks = environ_ranks(self, memory_environ(runtime, [n for _, group in self.environ_ranks for n in group]))
        scope = runtime.module("multiprocessing.process")
        try:
            name = scope.item("_current_process").attr("_name").string() if scope is not None else ""
        except NotFoundError:
            name = ""
        m = re.fullmatch(r"ExecutorProc-([0-9]{1,6})", name)
        if m:
            ranks.setdefault("world", int(m.group(1)))
        return Memory("worker" if m else "", ranks)
