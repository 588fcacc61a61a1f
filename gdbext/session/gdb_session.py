"""From gdb's command line to a `Command` and back: registration, arguments, errors, completion, printing."""

from __future__ import annotations

import os
from typing import Any

import gdb

from .. import log
from ..access.base import Target
from ..access.live_gdb import LiveGdbTarget
from ..errors import GdbextError
from ..render.columns import wrapped
from ..render.text import Style, one_line
from .command import NODE_MARKS, UNSTOPPED, Args, Command, UsageError, error_line
from .session import Session

_CHUNK = 8192


class GdbSession(Session):
    """The selected inferior, thread and frame of this gdb."""

    in_gdb = True
    own_style: Style | None = None  # of a gdb that another process started, instead of its terminal's

    def __init__(self) -> None:
        super().__init__()
        self._inferiors: dict[int, Any] = {}  # gdb's number of an inferior -> its Target

    def target(self, on: str | None = None) -> Target:
        if on is not None:
            return super().target(on)
        inferior = gdb.selected_inferior()
        if not inferior.pid:
            raise GdbextError("no process is selected: llm-attach one, open a core, or add -on WHAT (see llm-ranks)")
        found: Target = self._of_inferior(inferior)
        return found

    def stop_nothing(self, command: Command) -> None:
        if UNSTOPPED in command.all_options():
            raise UsageError(
                f"{command.name}: gdb could stop nothing either: -unstopped is for gdbext {command.name}, outside gdb"
            )

    def this_of(self, classes: Any, types: Any) -> Any:
        from ..access.dwarf_gdb import this_of

        return this_of(classes, types)

    def _of_inferior(self, inferior: Any) -> Any:
        from ..access.cli_gdb import holds_gpu_core
        from ..access.live_gdb import core_file, selected

        known = self._inferiors.get(inferior.num)
        if known is None or known.pid != inferior.pid or not known.inferior.is_valid():
            with selected(inferior):
                kind: Any = LiveGdbTarget
                if core_file(inferior):
                    from ..access.core_gdb import CoreGdbTarget

                    kind = CoreGdbTarget
                elif self.sees_device() and holds_gpu_core():
                    raise GdbextError("a GPU core is open: it has no host side (llm-gpucore FILE shows what it holds)")
                label = next((r.label for r in self.ranks if r.pid == inferior.pid and not r.process.fate()), "")
                known = self._inferiors[inferior.num] = kind(inferior, label)
            if self.sees_device():
                from ..control import device_work

                known.device_memory = device_work.of_stopped(known)
        return known

    def begin(self) -> None:
        """To be called when a command begins. Each process's GPU memory may be read anew, within the bounds of one command."""
        for target in self._inferiors.values():
            if target.device_memory is not None:
                target.device_memory.begin()

    def _attached(self, pid: int) -> Target | None:
        inferior = self._inferior(pid)
        return self._of_inferior(inferior) if inferior is not None else None

    @staticmethod
    def _inferior(pid: int | None) -> Any:
        return next((i for i in gdb.inferiors() if i.pid and i.pid == pid), None)

    def inferior_of(self, pid: int) -> int | None:
        inferior = self._inferior(pid)
        return inferior.num if inferior is not None else None

    def selected_pid(self) -> int | None:
        return gdb.selected_inferior().pid or None

    def tid(self, on: str | None = None) -> int | None:
        if on is not None:
            target = self.target(on)
            if getattr(target, "inferior", None) != gdb.selected_inferior():
                return None
        thread = gdb.selected_thread()
        return (thread.ptid[1] or thread.ptid[2]) if thread else None

    def target_of_inferior(self, inferior: Any) -> Target:
        """The `Target` of a process or core that this gdb holds."""
        found: Target = self._of_inferior(inferior)
        return found

    def attached_inferior(self, what: str | None = None) -> Any:
        """The inferior that a WHAT names, without one the selected inferior. Only in the second case it may have no process."""
        self._need_frames()
        if what is None:
            return gdb.selected_inferior()
        inferior = self._inferior(self.resolve_one(what).pid)
        if inferior is None:
            raise GdbextError(f"{what} is not attached: llm-attach {what} first")
        return inferior

    def sees_device(self) -> bool:
        """Whether this is a gdb that can stop in a kernel."""
        try:
            gdb.parameter("cuda break_on_launch")
        except RuntimeError:
            return False  # a gdb that knows no CUDA
        return True

    def device_kernels(self) -> list[Any]:
        """The kernels that run on the GPU, as cuda-gdb sees them; [] where nothing sees it."""
        return self.device().kernels() if self.sees_device() else []

    def device(self) -> Any:
        """cuda-gdb's view of the GPU; `GdbextError` in a gdb that has none."""
        from ..control.cudagdb import device

        return device()

    def focus_core(self, core: Any) -> str:
        """In cuda-gdb: opens a GPU core where nothing is open yet and focuses its first fault. -> what it did, in words; ''
        elsewhere. An older cuda-gdb may not open the core of a newer driver, or even abort."""
        from ..control import cudagdb

        if not cudagdb.is_cuda_gdb():
            return ""
        release, needs = cudagdb.release(), core.needs()
        if release and int(release.partition(".")[0]) < needs:
            return f"focus not moved: cuda-gdb {release} does not know the code in this core: open it in that of CUDA {needs}"
        try:
            return self._focus_core(core, cudagdb.device())
        except (GdbextError, gdb.error, KeyboardInterrupt) as e:
            why = one_line(str(e)) or "Quit"
            return f"focus not moved: cuda-gdb {release} does not open this core; a newer one may ({why})"

    @staticmethod
    def _focus_core(core: Any, device: Any) -> str:
        if not device.open_core(core.path):
            return "focus not moved: this cuda-gdb has a process; open the core in one of its own (target cudacore FILE)"
        fault = next((f for f in core.faults if f.block), None)
        if fault is None:
            return ""
        kernel = next((k for k in device.kernels() if k.grid_id == fault.kernel.id and k.device == fault.device.index), None)
        if kernel is None or kernel.grid != fault.kernel.grid:
            return "focus not moved: this cuda-gdb has another core open"
        now = device.set_focus(kernel.id, fault.block, fault.thread)
        return "focus: kernel {} block ({},{},{}) thread ({},{},{})".format(now.kernel, *now.block, *now.thread)

    @staticmethod
    def _need_frames() -> None:
        from ..control.cudagdb import has_working_none

        if not has_working_none():
            raise GdbextError(
                "this cuda-gdb's Python is broken (its None is not Python's own, as in Debian's 11.8): "
                "frames and values cannot be used; "
                "what reads memory alone works, also with -on PID"
            )

    def registers(self) -> dict[str, int]:
        """{name: value} of the selected thread, at its innermost frame."""
        from ..control.registers import current_registers

        self._need_frames()
        if gdb.selected_thread() is None:
            raise GdbextError("no thread is selected")
        return current_registers(self.target())

    def gdb_value(self, text: str) -> Any:
        """The `gdb.Value` of a C or C++ expression; calls into the process are refused while it is evaluated."""
        calls = gdb.parameter("may-call-functions")
        gdb.execute("set may-call-functions off", to_string=True)
        try:
            return gdb.parse_and_eval(text)
        except gdb.error as e:
            raise GdbextError(f"gdb cannot evaluate {text!r}: {str(e).strip()}") from None
        finally:
            gdb.execute("set may-call-functions on" if calls else "set may-call-functions off", to_string=True)

    def style(self) -> Style:
        if self.own_style is not None:
            return self.own_style
        enabled = bool(gdb.parameter("style enabled")) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        style = Style(enabled, int(gdb.parameter("width") or 0))
        style.wraps = _columns()
        return style


