"""Looking at processes and judging them: what llm-hang, llm-watch and llm-report stand on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from ..stacks import sampling
from .from_samples import facts_of
from .judge import judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..stacks.sampling import ProcessSamples
    from .facts import Verdict

LONGER = 3.0  # times the first look: for a device that only takes its time


class Examination:
    """`seen`: `[ProcessSamples]`, `verdicts`: the gravest first, `facts` that they were made from."""

    def __init__(self, seen: list[ProcessSamples]) -> None:
        self.seen = seen
        self.facts = [facts_of(s) for s in seen]
        self.verdicts: list[Verdict] = judge(self.facts)


def examine(found: Sequence[Any], held: Callable[[Any], Any], seconds: float, words: Sequence[str] = ()) -> Examination:
    """Looks for `seconds` at what `resolve_processes` gave. What waits for its device is looked at once more, and longer, before a kernel
    is called endless."""
    first = Examination(sampling.sample(found, held, seconds, words))
    if not any(v.kind == "kernel" for v in first.verdicts):
        return first
    second = Examination(sampling.sample(found, held, seconds * LONGER, words))
    for s, earlier in zip(second.seen, first.seen):
        if s.snapshot is not earlier.snapshot:
            s.snapshot.pauses = earlier.snapshot.pauses + s.snapshot.pauses
    return second
