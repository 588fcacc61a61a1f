"""llm-layers: what each module of a model returned in one step, and where two such records differ first."""

from __future__ import annotations

from typing import Sequence

from ..access import files as opened_files
from ..answers.layers import ANSWER, alike, comparison_text, rank_text
from ..control import layer_ranks
from ..errors import GdbextError
from ..render.text import Style, escape
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.gdb_only import ATTACHED, labels_of_attached, require_gdb
from ..session.optional_packages import need
from ..session.session import Session
from ..torch import layer_compare as comparing
from ..torch import layer_records as records
from ..torch.layer_pairs import Side


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
    fields = ANSWER
    operand = "[-compare A B]"
    completion = "file"
    takes_target = False
    resumes = True
    standalone = True  # comparing needs no gdb
    options = (
        Option("step", "int", "the Nth whole step from now", 1, metavar="N"),
        ATTACHED,
        Option("o", "str", "write the record to FILE (JSON lines), for -compare", metavar="FILE", for_agents=False),
        Option("save", help="the values too, in a .safetensors next to FILE"),
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
            raise UsageError("llm-layers: -save writes next to the record: name one with -o FILE.jsonl")
        need("numpy", "llm-layers")
        steps = require_gdb(session, "layer_steps")
        processes = require_gdb(session, "follow").processes(labels_of_attached(session), args.on or "")
        if not processes:
            raise GdbextError("no process is attached: llm-attach one")
        roots = [layer_ranks.root_of(process) for process in processes]
        if any(roots):  # an engine's: its front end and its scheduler may have no model
            processes = [process for process, root in zip(processes, roots) if root]
            roots = [root for root in roots if root]
        ranks = []
        for process in processes:
            path = layer_ranks.path_for(args.o, process, len(processes) > 1) if args.o else ""
            say = (lambda text: None) if args.json else steps.say
            ranks.append(layer_ranks.RankRecord(process, args.step, path, save=args.save, force=args.force, say=say))
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
    a, b = [Side([records.read(name) for name in filter(None, word.split(","))]) for word in words]
    with opened_files.reading(" and ".join(words)):
        found = comparing.compare_sides(a, b, tolerance)
    if not found["rows"]:
        raise GdbextError(f"{words[0]} and {words[1]} have no module in common: they are records of different models")
    partial = [
        f"{len(only)} outputs are in {word} only: {escape(alike(only))}"
        for word, only in zip(words, (found["only_a"], found["only_b"]))
        if only
    ]
    return Answer(found, lambda style: comparison_text(found, every, style), partial)
