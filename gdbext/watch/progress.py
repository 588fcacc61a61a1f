"""Whether work that is owed goes on: for how long nothing has moved, and when that is too long for this engine. Pure: it is told
what was seen, and how much time went by."""

from __future__ import annotations

from typing import Any, Mapping

STALLED, RECOVERED = "stalled", "recovered"
FACTOR = 2.0  # times the longest pause that ended by itself: that long is no stall
MOST = 4.0  # times -after: the highest limit that is learned
HALF = 600.0  # seconds of progress after which a pause counts half
QUIETEST = 16.0  # times the limit: an engine that was found well is not examined more seldom


class Patience:
    """How long is too long. `after`: seconds, as the user asked for."""

    def __init__(self, after: float) -> None:
        self.after, self._longest, self._quiet = after, 0.0, 1.0

    @property
    def limit(self) -> float:
        """Seconds without progress."""
        return min(max(self.after, FACTOR * self._longest), MOST * self.after)

    @property
    def again(self) -> float:
        """Seconds until the next examination, after one that found nothing."""
        return self.limit * self._quiet

    def moved(self, passed: float, pause: float) -> None:
        """Progress after `pause` seconds without; `passed` seconds since it was asked last."""
        self._longest, self._quiet = max(self._longest * 0.5 ** (passed / HALF), pause), 1.0

    def found_well(self) -> None:
        """An examination found nothing."""
        self._quiet = min(2 * self._quiet, QUIETEST)


class Standing:
    """One engine, or one process: `stood` seconds without progress. `told`: that was found to be a stall; `known`: something else
    of its engine was, so that the pause teaches no patience."""

    def __init__(self, after: float) -> None:
        self.patience = Patience(after)
        self.stood, self.told, self.known, self.pause = 0.0, False, False, 0.0
        self._due, self._again = after, False

    def look(self, passed: float, owed: bool | None, moved: bool, held: float = 0.0) -> str:
        """Takes in one look. `passed`: seconds since the last, less those in which the watch itself stood still; `owed`: there
        is work, None where that was not seen; `held`: seconds of them in which it wanted a CPU and got none.

        -> STALLED when an examination is due, RECOVERED at the first progress after a stall that was told, else ''.
        `pause` is then the seconds for which nothing moved."""
        if moved or owed is False:
            self.pause, was_told = self.stood, self.told
            if moved and not was_told and not self.known:
                self.patience.moved(passed, self.stood)
            self.stood, self.told, self.known, self._again, self._due = 0.0, False, False, False, self.patience.limit
            return RECOVERED if was_told else ""
        if owed is None:
            return ""
        self.stood += max(0.0, passed - held)
        if self.told and not self._again or self.stood < max(self._due, self.patience.limit):
            return ""
        self.pause = self.stood
        return STALLED

    def judged(self, well: bool, again: bool = False) -> None:
        """What an examination found. Until something moves, a stall is told once. `again`: another one may say more."""
        self.told, self._again = self.told or not well, well or again
        if self._again:
            self.patience.found_well()
            self._due = self.stood + self.patience.again


class Requests:
    """The open requests of an engine that itself goes on. One that does not move for as long as the engine's limit may be lost;
    whether it only waits for its turn is for an examination to say."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self._stood: dict[str, float] = {}
        self._marks: dict[str, Any] = {}
        self._told: set[str] = set()
        self._quiet, self._due, self.pause = 1.0, 0.0, 0.0

    def look(self, passed: float, marks: Mapping[str, Any]) -> str:
        """`marks`: {request: a value that changes when it is worked on} of those that are owed. -> as `Standing.look`"""
        self._stood = {
            name: self._stood[name] + passed if name in self._stood and self._marks[name] == mark else 0.0
            for name, mark in marks.items()
        }
        self._marks = dict(marks)
        still = {name for name in self._told if self._stood.get(name, 0.0) > 0.0}
        ended, self._told = bool(self._told) and not still, still
        if ended:
            return RECOVERED
        oldest = self.oldest
        if oldest < self.patience.limit:
            self._due = self._quiet = 0.0
        if not oldest or oldest < max(self._due, self.patience.limit):
            return ""
        self.pause = oldest
        return STALLED

    @property
    def oldest(self) -> float:
        """Seconds for which the one that waits longest has not moved; those that were told of do not count."""
        return max((stood for name, stood in self._stood.items() if name not in self._told), default=0.0)

    @property
    def left(self) -> float:
        """Seconds after which an examination would be due, if that one did not move."""
        return max(self._due, self.patience.limit) - self.oldest

    def standing(self) -> list[str]:
        """Those that have not moved for the limit."""
        return [name for name, stood in self._stood.items() if stood >= self.patience.limit]

    def judged(self, well: bool, again: bool = False) -> None:
        """What an examination found."""
        if not well:
            self._told |= set(self.standing())
            return
        self._quiet = min(2 * max(self._quiet, 1.0), QUIETEST)
        self._due = self.oldest + self._quiet * self.patience.limit


def countable(passed: float, poll: float) -> float:
    """The part of the time between two looks that counts: a watch that was itself stopped, or a machine that slept, saw nothing
    of the rest."""
    return min(passed, max(3.0 * poll, poll + 1.0))
