"""pybt: the Python stack of a thread or of all threads."""

from ..answers.frames import frame_text
from ..answers.threads import thread_data, thread_head
from ..answers.variables import variable_lines
from ..errors import GdbextError
from ..session.command import CONTENT, Answer, Command, Option


class PyBt(Command):
    """Show the Python stack of the selected thread, innermost frame first.

    Read from memory alone: no symbols, no call into the process; works on a live process, a core, and with -on on a process that
    is not attached (then nothing stops).

      (gdb) pybt
      Thread 4123 "MainThread" (S, holds the GIL)
      #0  Scheduler.schedule (/usr/lib/…/vllm/v1/core/sched/scheduler.py:412)
      #1  EngineCore.step (/usr/lib/…/vllm/v1/engine/core.py:380)

    `pyframe 1` selects a frame for pylist, pylocals and pyprint."""

    name = "pybt"
    group = "python"
    options = (
        Option("all", help="every Python thread"),
        Option("locals", help="with the variables of each frame"),
        CONTENT,
    )

    def run(self, session, args):
        rt = session.runtime(args.on)
        threads = rt.threads() if args.all else [session.python_thread(args.on)]
        try:
            system = {th.tid: th for th in rt.target.threads()}
        except GdbextError:
            system = {}
        private = session.private(rt, args) if args.locals else None
        found = [thread_data(rt, th, rt.target.label, system, private) for th in threads]
        partial = session.partial(rt.target) + [f"thread {th['tid']}: {th['error']}" for th in found if "error" in th]
        here = None if args.all else session.level(args.on)

        def text(style):
            lines = []
            for thread in found:
                lines.append(thread_head(thread, style))
                for frame in thread["frames"]:
                    lines.append(("=> " if frame["level"] == here and here else "") + frame_text(frame, style))
                    if args.locals:
                        lines += variable_lines(frame["locals"], style)
                if not thread["frames"]:
                    lines.append(style.dim("(no Python frame: it is between two calls, or in native code only)"))
            return "\n".join(lines)

        return Answer({"threads": found}, text, partial)
