"""Programs that are no engine: what their processes are called, and which test of pytest stands."""

import sys

from harness.answers import answer
from harness.heartbeats import eventually
from harness.subjects import spawned

STANDS = """
import threading, time
a, b = threading.Lock(), threading.Lock()
def one():
    with a:
        time.sleep(0.2)
        with b:
            pass
def test_that_is_well():
    pass
def test_deadlock():
    threading.Thread(target=one, daemon=True).start()
    with b:
        time.sleep(0.2)
        print("stands", flush=True)
        with a:
            pass
"""


def test_the_test_that_stands_is_named(tmp_path):
    (tmp_path / "test_stands.py").write_text(STANDS)
    words = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "test_stands.py"]
    with spawned(words, cwd=tmp_path) as process:

        def culprits():
            found = answer(f"llm-hang {process.pid}")
            return found["verdict"] == "lock-cycle" and found["verdicts"][0]["culprits"]

        eventually(culprits, "the deadlock")
        assert {c["program"] for c in culprits()} == {"pytest, test_stands.py::test_deadlock (call)"}
