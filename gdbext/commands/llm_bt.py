"""llm-bt: one backtrace of Python and native frames."""

from __future__ import annotations

from typing import Any

from ..answers.ends import end_data, ends_lines
from ..answers.frames import (
    device_kernel,
    device_kernel_lines,
    frame_text,
)
from ..answers.threads import ANSWER, UNTOLD, add_columns, is_collecting, thread_data, thread_head
from ..answers.variables import frame_variable_lines
from ..errors import GdbextError
from ..render.text import Style
from ..session.command import COLUMNS, CONTENT, Answer, Args, Command, Option
from ..session.session import Session
from ..stacks import threads


class LlmBt(Command):
    """Show one backtrace of Python and native frames of the selected thread, innermost first.

    Each Python frame is shown where the interpreter runs it; the interpreter's own C frames are folded away (-raw shows them).
    No symbols are loaded and nothing is called: native frames come from the libraries' call-frame information.

      (gdb) llm-bt
      Thread 4123 "MainThread" (waits for the GIL)
      #0  __futex_abstimed_wait_common (libc.so.6)
      #1  take_gil (libpython3.11.so.1.0)
      #2  ShmRingBuffer.acquire_read (vllm/distributed/device_communicators/shm_broadcast.py:497)

    Where llm-break stopped at a launch, the kernel is the innermost frame.

    -all shows every thread of the process; native threads with the same stack are folded into one line with a count."""

    name = "llm-bt"
    whole = True
    group = "python"
    fields = ANSWER
    options = (
        Option("all", help="every thread of the process"),
        Option("locals", help="with the variables of each Python frame"),
        COLUMNS,
        CONTENT,
        Option("raw", help="with the interpreter's own frames; no folding of equal threads"),
    )

    def run(self, session: Session, args: Args) -> Answer:
        running = [device_kernel(k) for k in session.device_kernels()] if args.on is None else []
        try:
            answer = self.host(session, args)
        except GdbextError as e:
            if not running:
                raise
            answer = Answer({"threads": []}, lambda style: "", [str(e)])  # a GPU core has no host side
        if running:
            answer.data["kernels"], host = running, Answer({}, answer.text).in_style
            answer.text = lambda style: "\n".join([t for t in [host(style)] if t] + device_kernel_lines(running, style))
        return answer

    def host(self, session: Session, args: Args) -> Answer:
        """The host's threads."""
        target = session.target(args.on)
        rt, why = None, []
        try:
            rt = session.runtime(args.on)
        except GdbextError as e:
            if not args.all and session.tid(args.on) is None:
                raise
            why.append(str(e))  # a native process, or a Python that is just starting: its native stacks are still of use
        partial = session.partial(target) + why
        only = None
        if not args.all:
            only = session.tid(args.on)
            only = only if only is not None else session.python_thread(args.on).tid
        views = threads.read_threads(target, rt, partial, native=target.is_stopped, only=only)
        private = session.private(rt, args) if args.locals and rt is not None else None
        found = [(view, thread_data(target, view, private, args.raw, rt)) for view in views]
        if args.columns:
            for view, thread in found:
                add_columns(thread, view)
        partial += threads.reasons_of(views)
        end, collecting = end_data(target, rt, views), is_collecting(rt)
        ends = [end] if end is not None else []
        if not target.is_stopped:
            partial.append("no native frames: it was read as it ran")

        def text(style: Style) -> str:
            lines: list[str] = []
            folded: dict[Any, list[Any]] = {}
            for view, thread in found:
                if args.all and not args.raw and not view.python:
                    key = tuple((f["function"], f["library"]) for f in thread["frames"])
                    folded.setdefault(key, []).append(thread)
                else:
                    lines += _thread_lines(thread, style, args.locals)
            for threads_alike in folded.values():
                lines += _thread_lines(threads_alike[0], style, args.locals, len(threads_alike), threads_alike)
            if collecting and not any(view.collects for view in views):
                lines.append(style.bad(UNTOLD))
            return "\n".join(lines + ends_lines(ends, style, False))

        return Answer(ANSWER.of(threads=[thread for _, thread in found], collecting=collecting, ends=ends), text, partial)


def _thread_lines(thread: Any, style: Style, with_locals: Any, count: int = 1, alike: Any = ()) -> Any:
    if count == 1:
        head = thread_head(thread, style)
    else:
        kinds = sorted({t["name"] for t in alike})
        some = ", ".join(str(t["tid"]) for t in alike[:4]) + (", …" if count > 4 else "")
        head = style.title(f"{count} threads alike: {', '.join(kinds)}") + f" ({some})"
    lines = [head]
    for frame in thread["frames"]:
        lines.append(frame_text(frame, style))
        if with_locals and frame["kind"] == "python":
            lines += frame_variable_lines(frame, style)
    if thread["folded"]:
        lines.append(style.dim(f"({thread['folded']} of the interpreter's own frames folded away: -raw shows them)"))
    if not thread["frames"]:
        lines.append(style.dim("(no frame could be read)"))
    return lines
