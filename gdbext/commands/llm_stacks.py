"""llm-stacks: the stacks of all threads of all ranks as one tree."""

import os
import time

from ..errors import GdbextError
from ..lazy import lazy_module
from ..render.text import escape, seconds
from ..session import process_selection as several
from ..session.command import Answer, Command, Option, UsageError
from .llm_bt import native_data
from .pybt import frame_data

looks, nodes, threads, tree = (
    lazy_module("stacks.looks"),
    lazy_module("stacks.nodes"),
    lazy_module("stacks.threads"),
    lazy_module("stacks.tree"),
)
files, html = lazy_module("render.files"), lazy_module("render.html")
MAX_SAMPLES = 1000
LONG = 12  # frames of one run that are shown whole


class LlmStacks(Command):
    """Show the stacks of all threads of all ranks as one tree, with the ranks as sets; every process runs on.

    Each process is stopped without a signal for the milliseconds that copying its stacks takes, and read afterwards. Threads of
    pools that wait for work are folded into a line each. Where the main threads of like processes part, the tree says who has
    reached the next frame and who has not.

      (gdb) llm-stacks all
      worker_main (multiproc_executor.py:944)                        TP0-3
      worker_busy_loop (multiproc_executor.py:1041)
        execute_model (gpu_worker.py:812)                            TP0-2
        all_reduce (pynccl.py:141)
        sleep (throttle.py:17)                                       TP3
      main threads part after worker_busy_loop: reached execute_model: TP0-2; not reached: TP3
      pauses: TP0 1.21 ms, …

    WHAT is all (the default), or ranks, pids and snapshot files, separated by blanks. Where only some answer, the others are
    named with the reason. -samples N looks N times and names the threads that moved between two looks and those that did not.
    -html F writes one page that needs no network, -folded F one line per thread for flame graphs.

    Many machines: run it on each with what you run the engine with, and put the answers together; or let Ray do both:
      srun bash -c 'python3 -m gdbext llm-stacks all --json > answers/$(hostname).json'; python3 -m gdbext llm-stacks -merge answers
      python3 -m gdbext llm-stacks -ray"""

    name = "llm-stacks"
    group = "hang"
    operand = "[WHAT...]"
    completes = "what"
    reads = False
    alone = True
    options = (
        Option("samples", "int", "look N times and show who moves in between", 1, "N"),
        Option("interval", "float", "seconds between two looks", 0.5, "S"),
        Option("all", help="also every thread of idle pools, and long runs of frames in full"),
        Option("html", "str", "write a page with the tree", metavar="F"),
        Option("folded", "str", "write lines for flame graphs", metavar="F"),
        Option("merge", "str", "put together the answers (*.json) of many machines instead of looking here", metavar="DIR"),
        Option("ray", help="look at every node of the Ray cluster"),
    )

    def run(self, session, args):
        if not 1 <= args.samples <= MAX_SAMPLES or not 0 <= args.interval <= 60:
            raise UsageError(f"llm-stacks: -samples is 1 to {MAX_SAMPLES}, -interval 0 to 60 seconds")
        if args.merge or args.ray:
            return self._many(args)
        found = several.subjects(session, args.rest)
        movement, pauses = Movement(), {}
        for number in range(args.samples):
            if number:
                time.sleep(args.interval)
            with looks.taken(found, several.held(session)) as taken:
                views, partial, failed = read_all(taken)
                movement.add(views)
                for one in looks.pauses(taken):
                    pauses.setdefault(one["pid"], []).append(one["seconds"])
                data = stacks_data(views)
        data.update(
            ranks_read=len(views),
            ranks_total=len(taken),
            failed=failed,
            pauses=[{"pid": pid, "seconds": sum(each)} for pid, each in pauses.items()],
        )
        if args.samples > 1:
            data["samples"] = movement.data()
        return self._answer(args, views, data, partial)

    def _many(self, args):
        merged = nodes.from_folder(args.merge) if args.merge else nodes.from_ray((args.rest or "all").split())
        data = {
            **stacks_data(merged.processes),
            "ranks_read": len(merged.processes),
            "ranks_total": max(merged.total, len(merged.processes)),
            "failed": merged.failed,
            "pauses": merged.pauses,
            "hosts": len({p.host for p in merged.processes}),
        }
        return self._answer(args, merged.processes, data, merged.partial)

    def _answer(self, args, views, data, partial):
        if data["failed"]:
            partial.append(f"{data['ranks_read']} of {data['ranks_total']} processes")
        if args.folded:
            files.write(args.folded, "-folded", "\n".join(tree.folded(folded_stacks(views))) + "\n")
        if args.html:
            files.write(args.html, "-html", html.page("llm-stacks", html_tree(views, data)))
        names = {view.pid: view.name for view in views}

        def text(style):
            return "\n".join(text_lines(views, data, names, style, args.all))

        return Answer(data, text, partial)


