"""One page about processes, of an examination: verdict, ranks, stacks, locks, KV cache, versions."""

from __future__ import annotations

import os
from typing import Any, Sequence

from .. import log
from ..access import proc
from ..access.base import Target
from ..access.retry import retry_reading
from ..engines import kv_view
from ..engines.targets import Targets
from ..errors import GdbextError
from ..heap import resident
from ..kvcache import model
from ..render import html
from ..render.text import seconds, size
from ..stacks import prefetch, waits
from ..stacks.threads import ProcessView
from ..verdict import examine as examining
from ..verdict.facts import ProcessState
from ..verdict.kinds import QUIET
from . import wait_tree
from .hang import hang_data
from .places import node_text, nodes_of
from .stack_tree import html_tree, parting


def make_report(
    found: Sequence[Any], targets: Targets, wait: float, told: dict[str, Any] | None = None
) -> tuple[str, dict[str, Any], list[ProcessView]]:
    """-> (the page, the fields of llm-hang, `[ProcessView]`). `told`: these fields, where they are known already."""
    examination = examining.examine(found, targets, wait, (prefetch.KV,))
    data, seen = told or hang_data(examination), examination.seen
    views = [s.view for s in seen if s.view is not None]
    return page(data, seen, views), data, views


def page(data: dict[str, Any], seen: list[ProcessState], views: list[ProcessView]) -> str:
    """The report as one HTML page."""
    t, quiet = html.text, data["verdict"] in QUIET
    body = [
        f"<h2>Verdict: <span class={'good' if quiet else 'bad'}>{t(data['verdict'])}</span></h2><p>{t(data['sentence'])}</p>",
        f"<p>Next: <code>{t('; '.join(data['next']))}</code></p>" if data["next"] and not quiet else "",
        wait_tree.svg(data["tree"]) if data["tree"] else "",
        "<ul>" + "".join(f"<li>{t(e)}</li>" for e in data["evidence"]) + "</ul>",
        f"<p>Victims: {t(', '.join(data['victims']))}</p>" if data["victims"] else "",
        "<h2>Processes</h2>",
        ranks_table(seen),
    ]
    body.append("<h2>Stacks</h2>" + html_tree(views, {"common": parting(views), "failed": data["failed"]}, calm=quiet))
    edges = [t.edge for s in seen for t in s.threads if t.edge is not None]
    nodes = nodes_of(views)
    rows = [
        [node_text(e.waiter, nodes), e.lock, node_text(e.owner, nodes) if e.owner is not None else "", e.where, e.note]
        for e in edges
    ]
    body.append(
        "<h2>Locks</h2>"
        + (html.table(["waiter", "lock", "held by", "in", "note"], rows) if rows else "<p>No thread waits for a lock.</p>")
    )
    body += [f"<p class=bad>Cycle: {t(waits.sentence(c, lambda n: node_text(n, nodes)))}</p>" for c in waits.cycles(edges)]
    body.append("<h2>Requests that do not move</h2>" + requests_table(data))
    body.append("<h2>KV cache</h2>" + kv_table(views))
    body.append("<h2>Memory</h2>" + memory_table(seen))
    body.append("<h2>Versions</h2>" + versions_table(views))
    pauses = ", ".join(
        f"{next((s.name for s in seen if s.pid == p['pid']), p['pid'])} {seconds(p['seconds'])}"
        for p in data["pauses"]
        if p["seconds"]
    )
    body.append(f"<p class=dim>Paused for this page: {t(pauses or 'no process')}</p>")
    return html.page("gdbext report", "".join(body))


def ranks_table(seen: list[ProcessState]) -> str:
    """A table of the processes that were sampled."""
    rows = []
    for s in seen:
        p = s.rank.process if s.rank is not None else None
        rows.append(
            [
                s.name,
                s.rank.engine if s.rank else "",
                s.rank.role if s.rank else "",
                s.pid or "",
                s.state,
                sum(th.before is not None for th in s.window.threads.values()) or (len(s.view.threads) if s.view else ""),
                size(p.rss) if p else "",
                seconds(p.cpu) if p else "",
                seconds(max(p.age, 1)) if p and p.age is not None else "",
                "; ".join(s.rank.notes) if s.rank else "",
                s.why,
            ]
        )
    return html.table(["process", "engine", "role", "pid", "state", "threads", "RSS", "CPU", "age", "notes", "not read"], rows)


