"""The programs that the rows of `gdbext.primitives.table` make: each way to wait and each call that only asks, hung and well, at
the object itself and through classes of the program's own."""

import dataclasses
import json
import random

from gdbext.primitives import table

SHORT = {"block": "True, 0.01", "block1": "1, True, 0.01", "timeout": "0.01", "blocking": "True, 0.01"}  # a time limit
NAMES = ("_inner", "jobs", "backend", "_q", "channel", "slot")


@dataclasses.dataclass
class Case:
    """What `subjects/primitives.py` says. `kind`: as the edge's; `needs`: the module that it imports."""

    kind: str
    needs: str
    made: str
    first: str
    call: str
    give: str
    is_async: bool
    state: str
    ask: str = ""
    how: str = ""
    short: str = ""
    pauses: bool = False
    handled: bool = False
    names: list = dataclasses.field(default_factory=list)

    @property
    def argument(self):
        return json.dumps(dataclasses.asdict(self))


def cases(states=("sleeps", "ended", "gives")):
    """Every case of every row that says how it is made."""
    for row in table.ROWS:
        for way in row.ways if row.made else ():
            common = row.kind, row.needs, row.made, way.first, way.call, way.give, row.is_async
            for state in states:
                if way.call:
                    yield Case(*common, state)
                for ask, how in way.asks.items() if way.ready else ():
                    if how and how != "awaits":
                        short = SHORT.get(how, "0.01" if ask == "wait" else "1" if ask == "put_nowait" else "")
                        form = how if how in ("is", "not", "count", "blocking") else "raises"
                        yield Case(*common, state, ask, form, short, bool(short) and how != "nowait")


def drawn(seed, count, known=lambda needs: True):
    """`count` of these cases, each in none, one or two classes of the program's own."""
    rng = random.Random(seed)
    found = rng.sample([case for case in cases() if known(case.needs)], count)
    return [dataclasses.replace(case, names=rng.sample(NAMES, rng.choice((0, 1, 2)))) for case in found]
