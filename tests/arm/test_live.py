"""Live processes on an arm64 kernel, which qemu runs: stopping, copying, debug registers. What the machine says is told by
live_script.py, once for all tests."""

import json
import os

import pytest
from harness.arm_machine import boot
from harness.subjects import PYTHONS

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "live_script.py")


@pytest.fixture(scope="module")
def said(root, tmp_path_factory):
    qemu, kernel = os.environ.get("GDBEXT_TEST_ARM_SYSTEM"), os.environ.get("GDBEXT_TEST_ARM_KERNEL")
    if not qemu or not kernel:
        pytest.skip("no qemu for a whole arm64 machine, or no kernel for it")
    python = next(p for p in PYTHONS if p.endswith("3.13"))
    text = boot(qemu, kernel, python, root, SCRIPT, str(tmp_path_factory.mktemp("machine")), 1500)
    found = {}
    for line in text.splitlines():
        if line.startswith("@@ "):
            found.update(json.loads(line[3:]))
    assert "machine" in found, text[-2000:]
    found["text"] = text[-2000:]
    return found


def test_every_frame_is_read_of_a_process_that_runs_and_of_a_snapshot(said):
    assert said["machine"][0] == "aarch64"
    right, all_of_them = said["unstopped"]
    assert right == all_of_them > 600, said["text"]
    assert said["snapshot"] == said["unstopped"]
    failed, partial, pauses = said["taken"]
    assert not failed and not partial and pauses


def test_a_snapshot_says_which_bits_are_the_signature_and_every_native_stack_is_followed(said):
    assert said["signature"] >> 55 == 0 and said["signature"] >> 48
    assert said["native"] == [25, 25]


def test_all_threads_stand_in_the_stacks_and_the_process_runs_on(said):
    assert said["stacks"] == [[], 25]
    assert said["runs_on"] == [True, 0, "S"]


def test_who_holds_the_gil_and_who_waits_for_it(said):
    found, truth = said["gil"]
    assert found == truth and {"holds", "waits", "none"} <= set(truth.values())


def test_watchpoints_are_cleared_before_they_kill(said):
    """Who runs into one that nobody answers for dies of SIGTRAP."""
    slots, _, alive = said["armed"]
    assert slots >= 2 and not alive
    assert said["cleared"][1:] == [[True, False], True]
