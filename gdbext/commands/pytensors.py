"""pytensors: every live tensor of a process."""

from __future__ import annotations

import itertools
import os
from typing import Any

from ..access import files as opened_files
from ..answers.layers import alike
from ..engines import rank_weights as weights
from ..errors import GdbextError
from ..render import files, jsonline
from ..render.jsonline import Address
from ..render.text import Style, escape, size, table
from ..session import engine_selection as selection
from ..session.command import Answer, Args, Command, Option
from ..session.evaluation import all_frames
from ..session.optional_packages import need
from ..session.session import Session
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


def _row(found):
    t = found.tensor
    return {
        "address": Address(t.address),
        "type": escape(t.type),
        "shape": t.shape,
        "dtype": "torch." + t.dtype.name,
        "device": t.device,
        "bytes": found.bytes,
        "storage": Address(t.storage),
        "storage_bytes": t.storage_bytes if found.holds_memory else 0,
        "data_ptr": Address(t.data_ptr),
        "owner": escape(found.owner.text) if found.owner else None,
        "owner_shown": escape(found.owner.shown) if found.owner else None,
        "owner_frame": escape(found.owner.note) if found.owner and found.owner.note else None,
    }


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


def _sums(rows, key, name):
    """[{name: …, tensors, bytes}] by bytes; a storage counts for the first tensor that has it."""
    sums, seen = {}, set()
    for row in rows:
        own = sums.setdefault(key(row), [0, 0])
        own[0] += 1
        if row["storage"] not in seen:
            seen.add(row["storage"])
            own[1] += row["storage_bytes"] or 0
    return [{name: k, "tensors": n, "bytes": b} for k, (n, b) in sorted(sums.items(), key=lambda s: -s[1][1])]


