"""pyexc: the exceptions in flight in every thread."""

from __future__ import annotations

from .. import log
from ..answers.exceptions import IN_FLIGHT, Source, cut_reasons, exception_data, exception_lines
from ..cpython import exceptions
from ..cpython.runtime import Runtime
from ..engines.sensitive_names import shown_name
from ..errors import GdbextError
from ..render.fields import Field, Fields
from ..render.text import Style, escape
from ..session.command import CONTENT, Answer, Args, Command, Option
from ..session.session import Session

MEANING = {
    "raised": "on its way up",
    "handled": "being handled: an except, finally or __exit__ runs",
    "unhandled": "the last uncaught one (sys.last_exc)",
}


class PyExc(Command):
    """Show the exceptions in flight in every Python thread, with tracebacks, causes and contexts.

      (gdb) pyexc
      Thread 4123 "MainThread": being handled: an except, finally or __exit__ runs
      Traceback (most recent call last):
        File "vllm/v1/engine/core.py", line 1203, in run_busy_loop
          self._process_engine_step()
      IndexError: list index out of range

    In flight is what is on its way up through the calls, what an except, finally or __exit__ block is working on right now, and
    the last uncaught exception. Works on a core of a process that aborted. -locals shows the variables of the
    traceback's frames as they were left. In an engine a message that may quote a user is counted, not shown. Frames in
    JSON run innermost first, in the text as Python prints them."""

    name = "pyexc"
    group = "python"
    fields = Fields(Field("exceptions", [IN_FLIGHT]))
    options = (Option("locals", help="with the variables of each frame of the tracebacks"), CONTENT)

    def run(self, session: Session, args: Args) -> Answer:
        rt = session.runtime(args.on)
        private = session.private(rt, args)
        partial, found = session.partial(rt.target), []
        for thread in rt.threads():
            try:
                found += exceptions.in_flight(rt, thread)
            except GdbextError as e:
                partial.append(f"thread {thread.tid}: {e}")
        shown = {f.exception.address for f in found}
        try:
            found += [f for f in exceptions.last_unhandled(rt) if f.exception.address not in shown]
        except GdbextError as e:
            partial.append(f"sys.last_exc: {e}")
        names = _names(rt)
        data = []
        for each in found:
            tid = each.thread.tid if each.thread is not None else None
            name = (rt.thread_name(each.thread) or names.get(tid or 0, "")) if each.thread is not None else ""
            name = name if args.show_content else shown_name(rt, name)
            raised = exception_data(each.exception, private, args.locals)
            data.append(IN_FLIGHT.of(tid=tid, name=escape(name), state=each.state, **raised))
            partial += cut_reasons(each.exception)

        def text(style: Style) -> str:
            source = Source(rt.target)
            lines: list[str] = []
            for each in data:
                head = (
                    f"Thread {each['tid']}" + (f' "{each["name"]}"' if each["name"] else "")
                    if each["tid"] is not None
                    else "The program"
                )
                lines += ([""] if lines else []) + [style.title(head) + ": " + style.dim(MEANING[each["state"]])]
                lines += exception_lines(each, style, source, args.locals)
            return "\n".join(lines) or "No exception is in flight in any Python thread."

        return Answer({"exceptions": data}, text, partial)


def _names(rt: Runtime) -> dict[int, str]:
    try:
        return {th.tid: th.name for th in rt.target.threads()}
    except GdbextError as e:
        log.passed_over(e)
        return {}
