"""llm-hang on ranks that start (subjects/slow_rank.py): who gets on is slow, not missing; a fork of a rank is none; two jobs
of one size are two."""

import contextlib
import os
import socket
import subprocess

import pytest
from harness.answers import answer
from harness.heartbeats import asleep
from harness.situations import ACCUSES
from harness.subjects import SUBJECTS, ready_line, spawned

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.torch.collectives import store_of


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


@contextlib.contextmanager
def job(python, kind, folder, world=2):
    """-> [pid] of a job's ranks."""
    words, port = [python, os.path.join(SUBJECTS, "slow_rank.py"), kind], free_port()
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    with contextlib.ExitStack() as stack:
        ranks = [
            stack.enter_context(
                spawned([*words, r, str(world), port, folder], stdout=subprocess.PIPE, env=env, start_new_session=True)
            )
            for r in map(str, range(world))
        ]
        for rank in ranks:
            ready_line(rank, "up", 300)
        yield [rank.pid for rank in ranks]


def forks(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(word) for word in f.read().split()]


def asked(*pids):
    return answer(f"llm-hang {' '.join(map(str, pids))} -wait 1 -json")


@pytest.mark.drawn(2)
@pytest.mark.parametrize("kind", ["reads", "helper", "loader", "waits"])
def test_who_gets_on_or_waits_for_a_client_is_not_missing(kind, torch_python, tmp_path):
    with job(torch_python, kind, tmp_path) as pids:
        asleep(pids[0], seconds=2)
        said = asked(*pids, *(forks(pids[-1]) if kind == "helper" else []))
        assert said["verdict"] not in ACCUSES and not said["victims"], said
        assert said["verdict"] == "busy" or not said["culprits"], said  # of that they are who is at work
        if kind == "waits":
            assert said["verdict"] == "idle", said
        alone = asked(pids[0])
        assert not alone["culprits"] and (kind == "waits" or alone["not_asked"] == ["R1"]), alone


@pytest.mark.drawn(1)
@pytest.mark.parametrize("kind", ["sleeps", "stuck", "helper_late"])
def test_who_stands_is_missing_and_no_fork_of_it(kind, torch_python, tmp_path):
    with job(torch_python, kind, tmp_path) as pids:
        asleep(*pids, seconds=5)
        said = asked(*pids, *(forks(pids[-1]) if kind == "helper_late" else []))
        assert (said["verdict"], [c["pid"] for c in said["culprits"]]) == ("collective", [pids[-1]]), said["evidence"]


def test_two_jobs_of_one_size_are_two_verdicts(torch_python, tmp_path):
    (tmp_path / "a").mkdir()
    with job(torch_python, "reads", tmp_path / "a") as well, job(torch_python, "sleeps", tmp_path) as hung:
        asleep(*hung, seconds=5)
        said = asked(*well, *hung)
        assert (said["verdict"], [c["pid"] for c in said["culprits"]]) == ("collective", [hung[-1]]), said
        assert len(said["verdicts"]) == 2 and not said["verdicts"][1]["culprits"], said


def test_the_address_of_their_store_is_read_of_each_rank(torch_python, tmp_path):
    with job(torch_python, "waits", tmp_path) as pids, contextlib.ExitStack() as stack:
        targets = [stack.enter_context(contextlib.closing(ProcTarget(pid))) for pid in pids]
        with open(f"/proc/{pids[0]}/cmdline", "rb") as f:
            port = f.read().split(b"\0")[-3].decode()
        assert [store_of(open_runtime(target)) for target in targets] == [f"127.0.0.1:{port}"] * 2