def requests_table(data: dict[str, Any]) -> str:
    """A table of the requests that do not move: ids and places, no prompts."""
    if data["requests_open"] is None:
        return "<p>No engine that is known here.</p>"
    if not data["requests"]:
        return f"<p>None of {data['requests_open']} open ones.</p>"
    rows = [
        [r["request_id"], r["verdict"], (r["at"] or {}).get("label", ""), r["waits_for"], (r["holder"] or {}).get("label", "")]
        for r in data["requests"]
    ]
    return html.table(["request", "verdict", "at", "waits for", "must act"], rows)


def _cache(target: Target) -> tuple[Any, str]:
    """-> (a KV cache as the copy of a process has it, or where that lacks a page, as the process has it later; in words which)"""
    try:
        return kv_view.View(target).cache(), ""
    except GdbextError as e:
        if target.pid is None or getattr(target, "has_name", True):  # a core: nothing else is known of it
            raise
        log.passed_over(e)
    live = proc.ProcTarget(target.pid)
    return retry_reading(live, lambda: kv_view.View(live).cache()), " (later, unstopped)"


def kv_table(views: list[ProcessView]) -> str:
    """A table of the KV caches in numbers, one row for each scheduler."""
    rows = []
    for view in views:
        if view.rt is None:
            continue
        try:
            if kv_view.scheduler_of(view.rt) is None:
                continue
            cache, when = _cache(view.target)
            for number, pool in enumerate(cache.pools):
                said = model.summary(cache, number)
                queues: dict[str, int] = {}
                for request in cache.requests:
                    queues[request.queue] = queues.get(request.queue, 0) + 1
                rows.append(
                    [
                        view.name + when,
                        pool.name,
                        pool.block_size,
                        said["num_blocks"],
                        said["free"],
                        said["used"],
                        said["cached"],
                        ", ".join(f"{n} {q}" for q, n in queues.items()),
                    ]
                )
        except GdbextError as e:
            rows.append([view.name, "not read", "", "", "", "", "", str(e)])
    return (
        html.table(["process", "pool", "block size", "blocks", "free", "used", "cached", "requests"], rows)
        if rows
        else "<p>None that is known here.</p>"
    )


def memory_table(seen: list[ProcessState]) -> str:
    """Where the resident memory of each process is that still runs."""
    ranks: list[Any] = []
    kinds: dict[str, Any] = {}
    for s in seen:
        if not s.pid or s.view is not None and not s.view.live:  # a file: its number is another's by now
            continue
        try:
            rss, parts = resident.parts(proc.ProcTarget(s.pid), s.view.rt if s.view is not None else None)
        except GdbextError as e:
            log.passed_over(e)
            continue  # it has ended, or is a core
        ranks.append((s.name, rss, parts))
        for what, count in parts.items():
            kinds[what] = kinds.get(what, 0) + count
    if not ranks:
        return "<p>No process that runs.</p>"
    order = sorted(kinds, key=lambda what: -kinds[what])
    rows = [[name, size(rss), *(size(parts.get(what, 0)) for what in order)] for name, rss, parts in ranks]
    return html.table(["process", "resident", *order], rows)


def versions_table(views: list[ProcessView]) -> str:
    """A table of versions: gdbext, kernel, CPython and the packages of each process."""
    from .. import __version__

    rows = [["gdbext", __version__], ["kernel", os.uname().release], ["machine", os.uname().machine]]
    found: dict[str, dict[str, list[str]]] = {}
    for view in views:
        if view.rt is not None:
            found.setdefault("CPython", {}).setdefault(view.rt.layout.name, []).append(view.name)
            for name, version in prefetch.versions(view.rt).items():
                found.setdefault(name, {}).setdefault(version, []).append(view.name)
    for name, versions in found.items():
        rows.append([name, "; ".join(v if len(versions) == 1 else f"{v} ({', '.join(who)})" for v, who in versions.items())])
    return html.table(["what", "version"], rows)
