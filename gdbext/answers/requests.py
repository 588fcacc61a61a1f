"""Requests as JSON and for people: the fields of llm-requests, llm-request and of llm-hang's `requests`."""

from __future__ import annotations

import math
from typing import AbstractSet, Any, Sequence

from .. import log
from ..access.base import Target
from ..cpython.reprs import SHORT, Repr
from ..cpython.runtime import Runtime, open_runtime
from ..engines.objects import MAX_TOKENS_SHOWN
from ..engines.registry import spec_of_runtime
from ..errors import GdbextError
from ..kvcache.model import Cache, Request
from ..render.fields import KEEP, NUMBER, REAL, TEXT, Field, Fields
from ..render.text import Style, escape, seconds, table
from ..requests.collect import Custody
from ..requests.model import KEPT, MOVING, STUCK, Counter, Place, Tracked
from ..requests.ways import Stop
from .kv import numbers_data

MAX_LINE = 32  # ids of tokens in a line


def _verdict(r: Any, style: Style) -> str:
    verdict = r.get("verdict") or ("new" if r.get("new") else "unknown" if _is_open(r) else "")
    return style.bad(verdict) if verdict in STUCK else verdict


def _at(r: Any, style: Style) -> str:
    return str((r.get("at") or {}).get("label", ""))


def _stage(r: Any, style: Style) -> str:
    return str(r["status"] or (r["hops"][0]["state"] if r.get("hops") else r["queue"]))


def _waits(r: Any, style: Style) -> str:
    """What a request waits for: of one that waits for an offload tier its own look says more than its place in the queue."""
    own = r.get("waits_for") or ""
    return escape(own if own.startswith("offload: ") else r["blocked_by"] or own)


PLACE = Fields(Field("label", str), Field("pid", int), Field("tid", int), Field("thread", str), Field("node", str))
TRANSFERS = (
    "what it waits for: `pairing`, `handshake`, `transfer` (bytes), `completion` (they have come, unnoticed by the scheduler), "
    "`kept` (blocks of one that ended, for a reader), `never` (the other instance has no such request), `late` (the lease ended "
    "while they were read)"
)
TRANSFER = Fields(
    Field("sends", bool, "this end is the sender"),
    Field("state", TEXT, TRANSFERS),
    Field("instance", TEXT, "the other end, where it was looked at, else its engine id"),
    Field("request_id", TEXT, "there"),
    Field("address", TEXT),
    Field("until", REAL, "when the lease ends", "s"),
)
OFFLOAD = Fields(
    Field("state", str, "`lookup`, `load` or `prefetch`"),
    Field("job", (int, str, None)),
    Field("pending", NUMBER, "of `workers`, that have not reported the job"),
    Field("workers", NUMBER),
    Field("since", REAL, "for how long it has been put off", "s"),
)
HOP = Fields(
    Field("label", str),
    Field("pid", int),
    Field("stage", str),
    Field("state", str, "in the engine's own word"),
    Field("progress", list, "its counters there"),
    Field("tid", int),
)
REQUEST = Fields(
    Field(
        "request_id", str, "`http:CLIENT` of an exchange that the engine does not know yet", must=True, merge=KEEP, head="request"
    ),
    Field(
        "verdict",
        TEXT,
        "[what it means](verdicts.md#requests-that-make-no-progress); one that is `kept` is not open",
        head="verdict",
        draw=_verdict,
    ),
    Field("at", (PLACE, None), "where it is", head="at", draw=_at),
    Field("status", str, "the engine's own word", must=True, merge=KEEP, head="state", draw=_stage, spare=4),
    Field("queue", str, "`front end`: an open HTTP or RPC exchange that the engine does not know yet", must=True, merge=KEEP),
    Field("tokens", NUMBER, must=True, merge=KEEP, head="tokens"),
    Field("prompt_tokens", NUMBER, must=True, merge=KEEP, head="prompt", spare=2),
    Field("computed_tokens", NUMBER, must=True, merge=KEEP, head="computed", spare=1),
    Field("output_tokens", NUMBER, must=True, merge=KEEP, head="output", spare=5),
    Field("in_flight_tokens", NUMBER, "outputs of steps that were handed out and have no result yet", must=True, merge=KEEP),
    Field("draft_tokens", NUMBER, "guessed for its next step; null: not counted by this release", must=True, merge=KEEP),
    Field("blocks", NUMBER, "null: not read", must=True, merge=KEEP, head="blocks", spare=3),
    Field("preemptions", NUMBER, must=True, merge=KEEP, head="preempted", cell=lambda n: str(n or ""), spare=6),
    Field("age", REAL, "", "s", must=True, merge=KEEP, head="age", cell=seconds, spare=7),
    Field("blocked_by", TEXT, "what its scheduler lacks for it", must=True, merge=KEEP, head="waits for", draw=_waits),
    Field("known", bool, "a scheduler has it", must=True, merge=KEEP),
    Field("instance", str, "the engine instance that has it", must=True, merge=KEEP),
    Field("content", dict, "with -show-content", merge=KEEP),
    Field("new", bool, "it came after the processes had been looked at, so it has no verdict"),
    Field("external_id", TEXT, "the user's own id, where it is another"),
    Field("moved", (bool, None), "between the looks"),
    Field("holder", (PLACE, None), "what must act"),
    Field("waits_for", TEXT),
    Field("behind", [str], "requests that it waits for"),
    Field("evidence", [str]),
    Field("transfer", (TRANSFER, None), "KV on its way between instances"),
    Field("hops", [HOP], "the processes in which it was seen, in order"),
    Field("offload", OFFLOAD, "of one that waits for a tier below the device"),
    Field("way", list, "over several machines, as in `llm-request`"),
)
ANSWER = Fields(
    Field("engine", TEXT, must=True, merge=KEEP),
    Field("requests", [REQUEST]),
    Field("counts", dict, "how many in each queue"),
    Field("limits", (dict, None), must=True, merge=KEEP),
)


