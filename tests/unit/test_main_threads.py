"""A main thread that a full machine did not bring to its stop in time, or that has ended: no other thread of its process is taken
for it."""

from types import SimpleNamespace

from harness.facts import process, python

from gdbext.verdict import from_samples, graph, states
from gdbext.verdict.facts import Facts
from gdbext.verdict.judge import judge_group


def read(name, tids):
    return SimpleNamespace(
        tid=tids, name=name, frames=python("recv"), python=python("recv"), idle=False, native=[], state="S", handles=""
    )


def worker(unread, ended=False):
    threads = [read("DeathPipeMonitor", 8), read("monitor", 9)]
    view = SimpleNamespace(name="Worker", threads=threads, main=threads[0], rt=None)
    found = process("Worker", [], role="worker")
    found.threads = from_samples.threads_of(view, unread, ended)
    return found


def test_who_did_not_come_to_its_stop_is_not_judged_by_another_thread():
    core = process("EngineCore", python("poll", "wait_for_response", "step"), role="engine-core")
    for unread, culprits in ((None, ["Worker"]), (7, [])):
        one = worker(unread)
        said = judge_group([core, one])
        assert [name for name, _ in said.culprits] == culprits, (unread, said, said.evidence)
    assert one.main.node == ("Worker", 7) and one.main.denied and [t.main for t in one.threads] == [True, False, False]
    assert [t.node[1] for t in one.threads] == [7, 8, 9]


def test_a_main_thread_that_has_ended_wants_no_cpu():
    for ended, state, said in ((True, states.ENDED, "has ended"), (False, states.UNKNOWN, "wants a CPU")):
        one = worker(7, ended)
        for t in one.threads:
            t.load = 0.0
        end = graph.step(Facts([one]), one.main.node).end
        assert (end.state, said in end.why, one.main.denied) == (state, True, not ended), end
    assert judge_group([worker(7, True)]).kind not in ("crashed", "dead-thread", "starved")
