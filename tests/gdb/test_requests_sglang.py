"""Readers of SGLang's requests on STAND-INS of its processes (named so) that run: whoever stands on the way of an answer is
named, and nobody while somebody gets on."""

import contextlib
import time

import pytest
from harness.subjects import PYTHONS, running

from gdbext.access.proc import ProcTarget
from gdbext.answers.requests import sampling_data
from gdbext.cpython.runtime import open_runtime
from gdbext.engines.registry import SPECS
from gdbext.requests.join import join
from gdbext.verdict.facts import Facts, ProcessState
from gdbext.verdict.rules import requests as rule

ROLES = {"server": "api-server", "scheduler": "scheduler", "detokenizer": "detokenizer"}


class Role:
    """What a reader asks of a `Rank`."""

    def __init__(self, label, pid):
        self.label, self.pid, self.role = label, pid, ROLES[label]


def looked_at(python, **faults):
    """-> (the one request "a" after two looks at three processes that run, {label: its pid})"""
    with contextlib.ExitStack() as stack:
        pids = {
            label: stack.enter_context(running(python, "requests_sglang.py", label, faults.get(label, "")))[0].pid
            for label in ROLES
        }
        time.sleep(0.3)  # until each stands where it stays
        looks = []
        for _ in range(2):
            targets = {label: stack.enter_context(contextlib.closing(ProcTarget(pid))) for label, pid in pids.items()}
            looks.append([SPECS["sglang"].requests.look(open_runtime(t), Role(n, t.pid)) for n, t in targets.items()])
            time.sleep(1.0)  # on a busy machine too, whoever spins has a processor for a while
    assert not any(one.notes for both in looks for one in both)
    (found,) = join(looks[1], looks[0])
    assert found.request_id == "a" and "frontend" in [s.stage for _, s in found.hops]
    return found, pids


@pytest.mark.parametrize("python", PYTHONS)
def test_a_request_that_no_process_has_is_lost(python):
    found, _ = looked_at(python)
    assert (
        found.verdict == "lost"
        and found.holder is None
        and found.evidence == ["server waits for its answer, and none of scheduler has it"]
    )


@pytest.mark.parametrize("python", [PYTHONS[0], PYTHONS[-1]])
@pytest.mark.parametrize(
    "faults,verdict,label,thread",
    [
        ({"server": "blocked"}, "behind", "server", "handle_loop"),
        ({"server": "kept"}, "behind", "server", "handle_loop"),
        ({"server": "deaf"}, "lost", "server", "handle_loop"),
        ({"scheduler": "loops"}, "behind", "scheduler", "main"),
        ({"detokenizer": "loops"}, "behind", "detokenizer", "main"),
    ],
)
@pytest.mark.drawn(4)
def test_who_stands_on_its_way_is_named(python, faults, verdict, label, thread):
    found, pids = looked_at(python, **faults)
    assert (found.verdict, found.holder.label, found.holder.pid) == (verdict, label, pids[label]), found
    tid = None if faults == {"server": "deaf"} else pids[label]
    assert (found.holder.thread or thread, found.holder.tid) == (thread, tid)
    assert ("has ended" if tid is None else "endless") in found.evidence[0]
    process = ProcessState(label, pid=pids[label])
    process.requests = [found]
    said = rule.stuck(Facts([process]))
    assert said.kind == "stuck-requests" and said.culprits == [(label, None)] and found.evidence[0] in said.evidence[0]


def test_all_sampling_parameters_are_shown():
    with running(PYTHONS[0], "requests_sglang.py", "scheduler", "paused") as (target, _):
        rt = open_runtime(target)
        look = SPECS["sglang"].requests.look(rt, Role("scheduler", target.pid))
        found = sampling_data(rt, look.sightings[0].request, ())
    assert found == {f"p{n:02}": repr(f"{n:030}" if n % 3 == 0 else n) for n in range(36)}


def test_a_long_step_accuses_nobody_and_a_paused_engine_parks_its_requests():
    found, _ = looked_at(PYTHONS[0], scheduler="turns")
    assert found.verdict == "" and [s.stage for _, s in found.hops] == ["frontend", "running"]
    found, _ = looked_at(PYTHONS[0], scheduler="paused")
    assert found.verdict == "parked" and "/continue_generation" in found.waits_for
