"""Processes, their threads and frames."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from .. import log
from ..access.base import Target
from ..access.retry import retry_reading
from ..cpython import hiding, schedulers, tasks
from ..engines import kv_view, registry
from ..engines.processes import ProcessRef
from ..engines.sensitive_names import shown_name
from ..errors import GdbextError, NotFoundError
from ..render import html
from ..stacks import threads as reading
from ..stacks.merge import Merged
from ..stacks.threads import ProcessView, ThreadView
from .engines import Engine
from .values import Memory, MissingItem, Object
from .waits import Wait, wait_of

if TYPE_CHECKING:
    from .opening import Opened
    from .verdicts import Verdict


class Frame:
    """One frame. `kind`: "python" or "native"; `function`; `file`: the source file of Python code, the library of native code;
    `line`: None where it is not known. `frame["name"]` is a variable of Python code, `locals` has all of them."""

    def __init__(self, process: Process, entry: Merged) -> None:
        self._process, self._entry = process, entry
        shown = reading.frame_of(entry)
        self.kind, self.function, self.file, self.line = shown.kind, shown.function, shown.file, shown.line

    @property
    def locals(self) -> dict[str, Object]:
        """{name: value} of the variables that are set; {} of a native frame."""
        frame, memory = self._entry.python, self._process.memory
        if frame is None:
            return {}
        running = not self._process.target.is_stopped
        found = memory.read(
            lambda: [
                (name, hiding.under(name, value))
                for name, value in (frame.locals_now() if running else frame.locals())
                if value is not None
            ]
        )
        return {name: memory.made(value, name) for name, value in found}

    def __getitem__(self, name: str) -> Object:
        """The variable `name`; `MissingItem` (a `KeyError`) where the frame has none that is set."""
        found = self.locals
        if name not in found:
            raise MissingItem(f"{self!r} has no variable {name}" + (f"; it has {', '.join(found)}" if found else ""))
        return found[name]

    def __contains__(self, name: object) -> bool:
        return name in self.locals

    def evaluate(self, expression: str) -> Object:
        """The value of an expression of names of this frame, as `pyprint` reads it: `frame.evaluate("len(self.running)")`."""
        if self._entry.python is None:
            raise NotFoundError(f"{self!r} is no Python frame: it has no names")
        return self._process.memory.evaluate(expression, self._entry.python)

    def __repr__(self) -> str:
        return f"<Frame {self.function or '?'} ({os.path.basename(self.file)}{f':{self.line}' if self.line is not None else ''})>"

    def _repr_html_(self) -> str:
        """Its variables, for a notebook."""
        rows = [(name, value.type_name, repr(value)) for name, value in self.locals.items()]
        return f"<div>{html.text(repr(self))}</div>" + html.table(("name", "type", "value"), rows)


class Thread:
    """One thread. `tid`; `name`; `state`: the letter of proc(5), "S" sleeps, "R" runs; `gil`: "holds", "waits", "none", "unknown"
    or "disabled"; `idle`: it is a pool's worker that waits for work."""

    def __init__(self, process: Process, view: ThreadView) -> None:
        self.process, self._view = process, view
        self.tid, self.name, self.state, self.gil, self.idle = view.tid, view.name, view.state, view.gil, view.idle

    @property
    def frames(self) -> list[Frame]:
        """Its Python frames, innermost first; [] of a thread that runs no Python."""
        return [frame for frame in self.stack if frame.kind == "python"]

    @property
    def stack(self) -> list[Frame]:
        """Its Python and native frames as one stack, innermost first; Python frames only where it runs (`live=True`)."""
        return [Frame(self.process, entry) for entry in self._view.merged]

    @property
    def wait(self) -> Wait | None:
        """What it waits for; None where it waits for nothing that others have to do: it runs, sleeps, or waits for input."""
        return self.process.wait_of(self)

    @property
    def partial(self) -> list[str]:
        """Why its stack is not complete."""
        return list(self._view.reasons)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thread) and (self.process, self.tid) == (other.process, other.tid)

    def __hash__(self) -> int:
        return hash(self.tid)

    def __repr__(self) -> str:
        return f"<Thread {self.tid} {self.name}>"

    def _repr_html_(self) -> str:
        """Its stack, for a notebook."""
        rows = [(frame.function, frame.file, "" if frame.line is None else frame.line) for frame in self.stack]
        return f"<div>{html.text(repr(self))} {html.text(self.wait or self.state)}</div>" + html.table(
            ("function", "file", "line"), rows
        )


