"""Which commands there are and where: name -> (module of this package, class), and of each what its name, group and help are,
without loading it. Both doors read this and nothing else."""

from __future__ import annotations

import importlib

from ..errors import GdbextError
from ..package import data

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..session.command import Command

HELP = "commands/help.txt"  # written by scripts/make-commands-reference
HEAD = "=== "  # begins the line of each command in it: name, group, flags
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
    found: type[Command] = getattr(importlib.import_module(f"{FOLDER}.{module}"), cls)
    return found


def load_all() -> list[type[Command]]:
    return [load(name) for name in COMMANDS]


FIRST = tuple("llm-ranks llm-hang llm-stacks llm-requests llm-bt pyprint pytensor llm-kv llm-record llm-snapshot".split())
FIRST_TITLE = "The first hour"
GROUPS = (
    ("ranks", "Ranks: find, attach, resume"),
    ("python", "Python: stacks and objects"),
    ("break", "Python: stop, step, log"),
    ("tensors", "Tensors and memory"),
    ("kv", "Requests and KV cache"),
    ("kernels", "Kernels"),
    ("hang", "Hangs and snapshots"),
    ("time", "Time: what each rank did"),
)


class Entry:
    """One command as `help.txt` has it. `gdb_only`: it acts on gdb's own inferiors; `once`: Enter does not repeat it."""

    def __init__(self, name: str, group: str, help: str, gdb_only: bool, once: bool) -> None:
        self.name, self.group, self.help, self.gdb_only, self.once = name, group, help, gdb_only, once

    @property
    def summary(self) -> str:
        """The first line of its help."""
        return self.help.partition("\n")[0]


def entries() -> list[Entry]:
    """Every command, in the order of `COMMANDS`; none is loaded."""
    found = []
    for part in data(HELP).decode().split("\n" + HEAD)[1:]:
        head, _, text = part.partition("\n")
        name, group, *flags = head.split(" ")
        found.append(Entry(name, group.strip("-"), text.rstrip("\n"), "gdb" in flags, "once" in flags))
    return found


def entry(name: str) -> Entry:
    """The command of that name; `GdbextError` for a row of `COMMANDS` that the file does not have yet."""
    found = next((e for e in entries() if e.name == name), None)
    if found is None:
        raise GdbextError(f"{name} is not in gdbext/{HELP}: run scripts/make-commands-reference")
    return found


def first() -> list[Entry]:
    """The ten commands of the first hour, in the order in which they are used."""
    found = {e.name: e for e in entries()}
    return [found[name] for name in FIRST]


def grouped() -> list[tuple[str, list[Entry]]]:
    """[(title, its commands)], every command but `llm` itself."""
    every = entries()
    return [(title, [e for e in every if e.group == group]) for group, title in GROUPS]


def written(commands: list[type[Command]]) -> str:
    """The text of `help.txt` for the commands that there are."""
    parts = ["What gdb is told of each command at its start. Generated by scripts/make-commands-reference: do not edit.\n"]
    for c in commands:
        flags = ["gdb"] * c.gdb_only + ["once"] * (c.resumes and not c.repeats)
        parts.append(f"{HEAD}{' '.join([c.name, c.group or '-', *flags])}\n{c.help()}\n")
    return "\n".join(parts)
