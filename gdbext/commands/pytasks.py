"""pytasks: the asyncio and trio tasks of a process, where the requests of an API server live."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..answers.tasks import TASK, task_data, task_lines
from ..cpython import schedulers
from ..cpython import tasks as asyncio_tasks
from ..engines.sensitive_names import shown_name
from ..render.fields import Field, Fields
from ..render.text import Style, escape
from ..session.command import CONTENT, Answer, Args, Command, Option
from ..session.session import Session


class PyTasks(Command):
    """Show the asyncio and trio tasks of the process, each with its await chain down to what it waits for.

      (gdb) pytasks
      Task-12 waiting for Queue.get on 0x7f21a40b1f90
      #0  Queue.get (/usr/lib/python3.12/asyncio/queues.py:158)
      #1  RequestOutputCollector.get (vllm/v1/engine/output_processor.py:91)
      #2  AsyncLLM.generate (vllm/v1/engine/async_llm.py:402)

    No thread's stack shows these: a waiting request of an API server is a chain of suspended coroutines. Works with uvloop. Tasks
    with equal stacks are folded into one with a count; -all also lists finished tasks that are still held, unfolded. A ring of
    tasks that wait for each other is named."""

    name = "pytasks"
    group = "python"
    fields = Fields(Field("tasks", [TASK]), Field("cycles", [[str]], "rings of tasks that await each other"))
    operand = "[NAME]"
    options = (
        Option("all", help="finished tasks too, and no folding of equal ones"),
        Option("locals", help="with the variables of each frame"),
        Option("v", help="where each was made, too: asyncio knows it in its debug mode"),
        CONTENT,
    )

    def run(self, session: Session, args: Args) -> Answer:
        rt = session.runtime(args.on)
        private = session.private(rt, args) if args.locals else None
        shown = str if args.show_content else partial(shown_name, rt)
        found, reasons = schedulers.tasks(rt, args.all, shown)
        wanted = [task for task in found if not args.operand_text or args.operand_text in task.name]
        for task in found:
            task.name = shown(task.name)
        rings = [[escape(task.name) for task in ring] for ring in asyncio_tasks.cycles(found)]
        data = [task_data(task, private) for task in wanted]
        names = {task.address: escape(task.name) for task in found}

        def text(style: Style) -> Any:
            lines: list[str] = []
            folded: dict[Any, list[Any]] = {}
            for i, task in enumerate(data):
                same = (
                    task["state"],
                    task["loop"],
                    (task["waits"] or {}).get("kind"),
                    tuple((f["function"], f["file"], f["line"]) for f in task["frames"]),
                    tuple((at["file"], at["line"]) for at in task.get("created", ())) if args.v else (),
                )
                folded.setdefault(i if args.all or args.locals or not task["frames"] else same, []).append(task)
            for alike in folded.values():
                lines += task_lines(alike, style, args.locals, names, args.v)
            for ring in rings:
                lines.append(style.bad("These wait for each other and never end: " + " -> ".join(ring + ring[:1])))
            if args.v and data and not any("created" in task for task in data):
                lines.append(style.dim("where they were made is not known: asyncio's debug mode is off (PYTHONASYNCIODEBUG=1)"))
            return "\n".join(lines) or "No asyncio task is pending."

        return Answer(self.fields.of(tasks=data, cycles=rings), text, session.partial(rt.target) + reasons)
