"""What several samples of a thread say, and that one process is sampled by one observer: what does not run is not read again."""

import os
import re
import sys
import textwrap
import threading
import time
from types import SimpleNamespace

import pytest
from harness.facts import sample
from harness.gdb_run import ROOT
from harness.subjects import spawned

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import FaultError, GdbextError
from gdbext.observe import loop, observer, stack_keys
from gdbext.observe.clocks import Clock, clocks
from gdbext.observe.effects import Effect
from gdbext.observe.observer import Observer, repeatedly
from gdbext.observe.stack_keys import FrameKey
from gdbext.observe.window import KERNEL, LEAST, ThreadWindow, Window, denied


def frame(code, words=b"", *numbers):
    return FrameKey(code, 1, words, numbers)


def test_what_the_clocks_of_a_thread_say():
    window = Window()
    window.begin({1: Clock(1.0, 0.5, "S", 7), 2: Clock(0.0, 0.0, "S", 0)})
    window.end({1: Clock(1.5, 1.0, "R", 9), 3: Clock(9.0, 9.0, "R", 9)}, 2.0)
    one = window.thread(1)
    assert (one.ran, one.queued, one.wanted, one.woke) == (0.5, 0.5, 1.0, 2) and window.load(one.ran) == 0.25
    for tid in (2, 3, 4):  # ended, came, was never there
        other = window.thread(tid)
        assert (other.ran, other.wanted, other.woke, window.load(other.ran)) == (None, None, 0, None)
    assert window.pressed == 0.25 and set(window.after) == {1, 3} and Window().pressed == 0.0 and Window().load(1.0) is None


def test_what_the_stacks_of_a_thread_say():
    loop, other = (frame(2, b"a"), frame(1, b"x")), (frame(3), frame(1, b"x"))
    for stacks, moved, advanced, got_on in (
        ([], False, False, False),
        ([loop, loop], False, False, False),
        ([loop, other], True, False, False),  # another call of the same loop: nothing of its own changed
        ([loop, (frame(2, b"b"), frame(1, b"x"))], True, True, True),
        ([loop, (frame(2, b"a"), frame(1, b"y"))], True, True, True),
        ([(frame(5),), (frame(6),)], True, False, True),  # another call out of the loop
        ([loop, ("torn", 1.0)], True, False, None),
    ):
        window = ThreadWindow(stacks=stacks)
        assert (window.moved, window.advanced) == (moved, advanced), stacks
        assert got_on is None or window.got_on is got_on, stacks
    window = ThreadWindow.of([sample(loop, True, 1.0), sample(None), sample(other, True, 3.0)])
    assert window.ran == 2.0 and window.stacks == [loop, other] and ThreadWindow.of([]).ran is None


def test_a_thread_that_is_ready_and_hardly_gets_a_cpu_is_denied_one():
    key = (frame(1),)
    for runs, ran, said in (
        ([True, True], [1.0, 1.0 + LEAST / 2], True),
        ([True, True], [1.0, 1.0 + 2 * LEAST], False),
        ([True, False], [1.0, 1.0], False),
        ([True, True], [1.0, None], False),
        ([], [], False),
    ):
        assert denied([sample(key, r, n) for r, n in zip(runs, ran)]) is said, (runs, ran)


def test_a_thread_is_futile_only_if_all_that_it_can_reach_stayed():
    for effects, said in (
        ([Effect("a", 10, 0), Effect("a", 110, 100 * KERNEL / 2)], True),
        ([Effect("a", 10, 0), Effect("a", 110, 100 * KERNEL * 2)], False),
        ([Effect("a", 10, 0), Effect("b", 110, 0)], False),
        ([Effect(None, 10, 0), Effect(None, 110, 0)], False),
        ([Effect("a", 10, 0)], False),
        ([Effect("a", 10, 0), Effect("a", 10, 0)], False),  # it did not run
    ):
        assert ThreadWindow(effects=effects).futile is said, effects


def test_one_loop_samples_all_in_turn_for_the_time_that_it_is_given():
    taken, began = [], time.monotonic()
    repeatedly([lambda: taken.append("a"), lambda: taken.append("b")], 0.06)
    assert taken == ["a", "b"] * observer.SAMPLES and time.monotonic() - began >= 0.06


