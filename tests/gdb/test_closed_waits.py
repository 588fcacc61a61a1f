"""Processes whose threads and tasks all wait for what only they could give: nobody can end that, unless somebody can."""

import os
import subprocess

import pytest
from harness.answers import answer
from harness.heartbeats import asleep
from harness.subjects import PYTHONS, running


def look(seed, python):
    """-> (what is true, what llm-hang says of it)"""
    with running(python, "closed_waits.py", str(seed), start_new_session=True, stdin=subprocess.PIPE) as (_, truth):
        asleep(truth["pid"], seconds=20)
        said = answer(f"llm-hang {truth['pid']} -wait 0.6 -json")
    return truth, said


def judged(truth, said):
    """ "right", "unknown" or "WRONG"."""
    nobody = said["verdict"] == "starved" and not said["culprits"]
    if truth["way"]:
        return "WRONG" if nobody else "right"
    if said["culprits"] or said["verdict"] in ("idle", "busy"):
        return "WRONG"
    return "right" if nobody else "unknown"


def test_nobody_can_end_what_only_they_could_give():
    found = [look(seed, PYTHONS[0]) for seed in range(700, 710)]
    kinds = [judged(*one) for one in found]
    assert "WRONG" not in kinds, [one for one, kind in zip(found, kinds) if kind == "WRONG"]
    closed = [kind for (truth, _), kind in zip(found, kinds) if not truth["way"]]
    assert closed.count("right") >= 0.8 * len(closed) > 2, [truth for truth, _ in found]


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_on_each_python(python):
    kinds = [judged(*look(seed, python)) for seed in (700, 701, 702, 703)]
    assert "WRONG" not in kinds and "right" in kinds, kinds


@pytest.mark.parametrize("how", ["hung", "well"])
@pytest.mark.parametrize("name", ["pool", "child", "itself", "joined"])
@pytest.mark.drawn(4)
def test_processes_that_wait_for_each_other(name, how):
    with running(PYTHONS[0], "closed_processes.py", name, how, start_new_session=True) as (_, truth):
        asleep(truth["pid"], seconds=5)
        said = answer(f"llm-hang {truth['pid']} -wait 0.6 -json")
    nobody = said["verdict"] == "starved" and not said["culprits"]
    assert nobody == (how == "hung"), (said["verdict"], said["culprits"], said["evidence"])
