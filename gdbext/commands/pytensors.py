"""pytensors: every live tensor of a process."""

from __future__ import annotations

import os
from typing import Any

from ..answers import tensor_list as listing
from ..answers.rank_weights import compared_data, compared_text
from ..api import choosing as selection
from ..engines import rank_weights as weights
from ..errors import GdbextError
from ..render import files
from ..render.text import Style, escape
from ..session.command import Answer, Args, Command, Option
from ..session.evaluation import all_frames
from ..session.optional_packages import need
from ..session.session import Session
from ..torch import census


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
    fields = listing.ANSWER
    group = "tensors"
    options = (
        Option("nan", help="those that hold a NaN: the first found, or all with -all and in JSON"),
        Option("ranks", help="compare what every rank of the engine should have alike: norms, buffers, replicated layers"),
        Option("all", help="every row, however many"),
        Option("sort", tuple(listing.SORTS), "what comes first", default="bytes", metavar="S"),
        Option("min-bytes", "int", "only tensors of at least N bytes", default=0, metavar="N"),
        Option("device", "str", "only those on this device: cpu, cuda, cuda:0", metavar="D"),
        Option("save", "str", "write the listing to a file, for -diff", metavar="FILE", was="o output"),
        Option("force", help="-save replaces a file that is there"),
        Option("diff", "str", "what changed since the listing in FILE (of -save, or of -json)", metavar="FILE"),
    )

    @classmethod
    def finds_engines(cls, args: Args) -> bool:
        return bool(args.ranks)

    def run(self, session: Session, args: Args) -> Answer:
        if args.nan or args.ranks:
            need("numpy", "-nan" if args.nan else "-ranks")
        if args.save:
            files.may_write(args.save, "-save", args.force)
        if args.ranks:
            return _ranks(session, args)
        if args.nan and args.on and len(session.resolve(args.on)) > 1:
            return self.nan_on_ranks(session, args)
        rt = session.runtime(args.on)
        before = listing.load_listing(args.diff) if args.diff else None
        partial = session.partial(rt.target)
        found = census.live(rt, partial)
        found = [
            f for f in found if f.bytes >= args.min_bytes and (args.device is None or listing.is_on(f.tensor.device, args.device))
        ]
        bad: dict[int, int] = {}
        if args.nan:
            found, bad, looked_at = listing.with_nan(found, args.all or args.json, partial)
        census.name_owners(rt, found, all_frames(session, rt, args.on))
        rows = []
        for f in found:
            row = listing.FOUND.data(f)
            if f.tensor.address in bad:
                row["nan"] = bad[f.tensor.address]
            rows.append(row)
        listing.say_sharers(rows)
        rows.sort(key=listing.SORTS[args.sort])
        data: dict[str, Any] = {
            "tensors": rows,
            "total_bytes": census.total_bytes(found),
            "devices": listing.sums(rows, lambda r: r["device"], "device"),
            "owners": listing.sums(rows, lambda r: listing.group_of(r["owner_shown"]) if r["owner"] else None, "owner"),
        }
        if args.nan:
            data["looked_at"] = looked_at
        if args.save:
            data["saved"] = _save(args.save, data, args.force)
        if before is not None:
            data["diff"] = {**listing.difference(before, rows), "total_bytes": data["total_bytes"] - listing.total(before)}

        def people(style: Style) -> str:
            if before is None:
                text = listing.rows_text(rows, args.all, style, data.get("looked_at"))
            else:
                text = listing.difference_text(data["diff"], args.all, style)
            if args.nan:
                more = "" if args.all or not rows else style.dim("(the first; -all reads every tensor)")
            else:
                more = listing.totals_text(data, rows, style)
            return "\n".join(filter(None, (text, more)))

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
            if not rows:
                return listing.no_nan_text(looked_at, style, " on any rank")
            return listing.ROW.table(rows, style)

        return Answer({"tensors": rows, "total_bytes": total, "looked_at": looked_at}, text, partial)


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
    data, more = compared_data(held, left_out)
    return Answer(data, lambda style: compared_text(data, args.all, style), partial + more)


def _save(path: str, data: dict[str, Any], force: Any) -> Any:
    path = os.path.expanduser(path)
    with files.writing(path, "-save", force) as f:
        f.write(Answer(data, "").json(PyTensors.name).encode() + b"\n")
    return path
