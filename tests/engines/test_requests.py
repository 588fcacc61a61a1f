"""llm-requests on real engines: healthy requests move; each fault that is put in is named with its requests, the process and
the thread."""

import json
import subprocess
import sys
import time

import pytest

STUCK = {"behind", "parked", "never-fits", "lost", "zombie"}


def requests(engine, *words):
    """`{user's id (or the engine's): request}` as llm-requests says of one engine."""
    done = subprocess.run(
        [sys.executable, "-m", "gdbext", "llm-requests", str(engine.said["pid"]), *words, "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    said = json.loads(done.stdout)
    assert "error" not in said, said
    return {r["external_id"] or r["request_id"]: r for r in said["requests"]}


def accused(found):
    return {name: r["verdict"] for name, r in found.items() if r["verdict"] in STUCK}


def taken_in_no_more(engine, verdict):
    """Three answers, in each of which all have one verdict: the poisoned request, the one behind it, and the next of each of
    the two that ask over and over. The last answer. Before that, those that were taken in earlier come to their end."""
    end = time.monotonic() + 120
    while {r["verdict"] for r in requests(engine).values()} != {verdict}:
        assert time.monotonic() < end, requests(engine)
    for _ in range(3):
        found = requests(engine)
        assert accused(found) == dict.fromkeys(found, verdict), found
        assert sorted(name.rpartition("-")[0] or name for name in found) == ["after", "healthy-0", "healthy-1", "poison"], found
    return found


@pytest.fixture
def faulty(running):
    """A real vLLM with a fault: `faulty(fault)`; it ends with the test."""
    yield lambda fault: running.get("vllm", tp=1, script="faulty_vllm.py", args=(fault,))
    running.stop()


def test_healthy_requests_of_vllm_move_and_keep_their_places(vllm):
    seen = {}
    for _ in range(5):
        found = requests(vllm)
        assert not {r["verdict"] for r in found.values()} & STUCK, found
        seen.update(found)
    moving = [r for r in seen.values() if r["verdict"] == "moving"]
    assert len(moving) >= 4 and any(r["moved"] for r in moving)
    stages = {h["stage"]: h["label"] for r in moving for h in r["hops"]}
    assert stages["frontend"] == "frontend" and stages["running"] == "EngineCore" and stages["worker"] in ("TP0", "TP1")
    assert all(r["request_id"] != name or r["external_id"] is None for name, r in seen.items())


def test_an_input_thread_that_died(faulty):
    engine = faulty("input-dies")
    for one in taken_in_no_more(engine, "lost").values():
        holder = one["holder"]
        assert holder["label"] == "EngineCore" and holder["thread"] == "process_input_sockets" and "tid" not in holder, one
        assert "has ended" in one["evidence"][0]


def test_an_input_thread_in_an_endless_loop(faulty):
    engine = faulty("input-loops")
    found = taken_in_no_more(engine, "behind")
    for one in found.values():
        holder = one["holder"]
        assert holder["label"] == "EngineCore" and holder["thread"] == "process_input_sockets" and holder["tid"], one
        assert "touch_for_ever" in one["evidence"][0]
    assert found["poison"]["at"]["tid"] == found["poison"]["holder"]["tid"]


def test_a_prompt_that_is_larger_than_the_pool_and_those_behind_it(faulty):
    engine = faulty("small-pool")
    found = requests(engine)
    assert found["too-large"]["verdict"] == "never-fits" and "in all" in found["too-large"]["waits_for"], found
    assert found["after-0"]["verdict"] == "behind" and found["after-0"]["behind"] == [found["too-large"]["request_id"]], found
