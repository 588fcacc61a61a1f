"""The stacks of all threads of several processes as JSON `groups`, as trees of text, one per engine, and as a page."""

from __future__ import annotations

import re
from typing import Any, List, Tuple

from ..render import html
from ..render.text import Style, escape, thread_text
from ..stacks import tree
from ..stacks.threads import Frame, ProcessView, ThreadView
from ..stacks.tree import Node
from .ends import ends_data, ends_lines
from .places import closing, place, role_of
from .threads import is_collecting, thread_frames

LONG = 12  # frames of one run that are shown whole
POOLS = 3  # names of idle helpers in one line
WIDE = 58  # characters before the ranks
_LIBC = re.compile(r"(^|/)(libc\.so|libc-|libpthread|ld-)")
_GIL = {"holds": ", holds the GIL", "waits": ", waits for the GIL"}


def _frames(thread: Any) -> Any:
    """The JSON frames of a thread. For a thread in another machine's answer they are those of that answer."""
    return thread.saved if hasattr(thread, "saved") else thread_frames(thread)


def stacks_data(views: list[ProcessView]) -> dict[str, Any]:
    """`groups`: threads of one engine with the same frames, and `common`: where the main threads of like processes part,
    `ends`: the processes that have ended or are about to."""
    found: list[dict[str, Any]] = []
    for name, members in by_engine(views):
        groups: dict[Any, dict[str, Any]] = {}
        for view in members:
            for th in view.threads:
                key = (tuple(f.key for f in th.frames), th.idle)
                group = groups.setdefault(key, {"frames": None, "members": [], "idle": th.idle, "engine": name})
                if group["frames"] is None:
                    group["frames"] = _frames(th)
                group["members"].append(place(view, th))
        found += groups.values()
    return {
        "groups": sorted(found, key=lambda g: (g["idle"], -len(g["members"]))),
        "common": parting(views),
        "ends": ends_data(views),
        "collecting": [one for view in views for one in _collecting(view)],
    }


def _collecting(view: ProcessView) -> list[dict[str, Any]]:
    """The places of the threads of a process that collect garbage. A place has no thread where it is not known which one does."""
    if not is_collecting(getattr(view, "rt", None)):
        return []
    found = [place(view, th) for th in view.threads if th.collects]
    return found or [{**place(view), "tid": None}]


def by_engine(views: list[ProcessView]) -> list[tuple[str, list[ProcessView]]]:
    """`[(engine's name, its processes)]` in the order of the processes.

    Where several run the same engine, each name has the pid of the engine's first process. Processes of no engine are together
    under ''. Answers of other machines have no families: there the same name is one engine."""
    families: dict[Any, list[ProcessView]] = {}
    for view in views:
        families.setdefault((_engine(view), getattr(view.rank, "family", None)), []).append(view)
    names = [name for name, _ in families]
    return [
        (f"{name} ({members[0].pid})" if name and names.count(name) > 1 else name, members)
        for (name, _), members in families.items()
    ]


def _engine(view: ProcessView) -> str:
    return view.rank.engine if view.rank is not None else getattr(view, "engine", "")


def alike(views: list[ProcessView]) -> dict[str, list[ProcessView]]:
    """`{role: [ProcessView]}`: processes whose main threads should do the same. Those of no engine form one group."""
    found: dict[str, list[ProcessView]] = {}
    for view in views:
        found.setdefault(role_of(view), []).append(view)
    return found


def parting(views: list[ProcessView]) -> list[dict[str, Any]]:
    """Where the main threads of like processes of one engine diverge: which have reached the next frame and which have not."""
    return [part for name, members in by_engine(views) for part in _parting(name, members)]


def _parting(engine: str, views: list[ProcessView]) -> list[dict[str, Any]]:
    found = []
    for role, group in alike(views).items():
        if len(group) < 2:
            continue
        root = tree.build(_comparable(group))
        said = tree.common(root)
        if said is None or not said[3] and said[1] is not None:
            continue
        node, best, reached, others = said
        if best is None:
            continue  # all of them end in the same frame
        found.append(
            {
                "engine": engine,
                "role": role,
                "function": escape(node.frame.function) if node.frame else "",
                "file": escape(node.frame.file) if node.frame else "",
                "reached": {"function": escape(best.frame.function), "file": escape(best.frame.file), "ranks": reached},
                "not_reached": others,
            }
        )
    return found


def _comparable(views: list[ProcessView]) -> list[tuple[tuple[str, int], list[Frame]]]:
    """The main threads' Python frames; of processes without Python the native ones. Left out is a process whose Python frames
    could not be read while others' could: its place cannot be compared."""
    mains = [(v, v.main) for v in views if v.main is not None]
    python = [((v.name, main.tid), [f for f in main.frames if f.kind == "python"]) for v, main in mains]
    with_python = [stack for stack in python if stack[1]]
    return with_python or [((v.name, main.tid), main.frames) for v, main in mains]


