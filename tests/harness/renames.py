"""What the pack says of an engine in which one attribute has another name (subjects/renames.py), against what it says of the
engine as it is."""

import os
import random

from tools.try_newest import used

from gdbext.access.proc import ProcTarget
from gdbext.answers import kv, requests
from gdbext.engines import kv_view
from gdbext.errors import GdbextError
from gdbext.kvcache import invariants
from gdbext.requests import collect

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SAMPLE = 40  # names that are drawn for a daily run, about half of which the objects have
# what differs between two askings of one process, and what is told in words
VOLATILE = {
    "pid",
    "label",
    "at",
    "age",
    "holder",
    "hops",
    "partial",
    "notes",
    "mid_update_at",
    "evidence",
    "rules",
    "not_compared",
}
UNKNOWN = (None, "", "?", "unknown", [])


def names(engine):
    """The names that the readers of an engine use."""
    return sorted(used(os.path.join(ROOT, "gdbext", "engines", engine)))


def drawn(found, seed=None):
    """A sample of names, all of them with GDBEXT_TEST_LONG."""
    if os.environ.get("GDBEXT_TEST_LONG"):
        return sorted(found)
    return sorted(random.Random(seed).sample(sorted(found), min(SAMPLE, len(found))))


def flat(value, path=()):
    """{path: value} of an answer; a member of a list goes by its id, where it has one."""
    if isinstance(value, dict):
        return {p: v for k, one in value.items() if k not in VOLATILE for p, v in flat(one, (*path, k)).items()}
    if isinstance(value, list):
        keys = [one.get("request_id", i) if isinstance(one, dict) else i for i, one in enumerate(value)]
        return {p: v for k, one in zip(keys, value) for p, v in flat(one, (*path, str(k))).items()}
    return {path: value}


def asked(target):
    """{command: its answer} of a process, without its siblings."""
    cache = kv_view.View(target).cache()
    yield "llm-kv", kv.cache_data(cache, [])
    yield "llm-kv check", kv.check_data(invariants.check(cache), cache, False)
    held = collect.collect_one(target)
    yield (
        "llm-requests",
        {"requests": [requests.request_data(t.request, t, False) for t in held.requests], "partial": held.partial},
    )


def said_of(pid):
    """({(command, path): value}, [what is said beside it])"""
    values, words, target = {}, [], ProcTarget(pid)
    try:
        for command, one in asked(target):
            words += [str(n) for n in (*one.get("notes", ()), *one.get("partial", ()))]
            values.update({(command, *path): value for path, value in flat(one).items()})
    except GdbextError as e:
        words.append(str(e))
    finally:
        target.close()
    return values, words


def differs(before, now):
    """Whether a value is another one, and not a part of what was said."""
    return now != before and now not in UNKNOWN and not (isinstance(now, str) and str(before).startswith(now))


def faults(children, found):
    """[(name, what is wrong)] of the names in `found`. `children`: {name: pid}, with "-" as the engine is."""
    (base, spoken), (again, _) = said_of(children["-"]), said_of(children["-"])
    base = {k: v for k, v in base.items() if again.get(k) == v and v not in UNKNOWN}
    assert base and not any("not there" in word for word in spoken), spoken
    wrong = []
    for name in found:
        values, words = said_of(children[name])
        told = [word for word in words if word not in spoken]
        false = [f"{k}: {v!r} -> {values[k]!r}" for k, v in base.items() if differs(v, values.get(k))]
        false += [f"{k}: {v!r}" for k, v in values.items() if k[1] == "violations" and k not in base and v not in UNKNOWN]
        lost = [k for k in base if k not in values or values[k] in UNKNOWN]
        if false:
            wrong.append((name, false))
        elif lost and not told:
            wrong.append((name, [f"{k} is gone without a word" for k in lost]))
        elif told and not any(name.strip("_") in word for word in told):
            wrong.append((name, [f"does not name it: {told}"]))
    return wrong
