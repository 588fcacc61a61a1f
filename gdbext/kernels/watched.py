"""The launch functions that llm-break watches: a symbol does not always name them."""

from __future__ import annotations

LAUNCHES: dict[tuple[int | None, int], str] = {}  # {(pid, address): name}