def folded_stacks(views: list[ProcessView]) -> list[tuple[tuple[str, ...], list[Frame]]]:
    """`[(words that come first, frames)]` of each thread: its engine where there are several, its process, its name."""
    engines = by_engine(views)
    return [
        ((*([name or "no engine"] if len(engines) > 1 else []), view.name, th.name), th.frames)
        for name, members in engines
        for view in members
        for th in view.threads
        if th.frames
    ]


Resting = List[Tuple[str, ThreadView]]  # (process, thread) of idle helpers with the same frames


def shown(
    views: list[ProcessView], everything: bool = False
) -> tuple[list[tuple[tuple[str, int], list[Frame]]], list[tuple[str, Resting]]]:
    """-> (stacks for the tree, [(idle helpers in words, the helpers)]): the helpers of one line have the same frames."""
    stacks: list[Any] = []
    idle: dict[Any, Resting] = {}
    for view in views:
        for th in view.threads:
            if th.idle and not everything and th is not view.main:
                idle.setdefault(tuple(f.key for f in th.frames), []).append((view.name, th))
            else:
                stacks.append(((view.name, th.tid), th.frames))
    folded = sorted(idle.values(), key=lambda members: -len(members))
    return stacks, [(_resting(members), members) for members in folded]


def _resting(members: Resting) -> str:
    """`6 × ThreadPoolExecutor-0 in _worker`; of native code also whose function waits there."""
    names = list(dict.fromkeys(pool_of(th.name) or "?" for _, th in members))
    name = ", ".join(names[:POOLS]) + (f" and {len(names) - POOLS} names more" if len(names) > POOLS else "")
    top, frames = members[0][1].top, members[0][1].frames
    native = all(f.kind == "native" for f in frames)
    own = next((f for f in frames if f.function and not _LIBC.search(f.file)), None) if native else None
    caller = f", called from {own.function}" if own is not None and own is not top else ""
    return f"{len(members)} × {name} in {top.function if top is not None else '?'}{caller}"


def pool_of(name: str) -> str:
    """A thread's name without its number: "ZMQbg/IO/0" and "ZMQbg/IO/1" are of one pool."""
    return name.rstrip("0123456789").rstrip("-_/ ") or name


def title(frame_node: Node) -> str:
    """A frame of the tree with the lines at which its members are."""
    return f"{escape(frame_node.frame.function) or '??'} ({escape(tree.where(frame_node))})"


def text_lines(
    views: list[ProcessView], data: dict[str, Any], names: dict[int, str], style: Style, everything: bool = False
) -> list[str]:
    """The trees of all stacks for people, one per engine; the threads that ran, the processes that could not be read.
    `everything`: no chain and no pool is folded."""
    lines, engines = [], by_engine(views)
    for name, members in engines:
        if len(engines) > 1:
            lines.append(style.name(f"{escape(name) or 'no engine'}:"))
        lines += _tree_lines(members, [p for p in data["common"] if p["engine"] == name], len(views) == 1, style, everything)
    for one in data["collecting"]:
        thread = f", {thread_text(one['tid'], escape(one['name']))}" if one["tid"] else ", in an unknown thread"
        lines.append(style.bad(f"collects garbage: {escape(one['label']) or one['pid']}{thread}"))
    return lines + ends_lines(data["ends"], style, len(views) > 1) + _movement_lines(data) + closing(data, names, style)


def _tree_lines(views: list[ProcessView], parts: list[dict[str, Any]], alone: bool, style: Style, everything: bool) -> list[str]:
    """One engine's tree: chains of frames with the threads in them, the main threads first; idle pools; where the main threads
    diverge."""
    stacks, idle = shown(views, everything)
    by_tid = {(v.name, th.tid): th for v in views for th in v.threads}
    mains = {(v.name, v.main.tid) for v in views if v.main is not None}
    first, rest = ([s for s in stacks if (s[0] in mains) is which] for which in (True, False))
    lines = []
    for depth, run in (chain for part in (first, rest) for chain in tree.build(part).chains()):
        lines += _chain_lines(depth, run, by_tid, alone, style, everything)
    unread = [(v.name, th) for v in views for th in v.threads if not th.frames]
    if unread:
        who = tree.rank_set([n for n, _ in unread])
        lines.append(style.dim(f"{len(unread)} threads without a frame that could be read: {escape(who)}"))
    for said, members in idle:
        lines.append(style.dim(f"idle: {escape(said)}  {escape(tree.rank_set([n for n, _ in members]))}"))
    for part in parts:
        lines.append(
            f"main threads part after {escape(part['function']) or 'the start'}: reached "
            f"{style.good(escape(part['reached']['function']))}: {escape(tree.rank_set(part['reached']['ranks']))}; "
            f"not reached: {style.bad(escape(tree.rank_set(part['not_reached'])))}"
        )
    return lines


