"""An examination of processes (`verdict.examine`) as the JSON of llm-hang, and as text."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Sequence

from ..errors import GdbextError
from ..render.fields import NUMBER, Field, Fields, each
from ..render.text import escape
from ..requests.model import KEPT
from ..stacks import snapshots
from ..verdict.chains import chain_of_request
from ..verdict.examine import Examination
from ..verdict.facts import LOCKS, Facts, ProcessState, Verdict
from ..verdict.graph import step
from ..verdict.kinds import MEANING, QUIET
from ..verdict.rules.absent import NOT_BLOCKED
from ..verdict.words import blocked_in, own_place
from . import hang_text, requests, wait_tree
from .chains import CHAIN, chains_data
from .each_node import FAILED, nodes
from .ends import ends_data
from .places import PAUSE, PLACE, nodes_of, place
from .shapes import END
from .untraced import UNTRACED

HELD = 3  # locks of one culprit that are named
PARKED, STUCK = "parked", ("never-fits", "parked", "behind", "lost", "zombie", "thrash")

CULPRIT = Fields(
    *PLACE,
    Field("at", str, "where it is in Python"),
    Field("blocked", str, "where below that"),
    Field("holds", str, "the locks that others want of it"),
    Field("waits_for", str),
    shape="culprit",
)
LASTS = Fields(Field("verdict", str), Field("culprits", [CULPRIT]), Field("victims", [str]))
SAID = Fields(
    Field("verdict", str, "[what each means](verdicts.md), and by which rule it is found"),
    Field("sentence", str, "names program, process and line"),
    Field("culprits", [CULPRIT]),
    Field("evidence", [str]),
    Field("victims", [str]),
    Field("not_asked", [str], "ranks that are awaited and not among the processes read: accused of nothing"),
    Field("not_asked_at", [Fields(*each(str, "rank address"))], "their machines, as far as gloo's connections tell"),
    Field("if_it_lasts", (LASTS, None), "of an `unknown` of one look: the verdict if what it shows lasts"),
)
VERDICT = Fields(Field("engine", str), Field("group", [str], "its processes"), *SAID)
STEP = Fields(  # of a `ProcessState`; of a coordinator `rank` and `step` are null
    Field("label", str, read=lambda f: f.name),
    Field("pid", NUMBER),
    Field("rank", NUMBER, read=lambda f: f.in_step.rank),
    Field("size", int, read=lambda f: f.in_step.size),
    Field("wave", int, read=lambda f: f.in_step.wave),
    Field("step", NUMBER, read=lambda f: f.in_step.step),
    Field("runs", bool, "it takes part in a wave", read=lambda f: f.in_step.runs),
)
ANSWER = Fields(
    *SAID,
    Field("meaning", str),
    Field("verdicts", [VERDICT], "of each group of processes, the gravest first"),
    Field("next", [str], "what to type next"),
    Field("tree", [wait_tree.NODE], "the waits from [what they end at](#tree); empty where it is `busy`, `idle` or `startup`"),
    Field("chains", [CHAIN], "[every wait to its end](verdicts.md#chains)"),
    Field("progress", [requests.COUNTER], "what the processes count, at the first and the last sample"),
    *each(NUMBER, "requests_open requests_stuck", means="how many; null: no engine is known"),
    Field("requests", [requests.STUCK_ONE], "those that are stuck"),
    Field("requests_kept", [requests.STUCK_ONE], "that have ended, whose blocks are kept for readers elsewhere"),
    Field("in_step", [STEP], "data-parallel ranks that go in step, and their coordinator: how far each is"),
    Field("untraced", [UNTRACED], "what is known of processes that may not be traced"),
    Field("ends", [END]),
    *each(int, "ranks_read ranks_total"),
    Field("pauses", [PAUSE]),
    Field("failed", [FAILED]),
    Field("hosts", int, "over several machines: how many"),
    nodes(Field("host", str), Field("processes", int), Field("version", str)),
    Field("facts", dict, "with -facts, alone; no contract"),
)
Placer = Callable[[Any, Dict[str, int]], Dict[str, Any]]


def hang_data(found: Examination) -> dict[str, Any]:
    """The JSON fields; `GdbextError` where nothing at all could be read."""
    seen = found.seen
    told = found.untraced or any(map(_is_read, seen)) or any(f.state in ("Z", "X", "T", "t") for f in seen)
    if not told:
        raise GdbextError("; ".join(dict.fromkeys(s.why for s in seen if s.why)) or "no process could be read")
    culprit = _placer(seen)

    def accused(node: Any, children: dict[str, int]) -> dict[str, Any]:
        return {**culprit(node, children), **_doing(found.facts, node)}

    said = found.verdicts[0]
    stuck = [r for r in found.requests or () if r.verdict in STUCK]
    verdicts = [_verdict(v, culprit, accused) for v in found.verdicts]
    chains = chains_data(found.chains, lambda node: culprit(node, {}))
    known = found.requests is not None
    data = ANSWER.of(
        **{f.name: verdicts[0][f.name] for f in SAID},
        meaning=MEANING[said.kind],
        verdicts=verdicts,
        chains=chains,
        tree=wait_tree.tree_of(chains, [c for v in verdicts for c in v["culprits"]]) if said.kind not in QUIET else [],
        progress=[requests.COUNTER.data(c) for c in [*(c for f in seen for c in f.counters), *found.progress]],
        requests_open=sum(r.verdict != KEPT for r in found.requests or ()) if known else None,
        requests_stuck=sum(not (r.verdict == PARKED and r.paused) for r in stuck) if known else None,
        requests=[requests.STUCK_ONE.data(r) for r in stuck],
        requests_kept=[requests.STUCK_ONE.data(r) for r in found.requests or () if r.verdict == KEPT],
        in_step=[STEP.data(f) for f in seen if f.in_step is not None],
        untraced=found.untraced,
        ends=ends_data(s.view for s in seen if s.view),
        ranks_read=sum(map(_is_read, seen)),
        ranks_total=len(seen),
        pauses=snapshots.pauses([s.snapshot for s in seen if s.snapshot is not None]),
        failed=[{"label": s.name, "pid": s.pid, "reason": s.why} for s in seen if not _is_read(s)],
    )
    files = {s.pid for s in seen if s.view is not None and not s.view.live}
    return {**data, "next": hang_text.next_steps(data, files)}


def _verdict(v: Verdict, culprit: Placer, accused: Placer) -> dict[str, Any]:
    accused_of = [accused(n, v.children) for n in v.culprits]
    return VERDICT.of(
        engine=v.engine,
        group=[escape(name) for name in v.processes],
        verdict=v.kind,
        sentence=NOT_BLOCKED if NOT_BLOCKED in v.evidence else hang_text.sentence(v.kind, accused_of),
        culprits=accused_of,
        evidence=[escape(e) for e in v.evidence if e != NOT_BLOCKED],
        victims=[escape(name) for name in v.victims],
        not_asked=[escape(name) for name in v.not_asked],
        not_asked_at=[{"rank": escape(name), "address": escape(host)} for name, host in v.hosts.items()],
        if_it_lasts=_if_it_lasts(v.if_it_lasts, culprit),
    )


def _doing(facts: Facts, node: Any) -> dict[str, str]:
    """Of a culprit: its program, where it is in Python, where it is blocked, the locks that others want of it, and what it waits
    for itself."""
    f, t, task = facts.process(node), facts.thread(node), facts.task(node)
    found = {"program": f.program if f is not None else ""}
    if t is not None:
        found["at"] = own_place(t) + (f", inside {t.inside}" if t.inside else "")
        found["blocked"] = blocked_in(t)
    elif task is not None:
        found["at"], found["blocked"] = task.top, task.text
    if t is not None or task is not None:
        found["holds"] = ", ".join(list(dict.fromkeys(e.lock for e in facts.edges if e.owner == node and e.kind in LOCKS))[:HELD])
        waits = step(facts, node).waits_for
        found["waits_for"] = waits[: -len(f" in {found['at']}")] if waits.endswith(f" in {found['at']}") else waits
    return {key: escape(value) for key, value in found.items() if value}


def _if_it_lasts(v: Verdict | None, culprit: Placer) -> dict[str, Any] | None:
    if v is None:
        return None
    culprits = [culprit(n, v.children) for n in v.culprits]
    return LASTS.of(verdict=v.kind, culprits=culprits, victims=[escape(name) for name in v.victims])


def _placer(seen: Sequence[ProcessState]) -> Placer:
    """-> a function that gives the `place` of a node, from the processes that were examined and from {name: pid} of children that
    were not."""
    by_name = {s.name: s for s in seen}
    owners = {thread.node: s for s in seen for thread in s.threads}  # two jobs have processes of one name
    owners.update({task.node: s for s in seen for task in s.tasks})
    nodes = nodes_of([s.view for s in seen if s.view])

    def of(node: Any, children: dict[str, int]) -> dict[str, Any]:
        s = owners.get(node) or by_name.get(node[0])
        found = _of(s, node, children)
        if s is not None and s.program and s.name == str(s.pid):
            found["program"] = escape(s.program)
        return found

    def _of(s: ProcessState | None, node: Any, children: dict[str, int]) -> dict[str, Any]:
        if node in nodes:
            return place(*nodes[node])
        if s is not None and s.node:
            return _place_there(s, node)
        data = {"host": os.uname().nodename, "label": escape(node[0]), "pid": s.pid if s is not None else children.get(node[0])}
        if s is not None and isinstance(node[1], str):
            data["task"] = escape(node[1].partition(" ")[2])
        return data

    return of


def request_chains(found: Examination, request_id: str) -> list[dict[str, Any]]:
    """The chain of one request as llm-hang has it, in a list; [] where none waits."""
    of = _placer(found.seen)
    waiting = [r for r in found.requests or () if r.request_id == request_id and r.verdict in STUCK]
    return chains_data([chain_of_request(found.facts, r) for r in waiting], lambda node: of(node, {}))


def _is_read(s: ProcessState) -> bool:
    """Whether a process was read, here or on its own machine."""
    return s.view is not None or bool(s.node) and not s.why


def _place_there(s: ProcessState, node: Any) -> dict[str, Any]:
    """The `place` of a thread or process of another machine."""
    data: dict[str, Any] = {"host": escape(s.node), "node": escape(s.node), "label": escape(s.name), "pid": s.pid, "role": s.role}
    thread = next((t for t in s.threads if t.node == node), None)
    if thread is not None:
        data["tid"], data["name"] = node[1], escape(thread.name)
    elif isinstance(node[1], str):
        data["task"] = escape(node[1].partition(" ")[2])
    return data
