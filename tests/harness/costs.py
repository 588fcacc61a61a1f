"""What tests cost: the processor time of a worker and of what it started and reaped. It hardly depends on what else the machine
does, as a wall-clock time would."""

import collections
import os

NAME = "cpu"  # of the property of a report
_last = [sum(os.times()[:4])]


def note(report):
    """Puts the seconds of CPU since the last report of this worker into `report`. What a module's subjects used counts where they
    end: at its last test."""
    now = sum(os.times()[:4])
    report.user_properties.append((NAME, now - _last[0]))
    _last[0] = now


def of(reports):
    """{test: seconds of CPU} of the reports of a run."""
    found = collections.Counter()
    for report in reports:
        for name, seconds in getattr(report, "user_properties", ()):
            if name == NAME:
                found[report.nodeid] += seconds
    return found


def by_file(cpu):
    """{file: seconds of CPU} of {test: seconds of CPU}."""
    found = collections.Counter()
    for test, seconds in cpu.items():
        found[test.split("::")[0]] += seconds
    return {name: round(seconds, 2) for name, seconds in found.items()}
