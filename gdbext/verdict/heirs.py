"""Processes that merely inherited an end of a pipe: they have its descriptor, and no code of theirs uses it."""

from __future__ import annotations

from ..observe.system_calls import Call
from ..stacks import file_ends
from .facts import ProcessState


def inherited(p: ProcessState, call: Call) -> bool:
    """Whether a process merely inherited its end of the pipe that a call waits for: none of its threads is in a call on it, and
    none of its frames has it."""
    ends = [end for source in call.sources for end in file_ends.ends_of(call, source)]
    calls = [t.call for t in p.threads if t.call is not None]
    at = {source.inode for one in calls for source in one.sources}
    reached = any(p.at_ends.get(end) for end in ends) or any(inode in at for _, inode in ends)
    return not reached and p.main is not None and all(t.python for t in p.threads)
