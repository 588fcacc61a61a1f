"""Rooms that are imported when they are first used: what keeps `source gdbext/init.py` under its budget."""

import importlib


class room:
    """`reprs = room("cpython.reprs")`: `reprs.Repr` imports gdbext.cpython.reprs at its first use."""

    def __init__(self, name):
        self.__dict__["_name"] = name

    def __getattr__(self, attribute):
        module = importlib.import_module("gdbext." + self._name)
        self.__dict__.update({k: v for k, v in vars(module).items() if not k.startswith("__")})
        return getattr(module, attribute)