def read_all(taken):
    """-> (`[ProcessView]` of what could be read, reasons for `partial`, `failed`)"""
    views, partial, failed = [], [], looks.failed(taken)
    for look in taken:
        if look.target is None:
            continue
        try:
            view = threads.view_of(look)
        except GdbextError as e:
            failed.append({"label": look.label, "pid": look.pid, "reason": str(e)})
            continue
        views.append(view)
        partial += [f"{view.name}: {reason}" for reason in view.partial + look.partial]
        partial += [f"{view.name} thread {th.tid}: {reason}" for th in view.threads for reason in th.reasons]
    if not views:
        raise GdbextError("; ".join(dict.fromkeys(f["reason"] for f in failed)))
    return views, partial, failed


def place(view, thread=None):
    """The contract's *place*."""
    data = {
        "host": getattr(view, "host", None) or os.uname().nodename,
        "label": view.name,
        "pid": view.pid,
        "role": role_of(view),
    }
    if thread is not None:
        data["tid"], data["name"] = thread.tid, escape(thread.name)
    return data


def role_of(view):
    return view.rank.role if view.rank is not None else getattr(view, "role", "")


def thread_frames(thread):
    """The contract's frames of a thread."""
    if hasattr(thread, "saved"):
        return thread.saved
    found = []
    for level, entry in enumerate(thread.merged):
        data = frame_data(entry.python) if entry.python is not None else native_data(entry.native, level)
        data["level"], data["reliable"] = level, entry.reliable
        found.append(data)
    return found


def stacks_data(views):
    """`groups`: threads with the same frames, and `common`: where the main threads of like processes part."""
    groups = {}
    for view in views:
        for th in view.threads:
            key = (tuple(f.key for f in th.frames), th.idle)
            group = groups.setdefault(key, {"frames": None, "members": [], "idle": th.idle})
            if group["frames"] is None:
                group["frames"] = thread_frames(th)
            group["members"].append(place(view, th))
    return {"groups": sorted(groups.values(), key=lambda g: (g["idle"], -len(g["members"]))), "common": parting(views)}


def alike(views):
    """`{role: [ProcessView]}`: which processes ought to do the same. Those that are no engine's count as alike."""
    found = {}
    for view in views:
        found.setdefault(role_of(view), []).append(view)
    return found


def parting(views):
    found = []
    for role, group in alike(views).items():
        if len(group) < 2:
            continue
        root = tree.build(
            [((v.name, v.main.tid), [f for f in v.main.frames if f.kind == "python"] or v.main.frames) for v in group if v.main]
        )
        said = tree.common(root)
        if said is None or not said[3] and said[1] is not None:
            continue
        node, best, reached, others = said
        if best is None:
            continue  # all of them end in the same frame
        found.append(
            {
                "role": role,
                "function": escape(node.frame.function) if node.frame else "",
                "file": escape(node.frame.file) if node.frame else "",
                "reached": {"function": escape(best.frame.function), "file": escape(best.frame.file), "ranks": reached},
                "not_reached": others,
            }
        )
    return found


class Movement:
    """Who moves from look to look. A thread moves when a frame or a line of its stack has changed."""

    def __init__(self):
        self.last, self.changes, self.looks = {}, {}, 0

    def add(self, views):
        self.looks += 1
        for view in views:
            for th in view.threads:
                key = (view.name, view.pid, th.tid, escape(th.name))
                now = [(f.key, f.line) for f in th.frames]
                if key in self.last:
                    self.changes[key] = self.changes.get(key, 0) + (self.last[key] != now)
                self.last[key] = now

    def data(self):
        moved = [
            {"label": label, "pid": pid, "tid": tid, "name": name, "changes": n}
            for (label, pid, tid, name), n in self.changes.items()
            if n
        ]
        return {
            "count": self.looks,
            "moved": sorted(moved, key=lambda m: -m["changes"]),
            "still": sum(not n for n in self.changes.values()),
        }


def folded_stacks(views):
    return [((view.name, th.name), th.frames) for view in views for th in view.threads if th.frames]


# ---- for people ------------------------------------------------------------------------------------------------------
def shown(views, everything=False):
    """-> (stacks for the tree, {what an idle pool does: [(process, thread)]})"""
    stacks, idle = [], {}
    for view in views:
        for th in view.threads:
            if th.idle and not everything and th is not view.main:
                idle.setdefault(re_number(th.name) or "?", []).append((view.name, th))
            else:
                stacks.append(((view.name, th.tid), th.frames))
    return stacks, idle


def re_number(name):
    """A thread's name without its number: "ZMQbg/IO/0" and "ZMQbg/IO/1" are of one pool."""
    return name.rstrip("0123456789").rstrip("-_/ ") or name


def title(frame_node):
    return f"{escape(frame_node.frame.function) or '??'} ({escape(tree.where(frame_node))})"


