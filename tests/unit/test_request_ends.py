"""One id at both ends of a transfer: one request, one way; else each is named with its instance. Looks are made up."""

import pytest

from gdbext.commands.llm_requests import _named
from gdbext.engines.sightings import FRONTEND, PAIRING, QUEUE, RUNNING, Connector, Look, Sighting, Transfer
from gdbext.errors import NotFoundError
from gdbext.requests.collect import Custody
from gdbext.requests.instances import Side, relate
from gdbext.requests.model import MOVING, PARKED, Tracked, linked, meant
from gdbext.requests.ways import way

ADDRESS = "10.1.1.1:8998"


def end(instance, name, stage, role, transfer=None, stopped="", external=""):
    """An instance of which a server and a scheduler were looked at, and its one request."""
    front = Look(f"{instance}:server", 1, "api-server", ("frontend",), [Sighting(name, FRONTEND, "awaited", external)])
    core = Look(f"{instance}:scheduler", 2, "scheduler", ("scheduler",), [])
    core.serves, core.stopped = Connector("nixl", role, address=ADDRESS if role == "prefill" else ""), stopped
    hops = [(front, front.sightings[0])]
    if stage is not None:
        one = Sighting(name, stage, "prealloc" if transfer else "running", parked=transfer is not None, transfer=transfer)
        core.sightings.append(one)
        hops.append((core, one))
    found = Tracked(name, hops, external, PARKED if transfer is not None else MOVING)
    return Side(instance, [front, core], [found], [front, core])


def waits(sends, address="", room="7"):
    return Transfer(("room", room), sends, PAIRING, "", address)


def held(*sides):
    found = []
    for side in sides:
        one = Custody("sglang", side.looks, side.requests, [], [])
        one.name = side.name
        found += [(one, [], t) for t in side.requests]
    return found


@pytest.mark.parametrize("stopped", ["", "a debugger"])
@pytest.mark.parametrize("late", ["prefill", "decode"])
@pytest.mark.parametrize("stage", [None, RUNNING])
def test_one_id_at_both_ends_is_one_request_before_its_transfer(late, stage, stopped):
    """As seen where a scheduler was stopped: its server had the id, it had not taken it in."""
    roles = {"prefill": waits(True), "decode": waits(False, ADDRESS)}
    sides = [end(f":{n}", "r", stage if r == late else QUEUE, r, None if r == late else t, stopped * (r == late))
             for n, (r, t) in enumerate(roles.items())]  # fmt: skip
    relate(sides)
    knows = next(one for one in sides if one.role != late)
    other = next(one for one in sides if one.role == late)
    assert knows.requests[0].partner == (other.name, "r") and other.requests[0].partner == (knows.name, "r")
    assert knows.requests[0].transfer.state == PAIRING, "it may still come"
    assert (knows.requests[0].holder is not None) == bool(stopped), "a scheduler that is not stopped is not blamed"
    chosen = _named("r", held(*sides))
    assert chosen[2] is knows.requests[0]
    for side in sides:
        stops = way(side.requests[0], side, sides)
        assert [(stop.part, stop.instance, stop.request_id) for stop in stops if stop.part in roles] == [
            ("prefill", ":0", "r"),
            ("decode", ":1", "r"),
        ]


def test_another_id_another_address_or_another_transfer_joins_nothing():
    decode = end(":1", "r", QUEUE, "decode", waits(False, ADDRESS))
    for other in (end(":0", "s", None, "prefill"), end(":0", "r", QUEUE, "prefill", waits(True, room="8"))):
        relate([decode, other])
        assert decode.requests[0].partner is None and other.requests[0].partner is None
    elsewhere = end(":2", "r", QUEUE, "decode", waits(False, "10.9.9.9:1"))
    relate([elsewhere, end(":0", "r", None, "prefill")])
    assert elsewhere.requests[0].partner is None and "was not asked" in elsewhere.requests[0].evidence[-1]
    lone = end(":0", "r", QUEUE, "prefill", waits(True))
    both = [end(":1", "r", None, "decode"), end(":2", "r", None, "decode")]
    relate([lone, *both])
    assert lone.requests[0].partner is None, "which of the two it is, is not known"
    assert not linked((one.name, one.requests[0]) for one in [lone, *both])


def test_requests_of_one_id_are_offered_and_taken_by_instance():
    every = held(end(":0", "r", RUNNING, ""), end(":1", "r", RUNNING, ""), end("n2:decode", "x/r", RUNNING, "", external="u"))
    with pytest.raises(NotFoundError, match="several requests are named r; there are :0/r, :1/r$"):
        _named("r", every)
    with pytest.raises(NotFoundError, match="no request is named q; there are :0/r, :1/r, x/r$"):
        _named("q", every)
    known = {":1/r": ":1", ":0/r": ":0", "x/r": "n2:decode", "decode/x/r": "n2:decode", "N2:DECODE/u": "n2:decode"}
    for wanted, instance in known.items():
        assert _named(wanted, every)[0].name == instance, wanted
    for wanted in (":2/r", ":1/", ":1", ":1/q"):
        assert meant(wanted, [(one.name, t) for one, _, t in every]) == [], wanted
