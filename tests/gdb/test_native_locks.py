"""Threads that wait for pthread locks which are no mutex: who has them, rings through them, and nobody accused who only naps."""

import ctypes

import pytest
from harness.answers import answer
from harness.heartbeats import asleep
from harness.situations import ACCUSES
from harness.subjects import PYTHONS, running


def look(kind, *commands):
    with running(PYTHONS[0], "native_locks.py", kind) as (_, truth):
        return (truth, *(answer(f"{command} {truth['pid']} -json") for command in commands))


def test_a_ring_of_readers_and_a_writer_of_a_rwlock_is_told():
    truth, hang, locks = look("ring", "llm-hang", "llm-locks")
    edges = {edge["waiter"]["tid"]: edge for edge in locks["edges"]}
    assert {edge["kind"] for edge in edges.values()} == {"rwlock"} and not locks["untold"], locks["edges"]
    assert [at["tid"] for at in edges[truth["first"]]["candidates"]] == [truth["second"]], edges[truth["first"]]
    assert edges[truth["second"]]["note"] == "it counts 1 reader, and keeps no note of it", edges[truth["second"]]
    assert hang["verdict"] == "lock-cycle", hang["evidence"]
    assert {truth["first"], truth["second"]} <= {culprit["tid"] for culprit in hang["culprits"]}
    assert hang["chains"][0]["end"]["state"] == "ring", hang["chains"]


@pytest.mark.parametrize("kind, lock", [("naps", "rwlock"), ("barrier", "barrier")])
def test_who_waits_for_one_that_naps_is_named_and_nobody_is_accused(kind, lock):
    truth, hang, locks, stacks = look(kind, "llm-hang", "llm-locks", "llm-stacks")
    assert {truth["pid"], truth["second"]} == {e["waiter"]["tid"] for e in locks["edges"] if e["kind"] == lock}, locks["edges"]
    assert hang["verdict"] not in ACCUSES, hang["evidence"]
    ends = [chain["end"]["state"] for chain in hang["chains"] if chain["waiter"].get("tid") in (truth["pid"], truth["second"])]
    assert ends and not {"nobody", "ring"} & set(ends), hang["chains"]
    assert not any(group["idle"] for group in stacks["groups"] for at in group["members"] if at["tid"] == truth["second"])


@pytest.mark.parametrize("kind", ["alone", "posted"])
def test_a_semaphore_that_nobody_is_left_to_post_starves_its_waiter(kind):
    truth, hang, locks = look(kind, "llm-hang", "llm-locks")
    (edge,) = [edge for edge in locks["edges"] if edge["waiter"]["tid"] == truth["pid"]]
    assert edge["kind"] == "semaphore" and "the POSIX semaphore at" in edge["lock"], locks["edges"]
    (root,) = hang["tree"]
    assert [node["place"]["tid"] for node in root["children"]] == [truth["pid"]], hang["tree"]
    assert (hang["verdict"], root["state"]) == (("starved", "nobody") if kind == "alone" else ("unknown", "unknown")), hang


def test_a_call_that_a_stop_would_end_is_left_alone():
    with running(PYTHONS[0], "native_locks.py", "semop") as (target, truth):
        asleep(truth["pid"])
        for command in ("llm-hang -wait 0.2", "llm-stacks", "llm-locks", "llm-bt -still -on"):
            answer(f"{command} {truth['pid']} -json")
        libc = ctypes.CDLL(None)
        try:
            assert target.process.poll() is None, "its semop was ended"
        finally:
            libc.semctl(truth["first"], 0, 0)  # IPC_RMID
