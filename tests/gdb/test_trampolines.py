"""Stacks through code that was made at run time: CPython's trampolines for perf."""

import os
import platform

import pytest
from harness.answers import answer
from harness.heartbeats import asleep
from harness.subjects import PYTHONS, minor, running

PERF = [p for p in PYTHONS if minor(p) >= 12]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the trampoline's code is read on x86-64")
@pytest.mark.parametrize("options", [[], ["-X", "perf"]], ids=["plain", "perf"])
@pytest.mark.parametrize("python", PERF, ids=os.path.basename)
def test_a_stack_through_trampolines_is_whole(python, options, tmp_path):
    pid = None
    try:
        with running([python, *options], "trampolines.py") as (target, truth):
            pid = target.pid
            asleep(pid)
            stacks, core = answer(f"llm-stacks {pid}"), str(tmp_path / "copy")
            answer(f"llm-snapshot {pid} -o {core}")
            threads = answer(f"llm-bt -raw -all -on {core}")["threads"]
            still = answer(f"llm-bt -still -all {pid}")
    finally:
        if options and os.path.exists(f"/tmp/perf-{pid}.map"):
            os.unlink(f"/tmp/perf-{pid}.map")
    assert not [reason for reason in stacks["partial"] if "incomplete" in reason or "no activation" in reason]
    helper = next(th for th in threads if th["name"] == "helper")["frames"]
    python_frames = [f["function"] for f in helper if f["kind"] == "python"]
    assert python_frames[:3] == truth["functions"]
    made = [f for f in helper if f["kind"] == "native" and "made at run time" in (f.get("doubt") or "")]
    assert len(made) >= 3 if options else not made
    assert all(f["reliable"] for f in helper)
    named = [f["function"].split(":")[2] for f in made]
    assert named[:3] == [name.rpartition(".")[2] for name in truth["functions"]] if options else not named
    assert not [reason for reason in still["partial"] if "incomplete" in reason]
    assert not [f for th in still["threads"] for f in th["frames"] if "py::" in f["function"] or "trampoline" in f["function"]]
