"""Packages beyond the standard library, loaded when an answer needs them. An error names the line that installs a missing one."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from .. import log
from ..errors import GdbextError
from ..package import import_package


def has(name: str) -> bool:
    """Whether the Python that runs this has the module `name`."""
    try:
        need(name, name)
    except GdbextError as e:
        log.passed_over(e)
        return False
    return True


def need(name: str, what: str) -> ModuleType:
    """The module `name`, for `what` ("-stats"). `GdbextError` with the line that installs it for the Python that runs this."""
    try:
        return import_package(name)
    except ImportError:
        pass
    from ..wheels import pip_command, use, wheels_folder

    version = sys.version_info[:2]
    if "gdb" not in sys.modules:
        line = f"{sys.executable} -m pip install {name}"
    else:
        refused = use(version)  # made after this gdb started
        if refused:
            raise GdbextError(f"{what} needs {name}; {refused}")
        folder = wheels_folder(version)
        importlib.invalidate_caches()
        try:
            return import_package(name)
        except ImportError:
            line = " ".join(pip_command(version, folder, [name], ["python3", "-m", "pip"]))
    raise GdbextError(f"{what} needs {name}, which this Python {version[0]}.{version[1]} does not have; run: {line}")
