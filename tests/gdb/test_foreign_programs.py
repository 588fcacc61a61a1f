"""Servers, pools and pipelines of the standard library and of others' libraries in a hang, and the same programs at work or at
rest: what is said is right, or "unknown", and who is well is never accused. docs/verdicts.md has the table."""

import json
import os
import signal
import subprocess
import sys

import pytest
from harness.answers import answer, run
from harness.heartbeats import asleep
from harness.situations import ACCUSES
from harness.subjects import SUBJECTS, spawned

SUBJECT = os.path.join(SUBJECTS, "foreign_programs.py")
PROGRAMS = json.loads(subprocess.run([sys.executable, SUBJECT, "-list"], capture_output=True, text=True, check=True).stdout)


def said_of(name, how, folder=None):
    """(what is true, what llm-hang says) of a program; with `folder` also what it says of a copy of its first process alone."""
    python = os.environ.get("GDBEXT_TEST_TORCH_PYTHON") if PROGRAMS[name]["libraries"] else sys.executable
    if python is None:
        pytest.skip("no interpreter with torch and vLLM")
    with spawned([python, SUBJECT, name, how], ready="{", stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            truth = json.loads(process.said)
            asleep(process.pid, seconds=1)  # some never do
            said = answer(f"llm-hang {' '.join(map(str, truth['pids']))} -json")
            if folder is not None:
                run(f"llm-snapshot {truth['pids'][0]} -o {folder / 'core'}")
                said["alone"] = answer(f"llm-hang {folder / 'core'} -json")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    print(f"| {name} | {how} | {said['verdict']} |", said["culprits"], *said["evidence"], sep="\n    ")
    return truth, said


def of_ranks(name):
    return "collective" in PROGRAMS[name]["right"]


@pytest.mark.drawn(5)
@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if program["right"]])
def test_a_hang_is_called_what_it_is_or_unknown(name, tmp_path):
    truth, said = said_of(name, "hung", tmp_path if of_ranks(name) else None)
    assert said["verdict"] in (*truth["right"], "unknown")
    if of_ranks(name):  # one look at one rank does not tell a hang from work
        assert said["alone"]["verdict"] not in ACCUSES, said["alone"]


@pytest.mark.drawn(5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_who_is_well_is_not_accused(name, tmp_path):
    _, said = said_of(name, "well", tmp_path if of_ranks(name) else None)
    assert said["verdict"] not in ACCUSES
    if of_ranks(name):
        assert said["alone"]["verdict"] not in ACCUSES, said["alone"]
