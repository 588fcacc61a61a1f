"""The child for whose end a thread or task waits in the standard library, by its Python frames.

Source: Lib/subprocess.py, multiprocessing/process.py, popen_fork.py, asyncio/subprocess.py of each minor.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

from .. import log
from ..errors import GdbextError
from .objects import Object

FRAMES = 8  # innermost frames in which such a wait is looked for
# (end of the file, the last part of the function's name): the outermost such frame counts
_WAITS = (
    ("/subprocess.py", ("wait", "_wait")),
    ("multiprocessing/process.py", ("join",)),
    ("multiprocessing/popen_fork.py", ("wait",)),
)
INSIDE = (
    "/subprocess.py",
    "/process.py",
    "/popen_fork.py",
    "/connection.py",
    "/selectors.py",
    "/base_subprocess.py",
)


class ChildWait(NamedTuple):
    """A wait for a child's end: the library's `frame`, the `object` of the child, its `pid` (0: not known here); `limit`: it has
    a time limit."""

    frame: Any
    object: Object
    pid: int
    limit: bool


def find(frames: Sequence[Any]) -> ChildWait | None:
    """The child for which the innermost `frames` wait; None where they wait for none."""
    best = None
    for frame in frames[:FRAMES]:
        path = str(frame.file).replace("\\", "/")
        if not path.endswith(INSIDE):
            break
        name = str(frame.function).rpartition(".")[2]
        if any(path.endswith(end) and name in functions for end, functions in _WAITS):
            try:
                own = dict(frame.locals())
                me = own["self"]
                best = ChildWait(frame, me, pid_of(me), _limited(own.get("timeout")))
            except (GdbextError, KeyError, AttributeError) as e:
                log.passed_over(e, "the child that a frame waits for")
    return best


def pid_of(child: Object) -> int:
    """Our pid of a `subprocess.Popen`, a `multiprocessing.Process` or an asyncio `Process`; 0 where it is not known here."""
    return child.rt.target.pid_here(_number(child))


def end_of(child: Object) -> str:
    """Its end, in words."""
    pid = pid_of(child)
    return f"the end of process {pid}" if pid else f"the end of process {_number(child)} of its own pid namespace"


def _number(child: Object) -> int:
    """The pid as the process itself has it."""
    names = [name for name, _ in child.fields()]
    return int((child.attr("_popen").attr("pid") if "_popen" in names else child.attr("pid")).integer())


def _limited(value: Any) -> bool:
    return value is not None and not (isinstance(value, Object) and value.is_none())
