"""Lists of tensors, as pytensors gives them: as JSON, as text, and the differences between two of them."""

from __future__ import annotations

import os
from typing import Any, Callable

from ..access import files as opened_files
from ..errors import GdbextError
from ..render import jsonline
from ..render.fields import NUMBER, TEXT, Field, Fields
from ..render.jsonline import Address
from ..render.text import Style, escape, size, table
from ..torch import arrays, census
from ..torch import stats as statistics
from ..torch.tensor import Tensor

SHOWN = 40  # rows without -all


GROUP_STEPS = 3  # owners are summed up by so many leading steps of their paths


SORTS = {
    "bytes": lambda t: (-t["bytes"], t["owner"] or "~"),
    "owner": lambda t: (t["owner"] is None, t["owner"] or "", t["address"]),
    "dtype": lambda t: (t["dtype"], -t["bytes"]),
    "shape": lambda t: (str(t["shape"]), t["address"]),
    "device": lambda t: (t["device"], -t["bytes"]),
    "address": lambda t: t["address"],
}


def _owner_text(row: dict[str, Any], style: Style) -> str:
    if row["owner"] is None:
        more = f"  (storage of {row['shares_with']})" if row["shares_with"] else ""
        return style.name(f"{int(row['address']):#x}{more}")
    return style.name(str(row["owner_shown"]) + (f"  ({row['owner_frame']})" if row["owner_frame"] else ""))


def _owner(name: str) -> Callable[[Any], str | None]:
    return lambda f: escape(getattr(f.owner, name)) if f.owner and getattr(f.owner, name) else None


FOUND = Fields(  # of what the census found
    Field("owner", TEXT, "a path to it", read=_owner("text"), head="owner", draw=_owner_text, short=True),
    Field("type", str, read=lambda f: f.tensor.type, head="type", cell=lambda t: "" if t == "Tensor" else t, spare=1),
    Field(
        "shape",
        ([int], None),
        read=lambda f: f.tensor.shape,
        head="shape",
        draw=lambda r, style: "?" if r["shape"] is None else str(list(r["shape"])),
    ),
    Field("dtype", str, read=lambda f: "torch." + f.tensor.dtype.name, head="dtype", cell=lambda t: t[6:], spare=3),
    Field("device", str, read=lambda f: f.tensor.device, head="device", spare=2),
    Field("bytes", int, head="bytes", cell=size),
    Field("address", str, read=lambda f: Address(f.tensor.address)),
    Field("storage", str, read=lambda f: Address(f.tensor.storage)),
    Field("storage_bytes", NUMBER, read=lambda f: f.tensor.storage_bytes if f.holds_memory else 0),
    Field("data_ptr", str, read=lambda f: Address(f.tensor.data_ptr)),
    Field("owner_shown", TEXT, read=_owner("shown")),
    Field("owner_frame", TEXT, read=_owner("note")),
)
ROW = Fields(
    Field("rank", str, "with -nan of several processes", head="rank"),
    *FOUND,
    Field(
        "nan", int, "how many, with -nan", head="nan", draw=lambda r, style: style.bad(f"{r['nan']} NaN") if "nan" in r else ""
    ),
    Field("shares_with", TEXT, "a tensor with the same storage, of one that no path leads to"),
)
SUM = (Field("tensors", int), Field("bytes", int, "each storage once"))
ACROSS = Fields(
    Field("label", str), *(Field(name, (str, list, int, float, None)) for name in "shape dtype nan inf min max mean hash".split())
)
GROUP = Fields(Field("shape", ([int], None)), Field("dtype", str), Field("device", str), *SUM)
ANSWER = Fields(
    Field("tensors", [ROW]),
    Field("total_bytes", int, "each storage once"),
    Field("devices", [Fields(Field("device", str), *SUM)]),
    Field("owners", [Fields(Field("owner", TEXT, "the leading steps of paths"), *SUM)]),
    Field("looked_at", int, "how many tensors' values were read, with -nan"),
    Field("saved", str, "the file of -save"),
    Field(
        "diff", Fields(Field("groups", [GROUP]), Field("new", [ROW]), Field("gone", [ROW]), SUM[1]._replace(name="total_bytes"))
    ),
    Field("ok", (bool, None), "with -ranks: null: nothing could be compared"),
    Field("ranks", [str], "with -ranks: labels of those that were compared with another"),
    Field("compared", int, "with -ranks: how many parameters and buffers, on two ranks or more"),
    Field("not_compared", [Fields(Field("label", str), Field("why", str))]),
    Field(
        "different", [Fields(Field("path", str), Field("odd", [str], "whose hash is not that of most"), Field("ranks", [ACROSS]))]
    ),
    Field("unseen", [Fields(Field("path", str), Field("ranks", [str]), Field("why", str))], "packed away, or not to be read"),
)


