"""Who could end a wait by the code that it stands in: to reach an object is not yet to give what others wait for.

A thread that sleeps for an hour between two rounds of its own work can reach all that hangs on its `self`. It starves somebody
only where its code names what ends the wait (`put`, `set`, `notify`), or has the very object at hand and may pass it on.
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
_ASKS = frozenset(("is_set", "empty", "full", "qsize", "n_waiting"))  # who only asks how it stands


def may_end(references: References, frames: Iterable[Any], edge: Edge) -> bool:
    """Whether code of one of the frames may end the wait of `edge`, which is not for a lock: it can reach the object, and names a
    call that ends such a wait, or has it at hand and does not only ask how it stands."""
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
    """Whether a thread or task itself stands in a wait, in a file of `library`, of this very object."""
    for frame in agent.python[:6]:
        try:
            if path_of(frame).endswith(library) and getattr(dict(frame.locals()).get("self"), "address", 0) == address:
                return True
        except GdbextError as e:
            log.passed_over(e)
            continue  # what cannot be read is not known to wait
    return False
