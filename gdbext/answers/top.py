"""A frame of llm-top, of one machine or of several: its fields, and the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..render.columns import columns_of, cut, fold
from ..render.fields import FAILURES, JOIN, NUMBER, REAL, TEXT, Field, Fields
from ..render.text import PLAIN, Style, escape, seconds, short_path, size, table
from ..requests.meter import Reading
from ..timeline.live import Row
from . import each_node
from .recordings import FUNCTION

FUNCTIONS = 20
LEAST = 20  # columns that the column "in" has at least; it is cut to the room that there is
SORTS = ("cpu", "rss", "gil", "lag")
BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.:-=+*#"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _frame(name: str) -> Any:
    """Of the innermost frame of the row's stack."""
    return lambda r: getattr(r.stack[-1], name) if r.stack else None


def _label(row: Any, style: Style) -> str:
    """`marked`: whether a row is the chosen one, where one is."""
    label = escape(row.get("program") or row["label"])
    if "marked" not in row:
        return style.name(label)
    return style.title(f"> {label}") if row["marked"] else f"  {label}"


def _state(row: Any, style: Style) -> str:
    state = escape(row["state"])
    return style.bad(state) if state in ("ended", "another program") else state


def _where(row: Any, style: Style) -> str:
    file = row["file"] or ""
    shown = short_path(file) if style.full_paths else file.rpartition("/")[2]  # a cut row still has its line
    return escape(f"{row['function']} ({shown}:{row['line']})") if row["function"] else ""


def _used(e: Reading) -> float | None:
    return round(1 - e.free / e.blocks, 4) if e.blocks and e.free is not None else None


RANK = Fields(  # of one `Row`; shares are of the frame's time
    Field("label", str, must=True, head="label", draw=_label),
    Field("pid", int, must=True, head="pid", spare=6),
    Field("state", str, "of the main thread, for most of the time", must=True, head="state", draw=_state),
    Field("function", TEXT, "where its main thread was then", must=True, read=_frame("function"), head="in", draw=_where),
    Field("file", TEXT, must=True, read=_frame("file")),
    Field("line", NUMBER, must=True, read=_frame("line")),
    Field("part", REAL, "share of the time in which it was there", digits=3, head="part", cell=_percent, spare=5),
    Field("gil", REAL, "share in which the main thread had the GIL", digits=3, head="GIL", cell=_percent, spare=3),
    Field("gil_holder", TEXT, "the thread that had it most", read=lambda r: r.holder or None),
    Field(
        "gil_waits", REAL, "… some thread waited for it", "", lambda r: r.waits, digits=3, head="waits", cell=_percent, spare=1
    ),
    Field("gc", REAL, "… garbage was collected", digits=3),
    Field("cpu", REAL, "CPUs used", digits=3, head="CPU", cell=lambda n: f"{n:.2f}"),
    Field("rss", NUMBER, "resident memory", "bytes", head="RSS", cell=size, spare=4),
    Field("threads", int, "those with Python"),
    Field("steps_per_second", REAL, head="steps/s", cell=lambda n: f"{n:.1f}", spare=2),
    Field("lag", NUMBER, "how many steps it is behind the first of its replica", head="lag", spare=2),
    Field("program", TEXT, "of a process without a label of its own", read=lambda r: r.program or None),
)
ENGINE = Fields(  # of one `Reading`; null: not read
    Field("engine", str, must=True),
    Field("labels", [str], must=True),
    Field("running", NUMBER, "requests", must=True),
    Field("waiting", NUMBER, "requests", must=True),
    Field("tokens_per_second", REAL, must=True),
    Field("steps_per_second", REAL, read=lambda e: e.step_rate),
    Field("blocks", NUMBER, "of its KV cache"),
    Field("free_blocks", NUMBER, read=lambda e: e.free),
    Field("kv_use", REAL, "share of its blocks", must=True, read=_used),
)
REQUEST = Fields(
    Field("engine", str, must=True),
    Field("request_id", str, must=True, read=lambda e: e.oldest[0]),
    Field("without_progress", REAL, "", "s", must=True, read=lambda e: e.oldest[1], digits=3),
)
OPEN = Fields(
    Field("engine", str, must=True, read=lambda one: one[0]),
    Field("request_id", str, must=True, read=lambda one: one[1].request),
    Field("age", REAL, "null: not known", "s", read=lambda one: one[1].age, digits=3),
    Field("without_progress", REAL, "", "s", read=lambda one: one[1].stood, digits=3),
    Field("at", str, "the process that has it", read=lambda one: one[1].at),
    Field("state", str, "there", read=lambda one: one[1].state),
)
ANSWER = Fields(
    Field("ranks", [RANK], must=True, merge=JOIN),
    Field("engines", [ENGINE], must=True, merge=JOIN),
    Field("requests", [REQUEST], "of each engine the one that has stood longest", must=True, merge=JOIN),
    Field("open", [OPEN], "open requests, the oldest first, 32 of each engine at most", merge=JOIN),
    Field("functions", [FUNCTION], "in which the threads ran; of several at once more than 1"),
    Field("failed", [each_node.FAILED], must=True, merge=FAILURES),
)


