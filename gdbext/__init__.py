"""gdbext: a GDB / cuda-gdb extension pack for LLM inference engines. `source gdbext/init.py` in gdb loads it."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .api.engines import Block as Block
    from .api.engines import Cache as Cache
    from .api.engines import Check as Check
    from .api.engines import Engine as Engine
    from .api.engines import Request as Request
    from .api.opening import attach as attach
    from .api.opening import open as open
    from .api.opening import pythons as pythons
    from .api.opening import ranks as ranks
    from .api.opening import selected as selected
    from .api.processes import Frame as Frame
    from .api.processes import Process as Process
    from .api.processes import Ranks as Ranks
    from .api.processes import Task as Task
    from .api.processes import Thread as Thread
    from .api.values import MissingAttribute as MissingAttribute
    from .api.values import MissingItem as MissingItem
    from .api.values import Object as Object
    from .api.values import PrivateContent as PrivateContent
    from .api.values import Tensor as Tensor
    from .api.verdicts import Verdict as Verdict
    from .api.waits import End as End
    from .api.waits import Wait as Wait
    from .errors import FaultError as FaultError
    from .errors import GdbextError as GdbextError
    from .errors import LayoutError as LayoutError
    from .errors import NotFoundError as NotFoundError

__version__ = "0.3.0"
_LIBRARY = {  # docs/library.md; each module is loaded when one of its names is first used
    "gdbext.api.opening": "attach open pythons ranks selected",
    "gdbext.api.processes": "Frame Process Ranks Task Thread",
    "gdbext.api.values": "MissingAttribute MissingItem Object PrivateContent Tensor",
    "gdbext.api.waits": "End Wait",
    "gdbext.api.engines": "Block Cache Check Engine Request",
    "gdbext.api.verdicts": "Verdict",
    "gdbext.errors": "FaultError GdbextError LayoutError NotFoundError",
}
_MODULES = {name: module for module, names in _LIBRARY.items() for name in names.split()}


def __dir__() -> "list[str]":
    return sorted({*globals(), *_MODULES})


if not TYPE_CHECKING:  # a type checker knows the library's names alone

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module 'gdbext' has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(_MODULES[name]), name)


def _leave_the_current_folder() -> None:
    """`python3 -m gdbext` puts the current folder, an agent's workspace say, before all others on the path: what lies there is
    not imported, unless it is the folder that this very pack lies in."""
    import os  # the interpreter has loaded it itself

    try:
        here = os.getcwd()
    except OSError:  # the folder is gone
        here = ""
    if os.path.dirname(os.path.dirname(os.path.abspath(__file__))) != here:
        sys.path[:] = [entry for entry in sys.path if entry and os.path.realpath(entry) != here]


if sys.argv[:1] == ["-m"]:  # what -m runs is being looked up, and it is this pack
    _leave_the_current_folder()
