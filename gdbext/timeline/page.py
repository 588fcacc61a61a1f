"""One page without network: the state of each thread over time, and a flame graph. page.js zooms and searches. All text from a
process is escaped."""

from __future__ import annotations

import math
from typing import Sequence

from .. import package
from ..render import html
from . import flame
from .recording import (
    DISK,
    DROPPED,
    GIL,
    LOCK,
    NETWORK,
    OTHER,
    POLL,
    QUEUED,
    RUNNING,
    SLEEP,
    STATES,
    STOPPED,
    ProcessTrack,
    Recording,
    ThreadTrack,
)
from .stalls import Stall

WIDTH, ROW, BAND, GUTTER = 1160, 17, 14, 160  # pixels
TICKS = 12  # marks of the time axis, at most
NARROWEST = 0.6  # pixels of a call that is drawn
MAX_BANDS = 3000  # rectangles of one thread
MAX_CALLS = 20_000
COLOURS = {  # those of a rest let the page through, light or dark
    RUNNING: "#e0662f",
    GIL: "#b00020",
    LOCK: "#8a6fc0",
    DISK: "#7a4a1e",
    SLEEP: "#8c96a078",
    POLL: "#8c96a048",
    NETWORK: "#9cc4e4",
    OTHER: "#80808090",
    STOPPED: "#5a5a5a",
    QUEUED: "#e6b422",
}
WORSE, BETTER, SAME = (214, 60, 40), (40, 110, 214), (232, 228, 218)
STALL = "#d0006f"
STYLE = (
    "<style>svg{display:block;width:100%;height:auto}svg text{font:11px ui-monospace,monospace;pointer-events:none}"
    ".flame g{cursor:pointer}.timeline{cursor:crosshair;overflow:visible}.hit{stroke:#0b5fff;stroke-width:2}"
    "#search{width:20em}</style>"
)
KEYS = "drag over the timeline to see a part of it; + and - zoom, the arrow keys move, Escape shows all"
SEARCH = (
    "<p><input id=search type=search placeholder='search functions ( / )' autocomplete=off> <span id=found></span> "
    "<span class=dim>a click makes a call as wide as the page, Escape shows all</span></p>"
)


def page(rec: Recording, stalls: Sequence[Stall] = (), what: flame.Counted = flame.AT_WORK) -> str:
    """The page of one recording."""
    own, resting = flame.stacks(rec, what), flame.resting(rec) if not what.idle else 0
    left = f"<p class=dim>{html.text(flame.left_out(resting))}</p>" if resting else ""
    parts = [STYLE, _summary(rec), _stalls(stalls), _timeline(rec, stalls), "<h2>Flame graph</h2>", left]
    return html.page("llm-record", "".join(parts) + SEARCH + graph(flame.tree(own)), _script())


def _script() -> str:
    return package.data("timeline/page.js").decode()


def difference(own: dict[tuple[str, ...], float], before: dict[tuple[str, ...], float]) -> str:
    """The page of a differential flame graph. Widths are those of `own`; colours show calls that take a larger (red) or smaller
    (blue) part of the time than in `before`."""
    rows = [(f"{change:+.1%}", f"{old:.1%}", f"{new:.1%}", name) for name, old, new, change in changes(own, before)[:40]]
    text = "<p>Widths are those of the later recording: red takes more of the time than before, blue less.</p>"
    table = html.table(("change", "before", "after", "function"), rows)
    return html.page("llm-record -diff", STYLE + text + SEARCH + graph(flame.tree(own, before)) + table, _script())


def changes(own: dict[tuple[str, ...], float], before: dict[tuple[str, ...], float]) -> list[tuple[str, float, float, float]]:
    """[(function, share of the time in it itself before, after, the difference)], the largest difference first."""
    whole, old_whole = sum(own.values()) or 1.0, sum(before.values()) or 1.0
    new = {name: itself / whole for name, itself, _ in flame.functions(own.items())}
    old = {name: itself / old_whole for name, itself, _ in flame.functions(before.items())}
    rows = [(name, old.get(name, 0.0), new.get(name, 0.0), new.get(name, 0.0) - old.get(name, 0.0)) for name in {**old, **new}]
    return sorted(rows, key=lambda row: (-abs(row[3]), row[0]))


