"""A program whose loop is module code moves by the names to which that loop gives values, and by no other global."""

import json
import sys

from harness.answers import answer
from harness.subjects import spawned

LOOP = """
import time
print("ready", flush=True)
n = 0
while True:
    n += 1
    time.sleep(0.01)
"""
# Another thread counts in a global while the module's loop waits for a lock that nobody gives back.
STANDS = """
import threading, time
n, lock, has = 0, threading.Lock(), threading.Event()
def count():
    global n
    while True:
        n += 1
        time.sleep(0.01)
def hold():
    with lock:
        has.set()
        threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
threading.Thread(target=count, daemon=True).start()
has.wait()
print("ready", flush=True)
while True:
    with lock:
        m = n
"""


def said(code):
    with spawned([sys.executable, "-c", code], ready="ready") as child:
        return answer(f"llm-hang {child.pid} -json")


def test_the_loop_of_a_module_moves():
    assert any(" moves" in line for line in said(LOOP)["evidence"])


def test_anothers_global_is_no_progress_of_it():
    found = said(STANDS)
    assert found["verdict"] == "lock-held" and "hold" in json.dumps(found["culprits"])
