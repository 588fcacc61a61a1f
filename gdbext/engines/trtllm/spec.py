"""TensorRT-LLM sets no titles. Its servers are recognised by their command line, its MPI workers by the program that they run and
by MPI's environment variables (Open MPI's OMPI_COMM_WORLD_*, PMIx, MPICH's PMI_RANK, Slurm's SLURM_PROCID)."""

from __future__ import annotations

from ..recognition import memory_environ
from ..spec import EngineSpec, Match, Memory, environ_names, environ_ranks, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from ...cpython.runtime import Runtime
    from ..rank import Rank


_SCRIPTS = {"trtllm-serve": "api-server", "trtllm-llmapi-launch": "frontend"}
_MODULES = {
    "tensorrt_llm.llmapi.mgmn_worker_node": "worker",
    "tensorrt_llm.llmapi.mgmn_leader_node": "frontend",
    "tensorrt_llm.commands.serve": "api-server",
}


class TrtLlm(EngineSpec):
    name = "trtllm"
    display = "TensorRT-LLM"
    unproven = True
    packages = ("tensorrt_llm",)
    libraries = r"/tensorrt_llm/\S*\.so|/libtensorrt_llm\S*\.so|/libnvinfer_plugin_tensorrt_llm\S*\.so"
    environ_ranks = (
        ("world", ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")),
        ("local", ("OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID")),
    )
    kv_module = "kv"
    kv_classes = ("KVCacheManager", "BlockManager", "WindowBlockManager", "LRUEvictionPolicy")
    kv_types = ("tensorrt_llm::batch_manager::kv_cache_manager::WindowBlockManager",)
    sensitive = words("messages prompt_text input_token_ids")

    def match_argv(self, kind: str, text: str, arguments: list[str]) -> Match | None:
        if kind == "module" and text in _MODULES:
            return Match(_MODULES[text])
        if kind == "module" and text == "mpi4py.futures.server":
            return Match("worker", needs_libraries=True)  # mpi4py's pool serves any program
        if kind == "script" and text.rpartition("/")[2] in _SCRIPTS:
            return Match(_SCRIPTS[text.rpartition("/")[2]])
        return None

    match_child = EngineSpec.match_untitled_child

    def infer_world(self, ranks: Sequence[Rank]) -> None:
        for rank in ranks:
            if rank.role in ("worker", "engine-core", "child") and rank.rank_source != "memory":
                found = environ_ranks(self, rank.process.environ)
                if found:
                    rank.ranks.update(found)
                    rank.rank_source = "environ"
                    if "world" in found and rank.role == "worker":
                        rank.name = f"rank-{found['world']}"

    def ranks_in_memory(self, runtime: Runtime, rank: Rank) -> Memory | None:
        if runtime.module("tensorrt_llm") is None:
            return None
        return Memory("", environ_ranks(self, memory_environ(runtime, environ_names(self))))
