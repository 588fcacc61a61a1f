"""A real `vllm serve` with a pool of a few blocks, and one fault after the other put into it: each is named with its requests,
the process and the thread, and whoever is well is not accused."""

import os
import signal
import time

import pytest
from harness.answers import answer
from harness.mcp_calls import client, found_by_agent
from harness.served import STUCK, named

from gdbext.access.procfs import read_proc, state_of

TAKES_IN = "process_input_sockets"


@pytest.fixture(scope="module")
def agent(torch_python):
    """An agent's calls of the tools; vLLM itself needs the SDK."""
    with client(torch_python, limit=120) as (_, call, _):
        yield call


def finds(agent, case, *words):
    """What an agent learns in three calls has these words."""
    print(f"agent: {case}: {found_by_agent(agent, *words)}")


def test_requests_that_are_preempted_and_prefilled_accuse_nobody(served):
    with served.traffic():
        found = served.until(lambda found: sum(r["status"] == "RUNNING" for r in found.values()) > 1)
        for _ in range(3):
            assert not {r["verdict"] for r in found.values()} & set(STUCK), found
            found = served.requests()
        said = served.hang()
        assert said["verdict"] in ("busy", "unknown") and said["requests_stuck"] == 0, said


def test_a_prompt_that_is_larger_than_the_pool(served, agent):
    with served.asked("large", prompt=300):
        served.until(lambda found: any("large" in n and r["verdict"] == "never-fits" for n, r in found.items()))
        with served.asked("after"):
            found = served.until(lambda found: any("after" in n and r["verdict"] == "behind" for n, r in found.items()))
            large, after = named(found, "large"), named(found, "after")
            assert "in all" in large["waits_for"] and after["behind"] == [large["request_id"]], found
            finds(agent, "larger than the pool", large["request_id"], "never-fits", after["request_id"])
            one = answer(f"llm-request {large['request_id']} -sampling -json")
            assert one["request"]["verdict"] == "never-fits" and one["sampling"]["max_tokens"] == "160", one
    served.until(lambda found: not found)


@pytest.mark.drawn(2, group="faults of one that serves")
def test_a_transfer_that_never_comes_and_a_grammar_that_is_never_compiled(served, agent, tmp_path):
    rule = {"structured_outputs": {"regex": "w[0-9]+"}}
    with served.fault("connector"), served.fault("grammar"), served.asked("remote", prompt=40), served.asked("compiled", **rule):
        found = served.until(lambda found: sum(r["verdict"] == "parked" for r in found.values()) == 2)
        said = next(
            (said for said in (served.hang() for _ in range(4)) if said["requests_stuck"] == len(said["culprits"]) == 2), None
        )
        finds(agent, "a connector and a grammar", "remote", "compiled", "NeverDelivers.loading", "faulty_compile")
        file = answer(f"llm-snapshot {served.pids()['EngineCore']} -o {tmp_path} -json")["snapshots"][0]["file"]
    remote, compiled = named(found, "remote"), named(found, "compiled")
    assert remote["holder"]["label"] == "Worker" and "NeverDelivers.loading" in remote["evidence"][-1], remote
    assert compiled["holder"]["label"] == "EngineCore" and "faulty_compile" in compiled["evidence"][-1], compiled
    assert said is not None and said["verdict"] == "stuck-requests", said
    assert {c["label"] for c in said["culprits"]} == {"Worker", "EngineCore"}, said
    dead = {r["request_id"]: r for r in answer(f"llm-requests {file} -json")["requests"]}
    assert {r["verdict"] for r in dead.values()} == {"parked"} and set(dead) == set(found), dead
    assert named(dead, "compiled")["holder"]["tid"] == compiled["holder"]["tid"]
    served.until(lambda found: not found)


@pytest.mark.drawn(2, group="faults of one that serves")
def test_an_input_thread_in_an_endless_loop(served, agent):
    with served.fault("input-loops"), served.asked("poison"):
        served.until(lambda found: any("poison" in n and r["verdict"] == "behind" for n, r in found.items()))
        with served.asked("after"):
            found = served.until(lambda found: any("after" in n and r["verdict"] == "behind" for n, r in found.items()))
            for name in ("poison", "after"):
                one = named(found, name)
                assert (one["holder"]["label"], one["holder"]["thread"]) == ("EngineCore", TAKES_IN), one
                assert one["holder"]["tid"] and "touch_for_ever" in one["evidence"][0], one
            said = served.hang()
            assert said["verdict"] in ("stuck-requests", "livelock"), said
            finds(agent, "an endless loop", "poison", "EngineCore", TAKES_IN, "touch_for_ever")
            assert one["holder"]["tid"] in [c.get("tid") for c in said["culprits"]], said
    served.until(lambda found: not found)


