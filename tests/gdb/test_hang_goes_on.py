"""What llm-hang samples on because it may only take its time, and what then turns out to have ended."""

import sys

from harness.answers import answer
from harness.situations import ACCUSES
from harness.subjects import spawned

# A thread keeps the GIL, asleep in C, for longer than the first look, inside of a lock that another waits for; then all rest.
CODE = """
import ctypes, sys, threading, time
sleep, lock, go = ctypes.PyDLL(None).usleep, threading.Lock(), threading.Event()
def holder():
    while True:
        go.wait()
        go.clear()
        with lock:
            time.sleep(0.3)
            print("holds", flush=True)
            sleep(2_000_000)
def waiter():
    while True:
        with lock:
            pass
        time.sleep(0.1)
threading.Thread(target=holder, daemon=True).start()
threading.Thread(target=waiter, daemon=True).start()
for line in sys.stdin:
    go.set()
    until = time.monotonic() + 2
    while time.monotonic() < until:
        time.sleep(0.01)
"""


def test_who_kept_the_gil_for_two_seconds_and_rests_then_is_not_accused(monkeypatch):
    from gdbext.verdict import examine

    copied, again = [], examine._Look.copy_again
    monkeypatch.setattr(examine._Look, "copy_again", lambda look: copied.append(1) or again(look))
    said = []
    with spawned([sys.executable, "-u", "-c", "print('ready')\n" + CODE], ready="ready") as process:
        for _ in range(3):
            process.stdin.write("go\n")
            process.stdin.flush()
            assert process.stdout.readline() == "holds\n"
            said.append(answer(f"llm-hang {process.pid} -json"))
    assert not {s["verdict"] for s in said} & set(ACCUSES), [(s["verdict"], s["evidence"]) for s in said]
    assert copied, "the first look saw it each time: it was to be copied again"
