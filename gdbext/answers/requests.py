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
from ..render.fields import FLAG, KEEP, LEFT_OUT, NUMBER, REAL, TEXT, VALUE, Field, Fields, each, or_none
from ..render.text import Style, escape, seconds
from ..requests.collect import Custody
from ..requests.model import KEPT, MOVING, STUCK, Place, Tracked
from . import each_node
from .chains import CHAIN
from .kv import NUMBERS
from .places import PAUSE

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


def place_data(place: Place | None) -> dict[str, Any] | None:
    """A place as JSON, None for none."""
    return None if place is None else {k: escape(v) if isinstance(v, str) else v for k, v in place.data().items()}


PLACE = Fields(*each(str, "label"), *each(int, "pid tid"), *each(str, "thread node"), shape="request-place")
AT = Field("at", (PLACE, None), "where it is", read=lambda one: place_data(one.at))
TRANSFERS = (
    "`pairing`, `handshake`, `transfer` (bytes), `completion` (unnoticed by the scheduler), `kept` (blocks, for a reader), "
    "`never` (the other end has none) or `late` (the lease ended meanwhile)"
)
TRANSFER = Fields(  # of a `Tracked` that has one
    Field("sends", bool, "this end is the sender", read=lambda t: t.transfer.sends),
    Field("state", TEXT, TRANSFERS, read=lambda t: t.transfer.state or None),
    Field("instance", TEXT, "the other end, where it was looked at, else its engine id", "", lambda t: _partner(t)[0] or None),
    Field("request_id", TEXT, "there", read=lambda t: _partner(t)[1] or None),
    Field("address", TEXT, read=lambda t: t.transfer.address or None),
    Field("until", REAL, "when the lease ends", "s", lambda t: t.transfer.until, digits=1),
    shape="transfer",
)
OFFLOAD = Fields(
    Field("state", str, "`lookup`, `load` or `prefetch`"),
    Field("job", (int, str, None)),
    Field("pending", NUMBER, "of `workers`, that have not reported the job"),
    Field("workers", NUMBER),
    Field("since", REAL, "for how long it has been put off", "s", digits=1),
    shape="offload",
)
HOP = Fields(  # of (Look, Sighting)
    Field("stage", str, head="stage", read=lambda h: h[1].stage),
    Field("label", str, head="process", read=lambda h: h[0].label),
    Field("pid", int, head="pid", read=lambda h: h[0].pid),
    Field("state", str, "in the engine's own word", "", lambda h: h[1].state, head="state"),
    Field(
        "progress",
        [(bool, *VALUE)],
        "its counters there",
        read=lambda h: list(h[1].progress),
        head="progress",
        cell=lambda found: " ".join(map(str, found)),
    ),
    Field("tid", int, read=lambda h: h[1].tid if h[1].tid is not None else LEFT_OUT),
)
STOP = Fields(
    Field("part", str, "`router`, `transfer`, or the role of the instance", head="hop"),
    Field("instance", TEXT, read=or_none("instance"), head="instance"),
    Field("request_id", TEXT, "there", read=or_none("request_id"), head="request"),
    Field("state", TEXT, read=or_none("state"), head="state"),
    AT._replace(head="at", draw=lambda row, style: _where(row["at"])),
)


def _partner(tracked: Tracked) -> tuple[str, str]:
    return tracked.partner or (tracked.transfer.peer if tracked.transfer is not None else "", "")


def _offload(tracked: Tracked) -> Any:
    found = next((s.offload for _, s in tracked.hops if s.offload is not None), None)
    return OFFLOAD.data(found) if found is not None else LEFT_OUT


