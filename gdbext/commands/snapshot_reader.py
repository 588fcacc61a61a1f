"""The collector's reader for snapshots that outlive the command: beside stacks, locks and the objects that variables lead to it
reads what a few commands read, by running them, on the process and, where that has run meanwhile, on the copy."""

from __future__ import annotations

from .. import log
from ..access.base import Target
from ..requests import collect
from ..session import rehearsal
from ..session.command import Args
from ..stacks import prefetch
from ..stacks.prefetch import kept_secrets as kept_secrets
from . import table

READER = __name__
LINES = (
    *("pybt -all -locals", "pylocals", "pyexc -locals", "pythreads", "pytasks -all -locals", "pylist"),
    *("llm-kv", "llm-kv check", "llm-kv check -ranks", "llm-kv free", "llm-kv map"),
)


def read(target: Target, *words: str) -> str:
    """Reads from the process what a snapshot is likely to hold, so that it is copied first. `words` and result: as of
    `prefetch.read`."""
    reads = target.read_log
    if reads is None or reads.repeated or reads.of_copy:
        return prefetch.read(target, *words)
    return choose(target, *words)


def choose(target: Target, *words: str) -> str:
    """Reads what a snapshot holds, from the process or its copy; otherwise as `read`."""
    for line in LINES:
        name, _, rest = line.partition(" ")
        command = table.load(name)
        args = command.parse(rest)
        rehearsal.run(command, Args({**args.__dict__, "on": str(target.pid)}, args.operand_text), target)
    with log.passing_over():
        collect.collect_one(target)  # no engine's process
    return prefetch.read(target, *words)
