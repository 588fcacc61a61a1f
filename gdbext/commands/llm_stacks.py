"""llm-stacks: the stacks of all threads of all ranks as one tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..access import permission
from ..answers import each_node
from ..answers.places import PAUSE, PLACE, named
from ..answers.shapes import END, FRAME
from ..answers.untraced import UNTRACED
from ..api import choosing
from ..engines.processes import ProcessRef
from ..errors import GdbextError
from ..observe.loop import rounds
from ..render import files
from ..render.fields import NUMBER, Field, Fields, each
from ..render.text import Style, escape
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session
from ..stacks import snapshots, tree

MAX_SAMPLES = 1000
ENOUGH = 2  # looks, which show who moves
UNREAD = 0.5  # seconds of a look at processes that may not be read
PATIENCE, PER_LOOK = 30.0, 1.0  # seconds that all looks may take on a machine at full load, and each of them more

GROUP = Fields(
    Field("frames", [FRAME], "which all of them have", must=True),
    Field("members", [PLACE.needing("host tid name")], must=True),
    Field("idle", bool, "threads of a pool that wait for work"),
    Field("engine", str, "with the pid of its first process where several run that engine"),
)
PARTING = Fields(
    *each(str, "engine role"),
    *each(str, "function file", means="the last frame that all have"),
    Field("reached", Fields(*each(str, "function file"), Field("ranks", [str])), "the next frame, and who is there"),
    Field("not_reached", [str]),
)
MOVED = Fields(Field("label", str), Field("pid", NUMBER), Field("tid", int), Field("name", str), Field("changes", int))
ANSWER = Fields(
    Field("groups", [GROUP], "threads with the same frames", must=True),
    Field("common", [PARTING], "where like main threads of an engine part"),
    Field("ends", [END]),
    Field("ranks_read", int),
    Field("ranks_total", int, must=True),
    Field(
        "samples", Fields(*each(int, "count still"), Field("moved", [MOVED])), "with -samples: who moved, and how many did not"
    ),
    Field("pauses", [PAUSE], must=True),
    Field("failed", [each_node.FAILED], must=True),
    Field("untraced", [UNTRACED], "where none may be read: what /proc says of each"),
    Field("collecting", [PLACE.needing("host")], "threads that collect garbage; `tid` null: it is not known which does"),
    Field("hosts", int, "of several machines: how many"),
    each_node.nodes(Field("processes", int)),
)


def _all_refused(found: Sequence[ProcessRef]) -> bool:
    return bool(found) and all(one.pid and permission.is_refused(one.pid) for one in found)


def _shapes() -> Any:
    """The module of the tree's shapes: half of what this command loads, and not needed before the copies are made."""
    from ..answers import stack_tree

    return stack_tree


