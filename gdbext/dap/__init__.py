"""Python in gdb's own DAP server (gdb 14 and later): loaded only where this gdb speaks DAP."""

from __future__ import annotations

import sys


def register() -> None:
    """Adds Python's part to the DAP server of this gdb, if it runs one."""
    server = sys.modules.get("gdb.dap.server")
    if getattr(server, "_server", None) is not None:
        from . import requests

        requests.register()
