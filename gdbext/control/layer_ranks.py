"""The records of llm-layers for each process: a row for each tensor that a module of its model returned, and the files of these
rows."""

from __future__ import annotations

import os
from typing import Any, Callable

from ..engines import models
from ..errors import GdbextError
from ..render import files as render_files
from ..render.text import escape
from ..render.text import seconds as duration
from ..torch import layer_records as records
from ..torch import modules
from ..torch import tensor_impl as tensors

PER_CALL = 0.003  # seconds that a call of a module is held, without the reading of a large output


def root_of(process: Any) -> int:
    """The address of the model that an engine's process calls, 0 for another program."""
    model = models.model_of(process.rt)
    inner = models.inner_model(model) if model is not None else None
    return inner.address if inner is not None else 0


class RankRecord:
    """The record of one process: `rows`, and `data` once the step is over.

    `path`: the record's file, '' for none. `save`: the values too. `force`: both replace files. `say`: called with a line for
    people once the tree of modules is known."""

    def __init__(self, process: Any, step: int, path: str, *, save: bool, force: bool, say: Callable[[str], None]) -> None:
        self.process, self.step, self.path, self.force, self.say = process, step, path, force, say
        self.rows: list[dict[str, Any]] = []
        self.data: dict[str, Any] = {}
        self.nodes: dict[int, Any] = {}
        self.cuts: Any = None
        self.missing = ""
        self.eager = f"start it {models.eager_advice(models.spec_of(process.rt))}"
        self.values = None
        if self.path:
            render_files.may_write(self.path, "-o", force)
        if save:
            self.values = records.Values(os.path.splitext(self.path)[0] + ".safetensors", force)

    def started(self, nodes: dict[int, Any]) -> None:
        """The tree of modules is known. Inside stop()."""
        rt = self.process.rt
        self.nodes = nodes
        head = f"{self.process.label}: " if self.process.label else ""
        about = duration(len(nodes) * PER_CALL)
        self.say(f"{escape(head)}{len(nodes)} modules: a step will take about {about} more, and the reading of large outputs")
        self.cuts = models.Cuts(rt, nodes)
        taken = models.compiled(rt, nodes)
        if taken:
            named = ", ".join(escape(path or "the model") for path in taken[:3]) + (", …" if len(taken) > 3 else "")
            self.missing = f"compiled: {named}"

    def keep(self, call: Any) -> None:
        """A module of the step returned. Inside stop()."""
        node, stop = call.node, call.stop
        base = {"rank": self.process.label, "path": escape(node.path), "call": call.number, "type": escape(node.kind)}
        found = list(modules.tensors_in(call.value))
        for place, obj in found:
            row = {**base, "output": escape(place), **self._measured(stop, f"{node.path}#{call.number}{place}", obj)}
            self.rows.append({**row, "shard": self.cuts.of(node, row["shape"])})
        if not found:
            what = call.value if isinstance(call.value, str) else f"returned {call.value.type_name}"
            self.rows.append({**base, "output": "", **records.NOTHING, "why": escape(what), "shard": None})

    def _measured(self, stop: Any, name: str, obj: Any) -> dict[str, Any]:
        try:
            tensor = tensors.read_tensor(stop.process.rt, obj.address)
            return self.values.measure(name, tensor) if self.values is not None else records.measure(tensor)
        except GdbextError as e:
            return {**records.NOTHING, "why": escape(str(e))}

    def end(self, recorder: Any) -> list[str]:
        """Writes the files and reports the result. -> reasons for `partial`."""
        called = {row["path"] for row in self.rows}
        partial = []
        self.data = {
            "label": escape(self.process.label),
            "pid": self.process.pid,
            "root": escape(recorder.nodes[recorder.root].kind) if recorder.nodes else "",
            "step": self.step,
            "calls": recorder.calls,
            "called": len(called),
            "modules": len(self.nodes),
            "seconds": max(0.0, recorder.ended - recorder.began),
            "reading": recorder.seconds,
            "files": [],
        }
        left = [n for n in self.nodes.values() if not n.children and n.path not in called]
        if recorder.done and left and self.missing:
            partial.append(f"{self.process.name}: {len(left)} modules were not called from Python ({self.missing}): {self.eager}")
        elif not recorder.calls:
            partial.append(
                f"{self.process.name}: no module was called from Python: if the model runs, it is compiled or in a CUDA graph: "
                f"{self.eager}"
            )
        unread = [row for row in self.rows if row["shape"] is not None and row["hash"] is None]
        if unread:
            first = f"{unread[0]['path'] or 'the model'}: {unread[0]['why']}"
            partial.append(f"{self.process.name}: {len(unread)} outputs' values were not read, the first of {first}")
        if self.path and recorder.calls:
            self._write(partial)
        return partial

    def _write(self, partial: list[str]) -> None:
        values = None
        if self.values is not None:
            self.values.write()
            values = self.values.path
            if self.values.left_out:
                partial.append(
                    f"{len(self.values.left_out)} outputs' values are not in {values}, the first: {self.values.left_out[0]}"
                )
        head = {k: v for k, v in self.data.items() if k != "files"}
        records.write(self.path, {**head, "values": os.path.basename(values) if values else None}, self.rows, self.force)
        self.data["files"] = [p for p in (self.path, values) if p]

    def close(self) -> None:
        if self.values is not None:
            self.values.close()


def path_for(name: str, process: Any, several: bool) -> str:
    """The file of one process's record: of several each has its label in the name."""
    path = os.path.abspath(os.path.expanduser(name))
    if not several:
        return path
    stem, kind = os.path.splitext(path)
    label = "".join(c if c.isalnum() or c in ".-_" else "_" for c in process.label) or str(process.pid)
    return f"{stem}-{label}{kind}"