def _chain_lines(
    depth: int, run: list[Node], by_tid: dict[tuple[str, int], ThreadView], alone: bool, style: Style, everything: bool
) -> list[str]:
    """A run of frames that the same threads have, one a line. `alone`: there is one process, and its threads are named one by
    one."""
    lines, pad, count = [], "  " * min(depth, 20), len(run[0].members)
    who = tree.rank_set([name for name, _ in run[0].members])
    extra = "" if count == len(run[0].processes()) else f" ({count} threads)"
    kept = run if everything or len(run) <= LONG else [*run[:4], None, *run[-(LONG - 5) :]]
    for i, node in enumerate(kept):
        if node is None:
            lines.append(style.dim(f"{pad}… {len(run) - len(kept) + 1} frames"))
            continue
        line = pad + title(node)
        lines.append(line.ljust(WIDE) + "  " + style.name(escape(who)) + extra if i == 0 else line)
        if node.ends and alone:
            notes = [
                f"{tid} {escape(by_tid[name, tid].name)}{_GIL.get(by_tid[name, tid].gil, '')}" for name, tid in node.ends[:4]
            ]
            lines.append(style.dim(f"{pad}  = {'; '.join(notes)}" + ("; …" if len(node.ends) > 4 else "")))
        elif node.ends and not node.children:
            ends = sorted({escape(by_tid[member].name) for member in node.ends})
            lines.append(style.dim(f"{pad}  = {', '.join(ends[:4])}"))
    return lines


def _movement_lines(data: dict[str, Any]) -> list[str]:
    if "samples" not in data:
        return []
    moved, count = data["samples"]["moved"], data["samples"]["count"]
    who = (f"{thread_text(m['tid'], escape(m['name']), escape(m['label']))} ({m['changes']} of {count - 1})" for m in moved[:8])
    some = ", ".join(who)
    return [
        f"moved between {count} samples: {some or 'none'}" + (", …" if len(moved) > 8 else ""),
        f"did not move: {data['samples']['still']} threads",
    ]


def html_tree(views: list[ProcessView], data: dict[str, Any], calm: bool = True) -> str:
    """The trees as HTML that folds without a script, one per engine. `calm`: nothing says that it is trouble where main threads
    part."""
    parts, engines = [], by_engine(views)
    for name, members in engines:
        if len(engines) > 1:
            parts.append(f"<h3>{html.text(name or 'no engine')}</h3>")
        parts += _html_parts(members, [p for p in data["common"] if p["engine"] == name], "who" if calm else "bad")
    for f in data["failed"]:
        parts.append(f"<p class=bad>{html.text(f['label'] or f['pid'])}: not read: {html.text(f['reason'])}</p>")
    return "".join(parts)


def _html_parts(views: list[ProcessView], common: list[dict[str, Any]], apart: str) -> list[str]:
    """The parts of one engine's tree: its main threads first, and its idle pools. Where its main threads diverge, the class
    `apart` marks those that have not come as far as the others."""
    stacks, idle = shown(views)
    mains = {(v.name, v.main.tid) for v in views if v.main is not None}
    names_of = {(v.name, th.tid): th.name for v in views for th in v.threads}
    parted = ([s for s in stacks if (s[0] in mains) is first] for first in (True, False))
    todo: list[Any] = [branch for part in parted for branch in tree.build(part).branches()]
    parts = []
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
        ends = sorted({names_of[member] for member in run[-1].ends})
        if ends:
            names += f"<div class=dim>= {html.text(', '.join(ends[:4]) + (', …' if len(ends) > 4 else ''))}</div>"
        parts.append(f"<details open><summary>{who}</summary>{names}")
        todo[:0] = [*run[-1].branches(), "</details>"]
    for said, members in idle:
        parts.append(f"<p class=dim>idle: {html.text(said)}, {html.text(tree.rank_set([n for n, _ in members]))}</p>")
    for part in common:
        parts.append(
            f"<p>main threads part after <code>{html.text(part['function'])}</code>: "
            f"reached <code>{html.text(part['reached']['function'])}</code>: "
            f"{html.text(tree.rank_set(part['reached']['ranks']))}; <span class={apart}>not reached: "
            f"{html.text(tree.rank_set(part['not_reached']))}</span></p>"
        )
    return parts
