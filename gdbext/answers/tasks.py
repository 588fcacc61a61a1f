"""asyncio tasks as JSON and as text."""

from __future__ import annotations

from typing import AbstractSet, Any

from ..cpython.tasks import Task
from ..render.fields import LEFT_OUT, NUMBER, TEXT, Field, Fields
from ..render.jsonline import Address
from ..render.text import Style, escape
from .frames import frame_text, python_frame
from .shapes import FRAME
from .variables import frame_variable_lines

WAITS = Fields(
    Field("kind", str, "of the object; `group` for a TaskGroup"),
    Field("address", TEXT, read=lambda w: Address(w.object.address) if w.object else None),
    Field("type", TEXT, read=lambda w: w.object.type_name if w.object else None),
    Field("tasks", [str], "addresses", read=lambda w: [Address(a) for a in w.on]),
)
CREATED = Fields(
    Field("function", str, read=lambda at: escape(at[0])),
    Field("file", str, read=lambda at: escape(at[1])),
    Field("line", int, read=lambda at: at[2]),
)
TASK = Fields(
    Field("name", str),
    Field("state", str),
    Field("frames", [FRAME], read=lambda task: []),
    Field("waits_for", TEXT, read=lambda task: task.waits.text if task.waits else None),
    Field("waits", (WAITS, None), read=lambda task: WAITS.data(task.waits) if task.waits else None),
    Field("awaited_by", [str], "addresses of the tasks that wait for it", "", lambda task: [Address(a) for a in task.awaited_by]),
    Field(
        "created",
        [CREATED],
        "where it was made, innermost first: in asyncio's debug mode",
        read=lambda task: [CREATED.data(at) for at in task.created] or LEFT_OUT,
    ),
    Field("coroutine", str),
    Field("address", str, read=lambda task: Address(task.address)),
    Field("loop", TEXT, "its address", read=lambda task: Address(task.loop) if task.loop else None),
    Field("tid", NUMBER),
    Field("error", str, read=lambda task: task.error or LEFT_OUT),
)


def task_data(task: Task, private: AbstractSet[str] | None = None) -> dict[str, Any]:
    """A `tasks.Task` as JSON fields."""
    return {**TASK.data(task), "frames": [python_frame(f, private) for f in task.frames]}


def task_lines(alike: list[dict[str, Any]], style: Style, with_locals: bool, names: dict[int, str], created: bool) -> list[str]:
    """The lines of tasks with equal stacks: names, state, the objects that they wait for, the tasks that wait for one, frames.
    `names`: of all tasks, by address. `created`: where it was made, too."""
    task = alike[0]
    head = style.title(task["name"])
    if len(alike) > 1:
        called = list(dict.fromkeys(t["name"] for t in alike))  # several may have the name of one coroutine
        some = ", ".join(called[:4]) + (", …" if len(called) > 4 else "")
        head = style.title(f"{len(alike)} tasks alike") + f" ({some})"
    every = {t["waits_for"] for t in alike}
    what = every.pop() if len(every) == 1 else f"{len(every)} different things ({task['waits']['kind']})"
    head += f" {task['state']}" + (f" for {what}" if what else "")
    if task["state"] == "running" and task["tid"]:
        head += f" on thread {task['tid']}"
    awaiters = [names.get(a, hex(a)) for a in task["awaited_by"]] if len(alike) == 1 else []
    if awaiters:
        head += style.dim(f" (awaited by {', '.join(awaiters[:4])}{', …' if len(awaiters) > 4 else ''})")
    lines = [head]
    for frame in task["frames"]:
        lines.append(frame_text(frame, style))
        if with_locals:
            lines += frame_variable_lines(frame, style)
    if not task["frames"] and task["state"] not in ("done", "cancelled"):
        lines.append(style.dim(f"(no frame: {task.get('error') or task['coroutine'] or 'its coroutine has ended'})"))
    for at in task.get("created", ()) if created else ():
        lines.append(style.dim("made in " if at is task["created"][0] else "     by ") + at["function"] + _at(at, style))
    return lines


def _at(at: dict[str, Any], style: Style) -> str:
    return f" ({style.source(at['file'], style.path(at['file']))}:{at['line']})"
