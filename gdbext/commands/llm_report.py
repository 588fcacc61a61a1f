"""llm-report: one page about an engine's state, to attach to a bug."""

import os
import platform
import time

from ..answers.places import node_text, nodes_of
from ..answers.stack_tree import html_tree, parting
from ..errors import GdbextError
from ..lazy import lazy_module
from ..render.text import seconds, size
from ..session import process_selection
from ..session.command import Answer, Command, Option, UsageError
from .llm_hang import examine

files, html = lazy_module("render.files"), lazy_module("render.html")
kv_view, model, prefetch, waits = (
    lazy_module("engines.kv_view"),
    lazy_module("kvcache.model"),
    lazy_module("stacks.prefetch"),
    lazy_module("stacks.waits"),
)


class LlmReport(Command):
    """Write one page about a running engine: verdict, ranks, stacks as a tree, locks, KV summary, versions.

    The page needs no network and no other file; everything in it that comes from a process is escaped. It holds no prompts, no tokens,
    no values of variables, no command lines and no environment, so it can go into a bug report. Every process runs on.

      (gdb) llm-report hang.html all
      hang.html  31.2 KiB  verdict: collective
      stood still: TP0 1.40 ms, …

    The first word is the file, WHAT after it as for llm-stacks."""

    name = "llm-report"
    group = "hang"
    operand = "F.html [WHAT...]"
    completion = "file"
    takes_target = False
    standalone = True
    options = (Option("wait", "float", "seconds to watch before the stop, as for llm-hang", 1.0, "S"),)

    def run(self, session, args):
        path, _, what = args.operand_text.partition(" ")
        if not path:
            raise UsageError("llm-report: name the file to write, such as: llm-report hang.html all")
        data, views = make(
            path,
            process_selection.resolve_processes(session, what.strip()),
            process_selection.attached_target(session),
            args.wait,
        )
        partial = [f"{data['ranks_read']} of {data['ranks_total']} processes"] if data["failed"] else []
        paused = ", ".join(
            f"{next((v.name for v in views if v.pid == p['pid']), p['pid'])} {seconds(p['seconds'])}" for p in data["pauses"][:16]
        )
        return Answer(
            data,
            lambda style: f"{style.file(data['file'])}  {size(data['bytes'])}  verdict: {data['verdict']}\nstood still: {paused}",
            partial,
        )


def make(path, found, held, wait):
    """Writes the page. -> (the fields of llm-hang with `file` and `bytes`, `[ProcessView]`)"""
    data, seen = examine(found, held, wait, (prefetch.KV,))
    views = [s.view for s in seen if s.view is not None]
    files.write(path, "llm-report", page(data, seen, views))
    data["file"], data["bytes"] = os.path.abspath(os.path.expanduser(path)), os.path.getsize(os.path.expanduser(path))
    return data, views


def page(data, seen, views):
    t = html.text
    culprits = ", ".join(
        f"{c['label']}" + (f" thread {c['tid']} {c.get('name', '')}" if c.get("tid") else "") for c in data["culprits"]
    )
    body = [
        f"<p class=dim>{t(time.strftime('%Y-%m-%d %H:%M:%S %Z'))}, {t(os.uname().nodename)}</p>",
        f"<h2>Verdict: <span class=bad>{t(data['verdict'])}</span></h2><p>{t(data['meaning'])}</p>",
        f"<p>Culprits: {t(culprits)}</p>" if culprits else "",
        "<ul>" + "".join(f"<li>{t(e)}</li>" for e in data["evidence"]) + "</ul>",
        f"<p>Victims: {t(', '.join(data['victims']))}</p>" if data["victims"] else "",
        "<h2>Processes</h2>",
        ranks_table(seen),
    ]
    body.append("<h2>Stacks</h2>" + html_tree(views, {"common": parting(views), "failed": data["failed"]}))
    edges = [e for s in seen for e in s.edges]
    nodes = nodes_of(views)
    rows = [
        [node_text(e.waiter, nodes), e.lock, node_text(e.owner, nodes) if e.owner is not None else "", e.where, e.note]
        for e in edges
    ]
    body.append(
        "<h2>Locks</h2>"
        + (html.table(["who waits", "for what", "held by", "in", "note"], rows) if rows else "<p>No thread waits for a lock.</p>")
    )
    body += [f"<p class=bad>Cycle: {t(waits.sentence(c, lambda n: node_text(n, nodes)))}</p>" for c in waits.cycles(edges)]
    body.append("<h2>KV cache</h2>" + kv_table(views))
    body.append("<h2>Versions</h2>" + versions_table(views))
    pauses = ", ".join(
        f"{next((s.name for s in seen if s.pid == p['pid']), p['pid'])} {seconds(p['seconds'])}" for p in data["pauses"]
    )
    body.append(f"<p class=dim>Stood still for this page: {t(pauses or 'nobody')}</p>")
    return html.page("gdbext report", "".join(body))


def ranks_table(seen):
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
                len(s.before) or (len(s.view.threads) if s.view else ""),
                size(p.rss) if p else "",
                seconds(p.cpu) if p else "",
                seconds(max(p.age, 1)) if p and p.age is not None else "",
                "; ".join(s.rank.notes) if s.rank else "",
                s.why,
            ]
        )
    return html.table(["process", "engine", "role", "pid", "state", "threads", "RSS", "CPU", "age", "notes", "not read"], rows)


def kv_table(views):
    rows = []
    for view in views:
        if view.rt is None:
            continue
        try:
            if kv_view.scheduler_of(view.rt) is None:
                continue
            cache = kv_view.View(view.target).cache()
            for number, pool in enumerate(cache.pools):
                said = model.summary(cache, number)
                queues = {}
                for request in cache.requests:
                    queues[request.queue] = queues.get(request.queue, 0) + 1
                rows.append(
                    [
                        view.name,
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


def versions_table(views):
    from .. import __version__

    rows = [["gdbext", __version__], ["kernel", platform.release()], ["machine", platform.machine()]]
    found = {}
    for view in views:
        if view.rt is not None:
            found.setdefault("CPython", {}).setdefault(view.rt.layout.name, []).append(view.name)
            for name, version in prefetch.versions(view.rt).items():
                found.setdefault(name, {}).setdefault(version, []).append(view.name)
    for name, versions in found.items():
        rows.append([name, "; ".join(v if len(versions) == 1 else f"{v} ({', '.join(who)})" for v, who in versions.items())])
    return html.table(["what", "version"], rows)