def _summary(rec: Recording) -> str:
    rows = [
        (p.label, p.pid, len(p.threads), len(p.begins) - p.splits, p.samples, p.dropped, f"{p.cpu:.2f} s", f"{p.finish:.2f} s")
        for p in rec.processes
    ]
    said = f"{rec.seconds:.2f} s at {rec.reached:.1f} of {rec.rate:g} samples a second; {_stood(rec)}"
    notes = "".join(f"<p class=bad>{html.text(note)}</p>" for note in rec.notes)
    head = ("process", "pid", "threads", "samples", "stacks", "dropped", "CPU", "recorded")
    return f"<p>{html.text(said)}</p>{notes}{html.table(head, rows)}"


def _stood(rec: Recording) -> str:
    if not rec.native:
        return "nothing was stopped"
    return "paused: " + ", ".join(f"{p.label} {sum(p.pauses) / (p.finish or 1.0):.2%} of the time" for p in rec.processes)


def _stalls(stalls: Sequence[Stall]) -> str:
    rows = [
        (f"{s.begin:.3f}", f"{s.end - s.begin:.3f}", s.cause, s.process.label, s.thread.name or s.thread.tid, _where(s), _told(s))
        for s in stalls
    ]
    if not rows:
        return ""
    return "<h2>Stalls</h2>" + html.table(("at", "seconds", "cause", "process", "thread", "in", ""), rows)


def _where(stall: Stall) -> str:
    f = stall.frame
    return f"{f.function} ({f.where})" if f is not None else ""


def _told(stall: Stall) -> str:
    return f"{', '.join(stall.waiting)} waited; {stall.why}" if stall.waiting else stall.why


# ---- the timeline ----------------------------------------------------------------------------------------------------
def _timeline(rec: Recording, stalls: Sequence[Stall]) -> str:
    start = min((p.begins[0] for p in rec.processes if p.begins), default=0.0)
    end = max((p.finish for p in rec.processes), default=0.0)
    if end <= start:
        return ""
    scale = (WIDTH - GUTTER) / (end - start)
    parts, y = [], ROW
    for process in rec.processes:
        parts.append(_named(process.label, 0, y, ' font-weight="bold"'))
        for stall in (s for s in stalls if s.process is process):
            title = html.text(f"stall: {stall.cause}, {_where(stall)}, {stall.begin:.3f} s to {stall.end:.3f} s")
            x, width = GUTTER + (stall.begin - start) * scale, max(1.0, (stall.end - stall.begin) * scale)
            parts.append(
                f'<rect x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="10" fill="{STALL}"><title>{title}</title></rect>'
            )
        y += ROW
        for thread in process.threads:
            bands = _bands(rec, process, thread, start, scale, y)
            if bands:
                parts += [_named(thread.name or str(thread.tid), 10, y), *bands]
                y += ROW
    colours = {**{STATES[s]: COLOURS[s] for s in COLOURS}, "stall": STALL}
    legend = " ".join(f'<span style="border-left:1em solid {c};padding:0 .6em">{name}</span>' for name, c in colours.items())
    axis = f"<p class=dim>seconds since the recording began; threads that only waited in one place are left out; {KEYS}</p>"
    drawn = "".join(_ticks(start, end, scale, y) + parts)
    svg = f'<svg class="timeline" data-left="{GUTTER}" viewBox="0 0 {WIDTH} {y}" role="img">{drawn}</svg>'
    return f"<h2>Timeline</h2><p>{legend}</p>{svg}{axis}"


def _named(name: str, x: int, y: int, how: str = "") -> str:
    room = int((GUTTER - x) / 6.9)
    shown = name if len(name) <= room else name[: room - 1] + "…"
    return f'<text x="{x}" y="{y + 12}" fill="currentColor"{how}>{html.text(shown)}</text>'


