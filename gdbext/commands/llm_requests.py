"""llm-requests, llm-request: where each request is, whether it moves, and who must act."""

from __future__ import annotations

import functools
import os
from typing import Any, Sequence

from .. import __version__
from ..access.base import Target
from ..access.retry import retry_reading
from ..answers import requests as answers
from ..answers import wait_tree
from ..answers.hang import request_chains
from ..answers.places import closing
from ..answers.request_nodes import Merged
from ..api.choosing import CONTENT, POOL, engines_for, view_of
from ..cpython import runtime as runtimes
from ..engines import discover
from ..engines.processes import ProcessRef
from ..engines.rank import Rank
from ..engines.registry import kv_releases
from ..errors import GdbextError, NotFoundError
from ..render.text import Style, escape
from ..requests.caches import Caches, of_engines, of_files
from ..requests.collect import BETWEEN as BETWEEN_LOOKS
from ..requests.collect import Custody
from ..requests.model import STUCK, Tracked, linked, meant
from ..requests.ways import way
from ..session import nodes as nodes_of_session
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session
from ..session.stillness import Copies
from ..session.transports import NODE
from ..stacks import snapshots
from ..verdict import examine as examining
from ..verdict.exchange import sides_data

BETWEEN = Option(
    "between", "float", "seconds between two samples; 0: one sample, movement is then not known (default 1)", metavar="S"
)


FACTS = Option("facts", help="also what one answer over several machines is made of", for_agents=False)


class LlmRequests(Command):
    __doc__ = f"""List the requests of the engines here: where each is, whether it moves, what it waits for, and what must act.

      (gdb) llm-requests
      2 running, 1 waiting
      request  verdict  at   state    tokens  prompt  computed  output  blocks  preempted     age  waits for
      req-7    moving   DP0  RUNNING     133      32       132     101       2             1.24 s
      req-8    moving   DP0  RUNNING     101      32       100      69       1          1  1.02 s
      req-9    queued   DP0  WAITING      64      64         0       0       0             0.31 s  blocks: needs 4, 1 free

    WHAT names a process of an engine, or the cores of an engine's processes (./A.core ./B.core); without it the selected
    process's engine, else all engines here. Every process that may know a request is read twice, a second apart, without
    stopping it: front ends, the scheduler's queues, workers, SGLang's detokenizer.

    moving: it made progress. queued: others that move are before it. behind: what it waits for is stuck itself. parked: it
    waits for something that has not come. kept: it has ended, its blocks are kept for a reader in another instance. never-fits:
    it needs more than there is in all. lost: a process waits for its answer, none works on it. zombie: the engine works
    on it, no process waits for its answer. thrash: it is preempted over and over, and no request gives a token.

    Counts that contradict one another are read again, then from a copy of one moment; pauses says how long that took.

    llm-request ID shows the whole way of one. Token ids only with -show-content. Of several machines (ssh:A ssh:B, pod/NS/NAME,
    slurm:JOB) there is one answer: both ends of each transfer are joined over all.

    Reads {kv_releases()}."""

    name = "llm-requests"
    tool = "requests"
    group = "kv"
    standalone = True
    fields = answers.ANSWER
    operand = "[WHAT...]"
    completion = "what"
    options = (POOL, CONTENT, BETWEEN, FACTS)
    node_words = ("--facts",)

    def run(self, session: Session, args: Args) -> Answer:
        if args.facts:
            nodes_of_session.all_are_ready()
        if args.pool:
            view = view_of(session, args)
            cache, partial = view.cache(), view.partial
            found = [answers.request_data(r) for r in cache.requests]
            return _answer(found, [cache.engine], cache.limits, partial)
        moment = _Moment(session)
        return moment.told(_all(_custodies(session, args, args.operand_text or args.on, moment), args.facts))

    def merge(self, args: Args, answers: list[tuple[str, Any]], failed: list[dict[str, Any]]) -> Answer:
        """The requests of several machines (session/nodes.py), `(node, answer)` each."""
        merged = Merged(answers, failed)
        answer = _answer(merged.rows, merged.engines, merged.limits, merged.partial)
        answer.data.update(nodes=merged.nodes, failed=failed)
        return answer


