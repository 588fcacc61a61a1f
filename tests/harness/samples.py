"""What one whole run draws of the tests that prove the same on many inputs: by a seed, so that the run of another commit draws
others.

A test that runs on several Pythons runs on the oldest or the newest, and on one more; a test of every gdb with the default one,
and half of the time with one more. A nightly run draws nothing: all run. Of the tests marked `drawn(count, group=…, unit=…)` it
draws `count` units of the group. Without a name the group is the variants of one test, and a unit is one test; tests of one unit
share what takes long to set up.

Another interpreter asks whether the same code runs: the rows of one test go through the same lines of it, and `few_of_each` draws
some. scripts/tools/same_lines.py says which lines of the pack are left out by that."""

import os
import random

from .subjects import PYTHONS


def some(things, count, name):
    """`count` of the things that one test asks about one after the other, in their order: other ones for another commit."""
    seed = os.environ.get("GDBEXT_TEST_SAMPLE")
    if not seed or count >= len(things):
        return list(things)
    return some_of(things, count, f"{seed} {name}")


ROWS = 3  # of one test, by another interpreter


def few_of_each(items, seed):
    """The tests, of each function at most `ROWS`: the first, and others drawn. Those that read the interpreter that runs them
    stay whole: what differs between minors is data there, and no line shows it."""
    groups = {}
    for item in items:
        if item.get_closest_marker("own_interpreter"):
            groups.setdefault(item.nodeid, []).append(item)
            continue
        groups.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item for name, rows in groups.items() for item in [rows[0], *some_of(rows[1:], ROWS - 1, f"{seed} {name}")]}
    return [item for item in items if item in kept]


def some_of(things, count, seed):
    """`count` of the things, in their order."""
    kept = random.Random(seed).sample(range(len(things)), min(count, len(things)))
    return [things[place] for place in sorted(kept)]


def of_a_sample(items, seed, gdbs=()):
    """The tests without those that are not drawn. `gdbs`: paths, the default first."""
    for groups_of in (lambda item: _versions_of(item, list(gdbs)), _marks_of):  # of what is left of the versions the marks draw
        items = _drawn(items, seed, groups_of)
    return items


def _drawn(items, seed, groups_of):
    groups = {}  # {(how, name): {unit: [test]}}
    for item in items:
        for how, name, unit in groups_of(item):
            groups.setdefault((how, name), {}).setdefault(unit, []).append(item)
    left = set()
    for (how, name), units in groups.items():
        order, rng = sorted(units), random.Random(f"{seed} {name}")
        always, count = [], how
        if how == "python":
            always, count = [rng.choice((order[0], order[-1]))], 2
        elif how == "gdb":
            always, count = order[:1], rng.choice((1, 2))
        others = [unit for unit in order if unit not in always]
        drawn = rng.sample(others, min(len(others), max(0, count - len(always))))
        left.update(item for unit in others if unit not in drawn for item in units[unit])
    return [item for item in items if item not in left]


def _marks_of(item):
    """(how many are drawn, the group's name, the unit) of each mark of a test."""
    for mark in item.iter_markers("drawn"):
        name = f"{item.path.name} {item.originalname}"
        yield mark.args[0], mark.kwargs.get("group", name), mark.kwargs.get("unit", item.nodeid)


def _versions_of(item, gdbs):
    """(which parameter is drawn, the group's name, the unit) of each draw of versions that a test takes part in."""
    params = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    for how, parameter, values in (("python", "python", PYTHONS), ("gdb", "gdb_path", gdbs)):
        if params.get(parameter) in values:
            rest = sorted(((k, v) for k, v in params.items() if k != parameter), key=repr)
            yield how, f"{item.path.name} {item.originalname} {rest}", values.index(params[parameter])