def _ticks(start: float, end: float, scale: float, bottom: int) -> list[str]:
    """The time axis: lines at round times, with the seconds above them."""
    step = next(
        (s for power in range(-3, 6) for s in (10.0**power, 2 * 10.0**power, 5 * 10.0**power) if (end - start) / s <= TICKS),
        end - start,
    )
    found = []
    for number in range(math.ceil(start / step), math.floor(end / step) + 1):
        x = GUTTER + (number * step - start) * scale
        found.append(
            f'<g class="tick" data-x="{x:.1f}"><path d="M{x:.1f} {ROW - 3}V{bottom}" stroke="currentColor" stroke-opacity=".18"/>'
            f'<text x="{x + 2:.1f}" y="10" fill="currentColor">{number * step:g} s</text></g>'
        )
    return found


def _bands(rec: Recording, process: ProcessTrack, thread: ThreadTrack, start: float, scale: float, y: int) -> list[str]:
    runs = [r for r in process.runs(thread) if r.node != DROPPED]
    if len({(r.node, r.state) for r in runs}) < 2 and not any(r.state == RUNNING for r in runs):
        return []
    found, step = [], 1.0 / scale  # a band is at least a pixel: its first look stands for all in it
    name = thread.name or str(thread.tid)
    drawn = 0.0
    for run in runs:
        if run.end - start < drawn + step and run.end - run.begin < step:
            continue
        drawn = run.end - start
        stack = rec.tree.stack(run.node)
        where = f"{stack[-1].function} ({stack[-1].where})" if stack else "no Python"
        title = f"{name}: {STATES[run.state]}, {where}, {run.begin:.3f} s to {run.end:.3f} s"
        x, width = GUTTER + (run.begin - start) * scale, max(1.0, (run.end - run.begin) * scale)
        found.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAND}" fill="{COLOURS[run.state]}">'
            f"<title>{html.text(title)}</title></rect>"
        )
        if len(found) >= MAX_BANDS:
            break
    return found


# ---- the flame graph -------------------------------------------------------------------------------------------------
def graph(root: flame.Node) -> str:
    """A flame graph, outermost calls on top, without calls that are too narrow. Colours show the difference where `root` has a
    `before`."""
    if not root.seconds:
        return "<p>no stack was seen</p>"
    parts: list[str] = []
    depth = _draw(root, 0.0, 0, root, parts)
    return f'<svg class="flame" viewBox="0 0 {WIDTH} {(depth + 1) * ROW}" role="img">' + "".join(parts) + "</svg>"


def _draw(root: flame.Node, x: float, level: int, node: flame.Node, parts: list[str]) -> int:
    """Draws a node and its calls; -> the deepest level."""
    waiting, deepest = [(node, x, level)], level
    while waiting and len(parts) < MAX_CALLS:
        node, x, level = waiting.pop()
        width = WIDTH * node.seconds / root.seconds
        deepest = max(deepest, level)
        parts.append(_rectangle(root, node, x, level, width))
        at = x
        for child in sorted(node.children.values(), key=lambda c: c.name):
            own = WIDTH * child.seconds / root.seconds
            if own >= NARROWEST:
                waiting.append((child, at, level + 1))
            at += own
    return deepest


def _rectangle(root: flame.Node, node: flame.Node, x: float, level: int, width: float) -> str:
    share = node.seconds / root.seconds
    title = f"{node.name}: {node.seconds:.3f} s, {share:.1%}"
    if root.before:
        old = node.before / root.before
        title += f", before {old:.1%}"
        colour = _mixed(share - old, max(share, old))
    else:
        hue = sum(node.name.encode("utf-8", "replace")) % 50
        colour = f"hsl({hue + 5},75%,{62 + hue % 13}%)"
    shown = html.text(node.name[: int(width / 6.7)]) if width > 20 else ""
    y = level * ROW
    return (
        f'<g data-name="{html.text(node.name)}">'
        f'<rect x="{x:.2f}" y="{y}" width="{max(width - 0.4, 0.3):.2f}" height="{ROW - 1}" fill="{colour}">'
        f'<title>{html.text(title)}</title></rect><text x="{x + 3:.2f}" y="{y + 12}" fill="#222">{shown}</text></g>'
    )


def _mixed(change: float, most: float) -> str:
    part = min(1.0, abs(change) / most) if most else 0.0
    end = WORSE if change > 0 else BETTER
    return "#" + "".join(f"{round(s + (e - s) * part):02x}" for s, e in zip(SAME, end))
