"""Compares, by hash, the parameters and buffers that every rank of an engine has whole, to find a rank with other weights. Needs
numpy.

Norms, replicated layers, tables of rotary embeddings and the bias of a row-parallel layer are the same on every rank of tensor
parallelism. The weights of layers that are cut over the ranks are left out, by their classes' names."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from ..torch import layer_records, modules
from ..torch.tensor_impl import is_tensor, read_tensor
from .models import inner_model, model_of

CUT = ("ColumnParallelLinear", "RowParallelLinear", "VocabParallelEmbedding", "FusedMoE")  # and classes derived from them
WHOLE_IN_CUT = {"RowParallelLinear": ("bias",)}
MAX_CELLS = 16  # of a function
PACKED_AWAY = "packed away, behind a handle of a library"


def of_process(rt: Runtime) -> dict[str, dict[str, Any]]:
    """{path: {shape, dtype, hash, min, max, mean, …}} of the whole tensors of the model that a process calls. For those that
    cannot be read `hash` is None and `why` gives the reason. `GdbextError` where no frame leads to a model."""
    model = model_of(rt)
    inner = inner_model(model) if model is not None else None
    if inner is None:
        raise GdbextError(f"{rt.target.describe()}: no frame of it leads to a model just now")
    return of_model(inner)


def of_model(model: Object) -> dict[str, dict[str, Any]]:
    """As `of_process`, of a torch.nn.Module."""
    rt, found = model.rt, {}
    for node in modules.tree(model).values():
        module = rt.object(node.address)
        cut = next((b.name for b in module.type.bases() if b.name in CUT), "")
        own = dict(module.instance_entries())
        for table in ("_parameters", "_buffers"):
            held = rt.object(own[table]).items() if table in own else []
            for key, value in held:
                name = key.string(1000)
                if is_tensor(value) and (not cut or name in WHOLE_IN_CUT.get(cut, ())):
                    path = f"{node.path}.{name}" if node.path else name
                    tensor = read_tensor(rt, value.address)
                    found.update(_packed(module, path) if tensor.numel == 0 else {path: layer_records.measure(tensor)})
    return found


def _packed(module: Object, path: str) -> dict[str, dict[str, Any]]:
    """The tensors in the place of an empty parameter: those that functions among a layer's attributes keep (their closures)."""
    held = []
    for _, address in module.instance_entries():
        function = module.rt.object(address)
        closure = function.attr("__closure__") if function.isa("function") else None
        for cell in closure.elements(MAX_CELLS) if closure is not None and not closure.is_none() else ():
            value = cell.attr("cell_contents")
            if is_tensor(value):
                held.append(read_tensor(module.rt, value.address))
    found = [layer_records.measure(tensor) for tensor in held if tensor.numel]
    if not found:
        return {path: {**layer_records.NOTHING, "why": PACKED_AWAY}}
    return {f"{path} (packed{f' {n}' if n else ''})": fact for n, fact in enumerate(found)}


def unseen(ranks: list[tuple[str, dict[str, dict[str, Any]]]]) -> list[dict[str, Any]]:
    """[{path, ranks: [labels], why}] of the tensors that could not be read on some ranks and are not compared."""
    found: dict[str, dict[str, Any]] = {}
    for label, tensors in ranks:
        for path, fact in tensors.items():
            if fact["hash"] is None:
                found.setdefault(path, {"path": path, "ranks": [], "why": fact["why"]})["ranks"].append(label)
    return list(found.values())


def compared(ranks: list[tuple[str, dict[str, dict[str, Any]]]]) -> dict[str, list[str]]:
    """{path: [labels]} of the tensors that two ranks or more have and let see: the others are compared with nothing."""
    found: dict[str, list[str]] = {}
    for label, tensors in ranks:
        for path, fact in tensors.items():
            if fact["hash"] is not None:
                found.setdefault(path, []).append(label)
    return {path: labels for path, labels in found.items() if len(labels) > 1}


def different(ranks: list[tuple[str, dict[str, dict[str, Any]]]]) -> list[dict[str, Any]]:
    """[{path, odd: [labels], ranks: [{label, shape, dtype, hash, min, max, mean}]}] of the tensors that are not the same on all
    ranks that have them. `odd`: the ranks that differ from the majority; all of them where no two are alike."""
    found = []
    paths: dict[str, None] = {}
    for _, tensors in ranks:
        paths.update(dict.fromkeys(tensors))
    for path in paths:
        held = [(label, tensors[path]) for label, tensors in ranks if path in tensors and tensors[path]["hash"] is not None]
        counts = Counter(fact["hash"] for _, fact in held)
        if len(counts) < 2:
            continue
        (most, count), (_, next_count) = counts.most_common(2)
        odd = [label for label, fact in held if count == next_count or fact["hash"] != most]
        found.append({"path": path, "odd": odd, "ranks": [{"label": label, **fact} for label, fact in held]})
    return found
