"""The steps of an engine's scheduler, seen at each look. The scheduler counts its steps in an attribute; the word that leads to
the attribute's value changes with each step."""

from __future__ import annotations

from .. import log
from ..access.remote_memory import BulkReader
from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..engines import registry
from ..engines.objects import sought
from ..errors import GdbextError

STEPS = "steps"  # the counter of a `ProcessTrack`: (when a step was over, the number of steps by then)


class StepCounter:
    """Counts the steps of one process that may have a scheduler, which is searched for a moment. It counts nothing where there is
    no scheduler, or where its release keeps no count."""

    def __init__(self, rt: Runtime, bulk: BulkReader) -> None:
        self._rt, self._bulk, self._place, self._word = rt, bulk, 0, b""
        self._scheduler: Object | None = None
        with log.passing_over(GdbextError):
            spec = registry.spec_of_runtime(rt)
            reader = spec.kv if spec is not None else None
            self._name: str = getattr(reader, "STEP_COUNTER", "")
            self._scheduler = sought(rt, reader.find_scheduler) if reader is not None and self._name else None
        self.find()

    def find(self) -> None:
        """Finds the address of the word again: Python moves an object's attributes now and then."""
        self._place, before = 0, self._place
        if self._scheduler is not None:
            with log.passing_over(GdbextError):
                self._place = self._rt.dialect.attribute_place(self._rt, self._scheduler, self._name)
        if self._place != before:
            self._word = b""

    def stepped(self) -> bool:
        """Whether a step was made since the last call."""
        if not self._place:
            return False
        try:
            word = self._bulk.read(self._place, 8)
        except GdbextError as e:
            log.passed_over(e)
            self._place = 0
            return False
        before, self._word = self._word, word
        return bool(before) and word != before