def sort(data: dict[str, Any], by: str) -> None:
    """Sorts the frame's processes, the most first; "order": as they came."""
    if by in SORTS:
        data["ranks"].sort(key=lambda one: -(one.get(by) or 0))


def frame_data(
    rows: Sequence[Row],
    readings: Sequence[Reading],
    failed: Sequence[dict[str, Any]],
    functions: Sequence[tuple[str, float, float]] = (),
    replicas: Sequence[set[int]] = (),
) -> tuple[dict[str, Any], list[str]]:
    """-> (the JSON fields of one frame, why it is not all). `replicas`: pids of ranks that count the same steps."""
    late = _lags(readings, replicas)
    steps = {pid: rate for reading in readings for pid, rate in reading.steps.items()}
    data = {
        "ranks": [RANK.data(r._replace(steps_per_second=steps.get(r.pid), lag=late.get(r.pid))) for r in rows],
        "engines": [ENGINE.data(e) for e in readings],
        "requests": [REQUEST.data(e) for e in readings if e.oldest is not None],
        "open": [OPEN.data((e.engine, one)) for e in readings for one in e.ages],
        "functions": [
            {"self": round(own, 5), "total": round(whole, 5), "function": n} for n, own, whole in functions[:FUNCTIONS]
        ],
    }
    partial = [*(p for e in readings for p in e.partial), *(f"{f['label']}: {f['reason']}" for f in failed)]
    return {**each_node.escaped(data), "failed": list(failed)}, partial


def _lags(readings: Sequence[Reading], replicas: Sequence[set[int]]) -> dict[int, int]:
    """{pid: how many steps it is behind} of ranks that count them, where a replica has several."""
    counted: dict[int, int] = {}
    for reading in readings:
        for (pid, what), number in reading.counted.items():
            if "step" in what:
                counted[pid] = max(counted.get(pid, 0), number)
    found: dict[int, int] = {}
    for pids in replicas:
        known = {pid: counted[pid] for pid in pids if pid in counted}
        most = max(known.values(), default=0)
        found.update({pid: most - number for pid, number in known.items()} if len(known) > 1 else {})
    return found


def spark(values: Sequence[float | None], plain: bool, most: float | None = None) -> str:
    """Numbers as bars, a blank for one that is not known. `most`: what the highest bar stands for, else the highest number."""
    bars, top = PLAIN_BARS if plain else BARS, most or max([0.0, *(v for v in values if v is not None)])
    return "".join(
        " " if v is None else bars[min(len(bars) - 1, int(v / top * (len(bars) - 1) + 0.5) if top else 0)] for v in values
    )


