"""A command of the pack asked in this very process, as `python -m gdbext` asks it, without gdb."""

import json

from gdbext.commands import table
from gdbext.session.session import Session

from .schemas import held


class _Session(Session):
    def stop_nothing(self, command):
        """The filter of -unstopped would stay in the process that runs the tests. The look at the heap needs none."""
        assert command.name.endswith("heap"), "ask it in a process of its own"


def run(line):
    name, _, rest = line.partition(" ")
    command = table.load(name)
    return command().answer(_Session(), command.parse(rest))


def answer(line):
    return held(json.loads(run(line).json(line.split(" ")[0])))
