"""Whether the open requests of a running engine make progress, seen without stopping it. llm-watch waits for this."""

from __future__ import annotations

import time
from typing import Any, Callable

from ..engines.group import Engine
from .collect import looks_at
from .join import marks

SHARE = 4  # looks at an engine within the `after` seconds: each look reads all of its processes


class RequestsWatch:
    """One engine: since when each of its open requests has been in the same place, with the same progress."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock = engine, clock
        self._known: dict[str, tuple[Any, float]] = {}  # request id: (its marks, since when)
        self._next = 0.0

    def look(self, after: float) -> str:
        """Why a closer look is due, '' where there is progress or it may still come. `after`: seconds without progress before a
        look is due."""
        now = self._clock()
        if now < self._next:
            return ""
        self._next = now + after / SHARE
        looks, _ = looks_at(self._engine)
        if any(look.notes for look in looks):
            return ""  # not all of it was read: a missing request may have moved
        seen = marks(looks)
        self._known = {
            name: self._known[name] if name in self._known and self._known[name][0] == mark else (mark, now)
            for name, mark in seen.items()
        }
        stood = [now - since for _, since in self._known.values() if now - since >= after]
        if not stood:
            return ""
        self._known = {name: (mark, now) for name, (mark, _) in self._known.items()}
        return f"{len(stood)} of {len(seen)} open requests of {self._engine.name} have not moved for {max(stood):.1f} s"
