"""The meaning of an address, as JSON and for people: a place in the KV cache with its owners, a tensor, a Python object, a
mapping."""

from __future__ import annotations

from typing import AbstractSet, Any, Callable, Mapping

from .. import log
from ..access.base import Target
from ..access.model import Mapping as MemoryMapping
from ..cpython import reprs
from ..cpython.content import shown
from ..cpython.runtime import open_runtime
from ..errors import ContradictionError, FaultError, GdbextError, NotFoundError
from ..kvcache.addresses import Layer
from ..kvcache.model import Cache, Worker
from ..render.fields import FLAG, NUMBER, TEXT, Field, Fields, each
from ..render.jsonline import Address
from ..render.text import Style, escape
from ..torch.tensor import Tensor
from ..torch.tensor_impl import is_tensor, read_tensor
from .kv import OWNER
from .places import PAUSE

MAPPING = Fields(  # of a mapping
    Field("start", str, read=lambda m: Address(m.start)),
    Field("end", str, read=lambda m: Address(m.end)),
    *each(str, "perms path"),
    Field("offset", int, "of the address in the file"),
)
TENSOR = Fields(  # of a tensor
    Field("address", str),
    *each(([int], None), "shape stride"),
    Field("dtype", str, read=lambda t: "torch." + t.dtype.name),
    Field("device", TEXT),
    Field("offset", int, "of the address in it", "bytes", lambda t: 0),
    shape="tensor",
)
_WHERE = (Field("rank", str), Field("layer", int), Field("name", TEXT), Field("part", str))
HERE = Fields(*_WHERE, Field("address", str), Field("device", str), Field("note", TEXT))
KV = Fields(
    *_WHERE,
    *each(NUMBER, "block slot head element"),
    Field("owners", [Fields(*OWNER, Field("token", NUMBER))]),
    Field("owners_known", bool, "the scheduler was read"),
    Field("free", FLAG),
    Field("note", TEXT),
    Field("tensor", TENSOR),
    shape="kv-place",
)
ANSWER = Fields(
    Field("address", str),
    Field("kind", str, "`kv`, `tensor`, `object`, `mapping`, `kernel` or `unmapped`", default="unmapped"),
    Field("tensor", (TENSOR, None), default=None),
    Field("object", (Fields(*each(str, "type repr")), None), "a Python object that begins there", default=None),
    Field("kv", (KV, None), "of -kv: what was asked for", default=None),
    Field("mapping", (MAPPING, None), default=None),
    Field("addresses", [HERE], "of -kv"),
    Field("pauses", [PAUSE], "of the copy that was read where numbers contradicted one another"),
)
TYPE_SUBCLASS = 1 << 31  # Py_TPFLAGS_TYPE_SUBCLASS: the type of a type has it