def difference(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> dict[str, Any]:
    """What changed between two lists of rows: {total_bytes, groups: [{shape, dtype, device, tensors, bytes}], new: […], gone:
    […]}.

    A tensor is the same when address, shape and dtype are; `groups` count how many more (or fewer) there are of each shape, the
    largest growth first, which finds leaks also where addresses are used again.
    """

    def identity(row):
        return (
            int(str(row["address"]), 0) if isinstance(row["address"], str) else int(row["address"]),
            str(row["shape"]),
            row["dtype"],
        )

    def plain(row):
        return {**row, "shape": list(row["shape"]) if row["shape"] is not None else None}

    old, new = [plain(r) for r in old], [plain(r) for r in new]
    before, after, groups = {identity(r) for r in old}, {identity(r) for r in new}, {}
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


class PyTensors(Command):
    """List every live torch tensor of the process: shape, bytes, device, and a path that pytensor takes.

      (gdb) pytensors -min-bytes 1000000
      owner                                     shape               dtype     device       bytes
      self.runner.kv_caches[0]                  [2, 128, 8, 64]     bfloat16  cpu        1.0 GiB
      self.runner.model.embed_tokens.weight     [32000, 512]        bfloat16  cpu       31.2 MiB
      2 tensors, 1.0 GiB in 2 storages on cpu
      (gdb) pytensors -nan                  the first that holds a NaN; with -all, every one; -on all: on every rank
      (gdb) pytensors -ranks                parameters and buffers that all ranks should have alike, compared by hash
      (gdb) pytensors -save before.json     and later
      (gdb) pytensors -diff before.json     what grew meanwhile

    Found by walking the garbage collector's lists in memory. A path that begins in a Python frame that is not the selected one is
    given by address, which pytensor takes as well; the frame stands beside it. Tensors that only C++ holds have no Python object
    and are not listed; what no path leads to has none. A storage that several tensors share is counted once. -nan needs numpy."""

    name = "pytensors"
    group = "tensors"
    options = (
        Option("nan", help="those that hold a NaN: the first found, or all with -all and in JSON"),
        Option("ranks", help="compare what every rank of the engine should have alike: norms, buffers, replicated layers"),
        Option("all", help="every row, however many"),
        Option("sort", tuple(SORTS), "by this, bytes first", default="bytes", metavar="S"),
        Option("min-bytes", "int", "only tensors of at least N bytes", default=0, metavar="N"),
        Option("device", "str", "only those on this device: cpu, cuda, cuda:0", metavar="D"),
        Option("save", "str", "write the listing to a file, for -diff", metavar="FILE"),
        Option("force", help="-save replaces a file that is there"),
        Option("diff", "str", "what changed since the listing in FILE (of -save, or of -json)", metavar="FILE"),
    )

    @classmethod
    def finds_engines(cls, args: Args) -> bool:
        return bool(args.ranks)

    def run(self, session: Session, args: Args) -> Answer:
        if args.nan or args.ranks:
            need("numpy", "-nan" if args.nan else "-ranks")
        if args.ranks:
            return _ranks(session, args)
        if args.nan and args.on and len(session.resolve(args.on)) > 1:
            return self.nan_on_ranks(session, args)
        rt = session.runtime(args.on)
        before = load_listing(args.diff) if args.diff else None
        partial = session.partial(rt.target)
        found = census.live(rt, partial)
        found = [f for f in found if f.bytes >= args.min_bytes and (args.device is None or _on(f.tensor.device, args.device))]
        bad = {}
        if args.nan:
            found, bad, looked_at = self.with_nan(found, args.all or args.json, partial)
        census.name_owners(rt, found, all_frames(session, rt, args.on))
        rows = []
        for f in found:
            row = _row(f)
            if f.tensor.address in bad:
                row["nan"] = bad[f.tensor.address]
            rows.append(row)
        _say_sharers(rows)
        rows.sort(key=SORTS[args.sort])
        data = {
            "tensors": rows,
            "total_bytes": census.total_bytes(found),
            "devices": _sums(rows, lambda r: r["device"], "device"),
            "owners": _sums(rows, lambda r: group_of(r["owner_shown"]) if r["owner"] else None, "owner"),
        }
        if args.nan:
            data["looked_at"] = looked_at
        if args.save:
            data["saved"] = _save(args.save, data, args.force)
        if before is not None:
            data["diff"] = {**difference(before, rows), "total_bytes": data["total_bytes"] - _total(before)}

        def people(style):
            parts = (
                [_table(rows, args, style, data.get("looked_at"))] if before is None else [_diff_text(data["diff"], args, style)]
            )
            parts.append(_totals(data, rows, args, style))
            return "\n".join(p for p in parts if p)

        return Answer(data, people, partial)

    def nan_on_ranks(self, session: Session, args: Args) -> Answer:
        """-nan on every process that -on names: one answer, each row with its rank."""
        rows, partial, total, looked_at = [], [], 0, 0
        for one in session.resolve(args.on):
            label, args.on = one.name, one.exact
            try:
                answer = self.run(session, args)
            except GdbextError as e:
                partial.append(f"{label}: {e}")
                continue
            rows += [{"rank": escape(label), **row} for row in answer.data["tensors"]]
            partial += [why if why == "unstopped" else f"{label}: {why}" for why in answer.partial]
            total += answer.data["total_bytes"]
            looked_at += answer.data["looked_at"]

        def text(style: Style) -> str:
            cells = [[row["rank"], *_cells(row, style)] for row in rows]
            return table(cells, ["rank", *HEAD], style, right=("bytes",)) if rows else _no_nan(looked_at, style, " on any rank")

        return Answer({"tensors": rows, "total_bytes": total, "looked_at": looked_at}, text, partial)

    @staticmethod
    def with_nan(found: list[Any], every: bool, partial: list[str]) -> tuple[list[Any], dict[int, int], int]:
        """-> ([Found], {address: how many NaN}, how many tensors' values were looked at)"""
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


def _ranks(session: Session, args: Args) -> Answer:
    """Weights that should be the same on every rank of the engine of the process that is named or selected."""
    partial: list[str] = []
    held: list[Any] = []
    left_out: list[dict[str, str]] = []
    engines, _ = selection.engines_for(session, args.on)
    for one, rank in [(engine, rank) for engine in engines for rank in engine.shards()]:
        try:
            target = one.target(rank)
            partial += session.partial(target)
            held.append((rank.label, weights.of_process(session.runtime(str(rank.pid)))))
        except GdbextError as e:
            partial.append(f"{rank.label}: {e}")
            left_out.append({"label": escape(rank.label), "why": escape(str(e))})
    if not held:
        raise GdbextError("no rank's model can be read: " + ("; ".join(partial) or "no engine runs here"))
    rows, hidden = weights.different(held), weights.unseen(held)
    compared = weights.compared(held)
    labels = [label for label, _ in held if any(label in one for one in compared.values())]
    count = len(compared)
    for label in (label for label, _ in held if label not in labels):
        why = "no other rank was read" if len(held) < 2 else "no tensor of it can be read that another rank has too"
        partial.append(f"not compared: {escape(label)}: {why}")
        left_out.append({"label": escape(label), "why": why})
    for why, group in itertools.groupby(sorted(hidden, key=lambda row: str(row["why"])), key=lambda row: str(row["why"])):
        named = alike([row["path"] for row in group])
        partial.append(f"not compared: {escape(named)}: {escape(why)}")

    def text(style: Style) -> str:
        if not count:
            return style.bad("nothing was compared: no parameter or buffer could be read on two ranks")
        if not rows:
            return f"{count} parameters and buffers are the same on {', '.join(map(escape, labels))}"
        head = [style.bad(f"{len(rows)} of {count} parameters and buffers differ, the first: {_odd(rows[0])}")]
        cells = [
            [style.name(escape(row["path"])), r["label"], str(list(r["shape"])), r["dtype"], *map(_number, (r["min"], r["max"]))]
            + [_number(r["mean"]), r["hash"][:12]]
            for row in (rows if args.all else rows[:SHOWN])
            for r in row["ranks"]
        ]
        return "\n".join(head + [table(cells, ["path", "rank", "shape", "dtype", "min", "max", "mean", "hash"], style)])

    data = {"ok": not rows if count else None, "ranks": labels, "compared": count, "not_compared": left_out, "different": rows}
    return Answer({**data, "unseen": hidden}, text, partial)


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _odd(row: dict[str, Any]) -> str:
    return f"{escape(row['path'])} on {', '.join(map(escape, row['odd']))}"


def _say_sharers(rows):
    """A tensor that no path leads to but whose storage another one shares says whose: `shares_with`."""
    known = {r["storage"]: r["owner_shown"] for r in reversed(rows) if r["owner"] and r["storage_bytes"]}
    for row in rows:
        row["shares_with"] = known.get(row["storage"]) if row["owner"] is None else None


def _on(device, wanted):
    return device == wanted or device.partition(":")[0] == wanted


ROW = {  # what is read of a row of a saved listing
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
        jsonline.expect(data, {"tensors": [ROW]})
        for row in data["tensors"]:
            int(row["address"], 0)
        return data["tensors"]
    except GdbextError as e:
        raise GdbextError(f"-diff {e}") from None
    except ValueError:
        raise GdbextError(f"-diff {path}: no listing of pytensors; make one with: pytensors -save {path}") from None


def _total(rows):
    return sum({r["storage"]: r.get("storage_bytes") or 0 for r in rows}.values())


def _save(path, data, force):
    path = os.path.expanduser(path)
    with files.writing(path, "-save", force) as f:
        f.write(Answer(data, "").json(PyTensors.name).encode() + b"\n")
    return path


def _owner_text(row):
    if row["owner"] is None:
        return f"{int(row['address']):#x}" + (f"  (storage of {row['shares_with']})" if row["shares_with"] else "")
    return row["owner_shown"] + (f"  ({row['owner_frame']})" if row["owner_frame"] else "")


def _cells(row, style):
    shape = "?" if row["shape"] is None else str(list(row["shape"]))
    nan = f"{row['nan']} NaN" if "nan" in row else ""
    return [
        style.name(_owner_text(row)),
        row["type"] if row["type"] != "Tensor" else "",
        shape,
        row["dtype"][6:],
        row["device"],
        size(row["bytes"]),
        style.bad(nan),
    ]


HEAD = ["owner", "type", "shape", "dtype", "device", "bytes", "nan"]


def _no_nan(looked_at, style, where=""):
    if not looked_at:
        return style.bad("no tensor's values were looked at: whether one holds a NaN is not known")
    return f"no tensor holds a NaN{where}: the values of {looked_at} were looked at"


def _table(rows, args, style, looked_at=None):
    shown = rows if args.all else rows[:SHOWN]
    if not shown:
        return _no_nan(looked_at, style) if args.nan else "no tensors"
    text = table([_cells(r, style) for r in shown], HEAD, style, right=("bytes",))
    return text + (style.dim(f"\n… {len(rows) - len(shown)} more: -all") if len(shown) < len(rows) else "")


def _diff_text(diff, args, style):
    groups = diff["groups"] if args.all else diff["groups"][:SHOWN]
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
    fresh = diff["new"] if args.all else diff["new"][:SHOWN]
    if fresh:
        parts.append(style.title("new:") + "\n" + table([_cells(r, style) for r in fresh], HEAD, style, right=("bytes",)))
    total = diff["total_bytes"]
    parts.append(f"{len(diff['new'])} new, {len(diff['gone'])} gone, {'-' if total < 0 else '+'}{size(abs(total))} in all")
    return "\n".join(parts)


def _totals(data, rows, args, style):
    if args.nan:
        return "" if args.all or not rows else style.dim("(the first; -all looks at every tensor)")
    lines = []
    for d in data["devices"]:
        count = len({r["storage"] for r in rows if r["device"] == d["device"] and r["storage_bytes"]})
        lines.append(f"{d['tensors']} tensors, {size(d['bytes'])} in {count} storages on {d['device'] or 'no device'}")
    held = [o for o in data["owners"] if o["owner"] and o["bytes"]][:8]
    if len(held) > 1:
        lines.append(style.title("by owner: ") + ", ".join(f"{o['owner']} {size(o['bytes'])}" for o in held))
    return "\n".join(lines)
