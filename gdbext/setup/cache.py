"""`python -m gdbext cache clear`: removes the results that commands keep for later ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..access import kept_symbols

if TYPE_CHECKING:
    from typing import Any, Callable


def clear(say: Callable[[str], None]) -> dict[str, Any]:
    """-> {folder, files, bytes} of the removed files; `GdbextError` where the folder is another user's."""
    own, (files, size) = kept_symbols.folder(), kept_symbols.clear()
    where = f"from {own}" if own else "(neither XDG_CACHE_HOME nor HOME names a folder)"
    say(f"removed {files} files, {size / 1024:.1f} KiB, {where}")
    return {"folder": own, "files": files, "bytes": size}
