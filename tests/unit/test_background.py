"""Threads beside gdb's: no signal reaches them, and there are no others."""

import ast
import os
import signal
import threading

import pytest

from gdbext.access.background import background_thread

PACK = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "gdbext")


def blocked(tid):
    with open(f"/proc/self/task/{tid}/status") as f:
        (mask,) = [int(line.split()[1], 16) for line in f if line.startswith("SigBlk")]
    return {number for number in signal.valid_signals() if mask >> number - 1 & 1}


def test_it_blocks_every_signal_and_who_starts_it_none():
    before, ready, over = blocked(threading.get_native_id()), threading.Event(), threading.Event()
    told = []

    def run(word):
        told.append((word, threading.get_native_id()))
        ready.set()
        over.wait()

    thread = background_thread(run, "here")
    try:
        assert ready.wait(60) and told[0][0] == "here" and thread.daemon
        never = {signal.SIGKILL, signal.SIGSTOP}
        assert blocked(told[0][1]) == set(signal.valid_signals()) - never and signal.SIGCHLD not in before
        assert blocked(threading.get_native_id()) == before
    finally:
        over.set()
        thread.join()


def starts_a_thread(call):
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name == "Thread":  # and not a thread of a process that is looked at
        return any(keyword.arg == "target" for keyword in call.keywords)
    return name in ("ThreadPoolExecutor", "ThreadPool", "Timer", "start_new_thread")


@pytest.mark.sources
def test_no_other_thread_is_started_in_gdb():
    found = []
    for folder, _, names in os.walk(PACK):
        for name in names:
            if name.endswith(".py") and name != "ray_carrier.py":  # a program of its own, which Ray's Python runs
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    tree = ast.parse(f.read())
                found += [name for n in ast.walk(tree) if isinstance(n, ast.Call) and starts_a_thread(n)]
    # nodes.py: what they start must not inherit blocked signals, and gdb's main thread stands in Python until they have ended
    assert sorted(found) == ["background.py", "nodes.py"]
