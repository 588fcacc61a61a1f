"""pybt: the Python stack of a thread or of all threads."""

from __future__ import annotations

from ..answers.frames import frame_text
from ..answers.greenlets import greenlet_data, greenlet_lines
from ..answers.threads import ANSWER, UNTOLD, add_columns, is_collecting, thread_data, thread_head
from ..answers.variables import frame_variable_lines
from ..cpython.greenlets import greenlets
from ..render.text import Style
from ..session.command import COLUMNS, CONTENT, Answer, Args, Command, Option
from ..session.session import Session
from ..stacks import threads


class PyBt(Command):
    """Show the Python stack of the selected thread, innermost frame first.

    Read from memory alone: no symbols, no call into the process; works on a live process, a core, and with -on on a process that
    is not attached (then nothing stops).

      (gdb) pybt
      Thread 4123 "MainThread" (running, holds the GIL)
      #0  Scheduler.schedule (vllm/v1/core/sched/scheduler.py:412)
      #1  EngineCore.step (vllm/v1/engine/core.py:380)

    `calls time.sleep` behind a frame: the function of C code that it has called, where memory proves it.
    `pyframe 1` selects a frame for pylist, pylocals and pyprint. Greenlets (gevent's too) of the thread follow, each with its
    state and the frames in which it is suspended; -all also shows those whose thread is unknown."""

    name = "pybt"
    group = "python"
    fields = ANSWER
    options = (
        Option("all", help="every Python thread"),
        Option("locals", help="with the variables of each frame"),
        COLUMNS,
        CONTENT,
    )

    def run(self, session: Session, args: Args) -> Answer:
        rt = session.runtime(args.on)
        target, partial = rt.target, session.partial(rt.target)
        if args.all:
            views = [v for v in threads.read_threads(target, rt, partial, native=False, unmatched=True) if v.py is not None]
        else:
            views = [threads.read_python_thread(target, rt, session.python_thread(args.on))]
        private = session.private(rt, args) if args.locals else None
        found = [thread_data(target, view, private) for view in views]
        if args.columns:
            for view, thread in zip(views, found):
                add_columns(thread, view)
        partial += threads.reasons_of(views)
        switched, reasons = greenlets(rt)
        partial += reasons
        tids = {view.tid for view in views}
        green = [greenlet_data(g, private) for g in switched if args.all or g.tid in tids or g.error]
        here = None if args.all else session.level(args.on)
        collecting = is_collecting(rt)
        others = 0 if args.all or session.in_gdb else len(rt.threads()) - 1

        def text(style: Style) -> str:
            lines = []
            for thread in found:
                lines.append(thread_head(thread, style))
                for frame in thread["frames"]:
                    lines.append(("=> " if frame["level"] == here and here else "") + frame_text(frame, style))
                    if args.locals:
                        lines += frame_variable_lines(frame, style)
                if not thread["frames"]:
                    lines.append(style.dim("(no Python frame: it is between two calls, or in native code only)"))
            if collecting and not any(thread["collects"] for thread in found):
                lines.append(style.bad(UNTOLD if args.all else "a garbage collection is under way"))
            more = [style.dim(f"{others} more thread{'s' * (others > 1)}: -all shows them")] if others > 0 else []
            return "\n".join(lines + greenlet_lines(green, style, args.locals) + more)

        return Answer(ANSWER.of(threads=found, collecting=collecting, greenlets=green), text, partial)
