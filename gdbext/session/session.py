"""The environment of a command: the selected process, thread and Python frame, the last list of ranks, how to print.

`Session` works outside gdb on processes named by -on; `gdb_session.GdbSession` adds gdb's own selection.
"""

from __future__ import annotations

import sys
from typing import AbstractSet, Any, Callable, Sequence

from .. import log, package
from ..access.base import Target
from ..access.proctable import ProcTable
from ..cpython import adapters
from ..cpython import runtime as runtimes
from ..cpython.frames import PyFrame
from ..cpython.runtime import PyThread, Runtime
from ..engines import discover, targets
from ..engines import sensitive_names as privacy
from ..engines.rank import Rank
from ..errors import FaultError, GdbextError, LayoutError, NotFoundError
from ..render import streams
from ..render.columns import wrapped
from ..render.text import Style, coloured, knows_links
from .command import Answer, Args, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..engines.processes import ProcessRef
    from .stillness import Copies


def _torch() -> Any:
    """The objects of torch's room, loaded with the first of them."""
    from ..torch import adapter

    return adapter


def register_adapters() -> None:
    """Registers the adapters of torch's room in the Python room."""
    adapters.register(("torch._C.TensorBase", "torch._C._TensorBase"), lambda obj: _torch().TensorAdapter(obj))
    adapters.register(("torch.dtype",), lambda obj: _torch().Dtype.of_object(obj))
    adapters.register(("torch.device",), lambda obj: _torch().Device.of_object(obj))
    adapters.register(("torch.Size",), lambda obj: _torch().Size.of_object(obj))
    adapters.register(("torch.nn.modules.module.Module",), lambda obj: _torch().ModuleAdapter(obj))
    containers = [f"torch.nn.modules.container.{name}" for name in ("Sequential", "ModuleList", "ModuleDict")]
    adapters.register(containers, lambda obj: _torch().ContainerAdapter(obj))


NEEDS_GDB = f"this command works inside gdb; `{package.how()} gdb` prints the line that loads it there"


def _chosen(one: ProcessRef) -> str:
    return one.name if one.pid is not None else one.exact


