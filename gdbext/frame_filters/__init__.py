"""Frame filters: what changes gdb's own `bt`. Registered disabled; each loads what it needs when it is first asked."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator


class PythonFrames:
    """gdb's `bt` with Python frames in place of the interpreter's own: enable frame-filter global gdbext-python"""

    name, enabled, priority = "gdbext-python", False, 100

    def filter(self, frames: Iterable[Any]) -> Iterator[Any]:
        """gdb's protocol: an iterator of frame decorators in, one out."""
        from . import python

        return python.merged(frames)


def register() -> None:
    """Adds the frame filter to this gdb, disabled."""
    import gdb

    found = PythonFrames()
    gdb.frame_filters[found.name] = found
