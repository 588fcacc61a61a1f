"""Hangs of public reports made small (subjects/reported.py, reported_more.py), each with its healthy twin: the hung one is told,
by a verdict or by where its chain ends, and is never called busy or idle; nobody is accused of the twin. docs/verdicts.md has
the table."""

import json
import os
import sys

import pytest
from harness.answers import answer
from harness.samples import some
from harness.situations import ACCUSES
from harness.subjects import SUBJECTS, spawned

RANKS = ("ranks_disagree", "barrier_of_rank_0", "error_of_one_rank", "two_threads_in_one_group")
KINDS = [
    *("death_pipe", "lost_answer", "ready_of_one_that_ended", "unread_results", "unread_jobs", "pool_whose_worker_was_killed"),
    *("big_results_of_a_stopped_pool", "output_nobody_reads", "input_and_output", "joined_at_exit", "futures_at_exit"),
    *("shutdown_in_a_handler", "monitor_and_forked_lock", "executor_in_itself", "swallowed_cancellation"),
    *("executor_at_the_end_of_run", "join_that_spins", "answer_to_another_worker", "pool_of_connections", *RANKS),
]
MORE = [
    *("terminal_nobody_reads", "pipe_among_the_files", "barrier_of_processes", "notify_of_one_that_was_killed"),
    *("flush_after_fork", "function_before_exec", "local_time_after_fork", "epoll_of_the_parent", "lock_of_an_earlier_run"),
    *("port_of_a_dead_server", "both_send", "half_a_command", "failed_job", "transaction_of_another_connection"),
    *("notification_of_a_cancelled_one", "loop_that_was_stopped", "lock_over_await", "sync_in_async_in_sync"),
    *("names_behind_jobs", "locks_of_a_class", "room_in_a_filter", "errors_of_a_shell", "half_a_connection"),
    *("asked_by_its_own_worker", "descriptor_closed_behind_its_loop", "flags_in_shared_memory"),
    *("pipes_opened_in_different_order", "mutex_of_a_killed_process"),
]


def said_of(kind, mode):
    """(what the subject says of itself, the answer)"""
    python = os.environ.get("GDBEXT_TEST_TORCH_PYTHON") if kind in RANKS else sys.executable
    if not python:
        pytest.skip("no interpreter with torch")
    file = "reported_more.py" if kind in MORE else "reported.py"
    words = [python, os.path.join(SUBJECTS, file), kind, mode]
    with spawned(words, ready="READY ", start_new_session=True) as process:  # what it has started ends with it
        truth = json.loads(process.said.partition("READY ")[2])
        whom = [truth["pid"], *(truth["pids"] if kind in RANKS else [])]
        return truth, answer(f"llm-hang {' '.join(map(str, whom))} -json")


def ends_of(said):
    """Where its chains end: pids, tids, names of tasks, states."""
    found = set()
    for chain in said["chains"]:
        for end in (chain["end"], *chain["end"].get("any_of", ())):
            place = end.get("place") or {}
            found |= {place.get("tid"), place.get("pid"), place.get("task"), end["state"]}
    return found


def is_told(kind):
    truth, said = said_of(kind, "hung")
    assert said["verdict"] not in ("busy", "idle")
    assert said["verdict"] in ACCUSES or ends_of(said) & {*truth["true"], "ring", "nobody"}, said["evidence"]
    return said


@pytest.mark.parametrize("kind", some(KINDS + MORE, 5, "reports"))
def test_a_hang_of_a_report_is_told(kind):
    is_told(kind)


@pytest.mark.parametrize("kind", some(KINDS + MORE, 3, "twins of reports"))
def test_nobody_is_accused_of_a_reports_twin(kind):
    _, said = said_of(kind, "well")
    assert said["verdict"] in ("busy", "idle", "unknown", "startup"), said["evidence"]


PROVEN = {
    "terminal_nobody_reads": "lock-cycle",
    "barrier_of_processes": "starved",
    "notify_of_one_that_was_killed": "starved",
    "local_time_after_fork": "starved",
    "both_send": "lock-cycle",
    "input_and_output": "lock-cycle",  # through a program that is none of Python, and was not asked for
    "lock_of_an_earlier_run": "lock-held",
    "unread_jobs": "starved",
    "transaction_of_another_connection": "lock-cycle",
    "locks_of_a_class": "lock-cycle",
    "room_in_a_filter": "lock-cycle",
    "errors_of_a_shell": "lock-cycle",
    "mutex_of_a_killed_process": "lock-held",
}


@pytest.mark.parametrize("kind", some(sorted(PROVEN), 2, "reports that are proven"))
def test_what_can_end_no_more_is_a_verdict(kind):
    assert is_told(kind)["verdict"] == PROVEN[kind]