class LlmStacks(Command):
    """Show the stacks of all threads of all ranks as a tree per engine, with the ranks as sets; every process runs on.

    Each process is stopped without a signal for the milliseconds that copying its stacks takes, and read afterwards. Each engine
    has a tree of its own. Threads of pools that wait for work are folded into a line each. Where the main threads of like
    processes part, the tree says who has reached the next frame and who has not.

      (gdb) llm-stacks all
      worker_main (multiproc_executor.py:944)                        TP0-3
      worker_busy_loop (multiproc_executor.py:1041)
        execute_model (gpu_worker.py:812)                            TP0-2
        all_reduce (pynccl.py:141)
        sleep (throttle.py:17)                                       TP3
      main threads part after worker_busy_loop: reached execute_model: TP0-2; not reached: TP3
      pauses: TP0 1.21 ms, …

    WHAT is all (the default), or ranks, pids and snapshot files, separated by blanks. Where only some answer, the others are
    named with the reason. -samples N takes N samples and names the threads that moved between two and those that did
    not; on a machine too busy for it, fewer times, and says so.
    -o F.html writes one page that needs no network, -o F.collapsed one line per thread for flame graphs.

    Many machines (ssh:gpu[01-64], pods/NS/app=vllm, slurm:JOB, ray:) are one tree. Or run it on each with what you run the engine
    with, and put the answers together:
      srun bash -c 'gdbext llm-stacks all --json > answers/$(hostname).json'
      gdbext llm-stacks -merge answers"""

    name = "llm-stacks"
    copies = 1
    tool = "stacks"
    group = "hang"
    fields = ANSWER
    operand = "[WHAT...]"
    completion = "what"
    takes_target = False
    standalone = True
    options = (
        Option("samples", "int", "take N samples and show the threads that moved", 1, "N"),
        Option("interval", "float", "seconds between two samples", 0.5, "S"),
        Option("all", help="also every thread of idle pools, and long runs of frames in full"),
        Option(
            "o",
            "str",
            "write a page (FILE.html), or lines for flame graphs (.collapsed, .folded, .txt)",
            metavar="FILE",
            repeat=True,
            for_agents=False,
        ),
        Option("html", "str", "write a page with the tree", metavar="F", for_agents=False),
        Option("folded", "str", "write lines for flame graphs", metavar="F", for_agents=False),
        Option("force", help="-o, -html and -folded replace files that are there", for_agents=False),
        Option(
            "merge",
            "str",
            "put together the answers (*.json) of many machines instead of looking here",
            metavar="DIR",
            for_agents=False,
        ),
        Option("ray", help="every node of the Ray cluster, as ray: does", for_agents=False),
    )
    merged_options = ("o", "html", "folded", "force", "ray")  # of the answers of several machines

    @classmethod
    def parse(cls, line: str) -> Args:
        args = super().parse(line)
        for path in args.o:
            if not path.endswith((".html", ".collapsed", ".folded", ".txt")):
                raise UsageError(f"llm-stacks: -o {path}: the name ends in .html, .collapsed, .folded or .txt")
            kind = "html" if path.endswith(".html") else "folded"
            if getattr(args, kind):
                raise UsageError(f"llm-stacks: {getattr(args, kind)} and {path}: one file of each kind")
            setattr(args, kind, path)
        return args

    def run(self, session: Session, args: Args) -> Answer:
        self._check(args)
        if args.ray:
            from ..session import nodes

            return nodes.run(type(self), args, [("ray:", args.operand_text.split())])
        if args.merge:
            from ..stacks import cluster

            return self._merged(args, cluster.from_folder(args.merge, ANSWER.answer_shape))
        found = choosing.resolve_processes(session, args.operand_text, routers=True)
        if not (args.html or args.folded) and _all_refused(found):
            return self._refused(session, found)
        movement, looks = tree.Movement(), 0
        pauses: dict[int, list[dict[str, Any]]] = {}
        limit = PATIENCE + args.samples * (args.interval + PER_LOOK)
        for passed in rounds(args.interval, count=args.samples, rest=lambda took: float(args.interval)):
            if looks >= ENOUGH and passed > limit:
                break
            looks += 1
            taken = snapshots.take_snapshots(found, session.targets, reader=snapshots.THREADS, meanwhile=_shapes)
            views, partial, failed = snapshots.read_all(taken)
            movement.add(views)
            for one in snapshots.pauses(taken):
                pauses.setdefault(one["pid"], []).append(one)
        if looks < args.samples:
            partial.append(f"{looks} of {args.samples} samples: this machine was too busy for more in {limit:.0f} s")
        pausing = [
            {"pid": pid, "seconds": sum(one["seconds"] for one in each), "woken": max(one["woken"] for one in each)}
            for pid, each in pauses.items()
        ]
        whole = {"ranks_read": len(views), "ranks_total": len(taken), "failed": failed, "pauses": pausing}
        samples = {"samples": movement.data()} if args.samples > 1 else {}
        data = ANSWER.of(**_shapes().stacks_data(views), **whole, **samples)
        return self._answer(args, views, data, partial).about(one.pid for one in found)

    @staticmethod
    def _check(args: Args) -> None:
        if not 1 <= args.samples <= MAX_SAMPLES or not 0 <= args.interval <= 60:
            raise UsageError(f"llm-stacks: -samples is 1 to {MAX_SAMPLES}, -interval 0 to 60 seconds")
        for option, path in (("-html", args.html), ("-folded", args.folded)):
            if path:
                files.may_write(path, option, args.force)

    @staticmethod
    def _refused(session: Session, found: Sequence[ProcessRef]) -> Answer:
        """Of processes that may not be read there are no stacks: states and clocks of their threads."""
        from ..verdict import examine as examining
        from ..verdict import untraced

        seen = examining.examine(found, session.targets, UNREAD, once=True)
        failed = [{"label": s.name, "pid": s.pid, "reason": s.why} for s in seen.seen]
        data = ANSWER.of(groups=[], ranks_read=0, ranks_total=len(found), pauses=[], failed=failed, untraced=seen.untraced)
        partial = [f"0 of {len(found)} processes: no stacks"]

        def text(style: Style) -> str:
            return "\n".join(escape(line) for one in seen.untraced for line in untraced.lines(one, verbose=True))

        return Answer(data, text, partial).about(one.pid for one in found)

    def _merged(self, args: Args, merged: Any) -> Answer:
        shown = {**_shapes().stacks_data(merged.processes), "collecting": merged.collecting}
        data = ANSWER.of(
            **shown,
            ranks_read=len(merged.processes),
            ranks_total=max(merged.total, len(merged.processes)),
            failed=merged.failed,
            pauses=merged.pauses,
            hosts=len({p.host for p in merged.processes}),
        )
        return self._answer(args, merged.processes, data, merged.partial)

    def merge(self, args: Args, answers: Sequence[tuple[str, Any]], failed: list[dict[str, Any]]) -> Answer:
        """The answers of other machines (session/nodes.py), `(node, answer)` each, as one tree."""
        from ..stacks import cluster

        merged = cluster.MergedAnswers(ANSWER.answer_shape)
        merged.failed += failed
        for node, answer in answers:
            try:
                merged.add(answer, node)
            except GdbextError as e:
                merged.failed.append({"label": node, "pid": None, "reason": str(e)})
        found = self._merged(args, merged.finish())
        for one in [m for group in found.data["groups"] for m in group["members"]]:
            one["node"] = one["host"].partition(":")[2] or one["host"]
        count = Counter(p.host for p in merged.processes)
        found.data["nodes"] = [{"node": escape(node), "processes": count[node]} for node, _ in answers if count[node]]
        return found

    def _answer(self, args: Args, views: Any, data: dict[str, Any], partial: Any) -> Answer:
        shapes = _shapes()
        if data["failed"]:
            partial.append(f"{data['ranks_read']} of {data['ranks_total']} processes")
        if args.folded:
            files.write(args.folded, "-folded", "\n".join(tree.folded(shapes.folded_stacks(views))) + "\n", args.force)
        if args.html:
            from ..render import html

            files.write(args.html, "-html", html.page("llm-stacks", shapes.html_tree(views, data)), args.force)
        names = {view.pid: named(view) for view in views}

        def text(style: Style) -> str:
            return "\n".join(shapes.text_lines(views, data, names, style, args.all))

        return Answer(data, text, partial)