CUSTODY = Fields(  # of a `Tracked`: a request over all processes
    Field("external_id", TEXT, "the user's own id, where it is another", read=or_none("external_id")),
    Field(
        "verdict",
        TEXT,
        "[what it means](verdicts.md#requests-that-make-no-progress); one that is `kept` is not open",
        read=or_none("verdict"),
        head="verdict",
        draw=_verdict,
    ),
    Field("moved", FLAG, "between the looks"),
    AT._replace(head="at", draw=_at),
    Field("holder", (PLACE, None), "what must act", read=lambda t: place_data(t.holder)),
    Field("waits_for", TEXT, read=or_none("waits_for")),
    Field("behind", [str], "requests that it waits for", read=lambda t: [escape(name) for name in t.behind]),
    Field("evidence", [str], read=lambda t: [escape(line) for line in t.evidence]),
    Field(
        "transfer",
        (TRANSFER, None),
        "KV on its way between instances",
        read=lambda t: TRANSFER.data(t) if t.transfer is not None else None,
    ),
    Field("hops", [HOP], "the processes in which it was seen, in order", "", lambda t: [HOP.data(hop) for hop in t.hops]),
    Field("offload", OFFLOAD, "of one that waits for a tier below the device", read=_offload),
)
STUCK_ONE = Fields(  # of a `Tracked` that does not move, as llm-hang has it
    Field("request_id", str),
    *CUSTODY.picked("verdict at waits_for holder transfer evidence offload"),
    Field("age", REAL, "", "s"),
)
COUNTER = Fields(Field("label", str), Field("pid", NUMBER), Field("what", str), *each(NUMBER, "before after"))
_HERE: dict[str, Any] = {"must": True, "merge": KEEP}
_FIRST = CUSTODY.picked("verdict at")
REQUEST = Fields(
    Field("request_id", str, "`http:CLIENT` of an exchange that the engine does not know yet", **_HERE, head="request"),
    *_FIRST,
    Field("status", str, "the engine's own word", **_HERE, head="state", draw=_stage, spare=4),
    Field("queue", str, "`front end`: an open HTTP or RPC exchange that the engine does not know yet", **_HERE),
    *NUMBERS,
    Field("blocks", NUMBER, "null: not read", **_HERE, head="blocks", spare=3),
    Field("preemptions", NUMBER, **_HERE, head="preempted", cell=lambda n: str(n or ""), spare=6),
    Field("age", REAL, "", "s", **_HERE, head="age", cell=seconds, spare=7),
    Field("blocked_by", TEXT, "what its scheduler lacks for it", **_HERE, head="waits for", draw=_waits),
    Field("known", bool, "a scheduler has it", **_HERE),
    Field("instance", str, "the engine instance that has it", **_HERE),
    Field("content", dict, merge=KEEP, private=True),
    Field("new", bool, "it came after the processes had been looked at, so it has no verdict"),
    *(one for one in CUSTODY if one.name not in _FIRST.names),
    Field("way", [STOP], "of one whose KV goes from instance to instance: router, sender, transfer, reader"),
)
ANSWER = Fields(
    Field("engine", TEXT, must=True, merge=KEEP),
    Field("requests", [REQUEST]),
    Field("counts", dict, "how many in each queue"),
    Field("limits", (dict, None), must=True, merge=KEEP),
    each_node.nodes(Field("host", str), Field("processes", int), Field("version", str)),
    Field("failed", [each_node.FAILED], "over several machines"),
    Field("pauses", [PAUSE], "of the copy that was read where numbers contradicted one another"),
    Field("facts", dict, "with -facts; no contract"),
)

GRAMMAR = Fields(
    Field("state", str, "`compiling`, `ready`, `ended` or `failed`"),
    Field("backend", TEXT, read=or_none("backend")),
    Field("accepted", NUMBER, "tokens that it has taken"),
    Field("vocabulary", NUMBER),
    Field(
        "allowed",
        NUMBER,
        "tokens that its mask leaves for the next one; null: no step has a mask now",
        read=lambda g: len(g.allowed) if g.allowed is not None else None,
    ),
    Field("why", TEXT, "null: nothing is missing", read=or_none("why")),
    Field("tokens", ([int], None), "those that it leaves", read=lambda g: LEFT_OUT, private=True),
)
DRAWS = Fields(  # vLLM's model runner V2; what a release keeps
    *each(str, "label"),
    *each(int, "pid row"),
    *each(VALUE, "temperature top_p top_k min_p seed logprobs"),
    *each(VALUE, "repetition_penalty frequency_penalty presence_penalty"),
    Field("differs", [str], "what is not as the scheduler's parameters say"),
    rest=VALUE,
)
ONE = Fields(
    Field("request", REQUEST),
    Field("hops", [HOP]),
    Field("sampling", (Fields(rest=str), None), "with -sampling: the scheduler's parameters"),
    Field("sampling_rows", [DRAWS], "by what each process that samples draws the next token"),
    Field("grammar", (GRAMMAR, None), "with -sampling, of structured output"),
    Field("engine", TEXT),
    Field("chains", [CHAIN], "of one that does not move"),
    Field("pauses", [PAUSE], "of its processes, for that"),
    *ANSWER.picked("nodes failed"),
)


def request_data(request: Request | None, tracked: Tracked | None = None, blocks: bool = True) -> dict[str, Any]:
    """One request: the scheduler's own numbers (`request`, None where no scheduler has it), and its places over all processes
    (`tracked`, None where only a cache was read). `blocks`: they were read too."""
    r, told = request if request is not None else _NONE, tracked or Tracked("", [])
    front = request is None and told.exchange is not None
    return REQUEST.of(
        request_id=escape(r.request_id or told.request_id),
        status=escape(r.status),
        queue="front end" if front else r.queue,
        **NUMBERS.data(r),
        blocks=sum(map(len, r.blocks.values())) if request is not None and blocks else None,
        blocked_by=r.blocked_by or None,
        preemptions=r.preemptions,
        age=told.age if told.age is not None else r.age,
        known=request is not None and r.known,
        content=r.content if r.content is not None else LEFT_OUT,
        **CUSTODY.data(told),
    )


_NONE = Request("")


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
    data = GRAMMAR.data(found)
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
    lines.append(HOP.table(data["hops"], style))
    lines += [STOP.table(data["way"], style)] if data.get("way") else []
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
    `new`, if the scheduler was read before too."""
    tracked = {t.request_id: t for t in held.requests}
    rows, limits, read_since = [], {}, set()
    for pids, cache in caches:
        read_since |= pids
        limits.update(cache.limits)
        was_read = any("scheduler" in look.parts for look in held.looks if not pids or look.pid in pids)
        for request in cache.requests:
            one = tracked.pop(request.request_id, None)
            if one is None and not request.known:
                continue
            rows.append({**request_data(request, one), "instance": escape(held.name), "new": one is None and was_read})
    for one in tracked.values():
        hop = one.sighting("running")
        if one.verdict != MOVING or hop is None or hop[0].pid not in read_since:
            rows.append({**request_data(one.request, one, blocks=False), "instance": escape(held.name), "new": False})
    return rows, limits
