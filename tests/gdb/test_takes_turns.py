"""llm-hang on those that take turns under one lock (subjects/takes_turns.py): who waits for work in the place of all keeps
nothing; who does something else with the lock, or has a lock that is wanted for something else, keeps it."""

import json
import os
import subprocess
import sys

import pytest
from harness.answers import answer
from harness.situations import ACCUSES
from harness.subjects import SUBJECTS, spawned

WELL = ("pool", "executor", "mpqueue", "simplequeue", "joinable", "accept", "prefork", "locked_queue", "native", "tasks")
HUNG = ("keeps", "wanted_elsewhere", "queue_kept", "shared_connection")


@pytest.mark.parametrize("kind", WELL + HUNG)
@pytest.mark.drawn(5)
def test_a_lock_is_not_kept_by_a_thread_that_waits_for_work_for_all(kind, tmp_path):
    words = [sys.executable, os.path.join(SUBJECTS, "takes_turns.py"), kind]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with spawned(words, ready="{", stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, start_new_session=True) as child:
        truth = json.loads(child.said)
        said = answer(f"llm-hang {' '.join(map(str, truth['pids']))} -wait 0.6 -json")
    got = {c.get("tid") or c["pid"] for c in said["culprits"]}
    if kind in HUNG:
        assert said["verdict"] in truth["right"] and got and got <= set(truth["culprits"]), said
    else:
        assert said["verdict"] not in ACCUSES and not said["victims"], said
