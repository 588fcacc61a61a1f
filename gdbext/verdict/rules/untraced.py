"""Processes whose memory may not be read: who keeps the others waiting, by what /proc shows of each (observe/outside.py).

A process is accused where a main thread waits for it, directly or through others that wait too, nobody else could end that wait,
and no thread of it has run in the window. One that runs may be at work, and one that waits for clients or input is idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from ...observe.outside import WORDS, Outside, other_waits
from ...observe.window import RUNS, STILL
from ..facts import Facts, Node, ProcessState, Verdict

NAP = 8.0  # seconds: who has not run for as long while others wait for it does not only wait for its next look
STATES = {"T": "stopped", "t": "stopped", "Z": "crashed", "X": "crashed", "D": "uninterruptible"}
DOES = {
    "stopped": "is stopped (T): SIGCONT makes it run on",
    "crashed": "has ended",
    "uninterruptible": "is blocked in the kernel, where no signal reaches it (D)",
    "frozen": "is in a frozen control group",
}


@dataclass(frozen=True)
class _End:
    """Where a chain of waits ends: at the process `pid`, with the verdict `kind` if it is `sure`; `why`: in words."""

    pid: int
    kind: str
    why: str
    sure: bool = True


def waits(facts: Facts) -> Verdict | None:
    """Asked processes wait for one whose main thread does nothing."""
    if not all(f.outside is not None for f in facts):
        return None
    names = {f.pid: f.name for f in facts}
    known = {pid: one for f in facts for pid, one in f.reach.items()}
    lines: list[str] = []
    ends: list[_End] = []
    victims: list[str] = []
    for f in facts:
        if f.outside is None or not _waits_for_others(f.outside):
            continue
        found = _ends(known, f.pid, f.window.seconds, lines, names)
        found += [] if any(one.sure for one in found) else _halted(f, names)
        ends += found
        victims += [f.name] if any(one.sure and one.pid != f.pid for one in found) else []
    blamed = {one.pid: one for one in ends if one.sure}
    lines = list(dict.fromkeys([*lines, *(f"{_name(known, names, one.pid)} {one.why}" for one in ends)]))
    if not blamed:
        late = _deaf(facts) or (_late(facts) if any(f.stands for f in facts) else None)
        return late or (_suspected(known, names, ends, lines) if ends else None)
    order = ("crashed", "frozen", "stopped", "lock-held", "uninterruptible", "starved")
    kind = min((one.kind for one in blamed.values()), key=order.index)
    said = _accused(known, names, kind, [pid for pid, one in blamed.items() if one.kind == kind], lines, victims)
    said.again, said.longer = True, NAP if kind == "starved" else 0.0
    return said


def _late(facts: Facts) -> Verdict | None:
    """Requests run, no token has come for seconds, and one of at least three ranks does what none of the others does: they all
    wait in the same way, asleep or spinning. Pipelines are left out: there each rank has its turn."""
    ranks = [f for f in facts if f.role == "worker" and f.outside is not None and f.outside.ran is not None]
    if len(ranks) < 3 or any(f.rank is not None and f.rank.sizes.get("pp", 1) > 1 for f in ranks):
        return None
    share = {f.name: (f.outside.ran or 0.0) / max(f.window.seconds, 0.1) for f in ranks if f.outside is not None}
    busy, still = [n for n, part in share.items() if part > RUNS], [n for n, part in share.items() if part < STILL]
    one, others = (busy, still) if len(busy) == 1 else (still, busy)
    if len(one) != 1 or len(others) != len(ranks) - 1:
        return None
    does = "runs" if one is busy else "does not run"
    said = f"{one[0]} {does} ({share[one[0]] * 100:.0f} % CPU), all other ranks {'do not' if one is busy else 'do'}"
    lines = ["requests run, and no token has come meanwhile, by the engine's own port", said]
    found = Verdict("starved", [(one[0], None)], lines, others)
    found.from_outside = True
    return found


def _deaf(facts: Facts) -> Verdict | None:
    """The one server of an engine reads no request, and has not run in the window: its event loop stands. One that runs may be at
    work, or short of a CPU."""
    found = [f for f in facts if f.deaf and f.outside is not None and f.outside.moved is False]
    if len(found) != 1:
        return None
    (one,) = found
    line = (
        f"a request that came to the port of {one.name} was not read: {_still(one.window.seconds)}, and it alone serves that port"
    )
    said = Verdict("loop-blocked", [(one.name, None)], [line])
    said.from_outside = True
    return said


def _waits_for_others(one: Outside) -> bool:
    """Whether it may wait for another process: that it does not is known of one that runs, serves, sleeps or has halted."""
    halted = one.state in STATES or bool(one.frozen)
    return not halted and not _runs(one) and not one.serves and bool(one.ends or one.shares or not one.does)


def _halted(f: ProcessState, names: dict[int, str]) -> list[_End]:
    """Processes below one that does nothing which are frozen or stopped. What it waits for is not known here: what has ended does
    not count, which its parent may not need, nor does a job that a terminal has put aside."""
    found = []
    for one in f.reach.values():
        kind = "frozen" if one.frozen else STATES.get(one.state, "")
        if one.pid not in names and kind in ("frozen", "stopped") and not one.aside:
            found.append(_End(one.pid, kind, DOES[kind]))
    return found


def _runs(one: Outside) -> bool:
    return one.state == "R" or bool(one.moved) or one.ran is None


def _name(known: dict[int, Outside], names: dict[int, str], pid: int) -> str:
    program = known[pid].program if pid in known else ""
    return names.get(pid) or (f"{program} ({pid})" if program else f"process {pid}")


def _accused(
    known: dict[int, Outside],
    names: dict[int, str],
    kind: str,
    pids: Sequence[int],
    lines: list[str],
    victims: Sequence[str] = (),
) -> Verdict:
    called = {_name(known, names, pid): pid for pid in pids}
    culprits: list[Node] = [(name, None) for name in called]
    found = Verdict(kind, culprits, lines, [one for one in victims if one not in called])
    found.children = {name: pid for name, pid in called.items() if pid not in names}
    found.from_outside = True
    return found


def _suspected(known: dict[int, Outside], names: dict[int, str], ends: Sequence[_End], lines: list[str]) -> Verdict:
    """Nobody is accused: what would be said if what is seen lasts."""
    found = Verdict("unknown", [], lines)
    found.from_outside = True
    if len({one.pid for one in ends}) == 1 and ends[0].kind:
        found.if_it_lasts = _accused(known, names, ends[0].kind, [ends[0].pid], [])
    return found


def _ends(known: dict[int, Outside], root: int, seconds: float, lines: list[str], names: dict[int, str]) -> list[_End]:
    """Where the waits from a process end: at those among all that it waits for, directly or not, which wait for nobody else. One
    is sure where it is alone and each of the others is blocked and waits within this set. Who waits for the end of a process,
    watches several files (not `exact`), or waits for jobs of a process that started it, need not be owed anything."""
    ends: list[_End] = []
    owed, reached, seen = {root}, [root], {root}
    for pid in reached:  # which grows
        one = known.get(pid)
        end = _terminal(one, seconds) if one is not None else _End(pid, "", "cannot be seen from here", False)
        if one is None or end is not None:
            ends += [end] if end is not None else []
            continue
        if one.serves or not one.whole or not (one.ends or one.own):
            why = "waits for clients or input" if one.serves else "sleeps: what it waits for cannot be seen from here"
            ends.append(_End(pid, "starved" if pid != root and not one.does and not one.serves else "", why, False))
            continue
        if one.own and pid != root and one.does != "polls":
            ends.append(_End(pid, "starved", f"waits for data that only it, or who waits for it, can send: {_still(seconds)}"))
        lines.append(_wait(known, names, one))
        reached += [other for other in one.ends if other not in seen]
        seen |= set(one.ends)
        owed |= set(one.ends) - one.above if one.exact and pid in owed else set()
    locked = {
        pid for one in map(known.get, reached) if one is not None and one.does == "waits for a file lock" for pid in one.ends
    }
    found = [_End(e.pid, "lock-held" if e.kind == "starved" and e.pid in locked else e.kind, e.why, e.sure) for e in ends]
    alone = len(found) == 1 and (found[0].pid in owed or found[0].kind in DOES)
    if not found:
        return [_End(root, "", "is waited for by those that it waits for", False)]
    return found if alone else [_End(e.pid, e.kind, e.why, False) for e in found]


def _wait(known: dict[int, Outside], names: dict[int, str], one: Outside) -> str:
    """In words, for whom a process waits."""
    what = WORDS.get(one.does, "one of its files" if one.does == "polls" else one.does.replace("waits for ", ""))
    others = ", ".join(_name(known, names, other) for other in one.ends[:8])
    return f"{_name(known, names, one.pid)} waits for {what}{' of ' if one.does != 'waits for a process' else ': '}{others}"


def _terminal(one: Outside, seconds: float) -> _End | None:
    """The end that a process is by itself; None where it waits for others."""
    kind = "frozen" if one.frozen else STATES.get(one.state, "")
    if kind and (kind != "uninterruptible" or not one.ran):
        return _End(one.pid, kind, DOES[kind])
    if one.does not in ("waits for a file lock",) and (_runs(one) or (one.ran or 0.0) > STILL * seconds):
        computes = (one.ran or 0.0) > RUNS * seconds
        return _End(one.pid, "livelock" if computes else "", "runs: whether it makes progress cannot be seen from here", False)
    if one.does == "sleeps":
        return _End(one.pid, "starved", f"sleeps: {_still(seconds)}")
    if one.own and not one.ends and not one.serves:  # a loop that polls has timers too
        return _End(one.pid, "starved", f"waits for data that only it can send: {_still(seconds)}", one.does != "polls")
    if one.does == "waits for a lock" and len(one.shares) == one.threads == 1:
        why = f"shares memory, where a lock may be, with process {one.pid}, which waits for one"
        return _End(one.shares[0], "starved", why, False)
    if one.does == "waits for a lock":
        own = not one.shares and not other_waits(one.pid)
        why = f" of its own: {_still(seconds)}" if own else ", which another process or thread may have"
        return _End(one.pid, "starved" if own else "", "is blocked at a lock" + why, own)
    return None


def _still(seconds: float) -> str:
    return f"it has not run for {seconds:.1f} s"
