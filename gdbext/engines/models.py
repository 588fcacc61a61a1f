"""The model of an engine's process: the outermost torch.nn.Module, how its linear layers are cut over ranks, and how to start the
engine so that each module is called from Python."""

from __future__ import annotations

from typing import Any, Sequence

from .. import log
from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from ..torch import modules
from . import registry
from .objects import optional
from .spec import EngineSpec

ROWS = "RowParallelLinear"  # puts the ranks' parts together again
COLUMNS = "ColumnParallelLinear"  # and classes derived from it (Merged..., QKV...): its output is cut in the last dimension
EMBEDDING = "VocabParallelEmbedding"  # each rank has a part of the rows; the ranks' results are added
CUT = (  # attributes of these layers: (size of the whole, size of a rank's part)
    ("output_size", "output_size_per_partition"),
    ("input_size", "input_size_per_partition"),
    ("num_embeddings_padded", "num_embeddings_per_partition"),
)
WRAPPED = ("runnable", "model", "module", "_orig_mod")  # where wrappers around a model keep it
MAX_PARTS = 64


def spec_of(rt: Runtime) -> EngineSpec | None:
    """The engine whose package a process has imported, None for another program."""
    return registry.spec_of_runtime(rt)


def model_of(rt: Runtime) -> Object | None:
    """The model that an engine's process calls, as its frames lead to it; None for another program or where no frame does."""
    spec = spec_of(rt)
    find = getattr(spec.kv, "find_model", None) if spec is not None else None
    return find(rt) if find is not None else None


def inner_model(model: Object) -> Object | None:
    """The torch.nn.Module in the object that an engine calls: the object itself, or the one in a wrapper (of CUDA graphs, say);
    else None."""
    for _ in range(4):
        if modules.is_module(model):
            return model
        own = dict(model.instance_entries())
        name = next((name for name in WRAPPED if name in own), None)
        if name is None:
            return None
        model = model.rt.object(own[name])
    return None


def eager_advice(spec: EngineSpec | None) -> str:
    """How to start an engine so that all modules are called from Python, in words."""
    if spec is None or not spec.eager:
        return "without torch.compile and CUDA graphs"
    return f"with {spec.eager}"


def shard_of(module: Object) -> dict[str, Any] | None:
    """How a layer's output is cut over the ranks of tensor parallelism; None where each rank has the whole.

    {dim, parts: [sizes of a rank's parts in that dimension], copies: how many neighbouring ranks have the same data, except for
    the first part}"""
    if not any(base.name == COLUMNS for base in module.type.bases()):
        return None
    own = dict(module.instance_entries())
    rt = module.rt

    def number(name: str, default: int) -> int:
        return rt.object(own[name]).integer() if name in own else default

    try:
        if not _is_cut(module) or number("gather_output", 0):
            return None
        parts = [n.integer() for n in rt.object(own["output_partition_sizes"]).elements(MAX_PARTS)]
        return {"dim": -1, "parts": parts, "copies": number("num_kv_head_replicas", 1)}
    except (GdbextError, KeyError) as e:
        log.passed_over(e)
        return None


def adds_ranks(module: Object) -> bool:
    """Whether a layer's output is the sum of the results of the ranks of tensor parallelism."""
    return any(base.name in (ROWS, EMBEDDING) for base in module.type.bases()) and _is_cut(module)


def _is_cut(module: Object) -> bool:
    """Whether a parallel layer has only a part of its whole. (`tp_size` does not exist in every release: SGLang 0.5.23's linear
    layers have a group instead.)"""
    sizes = [[optional(module, name) for name in names] for names in CUT]
    return any(part is not None and whole is not None and part < whole for whole, part in sizes)


class Cuts:
    """Follows a step's returns, and says for each output how it is cut over the ranks.

    A layer cuts its output, and the row-parallel layer beside it combines the ranks' results. The outputs of their siblings in
    between (an activation, attention) are cut in their last dimension too."""

    def __init__(self, rt: Runtime, nodes: dict[int, modules.Node]) -> None:
        self.shards = {a: shard for a in nodes for shard in [shard_of(rt.object(a))] if shard is not None}
        self.ends = {a for a in nodes if self.shards and any(b.name == ROWS for b in rt.object(a).type.bases())}
        self.within = ""  # the path of the module whose parts return cut outputs just now, with a dot behind it

    def of(self, node: modules.Node, shape: Sequence[int] | None) -> dict[str, Any] | None:
        """The `shard` of an output of this shape, None where each rank has the whole."""
        known = self.shards.get(node.address)
        if known is not None:
            self.within = node.path.rpartition(".")[0] + "."
            return known
        if node.address in self.ends or not node.shared and not node.path.startswith(self.within):
            self.within = ""
        if not self.within or not shape:
            return None
        return {"dim": -1, "parts": [shape[-1]], "copies": 1}


def compiled(rt: Runtime, nodes: dict[int, modules.Node]) -> list[str]:
    """Paths of the modules of a tree whose calls a compiler took over."""
    spec = spec_of(rt)
    return modules.compiled(rt, nodes, spec.compile_marks if spec else ())