class Task:
    """One task of asyncio, trio, anyio or Twisted. `name`; `coroutine`: its function; `state`: "running", "ready", "waiting",
    "done" or "cancelled"; `waits_for`: in words, '' for nothing; `partial`: why it is not complete."""

    def __init__(self, process: Process, read: tasks.Task, name: str) -> None:
        self.process, self.name, self.state, self.coroutine = process, name, read.state, read.coroutine
        self.waits_for = read.waits.text if read.waits is not None else ""
        self.partial = [read.error] if read.error else []
        self._frames = read.frames

    @property
    def frames(self) -> list[Frame]:
        """Its frames, innermost first."""
        return [Frame(self.process, Merged(python=frame)) for frame in self._frames]

    def __repr__(self) -> str:
        return f"<Task {self.name} {self.coroutine} {self.state}>"


class Process:
    """One process: of one moment (a copy, a core, a snapshot, or stopped in gdb), or with `live=True` as it runs. A context
    manager: `close` frees the copy.

    * `pid`; `label`: of an engine's process, as `llm-ranks` has it; `name`: the label, else the pid; `role`: in its engine,
      or ''; `node`: of another machine, else ''
    * `pauses`: `[{pid, seconds, woken}]` for which it was stopped; `partial`: what the copy lacks"""

    def __init__(self, opened: Opened, ref: ProcessRef, target: Target) -> None:
        self.opened, self.ref, self.target = opened, ref, target
        self.pid, self.label, self.node = target.pid or ref.pid, ref.label or target.label, ref.node
        self.name = self.label or (str(self.pid) if self.pid else os.path.basename(ref.core))
        self.role = ref.rank.role if ref.rank is not None else ""
        self.memory = Memory(target, opened.show_content)
        self.pauses, self.partial = opened.told_of(ref, target)
        self._view: ProcessView | None = None

    # ---- threads -------------------------------------------------------------------------------------------------
    @property
    def view(self) -> ProcessView:
        """Its threads as the rooms below read them; of a process that runs they are read anew."""
        if self._view is None or not self.target.is_stopped:
            if not self.target.is_stopped:
                self.target.invalidate()
            self._view = reading.ProcessView(self.target, self.label, self.ref.rank)
            self._view.live = self.target.is_live
        return self._view

    @property
    def threads(self) -> list[Thread]:
        """Its threads: the main one first, then those that run Python, then the others."""
        return [Thread(self, one) for one in self.view.threads]

    def thread(self, tid: int | None = None) -> Thread:
        """The thread with this tid; without one the selected thread (in gdb), else the main one. `NotFoundError` where there is
        none."""
        wanted = tid if tid is not None else self.opened.tid
        found = self.threads
        for one in found:
            if wanted in (None, one.tid):
                return one
        if tid is None and found:
            return found[0]
        raise NotFoundError(f"{self.name} has no thread {wanted}; it has {', '.join(str(one.tid) for one in found[:16])}")

    @property
    def tasks(self) -> list[Task]:
        """Its tasks that have not ended, by loop and name. What users sent is not in their names."""
        rt, shown = self.memory.rt, str if self.opened.show_content else functools.partial(shown_name, self.memory.rt)

        def read() -> list[tasks.Task]:
            return schedulers.tasks(rt, False, shown)[0]

        if not self.target.is_stopped:
            self.target.drop_pages()
        found = read() if self.target.is_stopped else retry_reading(self.target, read)
        return [Task(self, one, shown(one.name)) for one in found]

    def wait_of(self, thread: Thread) -> Wait | None:
        """The wait of one of its threads, as one look at all processes of the same moment shows it."""
        if not self.target.is_stopped:
            with self.moment() as copy:
                return copy.wait_of(thread)
        look = self.opened.look()
        return wait_of(look, thread, (self.view.name, thread.tid), self.opened.thread_at, self.object_at)

    # ---- objects -------------------------------------------------------------------------------------------------
    def evaluate(self, expression: str) -> Object:
        """The value of an expression that needs no frame: `"vllm.distributed.parallel_state:_TP.rank"`, a module's global behind
        the colon, or `"0x7f..."`, an address."""
        return self.memory.evaluate(expression)

    def object_at(self, address: int) -> Object:
        """The Python object at an address; `GdbextError` where there is none."""
        return self.memory.object_at(address)

    # ---- engine and verdict --------------------------------------------------------------------------------------
    @property
    def engine(self) -> Engine | None:
        """The engine that it belongs to, with those of its processes that were opened together; None where it is none's."""
        return self.opened.engine_of(self)

    @property
    def has_scheduler(self) -> bool:
        """Whether an engine's scheduler is in it."""
        try:
            return kv_view.scheduler_of(self.memory.rt) is not None
        except GdbextError as e:
            log.passed_over(e)
            return False

    @property
    def engine_name(self) -> str:
        """ "vllm"; '' where it runs no engine."""
        if self.ref.rank is not None:
            return self.ref.rank.engine
        try:
            spec = registry.spec_of_runtime(self.memory.rt)
        except GdbextError as e:
            log.passed_over(e)
            return ""
        return spec.name if spec is not None else ""

    def hang(self, wait: float = 1.0) -> Verdict:
        """Why it hangs, or that it does not. A process that runs is looked at anew: it is watched for `wait` seconds without a
        stop, then copied in a pause of milliseconds. Of a core, a snapshot, and a process stopped in gdb: what it shows."""
        return self.opened.judged([self.ref], wait)

    def moment(self) -> Process:
        """It at one moment, now: a new copy."""
        return self.opened.again(self.ref)

    def close(self) -> None:
        """Frees its copy."""
        self.opened.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Process {self.name}{f' pid {self.pid}' if self.label else ''}{' live' if not self.target.is_stopped else ''}>"

    def _repr_html_(self) -> str:
        """Its threads, for a notebook."""
        rows = [(t.tid, t.name, t.state, t.gil, next((repr(f) for f in t.stack), "")) for t in self.threads]
        return f"<div>{html.text(repr(self))}</div>" + html.table(("tid", "name", "state", "gil", "in"), rows)


