"""The memory of SGLang's layers (srt/mem_cache/memory_pool.py)."""

from __future__ import annotations

from ...errors import FaultError, GdbextError, LayoutError
from ...kvcache.addresses import Layer, Part
from ...kvcache.model import Worker
from ...torch.tensor_impl import read_tensor
from ..objects import is_set, optional
from .paths import GROUP_SWA

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

    from ...cpython.objects import Object
    from ...cpython.runtime import Runtime


def read_worker(rt: Runtime, scheduler: Object, label: str) -> Worker:
    """`Worker`: the layers' buffers of a scheduler's KV pool."""
    allocator = scheduler.attr("token_to_kv_pool_allocator")
    page = optional(allocator, "page_size", default=1) or 1
    worker = Worker(label, target=rt.target)
    pool = allocator.attr("_kvcache")
    start = optional(pool, "start_layer", default=0) or 0
    try:
        worker.layout = pool.attr("kv_cache_layout").string(20)
    except (GdbextError, AttributeError):
        pass
    for sub, group, indices in _sub_pools(pool):
        _layers(rt, worker, sub, group, page, indices, start)
    return worker


def _sub_pools(pool: Object) -> List[Tuple[Object, int, Dict[int, int]]]:
    """[(a KV pool, its group, {its layer: the model's})]: a hybrid model has one for full layers and one for sliding-window
    layers."""
    if not is_set(pool, "full_kv_pool"):
        return [(pool, 0, {})]
    found = {False: {}, True: {}}
    if is_set(pool, "layers_mapping"):  # of SWAKVPool: {layer: (layer in its pool, whether that is the window's)}
        for layer, place in pool.attr("layers_mapping").items(10_000):
            found[bool(place.item(1).integer())][place.item(0).integer()] = layer.integer()
    elif is_set(pool, "full_attention_layer_id_mapping"):  # of HybridLinearKVPool: {layer: layer in its pool}
        for layer, place in pool.attr("full_attention_layer_id_mapping").items(10_000):
            found[False][place.integer()] = layer.integer()
    subs = [(pool.attr("full_kv_pool"), 0, found[False])]
    return subs + ([(pool.attr("swa_kv_pool"), GROUP_SWA, found[True])] if is_set(pool, "swa_kv_pool") else [])


def _layers(rt: Runtime, worker: Worker, pool: Object, group: int, page: int, indices: Dict[int, int], start: int) -> None:
    for names in (("k_buffer", "v_buffer"), ("kv_buffer",)):
        lists = [pool.attr(n) for n in names if is_set(pool, n)]
        if len(lists) != len(names):
            continue
        for place, objects in enumerate(zip(*[one.elements(10_000) for one in lists])):
            number = indices.get(place, start + place)
            layer = layer_of(rt, number, names, objects, page, group)
            if layer is None:
                worker.notes.append(f"layer {number}: a buffer of a shape that is not known")
            else:
                worker.layers.append(layer)
        return
    worker.notes.append(f"a {pool.type_name} keeps its memory in parts that are not decoded here")


def layer_of(
    rt: Runtime, index: int, names: Sequence[str], objects: Sequence[Object], page: int, group: int = 0
) -> Optional[Layer]:
    """A `Layer` of one layer's buffers [slots, heads, head dim] (or [slots, 1, dim] of MLA); None for another form."""
    parts, tensor = [], None
    for name, obj in zip(names, objects):
        try:
            tensor = read_tensor(rt, obj.address)
        except (FaultError, LayoutError):
            return None
        if tensor.shape is None or tensor.stride is None or len(tensor.shape) != 3:
            return None
        item = tensor.dtype.itemsize
        slot, head, element = ((n, s * item) for n, s in zip(tensor.shape, tensor.stride))
        dims = {"block": (slot[0] // page, slot[1] * page), "slot": (page, slot[1]), "head": head, "element": element}
        base = tensor.storage_data + tensor.storage_offset * item
        parts.append(Part(name.partition("_")[0], base, dims, item, tensor))
    return Layer(index, "", group, parts, tensor.device, tensor.dtype.name, tensor.shape, tensor.stride, "S H D")
