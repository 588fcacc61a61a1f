"""vLLM V1's KV cache as a worker keeps it: the layers' tensors, and the block tables of its batch in model runner V1
(vllm/v1/worker/gpu_model_runner.py, block_table.py). kv_worker_v2 reads those of model runner V2."""

from __future__ import annotations

import re
import struct
from typing import Any

from ... import log
from ...cpython.libraries import numpy_objects
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import FaultError, GdbextError, LayoutError
from ...kvcache.addresses import Layer, order_of, strided_layer
from ...kvcache.model import Table, Worker
from ...torch.tensor import Tensor
from ...torch.tensor_impl import is_tensor, read_tensor
from ..objects import has, left_out, optional, path, without_padding
from . import kv_worker_v2
from .paths import CPU_TRANSPOSED, MAX_REQUESTS, SPEC_FIELDS, known


def read_worker(rt: Runtime, runner: Object, label: str, num_blocks: int | None) -> Worker:
    """`Worker`: block tables and layers of a model runner. `num_blocks`: as its scheduler counts them, where that is known."""
    worker = Worker(label, target=rt.target)
    groups = _config_groups(runner)
    _layers(rt, runner, worker, groups, num_blocks)
    if kv_worker_v2.is_v2(runner):
        kv_worker_v2.read_rows(runner, worker)
    else:
        _worker_tables(runner, worker)
    return worker


def _config_groups(runner: Object) -> list[tuple[list[str], dict[str, Any]]]:
    """[(layer names, spec fields)] of the runner's own KV cache configuration; [] before 0.9."""
    try:
        found = []
        for group in runner.attr("kv_cache_config").attr("kv_cache_groups").elements(1000):
            spec = group.attr("kv_cache_spec")
            names = [n.string(300) for n in group.attr("layer_names").elements(10_000)]
            found.append(
                (
                    names,
                    {
                        "class": spec.type_name,
                        "block_size": optional(spec, "block_size"),
                        **{n: optional(spec, n) for n in SPEC_FIELDS},
                    },
                )
            )
        return found
    except GdbextError as e:
        log.passed_over(e)
        return []


def _layer_number(name: str) -> int:
    found = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", name)
    return int(found[0]) if found else -1


def _layers(
    rt: Runtime, runner: Object, worker: Worker, groups: list[tuple[list[str], dict[str, Any]]], num_blocks: int | None
) -> None:
    caches = runner.attr("kv_caches").elements(10_000)
    names = sorted(((_layer_number(n), n, g) for g, (layers, _) in enumerate(groups) for n in layers), key=lambda t: (t[0], t[1]))
    if len(names) != len(caches):
        names = [(i, "", 0) for i in range(len(caches))]
        if groups:
            worker.notes.append(
                f"{len(caches)} KV tensors for {sum(len(layers) for layers, _ in groups)} layers: named by their order"
            )
    if num_blocks is None:
        try:
            num_blocks = runner.attr("kv_cache_config").attr("num_blocks").integer()
        except GdbextError as e:
            log.passed_over(e)
    isa = _cpu_isa(runner)
    for index, ((_, name, group), obj) in enumerate(zip(names, caches)):
        spec = groups[group][1] if groups else {}
        if not is_tensor(obj):
            worker.notes.append(f"layer {index} keeps a {obj.type_name}, no tensor: its addresses are unknown")
            continue
        tensor = read_tensor(rt, obj.address)
        if tensor.shape is None or tensor.stride is None or not tensor.storage_data:
            worker.notes.append(f"layer {index}: {tensor.unavailable}")
            continue
        layer = layer_of(index, name, group, tensor, spec, num_blocks=num_blocks, isa=isa)
        if layer is None:
            worker.notes.append(
                f"layer {index}: shape {list(tensor.shape)} is no layout that is known for {num_blocks} blocks "
                f"of {spec.get('block_size')}"
            )
            continue
        worker.layers.append(layer)
    try:
        worker.layout = path(runner, "kv_cache_config").attr("kv_cache_layout").string(20)
    except (GdbextError, AttributeError) as e:
        log.passed_over(e)


