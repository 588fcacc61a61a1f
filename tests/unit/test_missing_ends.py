"""A request whose other end no queue has: it never comes only where nobody on its way is blocked and nothing is on its way."""

import pytest

from gdbext.engines.sightings import FRONTEND, PAIRING, QUEUE, Connector, Look, Sighting, Transfer
from gdbext.requests.instances import Side, relate
from gdbext.requests.join import join


def reader(stage):
    move = Transfer(("room", "77"), False, stage, "", "127.0.0.1:8998")
    waits = Sighting("d1", QUEUE, "transfer", parked=True, waits_for="transfer: KV", transfer=move)
    look = Look("decode:scheduler", 20, "scheduler", ("scheduler",), [waits], serves=Connector("mooncake", "decode"))
    return Side("decode", [look], join([look], [look]), [look])


def sender(**changed):
    """A prefill instance that has no such request. `changed`: {"front" or "scheduler": {member of its Look: value}}"""
    front = Look("prefill:server", 10, "api-server", ("frontend",))
    scheduler = Look("prefill:scheduler", 11, "scheduler", ("scheduler",), serves=Connector("x", "prefill", "", "0.0.0.0:8998"))
    for name, members in changed.items():
        for key, value in members.items():
            setattr({"front": front, "scheduler": scheduler}[name], key, value)
    looks = [front, scheduler]
    return Side("prefill", looks, join(looks, looks), looks)


@pytest.mark.parametrize("stage", ["", PAIRING])
def test_it_never_comes_where_a_well_sender_has_nothing_on_its_way(stage):
    side = reader(stage)
    relate([sender(), side])
    (tracked,) = side.requests
    assert tracked.transfer.state == "never" and tracked.holder is None and "never come" in tracked.evidence[-1]


@pytest.mark.parametrize(
    "changed, blamed",
    [
        ({"scheduler": {"stopped": "a signal"}}, "prefill:scheduler"),
        ({"front": {"stopped": "a debugger"}}, "prefill:server"),
        ({"scheduler": {"broken": "its engine has died"}}, "prefill:scheduler"),
        ({"front": {"sightings": [Sighting("other", FRONTEND, "awaited")]}}, ""),
        ({"scheduler": {"notes": ["not read"]}}, ""),
    ],
)
def test_before_a_blocked_sender_it_may_still_stand(changed, blamed):
    side = reader(PAIRING)
    relate([sender(**changed), side])
    (tracked,) = side.requests
    assert tracked.transfer.state == PAIRING and not any("never come" in line for line in tracked.evidence)
    assert (tracked.holder.label if tracked.holder is not None else "") == blamed, tracked.evidence
