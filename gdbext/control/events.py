"""gdb's events, connected one way."""

from __future__ import annotations

from typing import Any, Callable

import gdb

_connected: set[Callable[[Any], None]] = set()


def listen(**handlers: Callable[[Any], None]) -> None:
    """Connects functions to gdb's events with these names, each function once; an event that this gdb lacks is left out."""
    for name, handler in handlers.items():
        if handler not in _connected and hasattr(gdb.events, name):
            _connected.add(handler)
            getattr(gdb.events, name).connect(handler)