@pytest.mark.drawn(2, group="faults of one that serves")
def test_a_callback_that_keeps_the_event_loop(served, agent):
    with served.fault("connector"), served.asked("remote-kept", prompt=40):
        served.until(lambda found: any(r["verdict"] == "parked" for r in found.values()))
        with served.fault("block-loop"), served.asked("blocks", fault="block-loop"):
            pid = served.happened("block-loop")
            os.unlink(os.path.join(served.faults, "connector"))  # it is computed now, and its answer not taken in
            found = served.until(lambda found: any(r["verdict"] == "behind" for r in found.values()))
            one = named(found, "kept")
            assert one["holder"]["tid"] == pid and "wait_in_loop" in one["evidence"][0], one
            said = served.hang()
            assert said["verdict"] in ("stuck-requests", "loop-blocked"), said
            assert {c["tid"] for c in said["culprits"]} == {pid} and "wait_in_loop" in said["evidence"][0], said
            finds(agent, "an event loop that is kept", one["request_id"], str(pid), "wait_in_loop")
            open(os.path.join(served.faults, "connector"), "w").close()
    served.until(lambda found: not found)


@pytest.mark.drawn(2, group="faults of one that serves")
def test_requests_that_the_engine_does_not_know_yet_are_in_the_front_end(served):
    """A tokenizer that never returns in the renderer's only thread, and one prompt behind it: neither is the engine's."""
    fifo = os.path.join(served.faults, "tokenizer.fifo")
    os.mkfifo(fifo)
    with served.fault("tokenizer"), served.asked("kept", prompt="w5 w9 w9"):
        served.until(lambda found: any(name.startswith("http:") for name in found))
        with served.asked("behind", prompt="w5 w6"):
            found = served.until(lambda found: sum(name.startswith("http:") for name in found) == 2)
            assert all("faulty_encode" in r["evidence"][-1] and not r["holder"] for r in found.values()), found
            said = served.hang()
            assert said["verdict"] == "unknown" and "faulty_encode" in str(said["evidence"]), said
            os.close(os.open(fifo, os.O_WRONLY))
    os.unlink(fifo)
    served.until(lambda found: not found)


@pytest.mark.drawn(2, group="faults of one that serves")
def test_an_answer_that_is_lost_between_a_worker_and_its_core(served, agent, tmp_path):
    """From here on one fault is left in the engine after the other."""
    open(os.path.join(served.faults, "lost-answer"), "w").close()
    with served.asked("unanswered"):
        found = served.until(lambda found: any(r["verdict"] == "lost" for r in found.values()))
        one = named(found, "unanswered")
        assert one["at"]["label"] == "EngineCore" and one["holder"]["label"] == "Worker", one
        assert "was lost" in one["evidence"][0], one
        finds(agent, "an answer that was lost", one["request_id"], "Worker", "was lost")
        pids = " ".join(str(pid) for pid in served.pids().values())
        said = answer(f"llm-watch {pids} -after 2 -for 100 -o {tmp_path} -json")
        assert said["captured"] and said["verdict"] == "stuck-requests" and said["culprits"][0]["label"] == "Worker", said
        assert all("have not moved" in look["why"] or "same place" in look["why"] for look in said["looks"]), said["looks"]
        with open(said["file"]) as f:
            assert one["request_id"] in f.read()


@pytest.mark.drawn(2, group="faults of one that serves")
def test_an_input_thread_that_died_and_a_task_that_took_answers_in(served, agent):
    open(os.path.join(served.faults, "input-dies"), "w").close()
    with served.asked("poison"):
        served.until(lambda found: any("poison" in n and r["verdict"] == "lost" for n, r in found.items()))
        with served.asked("after"):
            found = served.until(lambda found: any("after" in n and r["verdict"] == "lost" for n, r in found.items()))
            for name in ("poison", "after"):
                holder = named(found, name)["holder"]
                assert (holder["label"], holder["thread"]) == ("EngineCore", TAKES_IN) and "tid" not in holder, found
            finds(agent, "a thread that has ended", "poison", "EngineCore", TAKES_IN)
            said = served.hang()
            assert said["verdict"] == "stuck-requests" and "EngineCore" in {c["label"] for c in said["culprits"]}, said
            served.ask("ends", fault="end-output-handler").join()
            found = served.requests()
            for name in ("poison", "after"):
                one = named(found, name)
                assert one["verdict"] == "lost" and one["holder"]["thread"] == "output_handler", one
                assert one["holder"]["pid"] == one["at"]["pid"] and "has ended" in one["evidence"][0], one


def test_a_core_whose_server_was_killed_is_an_orphan(served, agent):
    """The last that is done to it."""
    left = {label: pid for label, pid in served.pids().items() if label in ("EngineCore", "Worker")}
    server = served.engine.said["pid"]
    os.kill(server, signal.SIGKILL)
    end = time.monotonic() + 60
    while set(served.pids()) - set(left) or state_of(server) not in ("", "Z", "X"):
        assert time.monotonic() < end, served.pids()
        time.sleep(0.2)
    left = {label: pid for label, pid in left.items() if read_proc(pid, "stat")}
    said = answer("llm-hang " + " ".join(str(pid) for pid in left.values()) + " -json")
    assert left and said["verdict"] == "orphaned" and {c["pid"] for c in said["culprits"]} == set(left.values()), said
    assert all("of memory" in e for e in said["evidence"][: len(left)]), said
    finds(agent, "an orphan", "orphaned", *(str(pid) for pid in left.values()))