def request_data(request: Request | None, tracked: Tracked | None = None, blocks: bool = True) -> dict[str, Any]:
    """One request: the scheduler's own numbers (`request`, None where no scheduler has it), and its places over all processes
    (`tracked`, None where only a cache was read). `blocks`: they were read too."""
    known = request
    data: dict[str, Any] = {
        "request_id": escape(known.request_id if known is not None else tracked.request_id if tracked else ""),
        "status": escape(known.status) if known is not None else "",
        "queue": known.queue
        if known is not None
        else "front end"
        if tracked is not None and tracked.exchange is not None
        else "",
        **numbers_data(known),
        "blocks": sum(map(len, known.blocks.values())) if known is not None and blocks else None,
        "blocked_by": (known.blocked_by or None) if known is not None else None,
        "preemptions": known.preemptions if known is not None else 0,
        "age": known.age if known is not None else None,
        "known": known.known if known is not None else False,
    }
    if known is not None and known.content is not None:
        data["content"] = known.content
    if tracked is not None and tracked.age is not None:
        data["age"] = tracked.age
    return {**data, **custody_data(tracked or Tracked("", []))}


def custody_data(tracked: Tracked) -> dict[str, Any]:
    """A request's data over all processes."""
    return {
        "external_id": escape(tracked.external_id) or None,
        "verdict": tracked.verdict or None,
        "moved": tracked.moved,
        "at": place_data(tracked.at),
        "holder": place_data(tracked.holder),
        "waits_for": escape(tracked.waits_for) or None,
        "behind": [escape(name) for name in tracked.behind],
        "evidence": [escape(line) for line in tracked.evidence],
        "transfer": transfer_data(tracked),
        "hops": hops_data(tracked),
        **offload_data(tracked),
    }


def transfer_data(tracked: Tracked) -> dict[str, Any] | None:
    """The state of a request's KV between instances, None for a request that stays in one instance."""
    transfer = tracked.transfer
    if transfer is None:
        return None
    instance, request = tracked.partner or (transfer.peer, "")
    return {
        "sends": transfer.sends,
        "state": transfer.state or None,
        "instance": escape(instance) or None,
        "request_id": escape(request) or None,
        "address": escape(transfer.address) or None,
        "until": round(transfer.until, 1) if transfer.until is not None else None,
    }


def offload_data(tracked: Tracked) -> dict[str, Any]:
    """`offload`: what a request waits for of a tier below the device; nothing for one that does not."""
    found = next((s.offload for _, s in tracked.hops if s.offload is not None), None)
    if found is None:
        return {}
    since = round(found.since, 1) if found.since is not None else None
    return {
        "offload": {"state": found.state, "job": found.job, "pending": found.pending, "workers": found.workers, "since": since}
    }


def way_data(way: Sequence[Stop]) -> list[dict[str, Any]]:
    """The stops of a request on its way over instances."""
    return [
        {
            "part": stop.part,
            "instance": escape(stop.instance) or None,
            "request_id": escape(stop.request_id) or None,
            "state": escape(stop.state) or None,
            "at": place_data(stop.at),
        }
        for stop in way
    ]


def place_data(place: Place | None) -> dict[str, Any] | None:
    """A place as JSON, None for none."""
    return None if place is None else {k: escape(v) if isinstance(v, str) else v for k, v in place.data().items()}


