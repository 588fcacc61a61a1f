"""The kinds of verdicts, one row each, from grave to harmless, with their meaning, gravity and quietness. There is no other list
of them."""

from __future__ import annotations


class Kind:
    """`name` in JSON, `meaning` for people; `does`: the same of one culprit; `quiet`: nothing is wrong that calls for more
    evidence; `lasts`: it is true only of a state that lasts, which one look cannot show."""

    def __init__(self, name: str, meaning: str, does: str = "", quiet: bool = False, lasts: bool = False) -> None:
        self.name, self.meaning, self.does, self.quiet, self.lasts = name, meaning, does, quiet, lasts


KINDS: tuple[Kind, ...] = (
    Kind("crashed", "a process has died", "has died"),
    Kind("frozen", "a process is in a frozen control group", "is in a frozen control group"),
    Kind("stopped", "a process is stopped", "is stopped"),
    Kind("lock-cycle", "threads, tasks or processes wait for one another in a ring"),
    Kind(
        "lock-held",
        "a thread or process holds a lock and does not release it",
        "holds a lock and does not release it",
        lasts=True,
    ),
    Kind("gil", "one thread keeps the GIL (free-threaded: all others from stopping)", "keeps the GIL", lasts=True),
    Kind("dead-thread", "a thread waits for one that has ended"),
    Kind("livelock", "a thread runs but makes no progress", "runs but makes no progress", lasts=True),
    Kind("loop-blocked", "an event loop cannot run its ready tasks", "keeps its event loop from other work", lasts=True),
    Kind(
        "collective",
        "ranks wait in a collective for ranks that have not come",
        "has not come to a collective in which others wait",
        lasts=True,
    ),
    Kind("kernel", "a device kernel does not end", "waits for a device kernel that does not end", lasts=True),
    Kind(
        "uninterruptible",
        "a thread is blocked in the kernel, where no signal reaches it (state D)",
        "is blocked in the kernel, where no signal reaches it",
    ),
    Kind("starved", "a thread waits for data that another one does not produce", lasts=True),
    Kind("stuck-requests", "no thread is stuck, but requests are"),
    Kind("thrash", "requests are preempted over and over, and none produces a token"),
    Kind("orphaned", "processes of an engine whose parent is gone", "runs on without its parent"),
    Kind("unknown", "not enough evidence"),
    Kind("startup", "the engine has not started up yet", quiet=True),
    Kind("busy", "something makes progress", "makes progress", quiet=True),
    Kind("idle", "everything waits for work, and nothing is owed", quiet=True),
)
GRAVITY = tuple(kind.name for kind in KINDS)
QUIET = tuple(kind.name for kind in KINDS if kind.quiet)
MEANING: dict[str, str] = {kind.name: kind.meaning for kind in KINDS}
DOES: dict[str, str] = {kind.name: kind.does for kind in KINDS if kind.does}
STATUS = {"unknown": 3, **dict.fromkeys(QUIET, 0)}  # the exit status of each; 2 of all others
LASTING = tuple(kind.name for kind in KINDS if kind.lasts)
