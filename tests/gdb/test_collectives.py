"""How many collectives each rank has begun: torch's gloo groups against what torch says; NCCL's list of communicators on a fake
library with NCCL's names and the real layouts, since no GPU is needed for counting."""

import contextlib
import json
import shutil
import subprocess
import sys

import pytest
from harness.answers import answer
from harness.hangs import Ranks
from harness.subjects import SUBJECTS, running

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.torch import collectives, gloo_peers


def counts(pid):
    target = ProcTarget(pid)
    try:
        return collectives.find(open_runtime(target))
    finally:
        target.close()


def peers(pid):
    target = ProcTarget(pid)
    try:
        return gloo_peers.read(open_runtime(target), collectives.find(open_runtime(target)))
    finally:
        target.close()


def test_gloo_groups_count_as_torch_does(torch_python, tmp_path):
    group = Ranks(torch_python, 3, 3, tmp_path)
    try:
        for r in range(3):
            group.expect(r, "up")
        for words in (("all_reduce",) * 3, ("steps 5",) * 3, ("numbers",) * 3):
            group.do(*words)
        for r in range(3):
            truth = json.loads(" ".join(group.expect(r, "numbers")))
            seen = {c.group: (c.rank, c.size, c.begun[""]) for c in counts(group.pids[r])}
            assert seen == {
                f"gloo group {name} ({len(ranks)} ranks)": (ranks.index(r), len(ranks), number) for name, ranks, number in truth
            }
            hosts = peers(group.pids[r])
            assert sorted(hosts) == [0, 1, 2] and len(set(hosts.values())) == 1, hosts
            assert len(truth) == 2 and len({number for _, _, number in truth}) == 2
        group.do("all_reduce", "nap " + group.flag("x"), "all_reduce")
        said = group.hang()
        number = next(n for name, _, n in truth if name == "0")
        assert (
            f"gloo group 0 (3 ranks): collectives counted in memory: R0,2 have begun {number + 1}, R1 has begun {number}"
            in said["evidence"]
        ), said
    finally:
        group.close()


@pytest.mark.parametrize("which", [0, 1])
def test_the_store_and_the_world_are_those_of_the_default_group(which, torch_python):
    with running(torch_python, "second_default_group.py", str(which), stdin=subprocess.PIPE) as (target, truth):
        rt = open_runtime(target)
        assert collectives.store_of(rt) == truth["store"]
        assert [one.group.split()[2] for one in collectives.find(rt) if one.default] == [truth["group"]]


@pytest.fixture(scope="module")
def fake_nccl(tmp_path_factory):
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    path = tmp_path_factory.mktemp("nccl") / "libnccl.so.2"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(path), f"{SUBJECTS}/fake_nccl.c"], check=True)
    return str(path)


@pytest.mark.parametrize("number", range(len(collectives.nccl_rows())))
def test_a_communicator_is_read_by_the_layout_that_fits_it(number, fake_nccl):
    row = collectives.nccl_rows()[number]
    with running(sys.executable, "nccl_rank.py", fake_nccl, json.dumps(row), "1", "4", "7", "0", "0", "0", "812") as (target, _):
        (one,) = collectives.find(open_runtime(target))
        assert (one.group, one.rank, one.size, one.begun) == (
            "NCCL communicator 0xfeed",
            1,
            4,
            {"Broadcast": 7, "AllReduce": 812},
        )


def test_when_all_wait_for_devices_the_rank_behind_is_the_culprit(fake_nccl):
    row = json.dumps(collectives.nccl_rows()[0])
    with contextlib.ExitStack() as stack:
        began = (812, 811, 812)
        pids = [
            stack.enter_context(running(sys.executable, "nccl_rank.py", fake_nccl, row, str(r), "3", "0", "0", "0", "0", str(n)))[
                1
            ]["pid"]
            for r, n in enumerate(began)
        ]
        said = answer(f"llm-hang {' '.join(map(str, pids))} -wait 0.5 -json")
        assert (said["verdict"], [c["pid"] for c in said["culprits"]]) == ("collective", [pids[1]]), said
        assert (
            f"NCCL communicator 0xfeed: collectives counted in memory (AllReduce): {pids[0]}, "
            f"{pids[2]} have begun 812, {pids[1]} has begun 811"
        ) in said["evidence"], said
        said = answer(f"llm-hang {pids[0]} {pids[2]} -wait 0.5 -json")
        assert said["verdict"] == "kernel" and not said["culprits"], said
