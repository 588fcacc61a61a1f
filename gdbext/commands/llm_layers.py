"""llm-layers: what each module of a model returned in one step, and where two such records differ first."""

from __future__ import annotations

import os
from typing import Any, Sequence

from ..access import files as opened_files
from ..answers.layers import alike, comparison_text, rank_text
from ..engines import models
from ..errors import GdbextError
from ..render import files as render_files
from ..render.text import Style, escape
from ..render.text import seconds as duration
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.gdb_only import RANK, labels_of_attached, require_gdb
from ..session.optional_packages import need
from ..session.session import Session
from ..torch import layer_compare as comparing
from ..torch import layer_records as records
from ..torch import modules
from ..torch import tensor_impl as tensors

PER_CALL = 0.003  # seconds that a call of a module is held, without the reading of a large output


class LlmLayers(Command):
    """Record what each module of a model returns in one step: shape, NaN, range, hash (R). Nothing is written to the process.

      (gdb) llm-layers -o before.jsonl             every attached rank, from now to the end of the model's next call
      (gdb) llm-layers -step 3 -save -o F.jsonl    the third step, with the values, in F.safetensors
      (gdb) llm-layers -compare before.jsonl after.jsonl
      (gdb) llm-layers -compare F-TP0.jsonl,F-TP1.jsonl one.jsonl      two ranks against one: sharded layers are put together

    A step is one call of the outermost module. Each torch.nn.Module that returns to Python meanwhile is stopped for a moment (a
    few milliseconds, and some for each MB of its output) by two debug registers, which are free again afterwards; the process
    then stands at the outermost module's return. One row for each tensor that a module returned, in the order in which they
    returned: the first wrong row is of the innermost module that went wrong. hash is the SHA-256 of the elements in row-major
    order, as of t.contiguous().

    -compare names the first module whose output differs beyond what its dtype explains (another order of additions), by how much
    and, where both were recorded with -save, at which index. A rank's pieces are concatenated as its layer's class cuts them.

    An engine against a plain program of transformers with the same weights and tokens (attach to it, -o, let it call its model):
    q_proj, k_proj and v_proj side by side are qkv_proj, gate_proj and up_proj gate_up_proj, act_fn times up_proj SiluAndMul; a
    layer's hidden states and residual are added up; [1, T, H] is [T, H]. What has no counterpart is named. Use -save for both.

    A compiled model or a CUDA graph calls no modules: the answer says which are missing, and how the engine is started eagerly.
    Values on a GPU are read in cuda-gdb (13 or newer), of a process that began with CUDA_LAUNCH_BLOCKING=1: without it a module
    returns before its kernels have run, and the answer says so instead of values. Needs numpy."""

    name = "llm-layers"
    group = "tensors"
    operand = "[-compare A B]"
    completion = "file"
    takes_target = False
    resumes = True
    standalone = True  # comparing needs no gdb
    options = (
        Option("step", "int", "the Nth whole step from now", 1, metavar="N"),
        RANK,
        Option("o", "str", "write the record to FILE (JSON lines), for -compare", metavar="FILE", for_agents=False),
        Option("save", help="the values too, in a .safetensors beside FILE"),
        Option("force", help="replace files that are there"),
        Option("compare", help="the operands are two records, or lists of those of several ranks, with commas"),
        Option(
            "tolerance",
            "float",
            "of -compare: relative difference (root mean square) that counts as none; without it, what the dtypes explain",
            metavar="REL",
        ),
        Option("all", help="of -compare: every output, also those that are equal"),
        Option("for", "float", "give up after S seconds", 60.0, metavar="S"),
    )

    def run(self, session: Session, args: Args) -> Answer:
        if args.compare:
            return _compare(args)
        if args.operand_text:
            raise UsageError(f"llm-layers: takes no operand without -compare, got {args.operand_text!r}")
        if args.step < 1 or getattr(args, "for") <= 0:
            raise UsageError("llm-layers: -step is 1 or more, -for is more than 0 seconds")
        if args.save and not args.o:
            raise UsageError("llm-layers: -save writes beside the record: name one with -o FILE.jsonl")
        need("numpy", "llm-layers")
        steps = require_gdb(session, "layer_steps")
        processes = require_gdb(session, "follow").processes(labels_of_attached(session), args.rank or "")
        if not processes:
            raise GdbextError("no process is attached: llm-attach one")
        roots = [_root(process) for process in processes]
        if any(roots):  # an engine's: its front end and its scheduler may have no model
            processes, roots = zip(*((process, root) for process, root in zip(processes, roots) if root))
        ranks = [_Rank(session, process, args, len(processes) > 1) for process in processes]
        recorders = [steps.Recorder(r.process, args.step, r.keep, r.started, root) for r, root in zip(ranks, roots)]
        try:
            why = steps.Recording(recorders).go(getattr(args, "for"))
            partial = [why] if why else []
            for rank, recorder in zip(ranks, recorders):
                partial += rank.end(recorder)
        finally:
            for rank in ranks:
                rank.close()
        data = {"modules": [row for rank in ranks for row in rank.rows], "ranks": [rank.data for rank in ranks]}

        def text(style: Style) -> str:
            return "\n".join(rank_text(rank.data, rank.rows, style) for rank in ranks)

        return Answer(data, text, partial)


def _compare(args: Args) -> Answer:
    need("numpy", "llm-layers -compare")
    words = args.operand_text.split()
    if len(words) != 2:
        raise UsageError("llm-layers: -compare takes two records: llm-layers -compare before.jsonl after.jsonl")
    return compare_records(words, args.tolerance, args.all)


