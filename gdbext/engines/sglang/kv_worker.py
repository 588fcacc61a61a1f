"""The memory of SGLang's layers (srt/mem_cache/memory_pool.py), and the data of a rank's batches about their requests
(srt/managers/schedule_batch.py).

The kernels find a request's slots by two tensors of the batch: its row of req_to_token, and its number of tokens. A batch keeps
both on the device. It keeps them in host memory too, the lengths from 0.5.3 and the rows from 0.5.23 on. With the overlap
scheduler they belong to the step that is being computed; the scheduler processes its result a step later."""

from __future__ import annotations

from functools import partial
from typing import Sequence

from ... import log
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import FaultError, GdbextError, LayoutError, NotFoundError
from ...kvcache.addresses import Layer, Part
from ...kvcache.model import Row, Table, Worker
from ...torch.tensor import Tensor
from ...torch.tensor_impl import read_tensor
from ..columns import Records, strings
from ..objects import at, at_once, is_set, left_out, numbers, optional, stands_in
from .kv_pool import page_size
from .paths import BATCHES, FORMING, GROUP_SWA, MAX_REQUESTS

BEHIND = 3  # steps that a rank may be behind another one, or its batch behind the requests: overlap
BATCHING = ("filter_batch", "merge_batch", "prepare_for_decode", "prepare_for_extend")  # a batch does not hold together in them


def read_worker(rt: Runtime, scheduler: Object, label: str) -> Worker:
    """`Worker`: the layers' buffers of a scheduler's KV pool."""
    allocator = scheduler.attr("token_to_kv_pool_allocator")
    page = page_size(allocator)
    worker = Worker(label, target=rt.target)
    pool = allocator.attr("_kvcache")
    start = optional(pool, "start_layer", default=0) or 0
    try:
        worker.layout = pool.attr("kv_cache_layout").string(20)
    except (GdbextError, AttributeError) as e:
        log.passed_over(e)
    for sub, group, indices in _sub_pools(pool):
        _layers(rt, worker, sub, group, page, indices, start)
    _batches(rt, scheduler, worker, page)
    return worker


def _batches(rt: Runtime, scheduler: Object, worker: Worker, page: int) -> None:
    """Fills in the rows, lengths and block tables of the requests in a scheduler's batches, from the batches' tensors."""
    worker.steps, worker.ahead, worker.own_tree = BEHIND, 2, True  # a batch does not count the last sampled token
    worker.mid_update = stands_in(rt, (*FORMING, *BATCHING))
    unread: dict[str, str] = {}
    for name in (name for _, name in BATCHES):
        batch = at(scheduler, name)
        if batch is not None and at(batch, "reqs") is not None:
            at_once(rt, partial(_batch, rt, batch, worker, unread))
    worker.unread += list(unread.items())
    try:
        tensor = read_tensor(rt, scheduler.attr("req_to_token_pool").attr("req_to_token").address)
        if tensor.doubt:
            raise GdbextError(left_out(tensor))
        rows = [(name, _slots(tensor, row, page)) for name, row in worker.rows.items()]
        worker.tables.append(Table(0, page, rows))
    except GdbextError as e:
        worker.unread.append(("req_to_token", str(e)))


def _batch(rt: Runtime, batch: Object, worker: Worker, unread: dict[str, str]) -> None:
    names = strings(rt, Records(rt, batch.attr("reqs").element_addresses(MAX_REQUESTS)).column("rid"), 1000)
    if not names:
        return  # whose last requests have ended keeps its tensors (ScheduleBatch.filter_batch)
    found: list[Sequence[int | None]] = []
    for what in ("req_pool_indices", "seq_lens"):
        held = at(batch, f"{what}_cpu") or at(batch, what)
        values = numbers(rt, held) if held is not None else []
        if held is not None and values is None:
            unread[what] = left_out(read_tensor(rt, held.address))
        elif values and len(values) != len(names):
            raise NotFoundError(f"a batch of {len(names)} requests has {len(values)} of {what}: it changes while it is read")
        found.append(values or [None] * len(names))
    for name, row, length in zip(names, *found):
        if row is not None:
            worker.rows.setdefault(name, Row(row, computed=length))


def _slots(tensor: Tensor, row: Row, page: int) -> list[int]:
    """The slots, or pages, of a request by its row and length."""
    if tensor.shape is None or len(tensor.shape) != 2 or not 0 <= row.row < tensor.shape[0]:
        raise LayoutError(f"row {row.row} of a table of {list(tensor.shape or ())}")
    count = min(row.computed or 0, tensor.shape[1])
    slots = tensor.indexed([row.row, slice(0, count)]).values([(i,) for i in range(count)])
    return slots if page == 1 else list(dict.fromkeys(slot // page for slot in slots))


def _sub_pools(pool: Object) -> list[tuple[Object, int, dict[int, int]]]:
    """[(a KV pool, its group, {its layer: the model's})]: a hybrid model has one for full layers and one for sliding-window
    layers."""
    if not is_set(pool, "full_kv_pool"):
        return [(pool, 0, {})]
    found: dict[bool, dict[int, int]] = {False: {}, True: {}}
    if is_set(pool, "layers_mapping"):  # of SWAKVPool: {layer: (layer in its pool, whether that is the window's)}
        for layer, place in pool.attr("layers_mapping").items(10_000):
            found[bool(place.item(1).integer())][place.item(0).integer()] = layer.integer()
    elif is_set(pool, "full_attention_layer_id_mapping"):  # of HybridLinearKVPool: {layer: layer in its pool}
        for layer, place in pool.attr("full_attention_layer_id_mapping").items(10_000):
            found[False][place.integer()] = layer.integer()
    subs = [(pool.attr("full_kv_pool"), 0, found[False])]
    return subs + ([(pool.attr("swa_kv_pool"), GROUP_SWA, found[True])] if is_set(pool, "swa_kv_pool") else [])


def _layers(rt: Runtime, worker: Worker, pool: Object, group: int, page: int, indices: dict[int, int], start: int) -> None:
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


def layer_of(rt: Runtime, index: int, names: Sequence[str], objects: Sequence[Object], page: int, group: int = 0) -> Layer | None:
    """A `Layer` of one layer's buffers [slots, heads, head dim] (or [slots, 1, dim] of MLA); None for another form."""
    parts: list[Part] = []
    layer: Layer | None = None
    for name, obj in zip(names, objects):
        try:
            tensor = read_tensor(rt, obj.address)
        except (FaultError, LayoutError) as e:
            log.passed_over(e)
            return None
        if tensor.shape is None or tensor.stride is None or len(tensor.shape) != 3:
            return None
        item = tensor.dtype.itemsize
        slot, head, element = ((n, s * item) for n, s in zip(tensor.shape, tensor.stride))
        dims = {"block": (slot[0] // page, slot[1] * page), "slot": (page, slot[1]), "head": head, "element": element}
        base = tensor.storage_data + tensor.storage_offset * item
        parts.append(Part(name.partition("_")[0], base, dims, item, tensor))
        layer = Layer(index, "", group, parts, tensor.device, tensor.dtype.name, tensor.shape, tensor.stride, "S H D")
    return layer
