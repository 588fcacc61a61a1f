"""llm-kv check of a scheduler that makes thousands of steps a second while it is read, with model runner V2 in the same process:
no look says that something is broken where nothing is, and what is broken is found though all else moves (vllm_v2_steps.py)."""

import contextlib
import json
import os
import time

import pytest
from harness.releases import release
from harness.subjects import SUBJECTS, spawned

from gdbext.access.proc import ProcTarget
from gdbext.answers import kv as shapes
from gdbext.commands.llm_kv import LlmKv
from gdbext.engines import kv_view
from gdbext.engines.vllm import kv_scheduler
from gdbext.errors import GdbextError
from gdbext.session.session import Session

VERSION = "0.26.0"
SECONDS = 20 if os.environ.get("GDBEXT_TEST_LONG") else 5


@contextlib.contextmanager
def stepping(python, fault, *more):
    """-> a function that looks once: (report, whether it is sound); None where it could not be read in its time."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    argv = [python, os.path.join(SUBJECTS, "vllm_v2_steps.py"), release("vllm", VERSION), VERSION, fault, *more]
    with spawned(argv, ready='{"pid"', env=env) as child:
        target = ProcTarget(json.loads(child.said)["pid"])

        def again():
            target.invalidate()
            view = kv_view.View(target)
            view.unstopped(target)
            return view

        def look():
            try:
                report = kv_view.check(again(), again, True)[0]
            except GdbextError:
                return None
            return report, shapes.is_sound(report, True)

        look.child, look.pid = child, target.pid
        try:
            yield look
        finally:
            target.close()


def steps_made(child):
    """What it has counted meanwhile, by its own words."""
    line = json.loads(child.stdout.readline())
    return line["steps"] / line["seconds"]


def test_nothing_is_broken_in_a_scheduler_that_steps_as_fast_as_it_can(torch_python):
    with stepping(torch_python, "none", "2048") as look:
        end, answers, compared = time.monotonic() + SECONDS, [], 0
        while time.monotonic() < end or len(answers) < 10:
            found = look()
            if found is not None:
                report, sound = found
                assert not report.violations, [(v.detail, v.evidence) for v in report.violations]
                answers.append(sound)
                compared += sum(one.rows for one in report.compared)
        assert steps_made(look.child) > 100
    assert True in answers and answers.count(True) > len(answers) // 2 and False not in answers and compared >= len(answers)


def test_a_slow_reader_does_not_see_a_table_that_is_too_short(torch_python, monkeypatch):
    """Hundreds of steps lie between the requests' counts and their tables: seen on a GPU with 1,000 steps a second."""
    managers = kv_scheduler._managers

    def slow(*args):
        time.sleep(0.05)
        found = managers(*args)
        time.sleep(0.05)
        return found

    monkeypatch.setattr(kv_scheduler, "_managers", slow)
    with stepping(torch_python, "none") as look:
        found = [one for one in (look() for _ in range(4)) if one is not None]
    assert found and all(not report.violations and not report.changed for report, _ in found), [
        [v.detail for v in report.violations + report.changed] for report, _ in found
    ]


@pytest.mark.parametrize(
    "fault,rule,request_id",
    [
        ("table", "worker-table", "long"),
        ("rows", "worker-rows", "long"),
        ("prompt", "worker-length", "long"),
        ("double", "ref-below-owners", "long"),
        ("short", "table-short", "still"),
    ],
)
@pytest.mark.drawn(2)
def test_what_is_broken_is_found_though_all_else_moves(torch_python, fault, rule, request_id):
    with stepping(torch_python, fault) as look:
        found = next(found for found in (look() for _ in range(5)) if found is not None)
    report, sound = found
    assert sound is False
    assert (rule, request_id) in [(v.rule, (v.request_id or "").partition("-")[0]) for v in report.violations], report.violations


def test_a_counter_that_moves_is_not_called_sound(torch_python):
    """The free counter is 3 too high: two values that are never read at one moment."""
    with stepping(torch_python, "counter") as look:
        for _ in range(5):
            found = look()
            if found is None:
                continue
            report, sound = found
            named = [v.rule for v in report.violations + report.changed] + [one.what for one in report.not_compared]
            assert "free-count" in named, (sound, report)
            assert {v.rule for v in report.violations} <= {"free-count"}


@pytest.mark.parametrize("fault,more", [("none", 0), ("counter", 3)])
@pytest.mark.drawn(1)
def test_free_says_what_was_so_at_one_moment(torch_python, fault, more):
    """Its queue and its counter change hundreds of times a second. A counter that is wrong all the time is told, from a copy."""
    with stepping(torch_python, fault, *(["2048"] if fault == "none" else [])) as look:
        for _ in range(2):
            answer = LlmKv().answer(Session(), LlmKv.parse(f"free -on {look.pid}"))
            (pool,) = answer.data["pools"]
            assert pool["counter"] - pool["free"] == more and pool["fault"] is None, (pool, answer.partial)
            assert not more or answer.data["pauses"][0]["pid"] == look.pid