def hops_data(tracked: Tracked) -> list[dict[str, Any]]:
    """The processes in which it was seen, in order: process, stage and the engine's own word for it."""
    return [
        {
            "label": look.label,
            "pid": look.pid,
            "stage": s.stage,
            "state": escape(s.state),
            "progress": list(s.progress),
            **({"tid": s.tid} if s.tid is not None else {}),
        }
        for look, s in tracked.hops
    ]


def stuck_data(tracked: Tracked) -> dict[str, Any]:
    """A request that does not move, as llm-hang has it."""
    return {
        "request_id": escape(tracked.request_id),
        "verdict": tracked.verdict or None,
        "at": place_data(tracked.at),
        "waits_for": escape(tracked.waits_for) or None,
        "holder": place_data(tracked.holder),
        "transfer": transfer_data(tracked),
        "age": tracked.age,
        "evidence": [escape(line) for line in tracked.evidence],
        **offload_data(tracked),
    }


def counter_data(counter: Counter) -> dict[str, Any]:
    """One process's counters, in both samples."""
    return {"label": counter.label, "pid": counter.pid, "what": counter.what, "before": counter.before, "after": counter.after}


def sampling_data(rt: Runtime, request: Request, hidden: AbstractSet[str]) -> dict[str, str]:
    """{name: text} of a request's sampling parameters, as the scheduler keeps them; {} where it has none. `hidden`: names that
    are not shown."""
    try:
        held = rt.object(request.address).attr("sampling_params")
        if held.is_none():
            return {}
        return {
            escape(n): escape(Repr(SHORT, hidden).named(n, v) if hasattr(v, "rt") else str(v))  # each with the whole budget
            for n, v in held.fields()
            if n[:1] != "_"
        }
    except GdbextError as e:
        log.passed_over(e)
        return {}


def sampling_row(target: Target, request_id: str) -> dict[str, Any] | None:
    """{name: value} of a request's row in the sampler of a process that computes the model; None where the sampler has no such
    row."""
    rt = open_runtime(target)
    spec = spec_of_runtime(rt)
    read = getattr(spec.kv, "sampling_row", None) if spec is not None else None
    found: dict[str, Any] | None = read(rt, request_id) if read is not None else None
    return found


def differs(sampling: dict[str, str], row: dict[str, Any]) -> list[str]:
    """Names of the values that differ between a worker's row and the scheduler's parameters. top_k, logprobs and seed are not
    compared: 0 and -1 have special meanings there."""
    found = []
    for name in ("temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty"):
        try:
            known = name in row and name in sampling
            if known and not math.isclose(float(sampling[name]), row[name], rel_tol=1e-6, abs_tol=1e-6):
                found.append(name)
        except ValueError:  # None, or a hidden value
            continue
    return found


def grammar_data(rt: Runtime, request: Request, content: bool) -> dict[str, Any] | None:
    """The grammar that a request's answer must follow. None where it has none, or the engine's grammars are not known. `content`:
    with the ids of the tokens that its mask allows."""
    spec = spec_of_runtime(rt)
    found = spec.grammar.read(rt, rt.object(request.address)) if spec is not None and spec.grammar is not None else None
    if found is None:
        return None
    data = {name: getattr(found, name) for name in ("state", "accepted", "vocabulary")}
    data.update(backend=escape(found.backend) or None, why=escape(found.why) or None)
    data["allowed"] = len(found.allowed) if found.allowed is not None else None
    if content:
        data["tokens"] = found.allowed[:MAX_TOKENS_SHOWN] if found.allowed is not None else None
    return data


# ---- for people ------------------------------------------------------------------------------------------------------------
def _where(place: dict[str, Any] | None) -> str:
    return "" if place is None else place["label"] + (f" thread {place['tid']}" if "tid" in place else "") + _name(place)


def _name(place: dict[str, Any]) -> str:
    return f" ({place['thread']})" if place.get("thread") not in (None, "main") else ""