class LlmRequest(Command):
    """Show the whole way of one request: every process that knows it, what it waits for, who must act, its sampling parameters.

      (gdb) llm-request request-9
      request-9  behind  12.4 s old
      stage     process     pid   state    progress
      frontend  frontend    4101  awaited  0 0
      queue     EngineCore  4177  WAITING  0 0 0
        it waits behind request-8, which never fits

    ID is the engine's own, the user's, or the beginning of one; INSTANCE/ID where several instances have it. -sampling adds
    temperature, max_tokens and the rest, as the scheduler has them, the row by which a worker draws (vLLM's model runner V2), and
    of structured output the grammar and how many tokens its mask leaves for the next one (which: -show-content), while a step has
    that mask. One whose KV goes from one
    instance to another has a hop each for the router, the sender, the transfer and the reader: llm-request ID ssh:A ssh:B asks
    the instances of several machines.

    Of a request that does not move, `chain` goes along those that it waits for, as in llm-hang: for that its engine's processes
    are sampled once more and stopped for milliseconds. With -between 0 they are not."""

    name = "llm-request"
    tool = "request"
    group = "kv"
    fields = answers.ONE
    watches = True
    standalone = True
    operand = "ID"
    options = (Option("sampling", help="also its sampling parameters and its grammar"), POOL, CONTENT, BETWEEN, FACTS)
    node_words = ("--facts",)

    def run(self, session: Session, args: Args) -> Answer:
        wanted = args.operand_text
        if not wanted:
            raise UsageError("llm-request: give a request's id, such as: llm-request cmpl-7; llm-requests lists them")
        if args.facts:
            nodes_of_session.all_are_ready()
            return _all(_custodies(session, args, args.on, None), True)
        moment = _Moment(session)
        every = _custodies(session, args, args.on, moment, wanted)
        held, caches, tracked = _named(wanted, [(held, caches, t) for held, caches in every for t in held.requests])
        known = {r.request_id: r for _, cache in caches for r in cache.requests}
        request = known.get(tracked.request_id) or tracked.request
        data = {**answers.request_data(request, tracked, tracked.request_id in known), "instance": escape(held.name)}
        if tracked.transfer is not None or tracked.partner is not None:
            routers = discover.find_routers(session.ranks)
            data["way"] = [answers.STOP.data(stop) for stop in way(tracked, held.side, [one.side for one, _ in every], routers)]
        sampling: dict[str, str] = {}
        grammar: dict[str, Any] | None = None
        rows: list[dict[str, Any]] = []
        hop = tracked.sighting("running", "queue")
        if args.sampling and hop is not None and tracked.request is not None:
            rt = runtimes.open_runtime(session.open(session.process(hop[0].pid)))
            sampling = answers.sampling_data(rt, tracked.request, session.private(rt, args))
            grammar = answers.grammar_data(rt, tracked.request, args.show_content)
            rows = self._rows(session, held, tracked.request_id, sampling)
        chains, pauses = self._chains(session, args, held, tracked)
        pauses += moment.pauses
        drawn = {"sampling": sampling or None, "sampling_rows": rows, "grammar": grammar}
        found = self.fields.of(request=data, hops=data["hops"], **drawn, engine=held.engine, chains=chains, pauses=pauses)

        def text(style: Style) -> str:
            lines = answers.request_lines(data, sampling, rows, grammar, style)
            lines += wait_tree.tree_lines(wait_tree.tree_of(chains), style)
            return "\n".join(lines + closing({"failed": [], "pauses": pauses}, {}, style))

        return Answer(found, text, held.partial)

    @staticmethod
    def _chains(session: Session, args: Args, held: Custody, tracked: Tracked) -> tuple[list[Any], list[Any]]:
        """(the chain of a request that does not move, how long each process stood still for it)"""
        between = BETWEEN_LOOKS if args.between is None else args.between
        if not held.earlier or tracked.verdict not in STUCK:
            return [], []
        looked = examining.examine([session.process(look.pid) for look in held.looks], session.targets, between)
        pauses = snapshots.pauses([s.snapshot for s in looked.seen if s.snapshot is not None])
        return request_chains(looked, tracked.request_id), pauses

    @staticmethod
    def _rows(session: Session, held: Custody, request_id: str, sampling: dict[str, str]) -> list[dict[str, Any]]:
        """By what each process that computes the model draws the request's next token; what cannot be read is in `partial`."""
        found = []
        for look in held.looks:
            if look.role not in ("worker", "engine-core"):
                continue
            try:
                target = session.open(session.process(look.pid))
                row = retry_reading(target, functools.partial(answers.sampling_row, target, request_id))
            except GdbextError as e:
                held.partial.append(f"{look.label}: its row of the sampler was not read: {e}")
                continue
            if row is not None:
                found.append({"label": look.label, "pid": look.pid, **row, "differs": answers.differs(sampling, row)})
        return found

    def merge(self, args: Args, answered: list[tuple[str, Any]], failed: list[dict[str, Any]]) -> Answer:
        """The way of one request over several machines (session/nodes.py), `(node, answer)` each."""
        merged = Merged(answered, failed)
        wanted = " ".join(word for word in args.operand_text.split() if not NODE.fullmatch(word))
        data, engine = _named(wanted, merged.ends)[0], ", ".join(dict.fromkeys(merged.engines)) or None
        partial = merged.partial + ["-sampling: ask the one machine"] * args.sampling
        nothing: dict[str, Any] = {"sampling": None, "sampling_rows": [], "grammar": None, "chains": [], "pauses": []}
        found = self.fields.of(request=data, hops=data["hops"], **nothing, engine=engine, nodes=merged.nodes, failed=failed)
        return Answer(found, lambda style: "\n".join(answers.request_lines(data, {}, [], None, style)), partial)


