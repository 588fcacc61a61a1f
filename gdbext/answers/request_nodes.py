"""llm-requests and llm-request over several machines: the two ends of each transfer joined over all of them."""

from __future__ import annotations

from typing import Any, Sequence

from ..render.fields import KEEP
from ..render.jsonline import expect
from ..render.text import escape
from ..requests import instances
from ..requests.instances import Side
from ..requests.model import Tracked
from ..requests.ways import way
from ..verdict.exchange import Machine
from . import requests as shapes
from .each_node import escaped
from .hang_nodes import judged_of, nodes_data, reasons, there

ROW = shapes.REQUEST.merging(KEEP)  # a scheduler's own numbers; all other fields are made of the facts
ANSWER = {**shapes.ANSWER.merging(KEEP).answer_shape, "requests": [ROW.shape]}


class Merged:
    """The requests of several machines.

    * `machines`: those whose facts were read
    * `rows`: as llm-requests has them, with `node`
    * `limits`, `engines`, `partial`: of all machines
    * `nodes`: the machines as JSON
    * `ends`: `(row, its number, request)` of those that a process knows, with `way` where the KV goes from instance to instance
    """

    def __init__(self, answers: Sequence[tuple[str, Any]], failed: list[dict[str, Any]]) -> None:
        self.rows: list[dict[str, Any]] = []
        self.limits: dict[str, Any] = {}
        self.engines: list[str] = []
        self.ends: list[tuple[dict[str, Any], int, Tracked]] = []
        said = dict(answers)
        self.machines, _ = judged_of(answers, failed, lambda machines: self._of(machines, said))
        self.nodes = nodes_data(self.machines)
        self.partial = reasons(self.machines, failed)
        self.partial += [f"{m.name}: {escape(str(reason))}" for m in self.machines for reason in said[m.name].get("partial", ())]

    def _of(self, machines: list[Machine], said: dict[str, Any]) -> None:
        sides = [side for machine in machines for side in machine.sides]
        self.rows, self.limits, self.engines = [], {}, []
        ends: list[tuple[int, Tracked]] = []
        instances.relate(sides)
        for machine in machines:
            self._add(machine, said[machine.name], sides, ends)
        self.rows = escaped(there(self.rows, machines))
        self.ends = [(self.rows[number], number, tracked) for number, tracked in ends]

    def _add(self, machine: Machine, answer: dict[str, Any], sides: list[Side], ends: list[tuple[int, Tracked]]) -> None:
        node = machine.name.partition(":")[2] or machine.name
        known = {(side.name, t.request_id): (t, side) for side in machine.sides for t in side.requests}
        expect(answer, ANSWER)
        for data in answer["requests"]:
            name = f"{node}:{data['instance']}"
            found = known.get((name, data["request_id"]))
            row = {key: value for key, value in data.items() if key in ROW.names}
            row.update(shapes.CUSTODY.data(found[0] if found is not None else Tracked("", [])))
            row.update(node=escape(node), instance=escape(name))
            if found is not None:
                if found[0].transfer is not None or found[0].partner is not None:
                    row["way"] = [shapes.STOP.data(stop) for stop in way(*found, sides)]
                ends.append((len(self.rows), found[0]))
            self.rows.append(row)
        self.limits.update(escaped(answer["limits"] or {}))
        self.engines += [escape(answer["engine"])] if answer["engine"] else []
