"""llm-hang over several machines: each one's facts made into one examination, and that as the JSON of llm-hang."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import GdbextError
from ..render.text import escape
from ..verdict import exchange
from ..verdict.examine import Examination, judge_machines
from .hang import hang_data

if TYPE_CHECKING:
    from typing import Sequence

    from ..verdict.exchange import Machine

PID = re.compile(r"(?<![\w.])[0-9]{10,16}(?![\w.])")
MAX_PID = 1 << 22  # the kernel's limit


def machines_of(answers: Sequence[tuple[str, Any]], failed: list[dict[str, Any]]) -> list[Machine]:
    """The facts in the answers of some machines; one whose facts cannot be judged is named in `failed`."""
    known: list[tuple[str, dict[str, Any], list[str]]] = []
    for name, answer in answers:
        try:
            facts = answer.get("facts")
            if not isinstance(facts, dict):
                raise GdbextError(str(answer.get("error") or "it sent no facts: another release of gdbext"))
            known.append((name, facts, exchange.names_in(facts)))
        except GdbextError as e:
            failed.append({"label": name, "pid": None, "reason": str(e)})
    count = Counter(one for _, _, names in known for one in set(names))
    nodes = tuple(f"{name.partition(':')[2] or name}:" for name, _, _ in known)
    taken = [one for one, n in count.items() if n > 1 or one.startswith(nodes)]
    found = []
    for number, (name, facts, _) in enumerate(known, 1):
        try:
            _judged_alone(exchange.machine_of(name, number, facts, taken))
            found.append(exchange.machine_of(name, number, facts, taken))
        except GdbextError as e:
            failed.append({"label": name, "pid": None, "reason": str(e)})
    return _without_damage(found, failed)


DAMAGE = (TypeError, AttributeError, KeyError, ValueError, IndexError, RecursionError, OverflowError)


def _judged_alone(machine: Machine) -> None:
    """Facts that no judge can take are damaged: nobody else's are to suffer from them."""
    try:
        hang_data(judge_machines([machine]))
    except DAMAGE as e:
        raise GdbextError(f"its facts are damaged: {type(e).__name__} {e}") from None


def _without_damage(machines: list[Machine], failed: list[dict[str, Any]]) -> list[Machine]:
    """The machines whose facts can be judged together: those without which the others can are left out, and named."""

    def fails(some: list[Machine]) -> str:
        try:
            judge_machines(some)
        except DAMAGE as e:
            return f"{type(e).__name__} {e}"
        return ""

    why = fails(machines) if len(machines) > 1 else ""
    if not why:
        return machines
    bad = next((m for m in machines if not fails([other for other in machines if other is not m])), machines[-1])
    failed.append({"label": bad.name, "pid": None, "reason": f"its facts do not fit the others': {why}"})
    return _without_damage([other for other in machines if other is not bad], failed)


def judged(machines: Sequence[Machine], failed: Sequence[dict[str, Any]]) -> tuple[Examination, dict[str, Any], list[str]]:
    """-> (the examination of all, the JSON of llm-hang with `node` in each place, why that is not all)."""
    found = judge_machines(machines)
    data = _there(hang_data(found), {number: machine.name for number, machine in enumerate(machines, 1)})
    data["failed"] = [*failed, *data["failed"]]
    data["nodes"] = [
        {"node": escape(m.name), "host": escape(m.host), "processes": len(m.processes), "version": escape(m.version)}
        for m in machines
    ]
    partial = [f"{f['label']}: {f['reason']}" for f in failed]
    partial += [f"{m.name}: {escape(reason)}" for m in machines for reason in m.partial]
    partial += [f"{m.name} runs gdbext {escape(m.version)}, this is {__version__}" for m in machines if m.version != __version__]
    return found, data, partial


def _there(data: Any, names: dict[int, str]) -> Any:
    """JSON whose pids are those of their machines, with the machine beside them."""

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
