"""A command of the pack asked in this very process, as `python -m gdbext` asks it, without gdb."""

import json

from gdbext.commands import table
from gdbext.session.session import Session


def run(line):
    name, _, rest = line.partition(" ")
    command = table.load(name)
    return command().answer(Session(), command.parse(rest))


def answer(line):
    return json.loads(run(line).json(line.split(" ")[0]))
