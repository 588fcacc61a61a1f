"""Several machines as one: the facts of each, and the judgement on all of them as JSON; for llm-hang, one examination."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Callable, NamedTuple, Sequence

from .. import __version__
from ..errors import GdbextError
from ..render.text import escape
from ..verdict import exchange
from ..verdict.examine import Examination, judge_machines
from ..verdict.exchange import Machine
from .hang import hang_data

PID = re.compile(r"(?<![\w.])[0-9]{10,16}(?![\w.])")
MAX_PID = 1 << 22  # the kernel's limit


def judged_of(
    answers: Sequence[tuple[str, Any]], failed: list[dict[str, Any]], judge: Callable[[list[Machine]], Any]
) -> tuple[list[Machine], Any]:
    """-> (the machines whose facts can be judged, the result of `judge` for all of them together). The other machines are named
    in `failed`. Facts are made anew for each try: a judge may fill some in. `GdbextError` where no machine is left."""
    known: list[_Known] = []
    for number, (name, answer) in enumerate(answers, 1):
        try:
            facts = answer.get("facts")
            if not isinstance(facts, dict):
                raise GdbextError(str(answer.get("error") or "it sent no facts: another release of gdbext"))
            known.append(_Known(name, number, facts, exchange.names_in(facts)))
        except GdbextError as e:
            failed.append({"label": name, "pid": None, "reason": str(e)})
    count = Counter(one for each in known for one in set(each.names))
    nodes = tuple(f"{each.name.partition(':')[2] or each.name}:" for each in known)
    taken = [one for one, n in count.items() if n > 1 or one.startswith(nodes)]

    def tried(some: Sequence[_Known]) -> tuple[list[Machine], Any]:
        made = [exchange.machine_of(each.name, each.number, each.facts, taken) for each in some]
        return made, judge(made)

    while known:
        try:
            return tried(known)
        except DAMAGE as e:
            known = _without_damage(known, tried, failed, e)
    raise GdbextError("; ".join(f"{f['label']}: {f['reason']}" for f in failed))


class _Known(NamedTuple):
    """One machine's answer: its facts, and the names of the processes in them."""

    name: str
    number: int
    facts: dict[str, Any]
    names: list[str]


DAMAGE = (GdbextError, TypeError, AttributeError, KeyError, ValueError, IndexError, RecursionError, OverflowError)


def _without_damage(
    known: list[_Known], tried: Callable[[Sequence[_Known]], Any], failed: list[dict[str, Any]], why: Exception
) -> list[_Known]:
    """The machines without damaged facts, so that one does not spoil the answer for the others.

    A machine is left out if the judge fails on its facts alone. If it fails on none of them alone, the machine is left out
    without which it succeeds on the others."""

    def fails(some: list[_Known]) -> str:
        try:
            tried(some)
        except DAMAGE as e:
            return str(e) if isinstance(e, GdbextError) else f"its facts are damaged: {type(e).__name__} {e}"
        return ""

    said = {each.name: fails([each]) for each in known}
    if not any(said.values()):
        bad = next((one for one in known if not fails([other for other in known if other is not one])), known[-1])
        said = {bad.name: f"its facts do not fit the others': {type(why).__name__} {why}"}
    failed += [{"label": name, "pid": None, "reason": reason} for name, reason in said.items() if reason]
    return [each for each in known if not said.get(each.name)]


def judged(
    answers: Sequence[tuple[str, Any]], failed: list[dict[str, Any]]
) -> tuple[Examination, list[Machine], dict[str, Any], list[str]]:
    """-> (the examination of all machines, the machines that were judged, the JSON of llm-hang with `node` in each place, the
    reasons why it is not complete)."""

    def judge(machines: list[Machine]) -> tuple[Examination, Any]:
        found = judge_machines(machines)
        return found, hang_data(found)

    machines, (found, data) = judged_of(answers, failed, judge)
    data = there(data, machines)
    data["failed"] = [*failed, *data["failed"]]
    data["nodes"] = nodes_data(machines)
    return found, machines, data, reasons(machines, failed)


def nodes_data(machines: Sequence[Machine]) -> list[dict[str, Any]]:
    """The machines of the command, as JSON."""
    return [
        {"node": escape(m.name), "host": escape(m.host), "processes": len(m.processes), "version": escape(m.version)}
        for m in machines
    ]


def reasons(machines: Sequence[Machine], failed: Sequence[dict[str, Any]]) -> list[str]:
    """Why the answer about several machines is not complete."""
    partial = [f"{f['label']}: {f['reason']}" for f in failed]
    partial += [f"{m.name}: {escape(reason)}" for m in machines for reason in m.partial]
    return partial + [
        f"{m.name} runs gdbext {escape(m.version)}, this is {__version__}" for m in machines if m.version != __version__
    ]


def there(data: Any, machines: Sequence[Machine]) -> Any:
    """JSON whose pids are those of their machines, each with its machine."""
    return _there(data, {machine.number: machine.name for machine in machines})


def _there(data: Any, names: dict[int, str]) -> Any:
    """JSON whose pids are those of their machines, each with its machine."""

    def own(match: re.Match[str]) -> str:
        number, pid = divmod(int(match[0]), 1 << exchange.MACHINE)
        return str(pid) if number in names and pid <= MAX_PID else match[0]

    if isinstance(data, list):
        return [_there(one, names) for one in data]
    if isinstance(data, str):
        return PID.sub(own, data)
    if not isinstance(data, dict):
        return data
    made = {key: _there(one, names) for key, one in data.items()}
    pid = data.get("pid")
    if isinstance(pid, int) and pid >> exchange.MACHINE in names:
        made["pid"] = pid & (1 << exchange.MACHINE) - 1
        made.setdefault("node", escape(names[pid >> exchange.MACHINE].partition(":")[2] or names[pid >> exchange.MACHINE]))
    return made