def _named(wanted: str, every: Sequence[tuple[Any, Any, Tracked]]) -> tuple[Any, Any, Tracked]:
    """The one request, a triple's last, that an id, or the beginning of one, names. The two ends of one transfer are one request:
    who waits for it is shown, else who has it still. The first of a triple is its `Custody`, or its row of several machines."""
    ends = [(one[0]["instance"] if isinstance(one[0], dict) else one[0].name, one[2]) for one in every]
    named = {id(one) for one in meant(wanted, ends)}
    found = [one for one in every if id(one[2]) in named]
    if linked((name, one) for name, one in ends if id(one) in named):
        found = sorted(found, key=lambda one: (one[2].transfer is None, bool(one[2].transfer and one[2].transfer.sends)))[:1]
    if len(found) != 1:
        among = [(name, one.request_id) for name, one in ends if not found or id(one) in named]
        ids = [request_id for _, request_id in among]
        names = [f"{name}/{request_id}" if ids.count(request_id) > 1 else request_id for name, request_id in among[:8]]
        why = "several requests are named" if found else "no request is named"
        raise NotFoundError(f"{why} {escape(wanted)}" + (f"; there are {', '.join(map(escape, names))}" if names else ""))
    return found[0]


class _Moment:
    """The copies of one moment in place of processes whose numbers contradict one another while they run. `pauses`: how long each
    stood still for it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.pauses: list[dict[str, Any]] = []

    def copy(self, rank: Rank) -> Target:
        """The copy of a process."""
        copies = Copies(LlmRequests(), LlmRequests.parse("-between 0"))
        found = copies.of(ProcessRef.of_rank(rank))
        self.pauses += copies.pauses
        return found

    def told(self, answer: Answer) -> Answer:
        """An answer with the pauses, if there were any."""
        if not self.pauses:
            return answer
        text = answer.in_style

        def people(style: Style) -> str:
            return "\n".join([text(style), *closing({"failed": [], "pauses": self.pauses}, {}, style)])

        return Answer({**answer.data, "pauses": self.pauses}, people, answer.partial)


def _custodies(
    session: Session, args: Args, what: str | None, moment: _Moment | None, wanted: str = ""
) -> list[tuple[Custody, Caches]]:
    """Who has each request, for each engine that `what` or the selection means, with the caches; of the engines that run, where
    one request is `wanted`, for those that have it."""
    between = BETWEEN_LOOKS if args.between is None else args.between
    engines, lone = engines_for(session, what)
    copied = moment.copy if moment is not None else None
    found = of_engines(engines, between, args.show_content, wanted, args.facts, copied)
    return found + (of_files(lone, functools.partial(view_of, session, args)) if lone else [])


def _all(custodies: Sequence[tuple[Custody, Caches]], facts: bool) -> Answer:
    """All requests; `facts`: with what is joined with other machines'."""
    found, names, partial = [], [], []
    limits: dict[str, Any] = {}
    for held, caches in custodies:
        rows, limits = answers.rows_of(held, caches)
        found += rows
        names.append(held.engine)
        partial += held.partial
    answer = _answer(found, names, limits, partial)
    if facts:
        answer.data["facts"] = sides_data([held.side for held, _ in custodies], os.uname().nodename, __version__)
    return answer


def _answer(found: list[dict[str, Any]], names: list[str], limits: dict[str, Any], partial: list[str]) -> Answer:
    counts: dict[str, int] = {}
    for r in found:
        counts[r["queue"] or "unlisted"] = counts.get(r["queue"] or "unlisted", 0) + 1
    engine = ", ".join(dict.fromkeys(names)) or None
    data = answers.ANSWER.of(requests=found, counts=counts, limits=limits, engine=engine)
    return Answer(data, lambda style: "\n".join(answers.requests_lines(found, counts, style)), partial)