def spark_line(rows: Sequence[dict[str, Any]], columns: int, plain: bool) -> str:
    """The last frames of one engine: tokens a second, requests that wait, KV use."""
    room = max(4, min(40, (columns - 30) // 3))
    parts = []
    for word, key, most in (("tokens/s", "tokens_per_second", None), ("waiting", "waiting", None), ("KV", "kv_use", 1.0)):
        values = [row.get(key) for row in rows[-room:]]
        if any(v is not None for v in values):
            parts.append(f"{word} {spark(values, plain, most).rjust(room)}")
    return "  ".join(parts)


def open_lines(data: dict[str, Any], most: int, style: Style = PLAIN) -> list[str]:
    """The oldest requests, and who has each."""
    several = len({one["engine"] for one in data["open"]}) > 1
    rows = [
        [one["engine"]] * several
        + [one["request_id"], _seconds(one["age"]), _seconds(one["without_progress"]), one["at"], one["state"]]
        for one in data["open"][: max(0, most - 1)]
    ]
    head = ["engine"] * several + ["request", "age", "no progress", "at", "state"]
    cells = [[escape(str(cell)) for cell in row] for row in rows]
    return table(cells, head, Style(style.enabled), right=("age", "no progress")).split("\n") if rows else ["no open request"]


def _seconds(value: float | None) -> str:
    return "" if value is None else seconds(value)


def function_lines(data: dict[str, Any], most: int, style: Style = PLAIN) -> list[str]:
    """The functions that run most."""
    rows = data["functions"][: max(0, most - 1)]
    return FUNCTION.table(rows, style).split("\n") if rows else ["no thread ran Python"]


def merged(answers: Sequence[tuple[str, Any]], failed: list[dict[str, Any]], by: str) -> tuple[dict[str, Any], list[str]]:
    """-> (one frame of all machines, `node` in each place; why that is not all). A damaged answer is named in `failed`;
    `GdbextError` where none is left."""
    data, partial = each_node.merged(ANSWER, answers, failed, lambda answer: {"processes": len(answer["ranks"])})
    sort(data, by)
    return data, partial


def frame_lines(data: dict[str, Any], style: Style, chosen: int = -1, most: int = 10) -> list[str]:
    """One frame as lines of text, no row wider than the terminal; the row number `chosen` is marked. `most`: functions of
    programs that are no engine."""
    rows = data["ranks"]
    if chosen >= 0:
        rows = [{**row, "marked": number == chosen} for number, row in enumerate(rows)]
    head, cells = RANK.grid(rows, style)
    where = head.index("in")
    widths = {name: max([len(name), *(columns_of(row[i]) for row in cells)]) for i, name in enumerate(head)}
    shown = [name for i, name in enumerate(head) if any(row[i] for row in cells)]
    room = style.width or sum(widths.values()) + 2 * len(head)
    for name in RANK.spare:
        if sum(widths[n] + 2 for n in shown if n != "in") + LEAST <= room:
            break
        shown = [n for n in shown if n != name]
    wide = max(4, room - sum(widths[n] + 2 for n in shown if n != "in"))
    for row in cells:
        row[where] = cut(row[where], wide)
    places = [head.index(name) for name in shown]
    oldest = {(one.get("node"), one["engine"]): one for one in reversed(data["requests"])}
    said = [_engine(one, oldest.get((one.get("node"), one["engine"])), style) for one in data["engines"]]
    engines = [line for text in said for line in fold(text, style.width or 1 << 20)]
    lines = table([[row[i] for i in places] for row in cells], shown, Style(style.enabled), right=RANK.right).split("\n")
    spent = data.get("functions") if not engines else None  # of an engine its numbers matter more
    return engines + lines + (["", *FUNCTION.table(spent[:most], style).split("\n")] if spent and most else [])


def lines(data: dict[str, Any], style: Style) -> list[str]:
    """A frame of several machines."""
    said = [style.bad(f"{escape(str(f['label']))}: not read: {escape(f['reason'])}") for f in data["failed"]]
    return frame_lines(data, style) + said


def _engine(e: dict[str, Any], oldest: dict[str, Any] | None, style: Style) -> str:
    parts = ["no scheduler was read" if e["running"] is None else f"{e['running']} running, {e['waiting']} waiting"]
    if e["tokens_per_second"] is not None:
        parts.append(f"{e['tokens_per_second']:.0f} tokens/s")
    if e.get("steps_per_second"):
        parts.append(f"{e['steps_per_second']:.1f} steps/s")
    if e["kv_use"] is not None:
        parts.append(f"KV {100 * e['kv_use']:.0f} %")
    if oldest is not None and oldest["without_progress"]:
        parts.append(f"oldest without progress: {escape(oldest['request_id'])}, {seconds(oldest['without_progress'])}")
    return style.title(escape(f"{e.get('node', '')} {e['engine']}".strip())) + "  " + "  ".join(parts)


def stack_lines(row: Row, most: int, style: Style = PLAIN) -> list[str]:
    """The stack of a row's main thread, innermost frame first, at most `most` lines."""
    lines = [f"{row.label} {row.pid}: {row.state}, {100 * row.part:.0f} % of the time here"]
    for frame in reversed(row.stack):
        lines.append(f"  {frame.function} ({style.path(frame.file)}:{frame.line})")
    return [escape(line) for line in lines[: max(1, most)]]