def test_the_clocks_of_this_process_tell_which_of_its_threads_ran():
    """A thread that computes, and one that waits; no Python is read of it here."""
    end, tids = threading.Event(), {}

    def computes():
        tids["computes"] = threading.get_native_id()
        while not end.is_set():
            sum(range(1000))

    def waits():
        tids["waits"] = threading.get_native_id()
        end.wait(60)

    threads = [threading.Thread(target=one) for one in (computes, waits)]
    for thread in threads:
        thread.start()
    try:
        while len(tids) < 2:
            time.sleep(0.001)
        one, ran = Observer(os.getpid(), None), clocks(os.getpid())[tids["computes"]].run
        while clocks(os.getpid())[tids["computes"]].run < ran + 2 * LEAST:  # however busy the machine is
            one.sample()
            time.sleep(0.01)
        one.end()
    finally:
        end.set()
        for thread in threads:
            thread.join()
    assert one.window.thread(tids["computes"]).ran > LEAST and not one.stands and not one.sampled
    assert one.window.thread(tids["waits"]).ran < LEAST and one.window.seconds > 0


def test_a_frame_that_the_copy_lacks_is_no_sample_and_no_error():
    class Lost:
        @property
        def code(self):
            raise FaultError(0x1000, 8, "not in the snapshot")

    watched = observer.Observer(os.getpid(), None)
    watched.resume([(1, [Lost()])])
    assert watched.window.threads[1].stacks == []


@pytest.mark.skipif(sys.version_info < (3, 9), reason="it is read from 3.9 on")
def test_the_collector_of_the_contributors_page_collects():
    with open(os.path.join(ROOT, "CONTRIBUTING.md"), encoding="utf-8") as f:
        code = re.search(r"\n(    class Depth.*?)\nWhat a thread did", f.read(), re.S)[1]
    names = {"Collector": loop.Collector, "need_running": loop.need_running, "collect": loop.collect}
    deep = "def down(n):\n    if n: down(n - 1)\n    else: print('ready', flush=True); input()\ndown(4)"
    with spawned([sys.executable, "-c", deep], ready="ready") as process:
        names["rt"] = open_runtime(ProcTarget(process.pid))
        exec(textwrap.dedent(code).replace("seconds=2.0", "count=3"), names)
        assert names["one"].most == {process.pid: 6}


def test_each_collector_samples_in_each_round_and_ends_once():
    class Counted(loop.Collector):
        def __init__(self):
            self.samples, self.ends = 0, 0

        def sample(self):
            self.samples += 1

        def end(self):
            assert self.samples == 4
            self.ends += 1

    both = [Counted(), Counted()]
    loop.collect(both, 0.0, count=4)
    assert [(one.samples, one.ends) for one in both] == [(4, 1), (4, 1)]
    with pytest.raises(TypeError, match="abstract"):
        loop.Collector()


def test_memory_that_cannot_change_is_not_sampled():
    class Held:
        is_stopped, pid = True, 7

        def describe(self):
            return "process 7"

    with pytest.raises(GdbextError, match="process 7 is stopped: the GIL can be sampled only while it runs"):
        loop.need_running(Held(), "the GIL")


@pytest.mark.parametrize("lacks", ["code", "name"])
def test_what_a_copy_lacks_has_not_changed(monkeypatch, lacks):
    """The last sample of a thread is of a copy, which may have been made for a bundle: what it lacks is not what has changed."""

    def absent(*_):
        raise FaultError(4096, 8, "left out of the bundle")

    for stopped in (True, False):
        frame = SimpleNamespace(rt=SimpleNamespace(target=SimpleNamespace(is_stopped=stopped)), raw=SimpleNamespace(lasti=0))
        frame.code, frame.globals = SimpleNamespace(address=1, variables=[]), lambda: SimpleNamespace(item=absent)
        monkeypatch.setattr(stack_keys, "stored_around", absent if lacks == "code" else lambda code, at: ["number"])
        if stopped:
            with pytest.raises(FaultError):
                stack_keys.stack_key([frame])
        else:
            assert stack_keys.stack_key([frame])[0].words == b""