def text_lines(views, data, names, style, everything=False):
    stacks, idle = shown(views, everything)
    lines, by_tid = [], {(v.name, th.tid): th for v in views for th in v.threads}
    wide = 58
    mains = {(v.name, v.main.tid) for v in views if v.main is not None}
    first, rest = ([s for s in stacks if (s[0] in mains) is which] for which in (True, False))
    for depth, run in (chain for part in (first, rest) for chain in tree.build(part).chains()):
        who = tree.rank_set([name for name, _ in run[0].members])
        count = len(run[0].members)
        extra = "" if count == len(run[0].processes()) else f" ({count} threads)"
        kept = run if everything or len(run) <= LONG else run[:4] + [None] + run[-(LONG - 5) :]
        for i, node in enumerate(kept):
            pad = "  " * min(depth, 20)
            if node is None:
                lines.append(style.dim(f"{pad}… {len(run) - len(kept) + 1} frames"))
                continue
            line = pad + title(node)
            lines.append(line.ljust(wide) + "  " + style.name(escape(who)) + extra if i == 0 else line)
            ends = {by_tid[m].name for m in node.ends}
            if node.ends and len(views) == 1:
                notes = [
                    f"{m[1]} {escape(by_tid[m].name)}"
                    + (
                        ", holds the GIL"
                        if by_tid[m].gil == "holds"
                        else ", waits for the GIL"
                        if by_tid[m].gil == "waits"
                        else ""
                    )
                    for m in node.ends[:4]
                ]
                lines.append(style.dim(f"{pad}  = {'; '.join(notes)}" + ("; …" if len(node.ends) > 4 else "")))
            elif node.ends and not node.children:
                lines.append(style.dim(f"{pad}  = {', '.join(sorted(map(escape, ends))[:4])}"))
    unread = [(v.name, th) for v in views for th in v.threads if not th.frames]
    if unread:
        lines.append(
            style.dim(f"{len(unread)} threads without a frame that could be read: {tree.rank_set([n for n, _ in unread])}")
        )
    for name, members in sorted(idle.items(), key=lambda i: -len(i[1])):
        where = members[0][1].top
        lines.append(
            style.dim(
                f"idle: {len(members)} × {escape(name)} in {escape(where.function) if where else '?'}  {tree.rank_set([n for n, _ in members])}"
            )
        )
    for part in data["common"]:
        lines.append(
            f"main threads part after {part['function'] or 'the start'}: reached {style.good(part['reached']['function'])}: "
            f"{tree.rank_set(part['reached']['ranks'])}; not reached: {style.bad(tree.rank_set(part['not_reached']))}"
        )
    if "samples" in data:
        moved = data["samples"]["moved"]
        some = ", ".join(
            f"{m['label']} {m['tid']} {m['name']} ({m['changes']} of {data['samples']['count'] - 1})" for m in moved[:8]
        )
        lines.append(f"moved between {data['samples']['count']} looks: {some or 'nobody'}" + (", …" if len(moved) > 8 else ""))
        lines.append(f"did not move: {data['samples']['still']} threads")
    lines += closing(data, names, style)
    return lines


def closing(data, names, style):
    """What each answer about several processes ends with: who could not be read, and how long each stood still."""
    lines = [style.bad(f"{escape(f['label']) or f['pid']}: not read: {escape(f['reason'])}") for f in data["failed"]]
    if data["pauses"] and "hosts" in data:  # pids of many machines
        most = max(p["seconds"] for p in data["pauses"])
        lines.append(
            style.dim(
                f"stood still: {len(data['pauses'])} processes on {data['hosts']} machines, {seconds(most)} at most; all run on"
            )
        )
    elif data["pauses"]:
        some = ", ".join(f"{names.get(p['pid'], p['pid'])} {seconds(p['seconds'])}" for p in data["pauses"][:16])
        lines.append(style.dim(f"stood still: {some}" + (", …" if len(data["pauses"]) > 16 else "") + "; all run on"))
    return lines


# ---- a page ----------------------------------------------------------------------------------------------------------
def html_tree(views, data):
    """The tree as HTML that folds without a script."""
    stacks, idle = shown(views)
    parts, todo = [], list(tree.build(stacks).branches())
    while todo:
        one = todo.pop(0)
        if isinstance(one, str):
            parts.append(one)
            continue
        run = one.run()
        who = f"<span class=who>{html.text(tree.rank_set([n for n, _ in one.members]))}</span> ({len(one.members)})"
        names = "".join(
            f"<div>{html.text(n.frame.function or '??')} <span class=where>{html.text(tree.where(n))}</span></div>" for n in run
        )
        parts.append(f"<details open><summary>{who}</summary>{names}")
        todo[:0] = [*run[-1].branches(), "</details>"]
    for name, members in sorted(idle.items(), key=lambda i: -len(i[1])):
        parts.append(
            f"<p class=dim>idle: {len(members)} × {html.text(name)}, {html.text(tree.rank_set([n for n, _ in members]))}</p>"
        )
    for part in data["common"]:
        parts.append(
            f"<p>main threads part after <code>{html.text(part['function'])}</code>: reached <code>{html.text(part['reached']['function'])}</code>: "
            f"{html.text(tree.rank_set(part['reached']['ranks']))}; <span class=bad>not reached: "
            f"{html.text(tree.rank_set(part['not_reached']))}</span></p>"
        )
    for f in data["failed"]:
        parts.append(f"<p class=bad>{html.text(f['label'] or f['pid'])}: not read: {html.text(f['reason'])}</p>")
    return "".join(parts)
