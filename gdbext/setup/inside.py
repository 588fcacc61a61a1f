"""The other end of `outside.in_gdb`: runs one command inside gdb and writes its result to the file that GDBEXT_RUN names."""

from __future__ import annotations

import json
import os


def main() -> None:
    import gdb

    from ..commands import table
    from ..errors import GdbextError
    from ..render.text import Style
    from ..session import gdb_session
    from . import outside

    asked = json.loads(os.environ.pop("GDBEXT_RUN"))
    session = gdb_session.session
    session.own_style = Style(asked["colour"], asked["width"])
    session.own_style.wraps, session.own_style.how = asked["width"], asked["how"]
    command = table.load(asked["name"])
    try:
        result = outside.perform(command, asked["line"], session)
    except gdb.error as e:  # gdb.MemoryError is one too
        result = outside.failure(command.name, GdbextError(f"gdb says: {e}"), outside.wants_json(command, asked["line"]))
    except gdb.GdbError as e:
        result = outside.failure(command.name, GdbextError(str(e)), outside.wants_json(command, asked["line"]))
    with open(asked["result"], "w") as f:
        json.dump(dict(zip(("status", "out", "err"), result)), f)