class Ranks:
    """Several processes that were opened together: a sequence, and a context manager."""

    def __init__(self, opened: Opened, processes: Sequence[Process]) -> None:
        self._opened, self._processes = opened, list(processes)
        self.failed = opened.failed  # [{label, pid, reason}] of those that could not be opened

    def __len__(self) -> int:
        return len(self._processes)

    def __iter__(self) -> Iterator[Process]:
        return iter(self._processes)

    def __getitem__(self, key: Any) -> Any:
        """By number, label, or pid: `ranks[0]`, `ranks["TP0"]`, `ranks[4242]`, where a number is below their count."""
        if isinstance(key, slice) or isinstance(key, int) and -len(self) <= key < len(self):
            return self._processes[key]
        for one in self._processes:
            if str(key) in (one.label, one.name, str(one.pid)):
                return one
        raise MissingItem(f"none is called {key}; there are {', '.join(p.name for p in self._processes)}")

    @property
    def engines(self) -> list[Engine]:
        """The engines that they belong to."""
        found: dict[Any, Engine] = {}
        for one in self._processes:
            engine = one.engine if self._opened.family_of(one) not in found else None
            if engine is not None:
                found[self._opened.family_of(one)] = engine
        return list(found.values())

    def hang(self, wait: float = 1.0) -> Verdict:
        """Why they hang, or that they do not: one verdict on all of them, as `Process.hang`."""
        return self._opened.judged([p.ref for p in self._processes], wait)

    def close(self) -> None:
        """Frees their copies."""
        self._opened.close()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ranks {', '.join(p.name for p in self._processes)}>"

    def _repr_html_(self) -> str:
        """One row each, for a notebook."""
        return html.table(("label", "pid", "role", "engine"), [(p.name, p.pid, p.role, p.engine_name) for p in self._processes])
