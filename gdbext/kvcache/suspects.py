"""Possible violations over several readings of what runs on: which of them are real, and which came from a change meanwhile."""

from __future__ import annotations

from collections import Counter

from .invariants import LeftOut, Report, Violation

CHECKS = 4  # a running process is read again so often, to see whether a violation appears each time


class Suspects:
    """Possible violations in a process that runs on, by `Violation.key`, over several readings. `now`: those that every reading
    since their first one had, or did not decide. `restless`: those that rested on other values in one of the readings."""

    def __init__(self, report: Report) -> None:
        self.now = self.first = _by_key(report)
        self.restless: set[tuple[object, ...]] = set()
        self._sightings = Counter(self.now.keys())
        self._places = {report.middle}

    def look(self, report: Report, joins: bool) -> None:
        """Takes one more reading. `joins`: a violation that appears for the first time is a suspect too: the update that
        explained it so far is over."""
        seen = _by_key(report)
        moved = {key for key, v in self.now.items() if key in seen and seen[key].evidence != v.evidence}
        self.restless |= moved
        self._sightings.update(seen.keys())
        self._places.add(report.middle)
        kept = {}
        for key, v in self.now.items():
            if (key in seen or v.rule not in report.rules) and not (v.at_rest and key in moved):
                kept[key] = seen.get(key, v)
        if joins:
            kept.update((key, v) for key, v in seen.items() if key not in self.first and key not in kept)
        self.now = kept

    def judge(self, report: Report, times: int) -> None:
        """Fills in the last report from all readings; `times` were made after the first."""
        wrong_once = {**self.first, **_by_key(report)}
        found = {key: v for key, v in self.now.items() if key in self.first or self._sightings[key] > CHECKS}
        unsure = {key for key in found if times and self._sightings[key] <= min(times, CHECKS)}  # its rule was often left out
        report.changed = [v for key, v in found.items() if key in self.restless | unsure]
        sure = [v for key, v in found.items() if key not in self.restless | unsure]
        report.transient = [v for v in report.transient if v in sure and len(self._places) == 1]
        report.violations = [v for v in sure if v not in report.transient]
        said = {(one.label, one.what) for one in report.not_compared}
        for key, v in wrong_once.items():  # a count of the whole pool, wrong once and right once: either may be torn
            if key not in found and v.block is None and v.request_id is None and (v.pool, v.rule) not in said:
                report.not_compared.append(LeftOut(v.pool, v.rule, "it changed while it was read"))


def _by_key(report: Report) -> dict[tuple[object, ...], Violation]:
    return {v.key: v for v in report.violations + report.transient}
