"""TensorRT-LLM: no titles; servers by their command line, MPI workers by what they run and by MPI's environment variables
(Open MPI's OMPI_COMM_WORLD_*, PMIx, MPICH's PMI_RANK, Slurm's SLURM_PROCID)."""

import re

from .base import EngineSpec, Match, Memory, environ_ranks, memory_environ

_SCRIPTS = {"trtllm-serve": "api-server", "trtllm-llmapi-launch": "frontend"}
_MODULES = {
    "tensorrt_llm.llmapi.mgmn_worker_node": "worker",
    "tensorrt_llm.llmapi.mgmn_leader_node": "frontend",
    "tensorrt_llm.commands.serve": "api-server",
}


class TrtLlm(EngineSpec):
    name = "trtllm"
    display = "TensorRT-LLM"
    libraries = re.compile(r"/tensorrt_llm/\S*\.so|/libtensorrt_llm\S*\.so|/libnvinfer_plugin_tensorrt_llm\S*\.so")
    environ_ranks = (
        ("world", ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")),
        ("local", ("OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID")),
    )
    parent_roles = {}

    def argued(self, kind, text, arguments):
        if kind == "module" and text in _MODULES:
            return Match(_MODULES[text])
        if kind == "module" and text == "mpi4py.futures.server":
            return Match("worker", needs_libraries=True)  # mpi4py's pool serves any program
        if kind == "script" and text.rpartition("/")[2] in _SCRIPTS:
            return Match(_SCRIPTS[text.rpartition("/")[2]])
        return None

    child = EngineSpec.untitled_child

    def world(self, ranks):
        for rank in ranks:
            if rank.role in ("worker", "engine-core", "child") and rank.rank_source != "memory":
                found = environ_ranks(self, rank.process.environ)
                if found:
                    rank.ranks.update(found)
                    rank.rank_source = "environ"
                    if "world" in found and rank.role == "worker":
                        rank.name = f"rank-{found['world']}"

    def memory(self, runtime, rank):
        if runtime.module("tensorrt_llm") is None:
            return None
        names = [n for _, group in self.environ_ranks for n in group]
        return Memory("", environ_ranks(self, memory_environ(runtime, names)))
