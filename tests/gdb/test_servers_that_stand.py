"""A client that waits for a server: whether that has accepted it, and what keeps it from answering."""

import pytest
from harness.answers import answer
from harness.heartbeats import asleep
from harness.subjects import PYTHONS, running


@pytest.mark.parametrize("kind", ["tcp", "unix", "handler", "polled"])
def test_a_client_waits_for_the_server_that_it_is_connected_to(kind):
    with running(PYTHONS[0], "servers_that_stand.py", kind, start_new_session=True) as (_, truth):
        asleep(truth["pid"], truth["server"], seconds=20)
        said = answer(f"llm-hang {truth['pid']} {truth['server']} -wait 0.6 -json")
    chain = next(c for c in said["chains"] if c["waiter"]["pid"] == truth["pid"])
    assert chain["through"][0]["place"]["pid"] == truth["server"], chain
    assert ("not accepted" in chain["waits_for"]) == (kind in ("tcp", "unix")), chain
    assert said["verdict"] != "idle", said["evidence"]  # a connection waits, or what the client sent is not read
    assert truth["hung"] or not said["culprits"], said
    assert said["verdict"] in ("idle", "unknown", "starved", "lock-held") and not said["culprits"], said
