"""Live processes on an arm64 kernel, which qemu runs: stopping, copying, debug registers, Python breakpoints and steps, on each
interpreter. What one machine says of all is told by the scripts of guest/, once for all tests."""

import os
import re

import pytest
from harness.arm_machine import told
from harness.breakpoints import places
from harness.subjects import PYTHONS

MINORS = {os.path.basename(path)[len("python") :]: path for path in PYTHONS}
ROUNDS = 20  # of the subject, as guest/debugger.py changes it: each pass takes long here


@pytest.fixture(scope="module")
def machine(root, tmp_path_factory):
    plan = {}
    for minor, python in MINORS.items():
        gdb = os.environ.get(f"GDBEXT_TEST_ARM_GDB_{minor}", "")
        plan[minor] = python, gdb, ["live.py", *(["breakpoints.py", "steps.py"] if gdb else [])]
    return told(plan, root, str(tmp_path_factory.mktemp("machine")), 600 * len(plan))


@pytest.fixture(scope="module", params=MINORS)
def said(request, machine):
    assert machine["machine"]["uname"][0] == "aarch64"
    return {"text": machine["text"], **machine[request.param]}


@pytest.fixture(scope="module")
def stopped(said):
    if "breakpoints.py" not in said:
        pytest.skip("no gdb for arm64 and this CPython")
    return said


def test_every_frame_is_read_of_a_process_that_runs_and_of_a_snapshot(said):
    right, all_of_them = said["unstopped"]
    assert right == all_of_them > 600, said["text"]
    assert said["snapshot"] == said["unstopped"]
    failed, partial, pauses = said["taken"]
    assert not failed and not partial and pauses


def test_a_snapshot_says_which_bits_sign_addresses_so_stacks_are_whole(said):
    assert said["signature"] >> 55 == 0 and said["signature"] >> 48
    assert said["native"] == [25, 25]


def test_all_threads_stand_in_the_stacks_and_the_process_runs_on(said):
    assert said["stacks"] == [[], 25]
    assert said["runs_on"] == [True, 0, "S"]


def test_who_holds_the_gil_and_who_waits_for_it(said):
    looks, truth = said["gil"]
    assert looks[-1] == truth and {"holds", "waits", "none"} <= set(truth.values())
    for look in looks:  # between two waits it is in none; nothing else may differ
        assert all(look[tid] == state or (state, look[tid]) == ("waits", "none") for tid, state in truth.items())


def test_watchpoints_are_cleared_before_they_kill(said):
    """Who runs into one that nobody answers for dies of SIGTRAP."""
    slots, _, alive = said["armed"]
    assert slots >= 2 and not alive
    assert said["cleared"][1:] == [[True, False], True]


def test_every_pass_of_a_line_is_seen_once_and_the_process_runs_on(stopped):
    """A watchpoint of aarch64 stops before the access: gdb steps over it."""
    assert stopped["passes"] == {
        "work": [f"{n} {n + 1}" for n in range(ROUNDS)],
        "loop": [f"{n} {each}" for n in range(ROUNDS) for each in range(3)],
        "closure": [f"{n} {add}" for n in range(ROUNDS) for add in (1, 10)],
    }, stopped["text"]
    assert stopped["stop"] == ["finished"]
    assert [stopped[which]["run"] for which in ("first", "counted")] == [ROUNDS, 2 * ROUNDS]


def test_gdb_is_killed_while_a_breakpoint_is_armed(stopped):
    assert stopped["waiting"][0] and stopped["waiting"][1] is None  # gdb ran until it was killed
    assert stopped["alive"] and stopped["lived"]["run"] == 3 * ROUNDS


def test_steps_go_line_by_line_as_settrace_does(stopped):
    assert len(stopped["steps"]) > 20 and places(stopped["stepped"]) == stopped["steps"], stopped["text"]


def test_an_exception_stops_where_it_is_raised(stopped):
    said, _, _ = stopped["continued"][1:]
    assert re.search(r"^pycatch 2: ValueError: number 10 in fails at .*breakpoints\.py:\d+, thread \d+.*, hit 1$", said, re.M), (
        said
    )
    assert stopped["others"]["pyprint number"] == "10" and "ValueError: number 10" in stopped["others"]["pyexc"]


def test_calls_are_traced_with_arguments_and_results(stopped):
    lines = re.findall(r"^[\d:.]+ \d+ breakpoints\.py:\d+  (.*)$", stopped["continued"][2], re.M)
    calls = [re.search(r"number=(\d+)\)$", line).group(1) for line in lines if line.startswith("-> ")]
    results = [re.search(r"= (.*)  \([\d.]+ \w+\)$", line).group(1) for line in lines if line.startswith("<- ")]
    assert calls == [str(n) for n in range(11, ROUNDS)]  # from where the exception stopped it
    assert results == [repr(("a" if n % 3 else "b", n)) for n in range(11, ROUNDS)]


def test_a_line_of_a_module_that_is_imported_later(stopped):
    said = stopped["continued"][3]
    assert "pending" in stopped["others"]["pybreak late_module.py:7 if number == 3"]
    assert "late_module.py is imported now, set at line 7" in said and "late_module.py:7, thread" in said
    assert stopped["others"]["pyprint number, doubled"] == "(3, 6)"


def test_a_process_that_was_stepped_runs_on(stopped):
    assert [tally.get("run", 0) for tally in stopped["tallies"]] == [0, ROUNDS, ROUNDS]