def layer_of(
    index: int,
    name: str,
    group: int,
    tensor: Tensor,
    spec: dict[str, Any],
    *,
    num_blocks: int | None = None,
    isa: str = "",
) -> Layer | None:
    """`addresses.Layer` of a layer's tensor, or None for an unknown shape. `spec`: the engine's own block size, heads and head
    size; `isa`: of the CPU backend, which decides the order of K."""
    cpu, shape, stride = tensor.device.startswith("cpu"), tensor.shape or (), tensor.stride or ()
    order = order_of(
        shape,
        num_blocks,
        spec.get("block_size"),
        spec.get("num_kv_heads"),
        spec.get("head_size"),
        "2 B H N D" if cpu else "",
    )
    if not order:
        return None
    base = tensor.storage_data + tensor.storage_offset * tensor.dtype.itemsize
    slab = cpu and order == "B H N C"
    layer = strided_layer(
        index,
        name,
        group,
        base,
        tensor.dtype.itemsize,
        shape,
        stride,
        order,
        head_size=spec.get("head_size"),
        slab=slab,
        transposed=slab and isa in CPU_TRANSPOSED,
        blocks=num_blocks,
        device=tensor.device,
        dtype=tensor.dtype.name,
    )
    for part in layer.parts:
        part.tensor = tensor
    if slab and isa not in CPU_TRANSPOSED:
        layer.note = (
            f"the CPU kernels of {isa or 'an unknown ISA'} may order K inside a block in their own way: "
            "slot and element of K are not proved"
        )
    return layer


def _cpu_isa(runner: Object) -> str:
    """The ISA that the CPU attention backend wrote into the layers, ''."""
    try:
        layers = path(runner, "compilation_config.static_forward_context")
    except GdbextError as e:
        log.passed_over(e)
        try:
            layers = path(runner, "vllm_config.compilation_config.static_forward_context")
        except GdbextError as e:
            log.passed_over(e)
            return ""
    for _, layer in layers.items(8):
        value: str = optional(layer, "isa", "string")
        if value:
            return value
    return ""


def _worker_tables(runner: Object, worker: Worker) -> None:
    try:
        batch = runner.attr("input_batch")
        ids = known(batch, "request ids")
        named = ids.elements(MAX_REQUESTS) if ids is not None else []
        rows = [None if o.is_none() else o.string(1000) for o in named]
        holder = batch.attr("block_table")
        tables = holder.attr("block_tables").elements(1000) if has(holder, "block_tables") else [holder]
    except (GdbextError, AttributeError) as e:
        worker.unread.append(("block tables", str(e)))
        return
    for number, table in enumerate(tables):
        try:
            worker.tables.append(_worker_table(table, number, rows))
        except GdbextError as e:
            worker.unread.append((f"block table of group {number}", str(e)))


def _worker_table(table: Object, number: int, request_ids: list[str | None]) -> Table:
    counts = numpy_objects.values(table.attr("num_blocks_per_row"), 1 << 20)
    array = known(table, "table array")
    if array is not None and numpy_objects.is_array(array):
        a = numpy_objects.read_array(array)
        if len(a.shape) != 2 or a.dtype != "int32":
            raise LayoutError(f"a block table of shape {a.shape} and type {a.dtype}")
        width, step, item = a.shape[1], a.strides[0], a.strides[1]

        def read(start: int, size: int) -> bytes:
            return table.rt.target.read(a.data + start, size)

    else:
        held = known(table, "table tensor")
        if held is None:
            raise LayoutError(f"the {table.type_name} at {table.address:#x} has neither an array nor a tensor of blocks")
        tensor = read_tensor(table.rt, held.address)
        shape, stride = tensor.shape or (), tensor.stride or ()
        if tensor.doubt or len(shape) != 2 or len(stride) != 2:
            raise GdbextError(left_out(tensor) if tensor.doubt else f"a block table of shape {list(shape)}")
        read, width, step, item = tensor.read_bytes, shape[1], stride[0] * 4, stride[1] * 4
    if item != 4:
        raise LayoutError(f"a block table with {item} bytes between its columns")
    found = []
    for row, request_id in enumerate(request_ids[: len(counts)]):
        count = counts[row]
        if request_id is None:
            continue
        if not 0 <= count <= width:
            raise LayoutError(f"row {row} claims {count} blocks of {width}")
        found.append((request_id, list(struct.unpack(f"<{count}i", read(row * step, 4 * count)))))
    return Table(number, optional(table, "block_size") or 0, found, _slot_mapping(table))


def _slot_mapping(table: Object) -> list[int]:
    """Slots of the last step's tokens. [] where they lie on a device, or the buffer was never padded, so that its end is not
    known."""
    try:
        obj = known(table, "slot tensor")
        if obj is None or not is_tensor(obj):
            return []
        tensor = read_tensor(table.rt, obj.address)
        if (
            tensor.doubt
            or len(tensor.shape or ()) != 1
            or tensor.dtype.itemsize != 8
            or tensor.stride != (1,)
            or not tensor.numel
        ):
            return []
        slots = list(struct.unpack(f"<{tensor.numel}q", tensor.read_bytes(0, 8 * tensor.numel)))
    except (FaultError, LayoutError) as e:
        log.passed_over(e)
        return []
    return without_padding(slots)
