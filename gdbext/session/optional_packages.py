"""Packages beyond the standard library, loaded when an answer needs them; a missing one is one line that installs it."""

from __future__ import annotations

import importlib
import os
import sys

from ..errors import GdbextError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


# What says how many threads a BLAS starts when it is loaded; by itself one per processor, inside gdb.
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


def need(name: str, what: str) -> ModuleType:
    """The module `name`, for `what` ("-stats"). `GdbextError` with the line that installs it for the Python that runs this."""
    try:
        return _import(name)
    except ImportError:
        pass
    from ..wheels import pip_command, wheels_folder

    version = sys.version_info[:2]
    folder = wheels_folder(version)
    if "gdb" not in sys.modules:
        line = f"{sys.executable} -m pip install {name}"
    else:
        if folder not in sys.path and os.path.isdir(folder):  # made after this gdb started
            sys.path.append(folder)
        importlib.invalidate_caches()
        try:
            return _import(name)
        except ImportError:
            line = " ".join(pip_command(version, folder, [name], ["python3", "-m", "pip"]))
    raise GdbextError(f"{what} needs {name}, which this Python {version[0]}.{version[1]} does not have; run: {line}")


def _import(name: str) -> ModuleType:
    """Imports a package with one BLAS thread where the user says nothing else; the environment is then as before."""
    ours = {variable: "1" for variable in BLAS_THREADS if variable not in os.environ}
    os.environ.update(ours)
    try:
        return importlib.import_module(name)
    finally:
        for variable in ours:
            os.environ.pop(variable, None)
