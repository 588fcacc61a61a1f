"""Waits for files and worker processes lead to their end: an epoll object that is asked, a FIFO that is opened, the lock of a
SQLite database, the work of a pool."""

import os

import pytest
from harness.answers import answer
from harness.heartbeats import within
from harness.subjects import PYTHONS, running

LONG = bool(os.environ.get("GDBEXT_TEST_LONG"))
ENDS = {"epoll": "unknown", "sqlite": "lock-held", "sqlite_wal": "lock-held", "pool_at_work": "unknown"}  # at a process
NOBODY = {"fifo_read": "unknown", "fifo_write": "unknown", "pool": "starved"}
WELL = ["epoll", "fifo_read", "sqlite", "sqlite_wal", "pool"]


def some(python, kinds):
    """All of them in a long run; else two, others on each Python."""
    first = 2 * PYTHONS.index(python)
    return list(kinds) if LONG else [list(kinds)[(first + n) % len(kinds)] for n in range(2)]


def look(truth):
    return answer(f"llm-hang {truth['pid']} -wait 0.8 -json")


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_wait_leads_to_the_process_that_could_end_it(python):
    for kind in some(python, ENDS):
        with running(python, "field_waits.py", kind, "hang", start_new_session=True) as (_, truth):
            said = look(truth)
            mine = next(chain for chain in said["chains"] if chain["waiter"]["pid"] == truth["pid"])
            places = [place["place"] for place in (mine["end"], *mine["through"]) if place["place"]]
            assert truth["end"] in [place.get("pid") for place in places], (kind, said["chains"])
            assert said["verdict"] == ENDS[kind], (kind, said["evidence"])
            if said["verdict"] == "lock-held":
                assert [one["pid"] for one in said["culprits"]] == [truth["end"]], kind
                assert truth["folder"] in mine["waits_for"], kind


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_wait_that_nobody_can_end_says_why(python):
    for kind in some(python, NOBODY):
        with running(python, "field_waits.py", kind, "hang", start_new_session=True) as (_, truth):
            said = look(truth)
            end, waits = said["chains"][0]["end"], [said["chains"][0], *said["chains"][0]["through"]]
            assert said["verdict"] == NOBODY[kind] and end["place"] is None, (kind, said)
            if kind == "pool":
                assert end["state"] == "ended" and "a worker that has ended may have had it" in end["why"], end
                assert end["why"] in said["evidence"] and not said["culprits"], said["evidence"]
            else:
                what = "reading" if kind == "fifo_write" else "writing"
                asked = f"the FIFO {truth['folder']}/orders, to be opened for {what}"
                assert end["state"] == "nobody" and waits[-1]["waits_for"] == asked, said["chains"]


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_where_it_goes_on_nobody_is_accused(python):
    for kind in some(python, WELL):
        with running(python, "field_waits.py", kind, "well", start_new_session=True) as (_, truth):
            found = []

            def told():  # on a full machine it may not come to its turn while one looks
                found.append(look(truth))
                return found[-1]["verdict"] in ("busy", "idle", "unknown")

            assert within(told, 60), (kind, found[-1])
            assert not found[-1]["culprits"] or found[-1]["verdict"] == "busy", (kind, found[-1])
