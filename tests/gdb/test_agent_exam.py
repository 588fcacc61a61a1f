"""An exam: twelve processes that hang, and a client that knows only the tools' descriptions and answers. It follows one rule: ask
the tool whose description says "why", and where that names no culprit, those that list locks and stacks."""

import os
import re
import signal
import sys

import pytest
from harness.hangs import fault
from harness.heartbeats import eventually
from harness.mcp_calls import client, has_sdk

MOST_CALLS, MOST_BYTES = 3, 24 << 10
EXAM = """
    abba_locks same_lock_twice lock_kept lock_kept_through_join mutex_kept logging_lock gil_kept_asleep full_queue giver_has_died
    asyncio_locks_crosswise asyncio_blocked stopped
""".split()


@pytest.fixture(scope="module")
def agent(torch_python):
    if not has_sdk(torch_python):
        pytest.skip("no environment with the package mcp")
    with client(torch_python) as (tools, call, _):
        yield tools, call


def described(tools, *words):
    """The tools whose description holds one of the words, in the words' order."""
    return [t["name"] for word in words for t in tools if re.search(rf"\b{word}\b", t["description"], re.I)]


def examined(tools, call, pid, culprits):
    """The calls until an answer names all culprits: [(tool, bytes)]."""
    calls, read = [], ""
    for tool in dict.fromkeys(described(tools, "why", "lock", "stacks")):
        text, failed = call(tool, what=str(pid))
        assert not failed, text
        calls.append((tool, len(text.encode())))
        read += text
        if all(re.search(rf"\b{tid}\b", read) for tid in culprits):
            return calls
    raise AssertionError(f"{calls} do not name {culprits}: {read}")


@pytest.mark.parametrize("scenario", EXAM)
@pytest.mark.drawn(4)
def test_the_culprit_is_found_by_what_the_tools_say(agent, scenario):
    tools, call = agent
    with fault(scenario) as (pid, culprits):
        if scenario == "stopped":
            os.kill(pid, signal.SIGSTOP)
            eventually(lambda: open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "T", "the stop")
            culprits = [pid]
        calls = examined(tools, call, pid, culprits)
        print(f"exam: {scenario}: {calls}", file=sys.stderr)
        assert len(calls) <= MOST_CALLS and sum(size for _, size in calls) <= MOST_BYTES
