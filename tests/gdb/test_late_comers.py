"""Programs whose threads come and go while they are copied: where a thread at work would have waited is no gap of the answer."""

import sys

import pytest
from harness.answers import answer
from harness.subjects import spawned

BORN = """
import threading, time
def deep(n): return deep(n - 1) + 1 if n else 0
print("up", flush=True)
while True:
    born = [threading.Thread(target=deep, args=(20 + n,)) for n in range(3)]
    [one.start() for one in born]
    deep(30)
    [one.join() for one in born]
"""

POOL = """
import concurrent.futures
def chunk(n): return sum(sorted(range(n % 90), key=lambda k: -k))
print("up", flush=True)
while True:
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(chunk, range(20)))
"""


@pytest.mark.parametrize("code", [BORN, POOL])
def test_a_process_whose_threads_come_and_go_is_told_whole(code):
    with spawned([sys.executable, "-c", code], ready="up") as process:
        for _ in range(4):
            said = answer(f"llm-hang {process.pid} -json -wait 0.2")
            assert said["verdict"] in ("busy", "unknown"), said
            assert not [why for why in said["partial"] if "not in the snapshot" in why], said["partial"]
