"""llm-addr: what an address is."""

import re

from ..engines.registry import kv_releases
from ..errors import FaultError, GdbextError, NotFoundError
from ..lazy import lazy_module
from ..render.jsonline import Address
from ..render.text import escape
from ..session.command import Answer, Command, Option, UsageError
from ..session.engine_selection import POOL, view_of
from .llm_kv import owners_data

tensors, reprs, runtimes = lazy_module("torch.tensor_impl"), lazy_module("cpython.reprs"), lazy_module("cpython.runtime")
_KEYS = ("rank", "layer", "part", "block", "slot", "head", "element")


class LlmAddr(Command):
    __doc__ = f"""Say what an address is: KV layer, block, slot, head and the owning requests; a tensor; a Python object; a mapping.

      (gdb) llm-addr 0x7f2b4c0a1200
      0x7f2b4c0a1200: KV cache, TP0 layer 3, k, block 17, slot 5, head 2, element 8
        request-7: place 1 of its table, token 133
      (gdb) llm-addr -kv layer=3,block=17,slot=5,head=2     the other way: where it lies, on every rank

    An address of a worker is looked up in the selected process first, then in its siblings. On a core only that process is there.

    Reads {kv_releases()}."""

    name = "llm-addr"
    group = "kv"
    operand = "ADDR"
    options = (
        Option("kv", "str", "the address of layer=L,block=B[,slot=S][,head=H][,part=k|v][,element=E][,rank=R]", metavar="PLACE"),
        POOL,
    )

    def run(self, session, args):
        if args.kv is not None:
            return self.reverse(session, args)
        if not re.fullmatch(r"0x[0-9a-fA-F]{1,16}|[0-9]{1,20}", args.operand_text):
            raise UsageError("llm-addr: give one address, such as: llm-addr 0x7f2b4c0a1200")
        address = int(args.operand_text, 0)
        target = session.target(args.on)
        partial = session.partial(target)
        data = {"address": Address(address), "kind": "unmapped", "tensor": None, "kv": None, "object": None, "mapping": None}
        kv, more = self._kv(session, args, address)
        partial += more
        mapping = None
        try:
            mapping = target.mapping_at(address)
        except GdbextError as e:
            partial.append(str(e))
        if mapping is not None:
            data["kind"] = "mapping"
            data["mapping"] = {
                "start": Address(mapping.start),
                "end": Address(mapping.end),
                "perms": mapping.perms,
                "path": escape(mapping.path),
                "offset": mapping.offset + address - mapping.start,
            }
        if kv is not None:
            data["kind"], data["kv"], data["tensor"] = "kv", kv, kv.pop("tensor")
        elif mapping is not None:
            self._object(target, address, data)
        elif not any(data[k] for k in ("kv", "mapping")) and address >= 1 << 63:
            data["kind"] = "kernel"

        def text(style):
            head = style.address(hex(address)) + ": "
            lines = []
            if kv is not None:
                place = ", ".join(f"{k} {kv[k]}" for k in ("block", "slot", "head", "element") if kv.get(k) is not None)
                lines.append(head + f"KV cache, {kv['rank']} layer {kv['layer']}, {kv['part']}, {place}")
                for o in kv["owners"]:
                    lines.append(
                        f"  {o['request_id']}: place {o['index']} of its table"
                        + (f", token {o['token']}" if o.get("token") is not None else "")
                    )
                if not kv["owners"]:
                    lines.append(
                        "  no request owns the block" + ("" if kv["free"] is None else ", it is free" if kv["free"] else "")
                    )
            elif data["tensor"]:
                lines.append(head + f"a tensor {data['tensor']['shape']} {data['tensor']['dtype']} on {data['tensor']['device']}")
            elif data["object"]:
                lines.append(head + f"a Python {data['object']['type']}: {data['object']['repr']}")
            elif mapping is None:
                lines.append(head + ("kernel memory" if data["kind"] == "kernel" else "nothing is mapped there"))
            if mapping is not None:
                where = data["mapping"]
                lines.append(
                    ("  " if lines else head) + f"in {where['path'] or 'anonymous memory'} {where['start']:#x}-{where['end']:#x} "
                    f"{where['perms']} +{where['offset']:#x}"
                )
            return "\n".join(lines)

        return Answer(data, text, partial)

    # ---- the KV cache ------------------------------------------------------------------------------------------------
    @staticmethod
    def _read(session, args):
        view = view_of(session, args)
        cache = why = None
        try:
            cache = view.cache()
        except GdbextError as e:
            why = f"owners not known: {e}"
        workers = view.workers(cache.pools[0].size if cache else None)
        return view, cache, workers, [why] if why else []

    def _kv(self, session, args, address):
        """-> (the contract's kv with its tensor, or None; reasons for partial)"""
        find, why = self.finder(session, args)
        found = find(address)
        return found, why if found is not None else [p for p in why if p != "unstopped"]

    def finder(self, session, args):
        """-> (a function from an address to the contract's kv with its tensor, or None; reasons for partial): the engine is read once."""
        try:
            view, cache, workers, why = self._read(session, args)
        except NotFoundError:
            return lambda address: None, []  # no engine in this process: still an address
        except GdbextError as e:
            return lambda address: None, [f"KV cache not read: {e}"]
        workers.sort(key=lambda w: w.target is not view.target)

        def find(address):
            return next(
                (found for found in (self._in_worker(cache, worker, address) for worker in workers) if found is not None), None
            )

        return find, view.partial + why

    @classmethod
    def _in_worker(cls, cache, worker, address):
        """Layers of different groups may lie in the same memory: then the one counts whose group has given the block to a request."""
        found = [(layer, layer.find(address)) for layer in worker.layers]
        places = [cls._place(cache, worker, layer, address, *place) for layer, place in found if place is not None]
        return next((p for p in places if p["owners"]), places[0] if places else None)

    @staticmethod
    def _place(cache, worker, layer, address, part, place):
        group = cache.group(layer.group) if cache else None
        pool = cache.pools[group.pool] if group else None
        owners = cache.owners(group.pool).get(place["block"], []) if group else []
        said = owners_data(o for o in owners if o[1] == group.id or len(cache.groups) == 1)
        for o in said:
            o["token"] = o["index"] * group.block_size + place.get("slot", 0)
        known = pool is not None and (pool.linked or pool.free_ids is not None) and pool.valid(place["block"])
        kv = {
            "rank": worker.rank,
            "layer": layer.index,
            "name": escape(layer.name) or None,
            "part": part,
            **place,
            "owners": said,
            "free": bool(pool.free_bits()[place["block"]]) if known else None,
            "note": layer.note or None,
        }
        t = layer.part(part).tensor
        kv["tensor"] = {
            "address": Address(t.address),
            "shape": t.shape,
            "stride": t.stride,
            "dtype": "torch." + t.dtype.name,
            "device": t.device,
            "offset": address - (t.storage_data + t.storage_offset * t.dtype.itemsize),
        }
        return kv

    @staticmethod
    def _object(target, address, data):
        """A Python object or tensor that begins at the address; nothing where it does not look like one."""
        try:
            rt = runtimes.open_runtime(target)
            obj = rt.object(address)
            info = obj.type
            if address % 8 or not rt.object(info.address).type.flags & 1 << 31 or not rt.target.u64(address):
                return
            data["object"] = {"type": escape(info.name), "repr": escape(reprs.Repr(reprs.SHORT)(obj))}
            data["kind"] = "object"
            if tensors.is_tensor(obj):
                t = tensors.read_tensor(rt, address)
                data["tensor"] = {
                    "address": Address(address),
                    "shape": t.shape,
                    "stride": t.stride,
                    "dtype": "torch." + t.dtype.name,
                    "device": t.device,
                    "offset": 0,
                }
                data["kind"] = "tensor"
        except (FaultError, GdbextError):
            return

    # ---- the other way -----------------------------------------------------------------------------------------------
    def reverse(self, session, args):
        wanted = {}
        for word in args.kv.split(","):
            key, _, value = word.strip().partition("=")
            if key not in _KEYS or not value or (key not in ("part", "rank") and not value.isdigit()):
                raise UsageError(f"-kv {args.kv}: {word!r} is none of {', '.join(k + '=…' for k in _KEYS)}")
            wanted[key] = value if key in ("part", "rank") else int(value)
        if "layer" not in wanted or "block" not in wanted:
            raise UsageError("-kv needs at least layer= and block=, such as: llm-addr -kv layer=3,block=17,slot=5,head=2")
        view, cache, workers, why = self._read(session, args)
        found = []
        for worker in workers:
            if wanted.get("rank", worker.rank).lower() != worker.rank.lower():
                continue
            for layer in worker.layers:
                if layer.index != wanted["layer"]:
                    continue
                parts = [wanted["part"]] if "part" in wanted else [p.name for p in layer.parts]
                for part in parts:
                    at = layer.address(
                        part, wanted["block"], wanted.get("slot", 0), wanted.get("head", 0), wanted.get("element", 0)
                    )
                    found.append(
                        {
                            "rank": worker.rank,
                            "layer": layer.index,
                            "name": escape(layer.name) or None,
                            "part": part,
                            "address": Address(at),
                            "device": layer.device,
                            "note": layer.note or None,
                        }
                    )
        if not found:
            layers = sorted({layer.index for w in workers for layer in w.layers})
            raise NotFoundError(
                f"no layer {wanted['layer']}"
                + (f" on {wanted['rank']}" if "rank" in wanted else "")
                + (f"; there are {layers[0]} to {layers[-1]}" if layers else ": no worker's memory was read")
            )

        def text(style):
            return "\n".join(
                f"{f['rank']} layer {f['layer']}{' (' + f['name'] + ')' if f['name'] else ''} {f['part']}: {style.address(hex(f['address']))} ({f['device']})"
                for f in found
            )

        return Answer({"kv": wanted, "addresses": found}, text, view.partial + why)