class KvPlaces:
    """The KV cache of an engine, read once, to look up addresses. `partial`: why it is not complete; `why`: why there is none."""

    def __init__(self, open_view: Callable[[], Any]) -> None:
        """`open_view` gives the view. In a process without an engine nothing is found. A cache that cannot be read is reported in
        `partial`."""
        self.cache: Cache | None = None
        self.workers: list[Worker] = []
        self.partial: list[str] = []
        try:
            view = open_view()
            try:
                self.cache = view.cache()
            except ContradictionError:
                raise
            except GdbextError as e:
                self.partial.append(f"owners not known: {e}")
            self.workers = view.workers(self.cache.pools[0].size if self.cache and self.cache.pools else None)
        except NotFoundError as e:
            log.passed_over(e)
            self.partial = []  # no engine in this process: still an address
        except ContradictionError:
            raise  # a copy of one moment is read then
        except GdbextError as e:
            self.partial = [f"KV cache not read: {e}"]
        else:
            self.partial = view.partial + self.partial
            self.workers.sort(key=lambda w: w.target is not view.target)  # the process itself before its siblings

    def find(self, address: int) -> dict[str, Any] | None:
        """The JSON fields of a place in the cache, with its `tensor`; None for an address outside it."""
        found = (place_in_worker(self.cache, worker, address) for worker in self.workers)
        return next((place for place in found if place is not None), None)

    def addresses(self, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The addresses of a place: of `layer`, `block` and optionally `slot`, `head`, `element`, `part`, `rank`; `NotFoundError`
        without any."""
        found = []
        for worker in self.workers:
            if wanted.get("rank", worker.rank).lower() != worker.rank.lower():
                continue
            for layer in worker.layers:
                if layer.index == wanted["layer"]:
                    found += [_address_data(worker, layer, part, wanted) for part in _parts(layer, wanted)]
        if not found:
            layers = sorted({layer.index for w in self.workers for layer in w.layers})
            where = f" on {wanted['rank']}" if "rank" in wanted else ""
            known = f"; there are {layers[0]} to {layers[-1]}" if layers else ": no worker's memory was read"
            raise NotFoundError(f"no layer {wanted['layer']}{where}{known}")
        return found


def _parts(layer: Layer, wanted: Mapping[str, Any]) -> list[str]:
    return [wanted["part"]] if "part" in wanted else [p.name for p in layer.parts]


def _address_data(worker: Worker, layer: Layer, part: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    at = layer.address(part, wanted["block"], wanted.get("slot", 0), wanted.get("head", 0), wanted.get("element", 0))
    about = {"rank": worker.rank, "layer": layer.index, "name": escape(layer.name) or None, "part": part}
    return HERE.of(**about, address=Address(at), device=layer.device, note=layer.note or None)


def place_in_worker(cache: Cache | None, worker: Worker, address: int) -> dict[str, Any] | None:
    """The place of an address in a worker's layers, or None. Layers of different groups may share memory. Then the layer counts
    whose group has given the block to a request."""
    found = [(layer, layer.find(address)) for layer in worker.layers]
    places = [_place_data(cache, worker, layer, address, *place) for layer, place in found if place is not None]
    return next((p for p in places if p["owners"]), places[0] if places else None)


def _place_data(
    cache: Cache | None, worker: Worker, layer: Layer, address: int, part: str, place: Mapping[str, int]
) -> dict[str, Any]:
    group = cache.group(layer.group) if cache else None
    pool = cache.pools[group.pool] if cache and group else None
    owners = cache.owners(group.pool).get(place["block"], []) if cache and group else []
    said = [OWNER.data(o) for o in owners if group and cache and (o[1] == group.id or len(cache.groups) == 1)]
    for owner in said:
        owner["token"] = owner["index"] * group.block_size + place.get("slot", 0) if group else None
    known = pool is not None and (pool.linked or pool.free_ids is not None) and pool.valid(place["block"])
    found = layer.part(part)
    tensor: Any = found.tensor if found is not None else None
    offset = address - (tensor.storage_data + tensor.storage_offset * tensor.dtype.itemsize)
    return KV.of(
        rank=worker.rank,
        layer=layer.index,
        name=escape(layer.name) or None,
        part=part,
        **place,
        owners=said,
        owners_known=group is not None,
        free=bool(pool.free_bits()[place["block"]]) if pool is not None and known else None,
        note=layer.note or None,
        tensor=_tensor_data(tensor, tensor.address, offset),
    )


def _tensor_data(tensor: Tensor, address: int, offset: int) -> dict[str, Any]:
    return {**TENSOR.data(tensor), "address": Address(address), "offset": offset}


def mapping_data(mapping: MemoryMapping, address: int) -> dict[str, Any]:
    """The mapping that an address lies in."""
    return {**MAPPING.data(mapping), "offset": mapping.offset + address - mapping.start}


def object_fields(target: Target, address: int, private: AbstractSet[str] = frozenset()) -> dict[str, Any]:
    """`kind` and `object` of a Python object that begins at the address, for a tensor also `tensor`; {} where there seems to be
    none.

    `private`: an engine's names of users' content, which is counted, not shown; empty where it may be shown."""
    try:
        rt = open_runtime(target)
        obj = rt.object(address)
        info = obj.type
        if address % 8 or not rt.object(info.address).type.flags & TYPE_SUBCLASS or not rt.target.u64(address):
            return {}
        said = {"type": escape(info.name), "repr": escape(shown(reprs.Repr(reprs.SHORT, private), hex(address), obj))}
        if is_tensor(obj):
            return {"kind": "tensor", "object": said, "tensor": _tensor_data(read_tensor(rt, address), address, 0)}
        return {"kind": "object", "object": said}
    except (FaultError, GdbextError) as e:
        log.passed_over(e)
        return {}


def address_lines(address: int, data: Mapping[str, Any], style: Style) -> list[str]:
    """The text of llm-addr for an address."""
    head, kv, mapping = style.address(hex(address)) + ": ", data["kv"], data["mapping"]
    lines = []
    if kv is not None:
        place = ", ".join(f"{k} {kv[k]}" for k in ("block", "slot", "head", "element") if kv.get(k) is not None)
        lines.append(head + f"KV cache, {kv['rank']} layer {kv['layer']}, {kv['part']}, {place}")
        for o in kv["owners"]:
            token = f", token {o['token']}" if o.get("token") is not None else ""
            lines.append(f"  {o['request_id']}: place {o['index']} of its table{token}")
        if not kv["owners_known"]:
            lines.append("  the owner of the block is not known here: the scheduler was not read")
        elif not kv["owners"]:
            lines.append("  no request owns the block" + (", it is free" if kv["free"] else ""))
    elif data["tensor"]:
        lines.append(head + f"a tensor {data['tensor']['shape']} {data['tensor']['dtype']} on {data['tensor']['device']}")
    elif data["object"]:
        lines.append(head + f"a Python {data['object']['type']}: {data['object']['repr']}")
    elif mapping is None:
        lines.append(head + ("kernel memory" if data["kind"] == "kernel" else "nothing is mapped there"))
    if mapping is not None:
        where = f"in {mapping['path'] or 'anonymous memory'} {mapping['start']:#x}-{mapping['end']:#x} "
        lines.append(("  " if lines else head) + where + f"{mapping['perms']} +{mapping['offset']:#x}")
    return lines
