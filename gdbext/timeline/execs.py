"""A process that runs another program (exec) while it is recorded: how that shows, and what takes over."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Callable

from .. import log
from ..access.proc import ProcTarget
from ..access.procfs import state_of
from ..errors import FaultError, GdbextError

if TYPE_CHECKING:
    from .sampler import ProcessSampler

    Opens = Callable[[ProcTarget, str], ProcessSampler]

RETRY = 0.1  # seconds after which a program that is just starting is tried again
STARTS = 10  # tries at a process at first


class Image:
    """The program that a process runs, as its memory that was opened once: nothing of that can be read after an exec."""

    def __init__(self, target: ProcTarget) -> None:
        self._at = target.mappings()[0].start
        self._file = os.open(f"/proc/{target.living()}/mem", os.O_RDONLY)

    def is_same(self) -> bool:
        """Whether the process still runs it."""
        try:
            return bool(os.pread(self._file, 1, self._at))
        except OSError:
            return True  # that page alone is gone

    def close(self) -> None:
        """Closes the memory."""
        os.close(self._file)


def first_opened(open_one: Opens, target: ProcTarget, label: str) -> ProcessSampler:
    """The sampler of a process, which may be in the middle of an exec."""
    for _ in range(STARTS):
        try:
            return open_one(target, label)
        except FaultError as e:
            log.passed_over(e)
            time.sleep(0.02)
            target.invalidate()
    return open_one(target, label)


class Followed:
    """The processes that run another program than at first (exec): a sampler that takes over, as soon as that can be read."""

    def __init__(self, open_one: Opens) -> None:
        self._open_one, self._tried = open_one, 0.0
        self._waiting: list[ProcessSampler] = []
        self._notes: dict[int, str] = {}

    def look(self, samplers: list[ProcessSampler], at: float) -> bool:
        """Takes in those that ran another program `at` seconds; adds the samplers that take over. -> whether one may follow."""
        for sampler in samplers:
            if sampler.execed and id(sampler) not in self._notes:
                self._waiting.append(sampler)
                self._notes[id(sampler)] = f"{sampler.track.label} runs another program since {at:.1f} s (exec), which"
        if self._waiting and at - self._tried >= RETRY:
            self._tried = at
            for old in list(self._waiting):
                try:
                    samplers.append(self._open_one(ProcTarget(old.track.pid, old.target.label), old.track.label))
                except GdbextError as e:
                    log.passed_over(e)
                    if state_of(old.track.pid) not in ("", "Z", "X"):
                        continue
                else:
                    self._notes[id(old)] += " is recorded too"
                self._waiting.remove(old)
        return bool(self._waiting)

    def notes(self) -> list[str]:
        """What to say of each."""
        return [n if n.endswith("too") else f"{n} runs no Python that could be read" for n in self._notes.values()]
