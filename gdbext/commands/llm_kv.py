"""llm-kv: what every block of the KV cache is, who owns it, and which invariant is broken."""

from __future__ import annotations

import os
import time
from typing import Any, Callable

from .. import __version__
from ..answers import kv as shapes
from ..answers import kv_nodes
from ..answers import kv_text as lines
from ..api.choosing import CONTENT, POOL, of_instance, tables_here, view_of
from ..engines import kv_deep, kv_facts, kv_view
from ..engines.kv_view import NativeView, View
from ..engines.registry import kv_releases
from ..errors import ContradictionError, NotFoundError
from ..kvcache import plot as plots
from ..render.text import escape
from ..session import nodes
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.optional_packages import need
from ..session.session import Session


class LlmKv(Command):
    __doc__ = f"""Show the KV cache of the engine: blocks, owners, the free queue, and whether it is sound.

      (gdb) llm-kv
      vLLM 0.32.0  4096 blocks of 128 tokens: 4091 free, 4 used, 1460 cached, 1 reserved
      (gdb) llm-kv block 1876            owners, references, hash, and addresses per rank, layer and part
      (gdb) llm-kv request request-7     its block table
      (gdb) llm-kv free                  the free queue, next to be taken first
      (gdb) llm-kv map                   one cell per block: who has it
      (gdb) llm-kv check -ranks          every invariant; with -ranks also the workers' tables against the scheduler's

    check says what it compared: tables that are on a GPU are named as not compared, and a rank is listed only where its tables
    were; vLLM's model runner V2 keeps lengths in host memory, which are compared all the same. Of that runner the step itself is
    compared too: its rows in both directions, slots by their place, the tables that attention reads, what is kept twice, tokens
    and sampling parameters; "not:" names what of these was not there to compare. A process that runs is read again until a fault
    looks the same twice.

    What contradicts itself in a process that runs is no fact: it is read again, then from a copy of one moment, which takes
    milliseconds ("paused" says how long). What the copy says is so.

    Over machines (llm-kv check -ranks ssh:A ssh:B) workers are compared with the scheduler of another machine.

    check recomputes each block's hash from its request's tokens (of SGLang's prefix tree in Python each page's), as the release
    does; with -deep it also reads the blocks' values: NaN in reserved and in computed blocks, copies of one prefix that differ,
    ranks that should hold the same.

    Works in the scheduler's process (vLLM: EngineCore), in a worker (the scheduler is then read as its sibling) and on cores of
    either; request INSTANCE/ID chooses the scheduler by its instance. `used`: owned by requests or pinned; `cached`: named by the
    prefix cache, free or not. A stop in the middle of an update is said (mid-update); what it explains is not called corruption.

    Reads {kv_releases()}."""

    name = "llm-kv"
    tool = "kv"
    group = "kv"
    fields = shapes.ANSWER
    standalone = True  # without -on the engine that runs alone here is taken
    operand = "[block N | request ID | free | map | check]"
    options = (
        Option("ranks", help="check: compare the workers' block tables too"),
        Option("deep", help="check: read the blocks' values: NaN, copies of one prefix, ranks with the same heads"),
        Option("group", "int", "block: of this KV cache group's pool", default=None),
        Option("stats", help="block: NaN, infinities and range of the values per layer"),
        Option("plot", "str", "map: write a picture to this file", metavar="FILE", was="o output", for_agents=False),
        Option("force", help="-plot: overwrite a file that is there", for_agents=False),
        Option("facts", help="check -ranks: also what one answer over several machines is made of", for_agents=False),
        POOL,
        CONTENT,
    )

    node_words = ("--facts",)  # session/nodes.py

    WORDS = ("block", "request", "free", "map", "check")

    @classmethod
    def is_process(cls, word: str) -> bool:
        if word in (*cls.WORDS, "summary"):
            return False
        import difflib  # only here: it costs 10 ms

        return not difflib.get_close_matches(word, cls.WORDS)

    @staticmethod
    def merges(args: Args) -> bool:
        """Whether the answers of several machines are one: those of check are."""
        return bool(args.operand_text.strip() == "check")

    def merge(self, args: Args, answers: list[tuple[str, Any]], failed: list[dict[str, Any]]) -> Answer:
        """The caches of several machines (session/nodes.py), `(node, answer)` each."""
        data, partial = kv_nodes.merged(answers, failed, self._over_nodes(args), args.deep)
        return Answer(data, lambda style: "\n".join(kv_nodes.lines(data, style)), partial)

    @staticmethod
    def _over_nodes(args: Args) -> bool:
        """Whether workers are compared with the schedulers of other machines. Copies of two machines are of two moments."""
        return bool(args.ranks and not args.still and not args.pool)

    def run(self, session: Session, args: Args) -> Answer:
        word, _, rest = args.operand_text.partition(" ")
        actions: dict[str, Callable[..., Answer]] = {
            "": self.summary,
            "summary": self.summary,
            "block": self.block,
            "request": self.request,
            "free": self.free,
            "map": self.map,
            "check": self.check,
        }
        if word not in actions:
            raise UsageError(f"llm-kv: {word!r} is none of block N, request ID, free, map, check; see: help llm-kv")
        if rest.strip() and word not in ("block", "request"):
            raise UsageError(f"llm-kv {word}: takes nothing after it, got {rest.strip()!r}")
        if word == "request":
            pid, rest = of_instance(session, rest.strip())
            if pid and args.on is not None:
                raise UsageError("llm-kv request: INSTANCE/ID names an instance, and -on a process: give one of them")
            args.on = pid or args.on
        if args.facts:
            return self._facts(session, args, self._over_nodes(args))
        return actions[word](session, args, view_of(session, args), rest.strip())

    def summary(self, session: Session, args: Args, view: View, rest: str) -> Answer:
        """All of it in numbers."""
        cache = view.cache().of_blocks()
        workers = view.workers(cache.pools[0].size) if args.pool is None else []
        data = shapes.cache_data(cache, workers)
        return Answer(data, lambda style: "\n".join(lines.cache_lines(cache, workers, data, style)), view.partial)

    def block(self, session: Session, args: Args, view: View, rest: str) -> Answer:
        """One block."""
        try:
            number = int(rest, 0)
        except ValueError:
            raise UsageError("llm-kv block: give a block's number, such as: llm-kv block 17") from None
        cache = view.cache().of_blocks()
        group = cache.group(args.group) if args.group is not None else (cache.groups[0] if cache.groups else None)
        if group is None:
            raise NotFoundError(f"no group {args.group}; there are {', '.join(str(g.id) for g in cache.groups)}")
        workers = view.workers(cache.pools[group.pool].size) if args.pool is None else []
        data = shapes.block_data(cache, group, number, workers)
        if args.stats:
            need("numpy", "-stats")
            data["stats"] = [
                {"rank": worker.rank, "layer": layer.index, **kv_view.block_stats(layer, number)}
                for worker, layer in shapes.layers_of(cache, data["group"], workers)
            ]
            view.partial += dict.fromkeys(
                part.tensor.unfinished
                for worker, layer in shapes.layers_of(cache, data["group"], workers)
                for part in layer.parts
                if part.tensor is not None and part.tensor.unfinished
            )
        return Answer(
            {"block": data, **shapes.update_data(cache)},
            lambda style: "\n".join(lines.block_lines(cache, data, style)),
            view.partial,
        )

    def request(self, session: Session, args: Args, view: View, rest: str) -> Answer:
        """One request."""
        if not rest:
            raise UsageError("llm-kv request: give a request's id, such as: llm-kv request cmpl-7; llm-requests lists them")
        cache = view.cache().of_blocks()
        found = [r for r in cache.requests if r.request_id == rest]
        found = found or [r for r in cache.requests if r.request_id.startswith(rest)]
        if len(found) != 1:
            names = ", ".join(escape(r.request_id) for r in (found or cache.requests)[:8])
            why = "several requests begin with" if found else "no request"
            raise NotFoundError(f"{why} {escape(rest)}" + (f"; there are {names}" if names else ""))
        request = found[0]
        data = shapes.REQUEST.data(request)
        if request.slots is not None and cache.pools[0].block_size > 1:
            data["slots"] = request.slots
        if request.content is not None:
            data["content"] = request.content
        return Answer(
            {"request": data, **shapes.update_data(cache)},
            lambda style: "\n".join(lines.request_lines(cache, request, style)),
            view.partial,
        )

    def free(self, session: Session, args: Args, view: View, rest: str) -> Answer:
        """The free queues."""
        data = shapes.free_data(view.cache().of_blocks())
        return Answer(data, lambda style: "\n".join(lines.free_lines(data, style)), view.partial)

    def map(self, session: Session, args: Args, view: View, rest: str) -> Answer:
        """A picture of who has which block."""
        cache = view.cache().of_blocks()
        maps = shapes.maps_of(cache)
        data, written = {**shapes.map_data(maps), **shapes.update_data(cache)}, []
        if args.plot:
            need("matplotlib", "-plot")
            plots.plot(args.plot, maps, args.force)
            data["plot"] = args.plot
            written = [f"written to {args.plot}"]
        return Answer(data, lambda style: "\n".join(lines.map_lines(maps) + written), view.partial)

    def _facts(self, session: Session, args: Args, tables: bool) -> Answer:
        """What this machine answers among several. `tables`: with those that are compared with other machines'."""
        if not tables:
            nodes.all_are_ready()
            return self.check(session, args, view_of(session, args), "")
        engines, scheduler = tables_here(session, args.on)
        members = kv_facts.members_of(engines, scheduler, session.open)
        kv_facts.meet(members)
        nodes.all_are_ready()
        kv_facts.read(members, time.monotonic())
        facts = kv_facts.facts_data(members, os.uname().nodename, __version__)
        if scheduler is None:
            answer = Answer(shapes.no_cache_data(engines), lambda style: f"{len(members)} workers; -json has their tables")
        else:
            args.on, args.ranks = str(scheduler.pid), not kv_facts.is_alone(scheduler, engines, session.open)
            answer = self.check(session, args, view_of(session, args), "")
        answer.data = {**answer.data, "facts": facts}
        return answer

    def check(self, session: Session, args: Args, view: View | NativeView, rest: str) -> Answer:
        """Every invariant."""
        if args.deep:
            need("numpy", "-deep")
        report, cache, workers, view = kv_view.check(
            view, lambda: view_of(session, args), args.ranks, kv_deep.read if args.deep else None
        )
        data: dict[str, Any] = shapes.check_data(report, cache, args.ranks)
        partial = list(view.partial)
        left_out = {f"not compared: {one.label}: {one.what}: {one.why}": None for one in report.not_compared if args.ranks}
        partial += [reason for reason in left_out if not any(reason.endswith(known) for known in partial)]
        if report.changed:
            count = len(report.changed)
            partial.append(f"{count} differences changed while they were read: -still checks a copy of one moment")
        if report.transient:
            count = len(report.transient)
            partial.append(
                f"mid-update in {report.middle}: {count} differences that a half-done update explains; check again after it"
            )
        answer = Answer(data, lambda style: "\n".join(lines.check_lines(cache, data, style)), partial)
        alone = not args.ranks or all(
            worker.target is view.target for worker in workers
        )  # copies of several are of several moments
        if report.changed and alone:
            never = ContradictionError(f"{len(report.changed)} differences changed each time they were read")
            never.rest = answer
            raise never
        return answer
