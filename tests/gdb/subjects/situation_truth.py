"""What is true of the second family of situations.py, and where its chains may end."""

import situation_field
import situation_field_loops
import situation_field_others
import situation_kept
import situation_permits
import situation_tries
import situation_trio
from situation_field import HEALTHY
from situation_parts import SPINNING
from situation_workers import FOR_EVER

OWN = {"try": situation_tries, "restarts": situation_tries, "kept": situation_kept, "trio": situation_trio,
       "permit": situation_permits}  # say it themselves  # fmt: skip
FIELD = {**situation_field.WAITS, **situation_field_others.WAITS, **situation_field_loops.WAITS}


def field_truth(kind, drawn):
    """(hung, right verdicts, culprits by name). A lock that is kept in a sleep of an hour keeps others from moving meanwhile."""
    lasts = ["lock-held", "unknown"] if kind.endswith("lock") else ["unknown", "idle"]
    if drawn in ("slow", "resting", "late"):
        hung = kind.endswith("lock") and drawn == "late"
        return hung, {"slow": ["busy"], "resting": ["idle"], "late": lasts}[drawn], ["ender", "task"] if hung else []
    if drawn in SPINNING:
        return True, ["livelock", "lock-held", "loop-blocked"], ["main", "task"] if kind.startswith("field task") else ["ender"]
    if drawn == "behind a lock":
        return True, ["lock-held", "loop-blocked"], ["third", "ender"] if kind == "field blocked" else ["third"]
    if drawn in ("dead", "behind a future", "killed"):
        return True, ["dead-thread", "starved", "crashed", "lock-held"], ["dead", "task", "ender"]
    return True, ["stopped"] if drawn == "stopped" else ["starved", "lock-held", "loop-blocked"], ["ender", "task"]


def ends(kind, drawn, culprits):
    """What a chain may end at, by name, or in which state; [] of one that is well."""
    if kind == "program":
        return ["ender", "third", "task ender", "stopped", "dead", "ended", "nobody", "ring"]
    if kind == "gate":
        return ["ender", "program", "service", "keeper", "task ender", "stopped", "unknown"]
    if kind in OWN:
        return OWN[kind].ends(drawn)
    if drawn in HEALTHY and not culprits:
        return []
    if drawn in ("dead", "killed", "nobody", "behind a future", "held", "cycle"):
        return ["ender", "task ender", "task holder", "ended", "nobody", "ring"]
    if drawn == "behind a lock" and "third" in culprits:
        return ["third"]
    if drawn in FOR_EVER:  # it asks for what the one who waits for it could change
        return ["ender", "ring"]
    return ["ender", "task ender"] + ["main"] * ("main" in culprits or kind in ("device", "ring"))
