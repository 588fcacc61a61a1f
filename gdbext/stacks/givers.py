"""The threads whose own code could end a wait. A thread that can reach an object need not give anything to those that wait for
it.

Example: a thread that sleeps for an hour between two rounds of its work can reach everything that hangs on its `self`. It starves
others only in two cases. Its code names the call that ends the wait (`put`, `set`, `notify`), or it has the very object at hand
and may pass it on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .. import log
from ..errors import GdbextError
from .python_waits import ASYNCIO, LIBRARY, path_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .references import References
    from .waits import Edge

_ENDS = {
    "Event": frozenset(("set",)),
    "Condition": frozenset(("notify", "notify_all")),
    "Barrier": frozenset(("wait", "abort", "reset")),
    "get": frozenset(("put", "put_nowait")),
    "put": frozenset(("get", "get_nowait")),
    "join": frozenset(("task_done",)),
}
_ASKS = frozenset(("is_set", "empty", "full", "qsize", "n_waiting"))  # calls that only ask for the state


def may_end(references: References, frames: Iterable[Any], edge: Edge) -> bool:
    """Whether code of one of the frames may end the wait of `edge`, which is not for a lock. The code must reach the object. It
    must also name a call that ends such a wait, or at least not only ask for the object's state."""
    ends = _ENDS.get(edge.how or edge.kind.rpartition(".")[2])
    if ends is None:
        return True
    for frame in frames:
        if path_of(frame).endswith((*LIBRARY, *ASYNCIO)):
            continue
        path = references.name_of(frame, edge.address)
        names = references.names(frame)
        if path and names.issuperset(re.findall(r"\.(\w+)", path)) and (names & ends or not names & _ASKS):
            return True
    return False


def waits_for(agent: Any, address: int, library: tuple[str, ...]) -> bool:
    """Whether a thread or task is itself in a wait for this very object, in a file of `library`."""
    for frame in agent.python[:6]:
        try:
            if path_of(frame).endswith(library) and getattr(dict(frame.locals()).get("self"), "address", 0) == address:
                return True
        except GdbextError as e:
            log.passed_over(e)
            continue  # what cannot be read is not known to wait
    return False
