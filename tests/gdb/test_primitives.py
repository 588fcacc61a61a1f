"""Each row of the table of primitives makes its hung and its well program: the wait is told, and its end is the giver."""

import dataclasses
import os
import random
import subprocess

import pytest
from harness import primitives
from harness.answers import answer
from harness.heartbeats import asleep
from harness.subjects import GREEN, PYTHONS, running

from gdbext.primitives import table

LONG = bool(os.environ.get("GDBEXT_TEST_LONG"))
STANDARD = ("queue", "threading", "asyncio", "concurrent.futures")
OTHERS = sorted({case.needs for case in primitives.cases()}.difference(STANDARD))
PROXIES = {row.made for row in table.ROWS if row.made and row.object}  # one of the two steps that `stacks/references.py` goes
LENDS = {row.made for row in table.ROWS if row.made and row.lends}


def look(python, case):
    with running(python, "primitives.py", case.argument, start_new_session=True) as (_, truth):
        asleep(truth["pid"], seconds=0.2)
        return truth, answer(f"llm-hang {truth['pid']} -wait 0.8 -json")


def ends(said):
    found = [chain["end"] for chain in said["chains"]]
    return [*found, *(one for end in found for one in end.get("any_of", ()))]


def why_wrong(case, truth, said):
    """What is wrong with what is said of a case, '' for nothing."""
    accused = [place.get("task") or place.get("tid") for place in said["culprits"]]
    if case.state == "gives":
        return "accused" if said["verdict"] not in ("busy", "idle", "unknown") or accused and said["verdict"] != "busy" else ""
    if said["verdict"] in ("busy", "idle"):
        return said["verdict"]
    if case.state == "ended" and said["verdict"] == "dead-thread":
        return ""
    if set(accused) - {truth["giver"], "giver"}:
        return "accused another"
    if not any(case.kind.rpartition(".")[2] in chain["waits_for"] for chain in said["chains"]):
        return "its wait is not told"
    if case.state == "ended":
        return "" if not accused and any(end["state"] in ("ended", "nobody", "unknown") for end in ends(said)) else "its end"
    if case.made in LENDS and any(f"thread {truth['giver']} (giver) may" in end["why"] for end in ends(said)):
        return ""  # nobody has what the pool lends: who may give it back is told, and is no certain end
    named = {place.get(key) for end in ends(said) for place in [end["place"] or {}] for key in ("tid", "task")}
    return "" if named & {truth["giver"] or "giver", "giver"} else "the giver is not named"


def some(python, seed):
    at = PYTHONS.index(python)
    minor = int(os.path.basename(os.path.realpath(python)).rpartition(".")[2])
    known = [case for case in primitives.drawn(seed, 60, STANDARD.__contains__) if case.kind != "asyncio.Barrier" or minor > 10]
    return known if LONG else [known[(4 * at + n) % len(known)] for n in range(4)]


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_each_row_makes_its_hung_and_its_well_program(python):
    for case in some(python, 20261128):
        truth, said = look(python, case)
        wrong = why_wrong(case, truth, said)
        assert not wrong, (wrong, case, said["verdict"], said["culprits"], said["evidence"], said["chains"])


def has(python, needs):
    return not subprocess.run([python, "-E", "-c", f"import {needs}"], stderr=subprocess.DEVNULL).returncode


def of_library(needs):
    """The cases of a library's rows: of each row one, with GDBEXT_TEST_LONG all."""
    rng, every = random.Random(needs), {}
    for case in primitives.cases():
        if case.needs == needs:
            case.names = rng.sample(primitives.NAMES, rng.choice((0, 1) if case.made in PROXIES else (0, 1, 2)))
            every.setdefault(case.made, []).append(case)
    return [case for found in every.values() for case in (found if LONG else [rng.choice(found)])]


@pytest.mark.parametrize("needs", OTHERS)
def test_each_row_of_another_library_makes_its_programs_too(needs):
    python = next((one for one in (*PYTHONS, *GREEN) if has(one, needs)), None)
    if python is None:
        pytest.skip(f"no interpreter of GDBEXT_TEST_PYTHONS imports {needs}")
    for case in of_library(needs):
        truth, said = look(python, case)
        wrong = why_wrong(case, truth, said)
        assert not wrong, (wrong, case, said["verdict"], said["culprits"], said["evidence"], said["chains"])


def asked(ask, state):
    """The case of a loop that asks an object of the standard library by `ask`."""
    found = (case for case in primitives.cases((state,)) if case.ask == ask and STANDARD.__contains__(case.needs))
    return next(case for case in found if not case.is_async)


@pytest.mark.parametrize("state", ["ended", "gives"])
@pytest.mark.parametrize("ask", ["get", "get_nowait", "wait", "result"])
def test_a_loop_that_asks_is_at_work_only_while_its_giver_lives(ask, state):
    case = asked(ask, state)
    truth, said = look(PYTHONS[0], case)
    wrong = why_wrong(case, truth, said)
    assert not wrong, (wrong, said["verdict"], said["culprits"], said["evidence"], said["chains"])


@pytest.mark.parametrize("ask", ["get", "wait"])
def test_a_signals_handler_may_give_what_no_thread_can(ask):
    truth, said = look(PYTHONS[0], dataclasses.replace(asked(ask, "ended"), handled=True))
    mine = [chain["end"]["state"] for chain in said["chains"] if chain["waiter"]["tid"] == truth["pid"]]
    assert said["verdict"] == "unknown" and set(mine[:1]) <= {"ended", "unknown"}, (said["verdict"], said["chains"])
