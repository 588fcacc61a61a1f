"""pytasks: the asyncio tasks of a process, where the requests of an API server live."""

from ..lazy import lazy_module
from ..render.jsonline import Address
from ..render.text import escape
from ..session.command import CONTENT, Answer, Command, Option
from .pybt import frame_data, frame_line, variable_lines

asyncio_tasks = lazy_module("cpython.tasks")


def task_data(task, private=None):
    """A `tasks.Task` as JSON fields."""
    data = {
        "name": escape(task.name),
        "state": task.state,
        "frames": [frame_data(f, private) for f in task.frames],
        "waits_for": escape(task.waits.text) if task.waits else None,
        "waits": {
            "kind": task.waits.kind,
            "address": Address(task.waits.object.address) if task.waits.object else None,
            "type": escape(task.waits.object.type_name) if task.waits.object else None,
            "tasks": [Address(a) for a in task.waits.on],
        }
        if task.waits
        else None,
        "coroutine": escape(task.coroutine),
        "address": Address(task.address),
        "loop": Address(task.loop) if task.loop else None,
        "tid": task.tid,
    }
    if task.error:
        data["error"] = task.error
    return data


class PyTasks(Command):
    """Show the asyncio tasks of the process, each with its await chain down to what it waits for.

      (gdb) pytasks
      Task-12 waiting for Queue.get on 0x7f21a40b1f90
      #0  Queue.get (/usr/lib/python3.12/asyncio/queues.py:158)
      #1  RequestOutputCollector.get (…/vllm/v1/engine/output_processor.py:91)
      #2  AsyncLLM.generate (…/vllm/v1/engine/async_llm.py:402)

    No thread's stack shows these: a waiting request of an API server is a chain of suspended coroutines. Works with uvloop. Tasks with
    equal stacks are folded into one with a count; -all also lists finished tasks that are still held, unfolded. A ring of
    tasks that wait for each other is named."""

    name = "pytasks"
    group = "python"
    operand = "[NAME]"
    options = (
        Option("all", help="finished tasks too, and no folding of equal ones"),
        Option("locals", help="with the variables of each frame"),
        CONTENT,
    )

    def run(self, session, args):
        rt = session.runtime(args.on)
        private = session.private(rt, args) if args.locals else None
        found, reasons = asyncio_tasks.tasks(rt, args.all)
        rings = [[escape(task.name) for task in ring] for ring in asyncio_tasks.cycles(found)]
        if args.rest:
            found = [task for task in found if args.rest in task.name]
        data = [task_data(task, private) for task in found]

        def text(style):
            lines, folded = [], {}
            for i, task in enumerate(data):
                same = (
                    task["state"],
                    task["loop"],
                    (task["waits"] or {}).get("kind"),
                    tuple((f["function"], f["file"], f["line"]) for f in task["frames"]),
                )
                folded.setdefault(i if args.all or args.locals or not task["frames"] else same, []).append(task)
            for alike in folded.values():
                lines += _lines(alike, style, args.locals)
            for ring in rings:
                lines.append(style.bad("These wait for each other and never end: " + " -> ".join(ring + ring[:1])))
            return "\n".join(lines) or "No asyncio task is pending."

        return Answer({"tasks": data, "cycles": rings}, text, session.partial(rt.target) + reasons)


def _lines(alike, style, with_locals):
    task = alike[0]
    head = style.title(task["name"])
    if len(alike) > 1:
        some = ", ".join(t["name"] for t in alike[:4]) + (", …" if len(alike) > 4 else "")
        head = style.title(f"{len(alike)} tasks alike") + f" ({some})"
    what = {t["waits_for"] for t in alike}
    what = what.pop() if len(what) == 1 else f"{len(what)} different things ({task['waits']['kind']})"
    head += f" {task['state']}" + (f" for {what}" if what else "")
    if task["state"] == "running" and task["tid"]:
        head += f" on thread {task['tid']}"
    lines = [head]
    for frame in task["frames"]:
        lines.append(frame_line(frame, style))
        if with_locals:
            lines += variable_lines(frame["locals"], style)
    if not task["frames"] and task["state"] not in ("done", "cancelled"):
        lines.append(style.dim(f"(no frame: {task.get('error') or task['coroutine'] or 'its coroutine has ended'})"))
    return lines