def _columns() -> int:
    from ..control.gdb_state import columns

    return columns()


session = GdbSession()


def run(command: type[Command], line: str, typed: bool = False) -> None:
    """Parses, runs and prints one command; every expected failure leaves as `gdb.GdbError`, one line, which is broken at words
    where somebody typed the command."""
    try:
        _run(command, line)
    except gdb.GdbError as e:
        raise gdb.GdbError(wrapped(str(e), _columns() if typed else 0)) from None


def _run(command: type[Command], line: str) -> None:
    session.begin()
    try:
        args = command.parse(line)
        answer = _on_nodes(command, args) if any(mark in line.partition(" -- ")[0] for mark in NODE_MARKS) else None
        answer = answer or command().answer(session, args)
        text = session.written(command.name, args, answer)
    except (GdbextError, gdb.MemoryError) as e:
        raise gdb.GdbError(error_line(command.name, e)) from None
    except gdb.GdbError as e:
        raise gdb.GdbError(one_line(str(e))) from None
    except gdb.error as e:
        raise gdb.GdbError(f"{command.name}: gdb says: {one_line(str(e))}") from None
    except UnicodeError:
        raise gdb.GdbError(f"{command.name}: text that this gdb's host-charset cannot hold: set host-charset UTF-8") from None
    _print(text)
    if answer.then is not None:
        gdb.flush()
        told = answer.then()
        _print("" if args.json else told)


def _print(text: str) -> None:
    if text:
        text += "\n"
    for start in range(0, len(text), _CHUNK):
        gdb.write(text[start : start + _CHUNK])


def _on_nodes(command: type[Command], args: Args) -> Any:
    """The answer of other machines; None where the line names none."""
    from . import nodes

    planned = nodes.of_line(command, args)
    return nodes.run(command, args, planned) if planned else None


def complete(command: type[Command], text: str, word: str | None) -> Any:
    """Options after a dash, else the completions of the operand."""
    last = text.split(" ")[-1]
    word = last if word is None else word  # gdb asks a first time only to learn where words break
    if last.startswith("-"):
        dashes = "--" if last.startswith("--") else "-"
        names = [dashes + o.name for o in command.all_options()]
        return [n[len(last) - len(word) :] for n in names if n.startswith(last)]
    if command.completion == "expression":
        return _expression_words(text, word)
    if command.completion == "file":
        return gdb.COMPLETE_FILENAME
    words = command().complete(session, text)
    takes_process = command.completion == "what" or command.takes_target and not command.operand
    if takes_process or text.rstrip().endswith("-on"):
        words = [*words, *session.process_words(), "all"]
    return [w for w in words if w.startswith(word)]


def _expression_words(text: str, word: str) -> list[Any]:
    """Names of the selected Python frame, or attributes of the path before the last dot."""
    import re

    from ..cpython.expressions import evaluate
    from ..engines.sensitive_names import names_for

    path = re.findall(r"[\w.\[\]'\"$]*$", text)[0]
    base, dot, part = path.rpartition(".")
    try:
        frame = session.frame()
        if not dot:
            names = [n for n, v in frame.locals() if v is not None]
        else:
            value = evaluate(session.runtime(), base, frame, private=names_for(session.runtime()))
            names = [n for n, _ in value.fields()]
    except (GdbextError, gdb.error, AttributeError) as e:
        log.passed_over(e)
        return []
    prefix = word[: len(word) - len(part)] if part and word.endswith(part) else (word if not part else "")
    return [prefix + n for n in names if n.startswith(part)]
