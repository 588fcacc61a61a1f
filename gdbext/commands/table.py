"""Which commands there are: of each its name, group, module and help, as `help.txt` has them, without loading it. Both doors read
this and nothing else."""

from __future__ import annotations

import importlib

from ..errors import GdbextError
from ..package import data

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..session.command import Command

HELP = "commands/help.txt"  # written by scripts/make-commands-reference
HEAD = "=== "  # begins the line of each command in it: name, group, module and class, flags
FOLDER = __name__.rpartition(".")[0]
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
    """One command as `help.txt` has it. `where`: its module in this package and its class; `gdb_only`: it acts on gdb's own
    inferiors; `once`: Enter does not repeat it."""

    def __init__(self, head: str, text: str) -> None:
        self.name, group, self.where, *flags = head.split(" ")
        self.group, self.help = group.strip("-"), text.rstrip("\n")
        self.gdb_only, self.once = "gdb" in flags, "once" in flags

    @property
    def summary(self) -> str:
        """The first line of its help."""
        return self.help.partition("\n")[0]


def entries() -> list[Entry]:
    """Every command; none is loaded."""
    parts = data(HELP).decode().split("\n" + HEAD)[1:]
    return [Entry(head, text) for head, _, text in (part.partition("\n") for part in parts)]


def names() -> list[str]:
    return [e.name for e in entries()]


def entry(name: str) -> Entry:
    """The command of that name; `GdbextError` for one that the file does not have."""
    found = next((e for e in entries() if e.name == name), None)
    if found is None:
        raise GdbextError(f"{name} is not in gdbext/{HELP}: run scripts/make-commands-reference")
    return found


def load(name: str) -> type[Command]:
    """The `Command` class of a name."""
    module, _, cls = entry(name).where.partition(".")
    found: type[Command] = getattr(importlib.import_module(f"{FOLDER}.{module}"), cls)
    return found


def load_all() -> list[type[Command]]:
    return [load(name) for name in names()]


def first() -> list[Entry]:
    """The ten commands of the first hour, in the order in which they are used."""
    found = {e.name: e for e in entries()}
    return [found[name] for name in FIRST]


def grouped() -> list[tuple[str, list[Entry]]]:
    """[(title, its commands)], every command but `llm` itself."""
    every = entries()
    return [(title, [e for e in every if e.group == group]) for group, title in GROUPS]
