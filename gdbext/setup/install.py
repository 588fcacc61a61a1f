"""`python -m gdbext install` and `uninstall`."""

from __future__ import annotations

import os
import shutil
from typing import Any, Callable

from .. import wheels
from ..errors import GdbextError
from . import gdbs, initfile
from .unpack import init_script

UNPACKED = "unpacked"  # in our data folder: the pack that an archive installed


def _targets(gdbinit: Any) -> Any:
    if gdbinit:
        return [("gdb", os.path.abspath(os.path.expanduser(gdbinit)))]
    return initfile.init_files()[0]


def install(
    gdbinit: str | None = None,
    gdb: str | None = None,
    with_wheels: bool = True,
    with_files: bool = True,
    say: Callable[[str], None] = print,
) -> tuple[dict[str, Any], list[str]]:
    """Adds the load line to gdb's and cuda-gdb's init files (or to the file `gdbinit` alone), and installs wheels for the Python
    of each gdb here (or of `gdb` alone).

    -> the answer's data, `{files: [{program, path, changed}], wheels: [{gdb, python, folder, missing}]}`, and the reasons why it
    is partial"""
    files, done, partial = [], [], []
    if with_files:
        init = init_script(os.path.join(wheels.data_folder(), UNPACKED))
        script = initfile.load_script(init)
        for program, path in _targets(gdbinit):
            changed = initfile.change(path, lambda content: initfile.add_block(content, script, path))
            files.append({"program": program, "path": path, "changed": changed})
            has = "has the line now" if changed else "has the line already"
            say(f"{path}: {has} that loads {os.path.dirname(init)} in {program}")
    if with_wheels:
        seen = set()
        paths = gdbs.find(gdb)
        if not paths:
            partial.append("no gdb here, so no wheels for its Python: install gdb, then run this again")
        for path in paths:
            try:
                found = gdbs.ask(path)
            except GdbextError as e:
                partial.append(str(e))
                continue
            if found.python is None:
                partial.append(f"{path} was built without Python and cannot load gdbext; install a full gdb")
                continue
            if found.python in seen:
                continue
            seen.add(found.python)
            folder, missing = wheels.install_wheels(found.python, say)
            done.append({"gdb": path, "python": "%d.%d" % found.python, "folder": folder, "missing": missing})
            say(
                (
                    f"{folder}: {', '.join(p for p in wheels.PACKAGES if p not in missing)} for Python "
                    f"{found.python[0]}.{found.python[1]} of {path}"
                )
            )
            if missing:
                partial.append(f"no wheel of {', '.join(missing)} for Python {found.python[0]}.{found.python[1]}")
    return {"files": files, "wheels": done}, partial


def uninstall(gdbinit: str | None = None, with_wheels: bool = True, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Takes the load line out again, wherever `install` may have put it, and removes the wheels. -> `{files: [{path, changed}],
    removed: [folder]}`."""
    files, removed = [], []
    for path in [os.path.abspath(os.path.expanduser(gdbinit))] if gdbinit else initfile.init_files()[1]:
        changed = initfile.change(path, lambda content: initfile.remove_block(content, path))
        if changed or gdbinit:
            files.append({"path": path, "changed": changed})
            say(f"{path}: {'the load line is out of it' if changed else 'has no load line'}")
    data = wheels.data_folder()
    if with_wheels and not gdbinit and os.path.isdir(data):
        for name in sorted(os.listdir(data)):
            if name.startswith("gdb-python-") or name == UNPACKED:
                removed.append(os.path.join(data, name))
                shutil.rmtree(removed[-1], ignore_errors=True)
                say(f"{removed[-1]}: removed")
        if not os.listdir(data):
            os.rmdir(data)
    if not any(f["changed"] for f in files) and not removed:
        say("nothing to remove: no init file of gdb or cuda-gdb loads gdbext")
    return {"files": files, "removed": removed}
