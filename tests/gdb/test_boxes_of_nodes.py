"""Bundles and boxes that were written on four machines, judged as one after the fact: as llm-hang judges the machines."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import pytest
from harness import jobs
from harness.gdb_run import ROOT
from harness.schemas import held

FOUR = ["n0", "n1", "n2", "n3"]


@pytest.fixture(scope="module")
def four(torch_python, tmp_path_factory):
    lacking = [name for name in ("ip", "nsenter", "unshare") if not shutil.which(name)]
    if os.geteuid() or lacking:
        pytest.skip(f"needs {', '.join(lacking) or 'root'}")
    words = [*jobs.NAMESPACES, "ip", "link", "add", "veth0", "type", "bridge"]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("this machine lets nobody make machines with a switch between them")
    with contextlib.closing(jobs.Machines(tmp_path_factory.mktemp("machines"), torch_python, 4)) as machines:
        yield machines


def job(kind, at, odd, named):
    return jobs.Job(kind, at, odd, "all_reduce", f"{jobs.ADDRESSES[at[0]]}:29500", named)


def asked(*words):
    done = subprocess.run(
        [sys.executable, "-m", "gdbext", *words, "--json"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.startswith("{"), done.stderr
    return held(json.loads(done.stdout))


def pids_on(one, number):
    return [str(pid) for (at, pid) in one.pids if at == number]


def core_of(said):
    """What is compared: the verdicts with their groups, and who is to blame, by machine and pid."""
    return sorted(
        (
            v["verdict"],
            sorted(name.rpartition(":")[2] for name in v["group"]),
            sorted((c["node"][-1], c["pid"], c.get("tid")) for c in v["culprits"]),
        )
        for v in said["verdicts"]
    )


@pytest.mark.parametrize(
    "kind, at, odd, named",
    [("crossed", [0, 1, 2, 3], 3, False), ("sleep", [0, 1, 1, 2], 0, True)]
    + ([("lock", [0, 1, 2, 3], 2, True), ("idle", [0, 1, 2, 3], 0, False)] if os.environ.get("GDBEXT_TEST_LONG") else []),
)
def test_bundles_of_four_machines_say_what_the_machines_said(four, kind, at, odd, named, tmp_path):
    one = job(kind, at, odd, named)
    situation = jobs.Situation("nodes", FOUR, [one])
    with four.lived(situation):
        live, places = four.ask(situation)
        files = []
        for number in sorted(set(at)):
            files.append(f"{tmp_path}/n{number}.gdbext")
            line = four.command(number, "llm-bundle", *pids_on(one, number), "-o", files[-1])
            done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
            assert done.returncode in (0, 3), done.stderr
    assert jobs.judged(situation, live, places)[0][2] == "right"
    said = asked("llm-hang", *files)
    assert core_of(said) == core_of(live) and len(said["nodes"]) == len(files)
    with open(files[0], "rb") as whole, open(tmp_path / "torn.gdbext", "wb") as torn:
        torn.write(whole.read()[:-2000])
    with_torn = asked("llm-hang", *files, f"{tmp_path}/torn.gdbext")
    assert core_of(with_torn) == core_of(said) and "torn.gdbext" in {one["label"] for one in with_torn["failed"]}
    page = asked("llm-report", "-o", f"{tmp_path}/r.html", *files)
    assert (page["verdict"], page["sentence"]) == (said["verdict"], said["sentence"])
    assert all(step.startswith(f"pybt -all -on {tmp_path}/n") for step in said["next"])
    assert len(said["next"]) == len({(c["node"], c["pid"]) for v in said["verdicts"] for c in v["culprits"]})


def test_watches_ask_one_another_and_one_verdict_is_written(four, tmp_path):
    """R1 sleeps. The first watch to find a stall asks; all write a box of that moment."""
    one = job("sleep", [0, 1, 2, 3], 1, True)
    situation = jobs.Situation("nodes", FOUR, [one])
    share = tmp_path / "share"
    with four.lived(situation), contextlib.ExitStack() as stack:
        watches = []
        for number in range(4):
            after = "2" if number == 2 else "600"  # the others would not look by themselves
            words = [*pids_on(one, number), "-after", after, "-poll", "0.5", "-o", f"{tmp_path}/n{number}", "-share", str(share)]
            more = {"cwd": ROOT, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
            watches.append(stack.enter_context(subprocess.Popen(four.command(number, "llm-watch", *words), **more)))
            stack.callback(watches[-1].kill)
        until = time.monotonic() + 120
        while not list(share.glob("*/hang.json")) and time.monotonic() < until:
            time.sleep(0.2)
        for watch in watches:
            os.kill(jobs.below(watch.pid), signal.SIGTERM)
        said = [watch.communicate()[1] for watch in watches]
    (moment,) = [path.parent for path in share.glob("*/hang.json")]
    assert sorted(path.name for path in moment.glob("*.gdbext")) == [f"n{n}.gdbext" for n in range(4)], said
    assert moment.name.endswith("-n2") and list(share.iterdir()) == [moment]
    told = json.loads((moment / "hang.json").read_text())
    assert [(c["node"], c["label"]) for c in told["culprits"]] == [("n1", "R1")], told["verdicts"]
    assert told["sentence"] in (moment / "page.md").read_text().split("\n")[0]
    assert ["n2 asks for a box" in text for text in said] == [True, True, False, True], said
    with zipfile.ZipFile(moment / "n2.gdbext") as box:  # collectives that each group has begun are in the last minutes
        (rank,) = json.loads(box.read("ring.json"))["ranks"]
    assert [note for note in rank["notes"] if note[1] == "collectives" and max(note[2].values()) > 0], rank["notes"]
    assert core_of(asked("llm-hang", *map(str, sorted(moment.glob("*.gdbext"))))) == core_of(told)
