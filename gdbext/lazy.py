"""Modules that are loaded when they are first used: what keeps `source gdbext/init.py` under its budget."""

from __future__ import annotations

import importlib
import importlib.util
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


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
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    spec.loader.exec_module(module)
    package, _, last = full.rpartition(".")
    setattr(sys.modules[package], last, module)
    return module