def compare_records(words: Sequence[str], tolerance: float | None, every: bool = False) -> Answer:
    """The answer of -compare; each of the two `words` is a file, or several of one step with commas between them."""
    sides = [comparing.Side([records.read(name) for name in filter(None, word.split(","))]) for word in words]
    with opened_files.reading(" and ".join(words)):
        found = comparing.compare_sides(*sides, tolerance)
    if not found["rows"]:
        raise GdbextError(f"{words[0]} and {words[1]} have no module in common: they are records of different models")
    partial = [
        f"{len(only)} outputs are in {word} only: {escape(alike(only))}"
        for word, only in zip(words, (found["only_a"], found["only_b"]))
        if only
    ]
    return Answer(found, lambda style: comparison_text(found, every, style), partial)


def _root(process: Any) -> int:
    """The address of the model that an engine's process calls, 0 for another program."""
    model = models.model_of(process.rt)
    inner = models.inner_model(model) if model is not None else None
    return inner.address if inner is not None else 0


class _Rank:
    """What is recorded of one process: `rows`, and `data` once the step is over."""

    def __init__(self, session: Session, process: Any, args: Args, several: bool) -> None:
        self.session, self.process, self.args = session, process, args
        self.rows: list[dict[str, Any]] = []
        self.data: dict[str, Any] = {}
        self.nodes: dict[int, Any] = {}
        self.cuts: Any = None
        self.missing = ""
        self.eager = f"start it {models.eager_advice(models.spec_of(process.rt))}"
        self.path = _path(args.o, process, several) if args.o else ""
        self.values = None
        if self.path:
            render_files.may_write(self.path, "-o", args.force)
        if args.save:
            self.values = records.Values(os.path.splitext(self.path)[0] + ".safetensors", args.force)

    def started(self, nodes: dict[int, Any]) -> None:
        """The tree of modules is known. Inside stop()."""
        rt = self.process.rt
        self.nodes = nodes
        if not self.args.json:
            head = f"{self.process.label}: " if self.process.label else ""
            about = duration(len(nodes) * PER_CALL)
            text = f"{escape(head)}{len(nodes)} modules: a step will take about {about} more, and the reading of large outputs"
            require_gdb(self.session, "layer_steps").say(text)
        self.cuts = models.Cuts(rt, nodes)
        taken = models.compiled(rt, nodes)
        if taken:
            named = ", ".join(escape(path or "the model") for path in taken[:3]) + (", …" if len(taken) > 3 else "")
            self.missing = f"compiled: {named}"

    def keep(self, call: Any) -> None:
        """A module of the step returned. Inside stop()."""
        node, stop = call.node, call.stop
        base = {"rank": self.process.label, "path": escape(node.path), "call": call.number, "type": escape(node.kind)}
        found = list(modules.tensors_in(call.value))
        for place, obj in found:
            row = {**base, "output": escape(place), **self._measured(stop, f"{node.path}#{call.number}{place}", obj)}
            self.rows.append({**row, "shard": self.cuts.of(node, row["shape"])})
        if not found:
            what = call.value if isinstance(call.value, str) else f"returned {call.value.type_name}"
            self.rows.append({**base, "output": "", **records.NOTHING, "why": escape(what), "shard": None})

    def _measured(self, stop: Any, name: str, obj: Any) -> dict[str, Any]:
        try:
            tensor = tensors.read_tensor(stop.process.rt, obj.address)
            return self.values.measure(name, tensor) if self.values is not None else records.measure(tensor)
        except GdbextError as e:
            return {**records.NOTHING, "why": escape(str(e))}

    def end(self, recorder: Any) -> list[str]:
        """Writes the files and says what was done. -> reasons for `partial`."""
        called = {row["path"] for row in self.rows}
        partial = []
        self.data = {
            "label": escape(self.process.label),
            "pid": self.process.pid,
            "root": escape(recorder.nodes[recorder.root].kind) if recorder.nodes else "",
            "step": self.args.step,
            "calls": recorder.calls,
            "called": len(called),
            "modules": len(self.nodes),
            "seconds": max(0.0, recorder.ended - recorder.began),
            "reading": recorder.seconds,
            "files": [],
        }
        left = [n for n in self.nodes.values() if not n.children and n.path not in called]
        if recorder.done and left and self.missing:
            partial.append(f"{self.process.name}: {len(left)} modules were not called from Python ({self.missing}): {self.eager}")
        elif not recorder.calls:
            partial.append(
                f"{self.process.name}: no module was called from Python: if the model runs, it is compiled or in a CUDA graph: "
                f"{self.eager}"
            )
        unread = [row for row in self.rows if row["shape"] is not None and row["hash"] is None]
        if unread:
            first = f"{unread[0]['path'] or 'the model'}: {unread[0]['why']}"
            partial.append(f"{self.process.name}: {len(unread)} outputs' values were not read, the first of {first}")
        if self.path and recorder.calls:
            self._write(partial)
        return partial

    def _write(self, partial: list[str]) -> None:
        values = None
        if self.values is not None:
            self.values.write()
            values = self.values.path
            if self.values.left_out:
                partial.append(
                    f"{len(self.values.left_out)} outputs' values are not in {values}, the first: {self.values.left_out[0]}"
                )
        head = {k: v for k, v in self.data.items() if k != "files"}
        records.write(self.path, {**head, "values": os.path.basename(values) if values else None}, self.rows, self.args.force)
        self.data["files"] = [p for p in (self.path, values) if p]

    def close(self) -> None:
        if self.values is not None:
            self.values.close()


def _path(name: str, process: Any, several: bool) -> str:
    """The file of one process's record: of several each has its label in the name."""
    path = os.path.abspath(os.path.expanduser(name))
    if not several:
        return path
    stem, kind = os.path.splitext(path)
    label = "".join(c if c.isalnum() or c in ".-_" else "_" for c in process.label) or str(process.pid)
    return f"{stem}-{label}{kind}"
