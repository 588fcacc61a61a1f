"""The result of several samples of a thread: whether it moved, advanced, ran, woke, or wanted a CPU. These are decided here
only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Iterable, Sequence

from .stack_keys import advanced, most_added

if TYPE_CHECKING:
    from ..cpython.poll_loops import Poll
    from .clocks import Clock
    from .effects import Effect
    from .gil_samples import Samples
    from .system_calls import Call

RUNS = 0.3  # part of a CPU: a thread that uses more is running
STILL = 0.03  # part of a CPU: a thread that uses less is not
LEAST = 0.05  # seconds of a CPU: in that time a thread that makes progress changes a variable of its own
LONG = 30.0  # seconds: a thread that sleeps for less may only pause between two items that it gives
SOON = 60.0  # seconds: a sleep that lasts no longer ends soon
KERNEL = 0.1  # part of a thread's time: a thread that is in the kernel for longer may change things there
PAGES = 200  # of memory: a thread that took more writes anew what it works out
PRESSED = 0.2  # part of a window for which a thread waited for a CPU: it moved less than it would have


@dataclass
class ThreadSample:
    """One thread at one moment."""

    tid: int
    clock: Clock | None = None  # None where the process is stopped, or the kernel was not asked
    stack: Any = None  # `stack_keys.stack_key`, None where that is not known

    @property
    def runs(self) -> bool:
        """Whether it has or wants a CPU."""
        return self.clock is not None and self.clock.state == "R"


@dataclass
class ThreadWindow:
    """The samples of one thread, in their order. Its clock and state are known at the first and the last one alone."""

    before: Clock | None = None  # at the first sample
    after: Clock | None = None  # at the last one
    stacks: list[Any] = field(default_factory=list)  # keys of its Python stacks
    effects: list[Effect] = field(default_factory=list)  # of the later samples of one that has not advanced
    call: Call | None = None  # the system call that it is in at the last sample
    kernel: str = ""  # the function of the kernel that it is in at the last one, in state D
    for_good: bool = False  # when its sleep ends, its code only sleeps again
    rounds: bool = False  # it sleeps in a loop that has no way out
    poll: Poll | None = None  # its loop at the last sample, where that only asks
    tries: Any = None  # the edge of a loop that tries again (`stacks.tries`)

    @property
    def asks(self) -> Poll | None:
        """Its loop, where that only asks and all samples are in it."""
        if self.poll is None or not all(self.poll.covers(stack) for stack in self.stacks):
            return None
        return self.poll

    @classmethod
    def of(cls, samples: Iterable[ThreadSample]) -> ThreadWindow:
        """The window of samples that were taken one by one."""
        samples = list(samples)
        clocks = [s.clock for s in samples]
        stacks = [s.stack for s in samples if s.stack]
        return cls(clocks[0], clocks[-1], stacks) if samples else cls()

    @property
    def ran(self) -> float | None:
        """Seconds on a CPU, None where that is not known."""
        return self.after.run - self.before.run if self.before and self.after else None

    @property
    def wanted(self) -> float | None:
        """Seconds on a CPU or waiting for one, None where that is not known."""
        ran = self.ran
        return ran + self.queued if ran is not None else None

    @property
    def queued(self) -> float:
        """Seconds that it waited for a CPU."""
        return self.after.queued - self.before.queued if self.before and self.after else 0.0

    @property
    def woke(self) -> int:
        """How often it went to sleep of itself."""
        return self.after.sleeps - self.before.sleeps if self.before and self.after else 0

    @property
    def took(self) -> int:
        """How many pages of memory it was given: code that only goes round in one place takes none."""
        return self.after.faults - self.before.faults if self.before and self.after and self.before.faults >= 0 else 0

    @property
    def moved(self) -> bool:
        """Whether two samples show different Python stacks."""
        return len(set(self.stacks)) > 1

    @property
    def changes(self) -> int:
        """How often its stack differed from that of the sample before."""
        return sum(a != b for a, b in zip(self.stacks, self.stacks[1:]))

    @property
    def advanced(self) -> bool:
        """Whether variables of its frames changed while its calls stayed the same: it makes progress in a loop."""
        return advanced(self.stacks)

    @property
    def got_on(self) -> bool:
        """Whether its stacks, cut off at its loop's own frames, show progress: the loop made another call, or a variable has
        another value."""
        return any(a[-1].code != b[-1].code for a, b in zip(self.stacks, self.stacks[1:])) or self.advanced

    def asks_anew(self, seconds: float) -> bool:
        """Whether it waits over and over in one place, each time up to a limit, and got hardly anything in the window of so many
        `seconds`: all samples are in the function that makes the call, it woke no more often than these limits wake it, and no
        int of its frames changed by more than a count of these turns."""
        call, before = self.call, self.before
        if (
            call is None
            or not call.limited
            or call.name not in ("poll", "select", "epoll")
            or before is None
            or before.sleeps < 0
        ):
            return False
        whole = [stack for stack in self.stacks if stack and hasattr(stack[0], "code")]
        if not call.seconds or self.woke > seconds / call.seconds + 1 or len({stack[0].code for stack in whole}) != 1:
            return False
        return most_added(whole[0], whole[-1]) <= self.woke + 1

    @property
    def alters(self) -> bool:
        """Whether it runs and changes objects that it can reach, which need be no variables of its frames."""
        known = [one.state for one in self.effects if one.state is not None]
        return any(state != known[0] for state in known)

    @property
    def futile(self) -> bool:
        """Whether it runs and is known to change nothing: everything it can reach stayed the same, and hardly any of its time was
        in the kernel."""
        found = self.effects
        if len(found) < 2 or found[0].state is None or any(one.state != found[0].state for one in found):
            return False
        return found[-1].kernel - found[0].kernel <= KERNEL * (found[-1].ran - found[0].ran) > 0


def denied(samples: Sequence[ThreadSample]) -> bool:
    """Whether a thread was ready to run in all its samples and hardly had a CPU: it may be about to make progress."""
    ran = [s.clock.run for s in samples if s.clock is not None]
    return len(ran) == len(samples) > 0 and all(s.runs for s in samples) and max(ran) - min(ran) < LEAST


class Window:
    """The samples of one process."""

    def __init__(self) -> None:
        self.threads: dict[int, ThreadWindow] = {}  # by tid
        self.seconds = 0.0  # between the first clocks and the last
        self.gil: Samples | None = None
        self.waited = False  # in some sample its main thread was in a wait that others end

    def thread(self, tid: int) -> ThreadWindow:
        """The window of one thread, without samples where it was not seen."""
        return self.threads.get(tid) or ThreadWindow()

    def begin(self, clocks: dict[int, Clock]) -> None:
        """Takes in the first clocks."""
        for tid, clock in clocks.items():
            self.threads.setdefault(tid, ThreadWindow()).before = clock

    def end(self, clocks: dict[int, Clock], seconds: float) -> None:
        """Takes in the last clocks."""
        self.seconds = seconds
        for tid in clocks.keys() | self.threads.keys():
            self.threads.setdefault(tid, ThreadWindow()).after = clocks.get(tid)

    def enter(self, calls: dict[int, Call], anew: bool) -> None:
        """Takes in the system calls that threads are in; `anew`: they replace all earlier ones."""
        for thread in self.threads.values() if anew else ():
            thread.call = None
        for tid, call in calls.items():
            self.threads.setdefault(tid, ThreadWindow()).call = call

    @property
    def after(self) -> dict[int, Clock]:
        """{tid: its last clock} of the threads that were there at the end."""
        return {tid: thread.after for tid, thread in self.threads.items() if thread.after is not None}

    @property
    def pressed(self) -> float:
        """The part of the window for which a thread waited for a CPU, of the thread that waited longest."""
        return max((thread.queued for thread in self.threads.values()), default=0.0) / self.seconds if self.seconds else 0.0

    def load(self, seconds: float | None) -> float | None:
        """A time as a part of the window, None where it is not known."""
        return seconds / self.seconds if seconds is not None and self.seconds else None
