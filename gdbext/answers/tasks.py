"""asyncio tasks as JSON and as text."""

from __future__ import annotations

from typing import AbstractSet, Any

from ..cpython.tasks import Task
from ..render.jsonline import Address
from ..render.text import Style, escape
from .frames import frame_text, python_frame
from .variables import frame_variable_lines


def task_data(task: Task, private: AbstractSet[str] | None = None) -> dict[str, Any]:
    """A `tasks.Task` as JSON fields."""
    data = {
        "name": escape(task.name),
        "state": task.state,
        "frames": [python_frame(f, private) for f in task.frames],
        "waits_for": escape(task.waits.text) if task.waits else None,
        "waits": {
            "kind": task.waits.kind,
            "address": Address(task.waits.object.address) if task.waits.object else None,
            "type": escape(task.waits.object.type_name) if task.waits.object else None,
            "tasks": [Address(a) for a in task.waits.on],
        }
        if task.waits
        else None,
        "awaited_by": [Address(a) for a in task.awaited_by],
        "coroutine": escape(task.coroutine),
        "address": Address(task.address),
        "loop": Address(task.loop) if task.loop else None,
        "tid": task.tid,
    }
    if task.error:
        data["error"] = task.error
    return data


def task_lines(alike: list[dict[str, Any]], style: Style, with_locals: bool, names: dict[int, str]) -> list[str]:
    """The lines of tasks with equal stacks: names, state, the objects that they wait for, the tasks that wait for one, frames.
    `names`: of all tasks, by address."""
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
    return lines
