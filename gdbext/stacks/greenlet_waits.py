"""What a suspended greenlet of gevent waits for: the object whose method its innermost Python frame calls. Gevent's own objects
are of C code and show nothing of their state, so the line of the source says which one it is.
"""

from __future__ import annotations

import re
from typing import Any, Sequence

from .. import log
from ..cpython import locks
from ..cpython.expressions import evaluate
from ..cpython.objects import Object
from ..errors import GdbextError
from .givers import Givers
from .python_waits import path_of
from .waits import Edge

MAX_MEMBERS = 4096  # greenlets that one waits for
_CALL = re.compile(r"([A-Za-z_][\w.]*)\.(acquire|wait|get|put|join)\(")
_MANY = re.compile(r"\bjoinall\((.+?)(?:,\s*(?:timeout|raise_error)\s*=.*)?\)\s*$")
_WITH = re.compile(r"^\s*with\s+([A-Za-z_][\w.]*)\s*(?:as\s+\w+\s*)?:")
_LIMIT = re.compile(r"timeout|\b(?:wait|join|get)\(\s*[^)\s]")
_SLEEP = re.compile(r"\bsleep\(")


def edge_of(task: Any, givers: Givers) -> Edge | None:
    """The edge of a greenlet's task (`async_waits.TaskState`); None where its line does not say what it waits for. Sets the
    `kind` of one that sleeps."""
    frame = next((one for one in task.python if "/gevent/" not in path_of(one)), None)
    text = locks.line_of(frame) if frame is not None else ""
    many, found, entered = _MANY.search(text), _CALL.search(text), _WITH.search(text)
    if many is not None:
        return _of_greenlets(task, f"the end of {many.group(1)}", _members(frame, many.group(1)), givers)
    if found is None and _SLEEP.search(text):
        task.kind = "sleep"
    for path, verb in ([(entered.group(1), "acquire")] if entered else []) + ([found.groups()] if found else []):
        with log.passing_over(GdbextError):
            obj = evaluate(frame.rt, path, frame) if frame is not None else None
            if not isinstance(obj, Object) or not any(base.module.startswith("gevent") for base in obj.type.bases()):
                continue
            if verb in ("join", "get") and any(base.name == "Greenlet" for base in obj.type.bases()):
                return _of_greenlets(task, f"the end of the {obj.type_name} {path}", [obj.address], givers)
            kind = "Lock" if verb == "acquire" else "Event"
            edge = Edge(task.node, f"the {obj.type_name} {path}", kind, address=obj.address, where=task.top)
            edge.limit = bool(_LIMIT.search(text))
            if kind != "Lock" or not givers.holders.set_owner(edge, task, givers.node):
                givers.offer(edge, task)
            return edge
    return None


def _members(frame: Any, text: str) -> list[int]:
    with log.passing_over(GdbextError):
        found = evaluate(frame.rt, text, frame)
        members = found.elements(MAX_MEMBERS) if isinstance(found, Object) else found if isinstance(found, (list, tuple)) else []
        return [one.address for one in members if isinstance(one, Object)]
    return []


def _of_greenlets(task: Any, said: str, addresses: Sequence[int], givers: Givers) -> Edge:
    nodes = [givers.node(one) for one in givers.reachable.agents if getattr(one, "address", 0) in addresses]
    return Edge(task.node, said, "task", where=task.top, candidates=nodes, every=len(nodes) > 1)
