"""Which commands there are and where: name -> (module of this package, class). Both doors read this and nothing else."""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..session.command import Command


FOLDER = __name__.rpartition(".")[0]
COMMANDS = {
    "llm": ("llm", "Llm"),
    "llm-ranks": ("llm_ranks", "LlmRanks"),
    "llm-attach": ("llm_attach", "LlmAttach"),
    "llm-detach": ("llm_attach", "LlmDetach"),
    "llm-continue": ("llm_attach", "LlmContinue"),
    "llm-apply": ("llm_attach", "LlmApply"),
    "llm-bt": ("llm_bt", "LlmBt"),
    "pybt": ("pybt", "PyBt"),
    "pyframe": ("pyframe", "PyFrameCommand"),
    "pyup": ("pyframe", "PyUp"),
    "pydown": ("pyframe", "PyDown"),
    "pylist": ("pyframe", "PyList"),
    "pylocals": ("pyframe", "PyLocals"),
    "pyprint": ("pyprint", "PyPrint"),
    "pythreads": ("pythreads", "PyThreads"),
    "pyexc": ("pyexc", "PyExc"),
    "pytasks": ("pytasks", "PyTasks"),
    "pytensor": ("pytensor", "PyTensor"),
    "pytensors": ("pytensors", "PyTensors"),
    "pyheap": ("pyheap", "PyHeap"),
    "pybreak": ("pybreak", "PyBreak"),
    "pynext": ("pystep", "PyNext"),
    "pystep": ("pystep", "PyStep"),
    "pyfinish": ("pystep", "PyFinish"),
    "pyuntil": ("pystep", "PyUntil"),
    "llm-follow": ("llm_follow", "LlmFollow"),
    "llm-inject": ("llm_inject", "LlmInject"),
    "llm-profile": ("llm_profile", "LlmProfile"),
    "pycatch": ("pycatch", "PyCatch"),
    "pylog": ("pylog", "PyLog"),
    "pytrace": ("pylog", "PyTrace"),
    "llm-save": ("pylog", "LlmSave"),
    "llm-layers": ("llm_layers", "LlmLayers"),
    "llm-kv": ("llm_kv", "LlmKv"),
    "llm-requests": ("llm_requests", "LlmRequests"),
    "llm-request": ("llm_requests", "LlmRequest"),
    "llm-memory": ("llm_memory", "LlmMemory"),
    "llm-addr": ("llm_addr", "LlmAddr"),
    "llm-kernels": ("llm_kernels", "LlmKernels"),
    "llm-break": ("llm_break", "LlmBreak"),
    "llm-symbols": ("llm_symbols", "LlmSymbols"),
    "llm-launch": ("llm_launch", "LlmLaunch"),
    "llm-focus": ("llm_focus", "LlmFocus"),
    "llm-step": ("llm_focus", "LlmStep"),
    "llm-gpucore": ("llm_gpucore", "LlmGpuCore"),
    "llm-snapshot": ("llm_snapshot", "LlmSnapshot"),
    "llm-stacks": ("llm_stacks", "LlmStacks"),
    "llm-locks": ("llm_locks", "LlmLocks"),
    "llm-hang": ("llm_hang", "LlmHang"),
    "llm-watch": ("llm_watch", "LlmWatch"),
    "llm-report": ("llm_report", "LlmReport"),
    "llm-record": ("llm_record", "LlmRecord"),
    "llm-top": ("llm_top", "LlmTop"),
}


def load(name: str) -> type[Command]:
    """The `Command` class of a name."""
    module, cls = COMMANDS[name]
    return getattr(importlib.import_module(f"{FOLDER}.{module}"), cls)


def load_all() -> list[type[Command]]:
    return [load(name) for name in COMMANDS]
