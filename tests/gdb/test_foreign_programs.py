"""Servers, pools and pipelines of the standard library in a hang: what is said is right, or "unknown". docs/verdicts.md has the
table."""

import json
import os
import signal
import subprocess
import sys

import pytest
from harness.answers import answer
from harness.heartbeats import asleep
from harness.situations import ACCUSES
from harness.subjects import SUBJECTS, spawned

SUBJECT = os.path.join(SUBJECTS, "foreign_programs.py")
NAMES = json.loads(subprocess.run([sys.executable, SUBJECT, "-list"], capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_is_right_or_unknown(name):
    with spawned([sys.executable, SUBJECT, name], ready="{", stderr=subprocess.DEVNULL, start_new_session=True) as process:
        truth = json.loads(process.said)
        asleep(process.pid, seconds=1)  # some never do
        said = answer(f"llm-hang {' '.join(map(str, truth['pids']))} -json")
        print(name, said["verdict"], truth["right"], said["culprits"], *said["evidence"], sep="\n    ")
        assert said["verdict"] in (*truth["right"], "unknown")
        assert truth["right"] != ["idle"] or said["verdict"] not in ACCUSES
        process.send_signal(signal.SIGKILL)
