"""`python -m gdbext cache clear`: removes the results and indexes that commands keep for later ones."""

from __future__ import annotations

import os
import re
from typing import Any, Callable

from ..access import kept_indexes, kept_symbols

PACKS = re.compile(r"[0-9a-f]{64}|\.[0-9]+")  # and the drafts of killed writers: session/node_start.py


def clear(say: Callable[[str], None]) -> dict[str, Any]:
    """-> {folder, files, bytes}: that of the symbols, and all removed files; `GdbextError` where a folder is another user's."""
    own = kept_symbols.folder()
    files, size = map(
        sum, zip(kept_symbols.clear(), kept_symbols.remove(kept_symbols.folder("packs"), PACKS), kept_indexes.clear())
    )
    where = f"from {os.path.dirname(own)}" if own else "(neither XDG_CACHE_HOME nor HOME names a folder)"
    say(f"removed {files} files, {size / 1024:.1f} KiB, {where}")
    return {"folder": own, "files": files, "bytes": size}
