"""The kinds of verdicts, one row each, from grave to harmless, with their meaning, gravity and quietness. There is no other list
of them."""

from __future__ import annotations


class Kind:
    """`name` in JSON, `meaning` for people; `quiet`: nothing is wrong that calls for more evidence; `lasts`: it is true only of a
    state that lasts, which one look cannot show."""

    def __init__(self, name: str, meaning: str, quiet: bool = False, lasts: bool = False) -> None:
        self.name, self.meaning, self.quiet, self.lasts = name, meaning, quiet, lasts


KINDS: tuple[Kind, ...] = (
    Kind("crashed", "a process has died"),
    Kind("frozen", "a process is in a frozen control group"),
    Kind("stopped", "a process is stopped"),
    Kind("lock-cycle", "threads, tasks or processes wait for one another in a ring"),
    Kind("lock-held", "a thread or process holds a lock and does not release it", lasts=True),
    Kind("gil", "one thread keeps the GIL", lasts=True),
    Kind("dead-thread", "a thread waits for one that has ended"),
    Kind("livelock", "a thread runs but makes no progress", lasts=True),
    Kind("loop-blocked", "an event loop cannot run its ready tasks", lasts=True),
    Kind("collective", "ranks wait in a collective for ranks that have not come", lasts=True),
    Kind("kernel", "a device kernel does not end", lasts=True),
    Kind("uninterruptible", "a thread is blocked in the kernel, where no signal reaches it (state D)"),
    Kind("starved", "a thread waits for data that another one does not produce", lasts=True),
    Kind("stuck-requests", "no thread is stuck, but requests are"),
    Kind("thrash", "requests are preempted over and over, and none produces a token"),
    Kind("orphaned", "processes of an engine whose parent is gone"),
    Kind("unknown", "not enough evidence"),
    Kind("startup", "the engine has not started up yet", quiet=True),
    Kind("busy", "something makes progress", quiet=True),
    Kind("idle", "everything waits for work, and nothing is owed", quiet=True),
)
GRAVITY = tuple(kind.name for kind in KINDS)
QUIET = tuple(kind.name for kind in KINDS if kind.quiet)
MEANING: dict[str, str] = {kind.name: kind.meaning for kind in KINDS}
LASTING = tuple(kind.name for kind in KINDS if kind.lasts)
