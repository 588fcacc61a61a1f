"""llm-bt: one backtrace of Python and native frames."""

from ..answers.frames import (
    device_kernel,
    device_kernel_lines,
    frame_text,
    launched_kernel,
    native_frame,
    python_frame,
)
from ..answers.threads import thread_head
from ..answers.variables import variable_lines
from ..errors import GdbextError
from ..lazy import lazy_module
from ..render.text import escape
from ..session.command import CONTENT, Answer, Command, Option

stacks = lazy_module("stacks.merge")


class Stack:
    """The merged stack of one thread, as data. `key` is equal for threads that do the same."""

    def __init__(self, rt, target, thread, py, private, raw):
        self.error, native = None, []
        try:
            native = target.unwind(thread)
        except GdbextError as e:
            self.error = str(e)
        frames = rt.frames(py) if py is not None else []
        merged, self.reasons = stacks.merge(rt, frames, native)
        kernel = launched_kernel(target, thread, native)
        self.frames = [kernel] if kernel else []
        for entry in merged:
            if entry.interpreter_frame and not raw and frames:
                continue
            if entry.python is not None:
                data = python_frame(entry.python, private)
                data["level"], data["reliable"] = len(self.frames), entry.reliable
            else:
                data = native_frame(entry.native, len(self.frames))
                if raw and entry.activation:
                    data["activation"] = True
            self.frames.append(data)
        self.gil = _gil(rt, py, native) if py is not None else "none"
        self.key = None if frames else tuple((f["function"], f["library"]) for f in self.frames)


def _gil(rt, py, native):
    state = rt.gil_state(py)
    if state == "unknown" and native:
        waits = stacks.waits_for_gil(rt, native)
        return state if waits is None else "waits" if waits else "none"
    return state


class LlmBt(Command):
    """Show one backtrace of Python and native frames of the selected thread, innermost first.

    Each Python frame stands where the interpreter runs it; the interpreter's own C frames are folded away (-raw shows them).
    No symbols are loaded and nothing is called: native frames come from the libraries' call-frame information.

      (gdb) llm-bt
      Thread 4123 "MainThread" (waits for the GIL)
      #0  __futex_abstimed_wait_common (libc.so.6)
      #1  take_gil (libpython3.11.so.1.0)
      #2  ShmRingBuffer.acquire_read (…/shm_broadcast.py:497)

    Where llm-break stopped at a launch, the kernel is the innermost frame.

    -all shows every thread of the process; native threads with the same stack are folded into one line with a count."""

    name = "llm-bt"
    group = "python"
    options = (
        Option("all", help="every thread of the process"),
        Option("locals", help="with the variables of each Python frame"),
        CONTENT,
        Option("raw", help="with the interpreter's own frames; no folding of equal threads"),
    )

    def run(self, session, args):
        running = [device_kernel(k) for k in session.device_kernels()] if args.on is None else []
        try:
            answer = self.host(session, args)
        except GdbextError as e:
            if not running:
                raise
            answer = Answer({"threads": []}, lambda style: "", [str(e)])  # a GPU core has no host side
        if running:
            answer.data["kernels"], host = running, answer.text
            answer.text = lambda style: "\n".join([t for t in [host(style)] if t] + device_kernel_lines(running, style))
        return answer

    def host(self, session, args):
        """The host's threads."""
        target = session.target(args.on)
        rt, why = None, []
        try:
            rt = session.runtime(args.on)
        except GdbextError as e:
            if not args.all and session.tid(args.on) is None:
                raise
            why.append(str(e))  # a native process, or a Python that is just starting: its native stacks are still of use
        threads = target.threads()
        pythons = {py.tid: py for py in rt.threads()} if rt is not None else {}
        if not args.all:
            tid = session.tid(args.on)
            tid = tid if tid is not None else session.python_thread(args.on).tid
            threads = [th for th in threads if th.tid == tid]
        main_first = sorted(threads, key=lambda th: (th.tid not in pythons, th.tid != target.pid, th.tid))
        found, partial = [], session.partial(target) + why
        private = session.private(rt, args) if args.locals and rt is not None else None
        for thread in main_first:
            py = pythons.get(thread.tid)
            try:
                stack = Stack(rt, target, thread, py, private, args.raw)
            except GdbextError as e:
                partial.append(f"thread {thread.tid}: {e}")
                continue
            partial += [stack.error] if stack.error and target.is_stopped else []
            partial += [f"thread {thread.tid}: {r}" if "counting" not in r else r for r in stack.reasons]
            name = (rt.thread_name(py) if py is not None else "") or thread.name
            found.append(
                (
                    stack,
                    {
                        "tid": thread.tid,
                        "pid": target.pid,
                        "label": target.label,
                        "name": escape(name),
                        "state": thread.state,
                        "gil": stack.gil,
                        "frames": stack.frames,
                    },
                )
            )
        if not target.is_stopped:
            partial.append("no native frames: the process runs (llm-attach or llm-snapshot it)")

        def text(style):
            lines, folded = [], {}
            for stack, thread in found:
                if stack.key is not None and not args.raw and args.all:
                    folded.setdefault(stack.key, []).append(thread)
                else:
                    lines += _thread_lines(thread, style, args.locals)
            for threads_alike in folded.values():
                lines += _thread_lines(threads_alike[0], style, args.locals, len(threads_alike), threads_alike)
            return "\n".join(lines)

        return Answer({"threads": [thread for _, thread in found]}, text, partial)


def _thread_lines(thread, style, with_locals, count=1, alike=()):
    if count == 1:
        head = thread_head(thread, style)
        if thread["gil"] == "waits":
            head += " waits for the GIL"
    else:
        kinds = sorted({t["name"] for t in alike})
        some = ", ".join(str(t["tid"]) for t in alike[:4]) + (", …" if count > 4 else "")
        head = style.title(f"{count} threads alike: {', '.join(kinds)}") + f" ({some})"
    lines = [head]
    for frame in thread["frames"]:
        lines.append(frame_text(frame, style))
        if with_locals and frame["kind"] == "python":
            lines += variable_lines(frame["locals"], style)
    if not thread["frames"]:
        lines.append(style.dim("(no frame could be read)"))
    return lines