def group_of(owner: str) -> str:
    """The leading steps of an owner's path: `self.runner.kv_caches[3]` and its neighbours are one group."""
    depth = steps = 0
    for i, c in enumerate(owner):
        if c in ".[" and depth == 0 and i and ":" not in owner[i:]:
            steps += 1
            if steps >= GROUP_STEPS:
                return owner[:i]
        depth += (c in "[(") - (c in "])")
    return owner.rpartition("[")[0] or owner if owner.endswith("]") else owner


def sums(rows: list[dict[str, Any]], key: Callable[[dict[str, Any]], Any], name: str) -> list[dict[str, Any]]:
    """[{name: …, tensors, bytes}] by bytes; a storage counts for the first tensor that has it."""
    found: dict[Any, list[int]] = {}
    seen = set()
    for row in rows:
        own = found.setdefault(key(row), [0, 0])
        own[0] += 1
        if row["storage"] not in seen:
            seen.add(row["storage"])
            own[1] += row["storage_bytes"] or 0
    return [{name: k, "tensors": n, "bytes": b} for k, (n, b) in sorted(found.items(), key=lambda s: -s[1][1])]


def difference(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> dict[str, Any]:
    """The changes between two lists of rows: {total_bytes, groups: [{shape, dtype, device, tensors, bytes}], new: […], gone:
    […]}.

    A tensor is the same when address, shape and dtype are. `groups` count how many more (or fewer) there are of each shape, the
    largest growth first. That finds leaks even where addresses are used again.
    """

    def identity(row: dict[str, Any]) -> tuple[Any, ...]:
        return (
            int(str(row["address"]), 0) if isinstance(row["address"], str) else int(row["address"]),
            str(row["shape"]),
            row["dtype"],
        )

    def plain(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "shape": list(row["shape"]) if row["shape"] is not None else None}

    old, new = [plain(r) for r in old], [plain(r) for r in new]
    before, after = {identity(r) for r in old}, {identity(r) for r in new}
    groups: dict[Any, list[Any]] = {}
    for sign, rows in ((-1, old), (1, new)):
        for row in rows:
            own = groups.setdefault((str(row["shape"]), row["dtype"], row["device"]), [row["shape"], 0, 0])
            own[1] += sign
            own[2] += sign * row["bytes"]
    changed = [
        {"shape": shape, "dtype": dtype, "device": device, "tensors": n, "bytes": b}
        for (_, dtype, device), (shape, n, b) in groups.items()
        if n or b
    ]
    return {
        "groups": sorted(changed, key=lambda g: (-g["bytes"], str(g["shape"]))),
        "new": [r for r in new if identity(r) not in before],
        "gone": [r for r in old if identity(r) not in after],
    }


def say_sharers(rows: list[dict[str, Any]]) -> None:
    """Adds `shares_with` to tensors that no path leads to but whose storage another tensor shares: the name of that tensor."""
    known = {r["storage"]: r["owner_shown"] for r in reversed(rows) if r["owner"] and r["storage_bytes"]}
    for row in rows:
        row["shares_with"] = known.get(row["storage"]) if row["owner"] is None else None


def is_on(device: str, wanted: str) -> bool:
    """Whether a tensor's device is the requested one, or of the requested kind."""
    return device == wanted or device.partition(":")[0] == wanted


SAVED = {  # the fields read from a row of a saved listing
    "address": str,
    "shape": ([int], None),
    "dtype": str,
    "device": str,
    "bytes": int,
    "storage": str,
}


def load_listing(path: str) -> list[dict[str, Any]]:
    """The rows of a saved listing."""
    try:
        data = opened_files.json_of(opened_files.contents(os.path.expanduser(path), opened_files.JSON_SIZE), path)
        jsonline.expect(data, {"tensors": [SAVED]})
        for row in data["tensors"]:
            int(row["address"], 0)
        rows: list[dict[str, Any]] = data["tensors"]
        return rows
    except GdbextError as e:
        raise GdbextError(f"-diff {e}") from None
    except ValueError:
        raise GdbextError(f"-diff {path}: no listing of pytensors; make one with: pytensors -save {path}") from None


def total(rows: list[dict[str, Any]]) -> int:
    """Bytes of all storages."""
    return sum({r["storage"]: r.get("storage_bytes") or 0 for r in rows}.values())


def no_nan_text(looked_at: int, style: Style, where: str = "") -> str:
    """That no NaN was found among `looked_at` tensors."""
    if not looked_at:
        return style.bad("no tensor's values were read: whether one holds a NaN is not known")
    return f"no tensor holds a NaN{where}: the values of {looked_at} were read"


def rows_text(rows: list[dict[str, Any]], every: bool, style: Style, looked_at: int | None = None) -> str:
    """The table of rows, the first SHOWN without `every`. `looked_at`: how many tensors were searched for NaN, None without."""
    shown = rows if every else rows[:SHOWN]
    if not shown:
        return "no tensors" if looked_at is None else no_nan_text(looked_at, style)
    text = ROW.table(shown, style)
    return text + (style.dim(f"\n… {len(rows) - len(shown)} more: -all") if len(shown) < len(rows) else "")


def difference_text(diff: dict[str, Any], every: bool, style: Style) -> str:
    """The result of `difference`."""
    groups = diff["groups"] if every else diff["groups"][:SHOWN]
    cells = [
        [
            f"{g['tensors']:+d}",
            ("-" if g["bytes"] < 0 else "+") + size(abs(g["bytes"])),
            "?" if g["shape"] is None else str(g["shape"]),
            g["dtype"][6:],
            g["device"],
        ]
        for g in groups
    ]
    parts = (
        [table(cells, ["tensors", "bytes", "shape", "dtype", "device"], style, right=("tensors", "bytes"))]
        if cells
        else ["nothing changed"]
    )
    fresh = diff["new"] if every else diff["new"][:SHOWN]
    if fresh:
        parts.append(style.title("new:") + "\n" + ROW.table(fresh, style))
    total = diff["total_bytes"]
    parts.append(f"{len(diff['new'])} new, {len(diff['gone'])} gone, {'-' if total < 0 else '+'}{size(abs(total))} in all")
    return "\n".join(parts)


def totals_text(data: dict[str, Any], rows: list[dict[str, Any]], style: Style) -> str:
    """Sums by device and by owner."""
    lines = []
    for d in data["devices"]:
        count = len({r["storage"] for r in rows if r["device"] == d["device"] and r["storage_bytes"]})
        lines.append(f"{d['tensors']} tensors, {size(d['bytes'])} in {count} storages on {d['device'] or 'no device'}")
    held = [o for o in data["owners"] if o["owner"] and o["bytes"]][:8]
    if len(held) > 1:
        lines.append(style.title("by owner: ") + ", ".join(f"{o['owner']} {size(o['bytes'])}" for o in held))
    return "\n".join(lines)


def with_nan(found: list[Any], every: bool, partial: list[str]) -> tuple[list[Any], dict[int, int], int]:
    """-> ([Found], {address: how many NaN}, how many tensors' values were read)"""
    kept, counts, failed, looked_at = [], {}, [], 0
    unfinished: dict[str, None] = {}

    def has_nan(tensor: Tensor) -> bool:
        nonlocal looked_at
        bad = statistics.has_nan(arrays.of_tensor(tensor))
        looked_at += 1
        if tensor.unfinished:
            unfinished[tensor.unfinished] = None
        return bool(bad)

    for f, why in census.with_nan(found, has_nan):
        if why:
            failed.append(why)
            continue
        kept.append(f)
        counts[f.tensor.address] = statistics.statistics(arrays.of_tensor(f.tensor))[0]["nan"]
        if not every:
            break
    partial += unfinished
    if failed:
        partial.append(f"{len(failed)} tensors' values cannot be read, the first: {failed[0]}")
    return kept, counts, looked_at
