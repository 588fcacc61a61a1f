"""Modules that are loaded when they are first used: what keeps `source gdbext/init.py` under its budget."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

# What says how many threads a BLAS starts when it is loaded.
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


def lazy_module(name: str) -> ModuleType:
    """`reprs = lazy_module("cpython.reprs")`: gdbext.cpython.reprs, loaded at the first use of one of its names.

    `name`: the module below gdbext. A module that is loaded already is returned as it is.
    """
    full = "gdbext." + name
    known = sys.modules.get(full)
    if known is not None:
        return known
    spec = importlib.util.find_spec(full)
    if spec is None or spec.loader is None:
        raise ImportError(f"there is no module {full}", name=full)
    if not hasattr(spec.loader, "exec_module"):  # zipimport's before Python 3.10
        return importlib.import_module(full)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    spec.loader.exec_module(module)
    package, _, last = full.rpartition(".")
    setattr(sys.modules[package], last, module)
    return module


def import_package(name: str) -> ModuleType:
    """Imports a package with one BLAS thread where the user says nothing else; the environment is then as before.

    By itself a BLAS starts a thread per processor when numpy is loaded, inside gdb.
    """
    ours = {variable: "1" for variable in BLAS_THREADS if variable not in os.environ}
    os.environ.update(ours)
    try:
        return importlib.import_module(name)
    finally:
        for variable in ours:
            os.environ.pop(variable, None)