class Session:
    in_gdb = False

    def __init__(self, how: str = "") -> None:
        self.how = how  # what a person types before a command here, for lines that say what to type next
        self.ranks: list[Rank] = []  # the last llm-ranks
        self.last = None  # $py
        self.moving = False  # the command at work reads a process that runs
        self.copies: Copies | None = None  # read instead of the running processes, with -still
        self.targets = targets.Targets(self._attached)  # of every process and core file that a command reads
        self._levels: dict[Any, int] = {}  # target -> (epoch, tid, Python frame level)

    # ---- which process -------------------------------------------------------------------------------------------
    def target(self, on: str | None = None) -> Target:
        """The `Target` that `-on` names, else the selected one."""
        if on is None:
            raise GdbextError("no process given: add -on PID, a label or a core file (./FILE)")
        return self.open(self.resolve_one(on))

    def this_of(self, classes: Any, types: Any) -> Any:
        """`(class, C++ object, inner frames)` whose method a frame of the selected process runs, by debug information; None
        outside gdb."""
        return None

    def resolve(self, what: str) -> list[ProcessRef]:
        """Resolves a WHAT to at least one process or core file."""
        return self.resolve_each([what])

    def resolve_each(self, words: Sequence[str]) -> list[ProcessRef]:
        """The processes and core files that several WHATs name, each once. The machine is searched once for all pids together."""
        from ..engines import what as naming

        found: dict[ProcessRef, None] = {}
        pids, lone = [word for word in words if word.isdecimal() and word.isascii()], []  # `lone`: of no engine
        for what in words:
            stale = what.strip().lower() == "all" and any(r.process.fate() for r in self.ranks)
            if stale or not self.ranks and what not in lone and not naming.is_path(what):
                lone = pids if what in pids else []
                self.ranks, _ = discover.discover(about=list(map(int, lone)) or None)
            for one in naming.resolve(what, self.ranks):
                self._refuse_ended(what, one)
                found[one] = None
        return list(found)

    def process_words(self) -> list[str]:
        """What completes a process: the labels and pids of engine processes, and the pids of all other Pythons."""
        labels: list[str] = []
        with log.passing_over(GdbextError):  # no engine runs here
            labels = [one.name for one in self.resolve("all")]
        return list(dict.fromkeys([*labels, *(str(one.pid) for one in ProcTable() if one.is_python)]))

    def with_children(self, text: str) -> str:
        """WHAT... and the pids of all Pythons below these processes, of any depth. `GdbextError` where nothing is named."""
        words = text.replace(",", " ").split() or list(filter(None, [str(self.selected_pid() or "")]))
        if not words:
            raise GdbextError("-subprocesses: name the process whose children are meant")
        table = ProcTable()
        parents = [one.pid for one in self.resolve_each(words) if one.pid is not None]
        known, left = set(parents), list(parents)
        while left:
            below = [child.pid for child in table.children.get(left.pop(), []) if child.pid not in known and not child.exits]
            known.update(below)
            left += below
        more = [pid for pid in sorted(known - set(parents)) if table.processes[pid].is_python]
        return " ".join([*words, *map(str, more)])

    def resolve_one(self, what: str) -> ProcessRef:
        """Resolves a WHAT that must name one process; `GdbextError` with the candidates where it names several."""
        found = self.resolve(what)
        if len(found) != 1:
            raise GdbextError(f"{what} names {len(found)} processes: choose one of {', '.join(map(_chosen, found))}")
        return found[0]

    @staticmethod
    def _refuse_ended(what: str, one: Any) -> None:
        """Raises `NotFoundError` for an engine's process that has ended since it was listed: its pid may name another one by
        now."""
        fate = one.rank.process.fate() if one.rank is not None else ""
        if fate:
            named = f"{what} was {one.label} (pid {one.pid}), which" if what.isdigit() else f"{one.label} (pid {one.pid})"
            raise NotFoundError(f"{named} {fate}; llm-ranks lists what runs now")

    def process(self, pid: int) -> ProcessRef:
        """The process with that pid. Where the last llm-ranks lists it, it comes with its rank."""
        from ..engines import processes

        known = next((r for r in self.ranks if r.pid == pid), None)
        return processes.ProcessRef(pid) if known is None else processes.ProcessRef.of_rank(known)

    def open(self, one: ProcessRef) -> Target:
        """A `Target` for a process or core file."""
        attached = self.targets.attached(one)
        if attached is not None:
            return attached
        self._refuse_ended("", one)
        if self.copies is not None and one.pid is not None:
            return self.copies.of(one)
        target = self.targets.of(one)
        self.moving = self.moving or not target.is_stopped
        return target

    def is_running(self, target: Target) -> bool:
        """Whether its process still exists: also of a copy that the command at work reads in its place."""
        return target.is_live or self.copies is not None and self.copies.holds(target)

    def still(
        self,
        command: Command,
        args: Args,
        run: Callable[[], Answer],
        lacking: tuple[type[GdbextError], ...] = (FaultError, LayoutError),
    ) -> Answer:
        """The answer of a command that reads copies of the running processes. Copies that lack something are made again.
        `lacking`: the errors by which that is known. What is not found may lack, too, where it is known to be there."""
        from . import stillness

        copies = self.copies = stillness.Copies(command, args)
        try:
            while True:
                last = copies.made + 1 == stillness.TRIES
                try:
                    answer = run()
                    if last or not copies.partial:
                        return copies.told(answer)
                except lacking as e:
                    if last or not copies.pauses:
                        raise
                    log.passed_over(e)
                copies.anew()
        finally:
            self.copies = None

    def _attached(self, pid: int) -> Target | None:
        """gdb's own Target of a process, None where gdb has not attached it."""
        return None

    def inferior_of(self, pid: int) -> int | None:
        """gdb's number of the inferior that holds `pid`, or None."""
        return None

    def stop_nothing(self, command: Command) -> None:
        """From now on this process can stop no other one; `GdbextError` where the kernel does not promise that."""
        from ..access import stop_nothing  # it loads ctypes

        stop_nothing.install()

    def selected_pid(self) -> int | None:
        """The pid of the process that gdb has selected, or None."""
        return None

    def sees_device(self) -> bool:
        """Whether this is a gdb that can stop in a kernel."""
        return False

    def device(self) -> Any:
        """cuda-gdb's view of the GPU; `GdbextError` where there is none."""
        raise GdbextError(NEEDS_GDB)

    def registers(self) -> dict[str, int]:
        """{name: value} of the selected thread, at its innermost frame."""
        raise GdbextError(NEEDS_GDB)

    def attached_inferior(self, what: str | None = None) -> Any:
        """gdb's inferior that a WHAT names, without one the selected inferior."""
        raise GdbextError(NEEDS_GDB)

    def target_of_inferior(self, inferior: Any) -> Target:
        """The `Target` of a process or core that gdb holds."""
        raise GdbextError(NEEDS_GDB)

    def device_kernels(self) -> list[Any]:
        """The kernels that a debugger of the GPU sees running."""
        return []

    @staticmethod
    def partial(target: Target) -> list[str]:
        """The reasons for `partial` that follow from the kind of target."""
        several = target.lasting.get("several CPythons")
        return ([] if target.is_stopped else ["unstopped"]) + ([several] if several else [])

    # ---- Python --------------------------------------------------------------------------------------------------
    def runtime(self, on: str | None = None) -> Runtime:
        target = self.target(on)
        found = runtimes.open_runtime(target)
        others = runtimes.all_runtimes(target)[1:]
        tid = self.tid(on) if others else None
        if tid is not None and found.thread(tid) is None:  # the selected thread's
            found = next((other for other in others if other.thread(tid) is not None), found)
        register_adapters()
        return found

    @staticmethod
    def private(rt: Runtime, args: Args) -> AbstractSet[str]:
        """Names whose content stays hidden: those of an engine's prompts and tokens, unless -show-content is given."""
        return frozenset() if args.show_content else privacy.names_for(rt)

    def tid(self, on: str | None = None) -> int | None:
        """The selected thread's tid; None where nothing is selected (then the main thread counts)."""
        return None

    def python_thread(self, on: str | None = None) -> PyThread:
        """The selected `PyThread`, else the main one; `NotFoundError` naming those that run Python."""
        rt, tid = self.runtime(on), self.tid(on)
        threads = rt.threads()
        if not threads:
            raise NotFoundError(f"{rt.target.describe()} has no Python thread")
        if tid is None:
            return threads[0]
        found = rt.thread(tid)
        if found is None:
            with_python = ", ".join(str(th.tid) for th in threads[:8])
            raise NotFoundError(f"thread {tid} runs no Python; threads that do: {with_python} (pybt -all shows them)")
        return found

    def frames(self, on: str | None = None) -> list[PyFrame]:
        rt = self.runtime(on)
        thread = self.python_thread(on)
        frames = rt.frames(thread)
        if not frames:
            raise NotFoundError(f"thread {thread.tid} has no Python frame now")
        return frames

    def level(self, on: str | None = None) -> int:
        """The selected Python frame's level in the selected thread: 0 after every stop."""
        key = self._frame_key(on)
        return self._levels.get(key, 0)

    def has_selected(self, on: str | None = None) -> bool:
        """Whether a Python frame of the process was selected, by pyframe, pyup or pydown, since it stopped."""
        return self._frame_key(on) in self._levels

    def select(self, level: int, on: str | None = None) -> None:
        self._levels = {self._frame_key(on): level}

    def _frame_key(self, on: Any) -> tuple[Any, ...]:
        target = self.target(on)
        if target.pid and (not target.is_stopped or self.copies is not None and self.copies.holds(target)):
            return target.pid, 0, self.tid(on)
        return id(target), target.epoch, self.tid(on)

    def frame(self, on: str | None = None) -> PyFrame:
        """The selected `PyFrame`."""
        frames = self.frames(on)
        level = self.level(on)
        return frames[level] if level < len(frames) else frames[0]

    # ---- printing ------------------------------------------------------------------------------------------------
    def style(self) -> Style:
        terminal = sys.stdout.isatty()
        style = Style(coloured(terminal), streams.columns(sys.stdout))
        style.links, style.wraps, style.how = knows_links(terminal), style.width, self.how
        return style

    def style_for(self, args: Args) -> Style:
        """How a command with these options prints."""
        style = self.style()
        style.full_paths = args.full_paths
        return style

    def written(self, command: str, args: Args, answer: Answer) -> str:
        """An answer as the options of its command want it: one line of JSON, or text."""
        if args.json:
            return answer.json(command)
        style = self.style_for(args)
        return wrapped(answer.to_text(style), style.wraps)
