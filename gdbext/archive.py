"""The pack as the bytes of one archive, gdbext.pyz: scripts/make-pyz writes it, session/nodes.py sends it."""

from __future__ import annotations

import io
import os
import zipfile
from typing import Mapping

from . import package

SHEBANG = b"#!/usr/bin/env python3\n"
MAIN = b"""import sys
if sys.version_info < (3, 8):
    sys.exit("gdbext needs Python 3.8 or newer, this is " + sys.version.split()[0])
from gdbext.package import first_to_go
first_to_go()
from gdbext.compiled import use
use(sys.path[0])
from gdbext.__main__ import entry
entry()
"""
TIME = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can hold


def made(more: Mapping[str, bytes] | None = None) -> bytes:
    """The archive: the same bytes for the same sources. `more`: {name in it: content} of files from elsewhere. From an archive
    that archive itself."""
    if package.in_archive():
        with open(package.ROOT, "rb") as f:
            return f.read()
    found = {"__main__.py": MAIN, **(more or {})}
    for folder, folders, names in os.walk(package.FOLDER):
        folders[:] = set(folders) - {"__pycache__"}
        for name in names:
            if name.endswith((".py", ".json", ".gdb", ".txt", ".js", ".typed")):
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    found[os.path.relpath(path, package.ROOT).replace(os.sep, "/")] = f.read()
    out = io.BytesIO()
    out.write(SHEBANG)
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in sorted(found.items()):
            entry = zipfile.ZipInfo(name, TIME)
            entry.create_system, entry.external_attr = 3, 0o644 << 16  # Unix, whatever this machine is
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return out.getvalue()
