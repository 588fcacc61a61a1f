"""pynext, pystep, pyfinish, pyuntil: one line of Python further, all threads resumed."""

from __future__ import annotations

from typing import Any

from .. import log
from ..answers.breakpoints import STEPPED
from ..answers.shapes import SELECTED
from ..errors import GdbextError
from ..render.text import escape
from ..session.command import Answer, Args, Command, UsageError
from ..session.gdb_only import labels_of_attached, require_gdb
from ..session.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..control.hw_breakpoints import StopContext


class _Step(Command):
    group = "break"
    fields = STEPPED
    takes_target = False
    resumes = True
    gdb_only = True

    def step(self, session: Session, pystep: Any, label: str, args: Args) -> StopContext | None:
        """Steps, and waits for the end."""
        raise NotImplementedError

    def run(self, session: Session, args: Args) -> Answer:
        pystep = require_gdb(session, "pystep")
        label = labels_of_attached(session).get(session.selected_pid() or 0, "")
        stop = self.step(session, pystep, label, args)
        if stop is None:
            return Answer(
                STEPPED.of(frame=None),
                "the step did not end: the process stopped for another reason (or ended)",
                ["the step did not end"],
            )
        place = SELECTED.of(index=0, function=escape(stop.frame.function), file=escape(stop.frame.file), line=stop.frame.line)
        data = STEPPED.of(frame=place, tid=stop.tid)
        shown = pystep.text(stop, session.style_for(args))
        if stop.returned is not None:
            data["returned"] = stop.returned
            shown += f"\nreturned {stop.returned}"
        return Answer(data, lambda style: shown)


class PyNext(_Step):
    """Run to the next line of Python in this function, or to its caller (R). Calls run at full speed; all threads run.

    Enter repeats it. Two debug registers are needed. A line of a loop in one line counts as one. The other attached processes run
    meanwhile, as a collective needs it; where one of them is at a breakpoint of its own they stay, and after two seconds it
    is said which ranks are stopped. pystep, pyfinish and pyuntil do the same.

    Settings: schedule-multiple, while they run; then it is as before.

        (gdb) pynext
        Scheduler.schedule at vllm/v1/core/sched/scheduler.py:413, thread 4242
        413             num_scheduled_tokens: dict[str, int] = {}
    """

    name = "pynext"
    repeats = True

    def step(self, session: Session, pystep: Any, label: str, args: Args) -> StopContext | None:
        stop: StopContext | None = pystep.over(label)
        return stop


class PyUntil(_Step):
    """Run until a later line of this function, past the end of a loop, or to its caller (R). All threads run.

        (gdb) pyuntil
        (gdb) pyuntil 430

    With LINE: until that line or a later one of this function.
    """

    name = "pyuntil"
    operand = "[LINE]"

    def step(self, session: Session, pystep: Any, label: str, args: Args) -> StopContext | None:
        if args.operand_text and not args.operand_text.isdecimal():
            raise UsageError(f"pyuntil: takes a line number of this function, not {args.operand_text!r}")
        stop: StopContext | None = pystep.over(
            label, only_forward=True, until=int(args.operand_text) if args.operand_text else None
        )
        return stop


class PyStep(_Step):
    """Run to the next line of Python, also into a function that is called (R). All threads run.

    Functions of the import machinery are not entered. Two debug registers are needed, three on Python 3.11 and 3.12.

        (gdb) pystep
        KVCacheManager.new_step_starts at vllm/v1/core/kv_cache_manager.py:501, thread 4242
        501             self.coordinator.new_step_starts()
    """

    name = "pystep"
    repeats = True

    def step(self, session: Session, pystep: Any, label: str, args: Args) -> StopContext | None:
        stop: StopContext | None = pystep.into(label)
        return stop


class PyFinish(_Step):
    """Run until the selected Python frame has returned to its caller, by a return or an exception (R). All threads run.

    (gdb) pyfinish
    EngineCore.step at vllm/v1/engine/core.py:287, thread 4242
    287         scheduler_output = self.scheduler.schedule()
    returned <vllm.v1.core.sched.output.SchedulerOutput object at 0x7f…>

    The value is reported where a debug register is left for each return of the function; a frame that an exception ends
    returns none.
    """

    name = "pyfinish"

    def step(self, session: Session, pystep: Any, label: str, args: Args) -> StopContext | None:
        try:
            level = session.level()
        except GdbextError as e:
            log.passed_over(e)
            level = 0
        stop: StopContext | None = pystep.out(label, level)
        return stop