def requests_lines(found: Sequence[dict[str, Any]], counts: dict[str, int], style: Style) -> list[str]:
    """A table of requests; under it, the reasons for those that make no progress."""
    unlisted = [r for r in found if not r["queue"]]
    on_their_way = unlisted and all(r.get("verdict") == MOVING for r in unlisted)
    words = {"unlisted": "on the way in or out" if on_their_way else "in no queue that was read"}
    lines = [", ".join(f"{n} {words.get(q, q)}" for q, n in counts.items()) or "no requests"]
    if found:
        lines.append(REQUEST.table(found, style))
    if any(r.get("new") for r in found):
        lines.append(style.dim("new: it came after the processes had been looked at; ask again for its verdict"))
    for why in dict.fromkeys("; ".join(r["evidence"]) for r in found if _is_open(r)):
        lines.append(style.dim(f"unknown: {why or 'it did not move between the looks'}; -between S looks for longer"))
    for r in found:
        if r.get("verdict") in (*STUCK, KEPT):
            holder = f"; must act: {_where(r['holder'])}" if r["holder"] else ""
            lines.append(f"{r['request_id']} {style.bad(r['verdict'])}: {'; '.join(r['evidence'])}{holder}")
        lines += [f"{r['request_id']} {key}: {tokens}" for key, tokens in (r.get("content") or {}).items()]
    return lines


def _is_open(r: dict[str, Any]) -> bool:
    """Whether it did not move between the looks, which do not show why."""
    return not r.get("verdict") and r.get("moved") is False


def _grammar_lines(grammar: dict[str, Any] | None) -> list[str]:
    """A request's grammar, and the tokens that its mask allows."""
    if grammar is None:
        return []
    words = [grammar["state"], *([grammar["backend"]] if grammar["backend"] else [])]
    words += [f"{grammar['accepted']} tokens taken"] if grammar["accepted"] is not None else []
    lines = [f"  grammar: {', '.join(words)}"]
    if grammar["allowed"] is not None:
        some = " ".join(map(str, (grammar.get("tokens") or [])[:MAX_LINE]))
        more = " …" if some and grammar["allowed"] > MAX_LINE else ""
        lines.append(
            f"  grammar's mask: {grammar['allowed']} of {grammar['vocabulary']} tokens allowed{some and ': ' + some + more}"
        )
    elif grammar["why"]:
        lines.append(f"  grammar's mask: not read: {grammar['why']}")
    return lines


def request_lines(
    data: dict[str, Any],
    sampling: dict[str, str],
    sampled: Sequence[dict[str, Any]],
    grammar: dict[str, Any] | None,
    style: Style,
) -> list[str]:
    """The whole way of one request. `sampled`: the rows of the workers' samplers."""
    head = [style.title(data["request_id"])] + ([_verdict(data, style)] if data.get("verdict") else [])
    if data.get("external_id"):
        head.append(f"(the user's id: {data['external_id']})")
    if data["age"] is not None:
        head.append(f"{seconds(data['age'])} old")
    lines = ["  ".join(head)]
    rows = [[h["stage"], h["label"], str(h["pid"]), h["state"], " ".join(map(str, h["progress"]))] for h in data["hops"]]
    lines.append(table(rows, ["stage", "process", "pid", "state", "progress"], style, right=("pid",)))
    if data.get("way"):
        stops = [[w["part"], w["instance"] or "", w["request_id"] or "", w["state"] or "", _where(w["at"])] for w in data["way"]]
        lines.append(table(stops, ["hop", "instance", "request", "state", "at"], style))
    waits = _waits(data, style)
    lines += [f"  waits for {waits}"] if waits else []
    lines += [f"  {line}" for line in data["evidence"]]
    lines += [f"  must act:  {_where(data['holder'])}"] if data["holder"] else []
    lines += [f"  {name}: {text}" for name, text in sampling.items()]
    for one in sampled:
        shown = {k: v for k, v in one.items() if k not in ("label", "pid", "row", "differs")}
        values = ", ".join(f"{k} {v if isinstance(v, int) else format(v, '.6g')}" for k, v in shown.items())
        odd = style.bad(f"; not the scheduler's: {', '.join(one['differs'])}") if one["differs"] else ""
        lines.append(f"  row {one['row']} of {escape(one['label'])}'s sampler: {values}{odd}")
    return lines + _grammar_lines(grammar)


def rows_of(held: Custody, caches: Sequence[tuple[set[int], Cache]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of one engine: every request of a cache in its order, then those that no scheduler has. A request has ended if it
    was being served in the samples but is not in its scheduler's cache, which was read after them; one that is there alone is
    `new`."""
    tracked = {t.request_id: t for t in held.requests}
    rows, limits, read_since = [], {}, set()
    for pids, cache in caches:
        read_since |= pids
        limits.update(cache.limits)
        for request in cache.requests:
            one = tracked.pop(request.request_id, None)
            if one is None and not request.known:
                continue
            rows.append({**request_data(request, one), "instance": escape(held.name), "new": one is None})
    for one in tracked.values():
        hop = one.sighting("running")
        if one.verdict != MOVING or hop is None or hop[0].pid not in read_since:
            rows.append({**request_data(one.request, one, blocks=False), "instance": escape(held.name), "new": False})
    return rows, limits
