"""llm-hang over 64 nodes of 8 ranks: recorded facts through a stand-in of ssh. What it takes is printed; no bound is asserted."""

import json
import os
import subprocess
import sys

from harness.facts import add, inside, process, python
from harness.gdb_run import ROOT
from harness.schemas import held

from gdbext import __version__
from gdbext.stacks.waits import Edge
from gdbext.torch.collectives import Count
from gdbext.verdict.exchange import facts_data

NODES, RANKS, OTHERS, STUCK = 64, 8, 4, 37 * 8 + 5
SILENT, DAMAGED, OTHER_PROGRAM, OTHER_RELEASE = "n10", "n20", "n21", "n30"
SSH = """#!/bin/sh
while [ "$1" != "--" ]; do shift; done
[ "$2" = {silent} ] && exec sleep 600
echo ready
cat > /dev/null
exec cat {folder}/"$2".json
"""
# The command, with what a node may take cut short, and what it took at the end.
RUN = """
import resource, sys
from gdbext.session import nodes
from gdbext.__main__ import main
nodes.LIMIT, nodes.READY_IN = float(sys.argv.pop(1)), float(sys.argv.pop(1))
try:
    status = main(sys.argv[1:])
finally:
    own = resource.getrusage(resource.RUSAGE_SELF)
    print("took", own.ru_utime + own.ru_stime, own.ru_maxrss, file=sys.stderr)
sys.exit(status)
"""


def rank_of(number):
    count = Count(f"gloo group 0 of {NODES * RANKS}", number, NODES * RANKS, {"": 812})
    frames = [*inside(), *python(*(f"layer_{i}" for i in range(20)))]
    found = process(f"R{number}", frames, role="", world=(number, NODES * RANKS), counts=[count])
    found.pid, found.job, found.links = 100 + number % RANKS, "10.0.0.1:29500", set()
    main = found.threads[0]
    main.node = (found.name, found.pid)
    if number == STUCK:
        main.frames, main.edge = python("put", "step"), Edge(main.node, "the Lock self.cache_lock", "Lock")
    for i in range(5):
        add(found, 1000 + i, f"helper{i}", frames=python(*(f"work_{i}_{j}" for j in range(12))))
    return found


def answer_of(node):
    """The facts of one node: its ranks of the one job, and processes that have nothing to do with it."""
    seen = [rank_of(node * RANKS + i) for i in range(RANKS)]
    for i in range(OTHERS):
        lone = process(f"{900 + i}", python("poll", "serve"), role="")
        lone.pid, lone.threads[0].idle = 900 + i, True
        seen.append(lone)
    facts = facts_data(seen, [], f"n{node}", __version__)
    return {"schema": "llm-hang/1", "facts": {**facts, "pauses": []}}


def asked(folder, names, limit, ready_in):
    command = [sys.executable, "-c", RUN, str(limit), str(ready_in), "llm-hang", *(f"ssh:{name}" for name in names), "--json"]
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": ROOT}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900)
    took = [line.split()[1:] for line in done.stderr.splitlines() if line.startswith("took ")]
    assert took and done.stdout, done.stderr
    return done.returncode, held(json.loads(done.stdout)), (float(took[0][0]), int(took[0][1]) / 1024)


def test_the_one_that_stands_of_512_is_named_whoever_is_silent_or_lies(tmp_path):
    sizes = []
    for node in range(NODES):
        text = json.dumps(answer_of(node))
        sizes.append(len(text))
        (tmp_path / f"n{node}.json").write_text(text)
    (tmp_path / "ssh").write_text(SSH.format(silent="nobody", folder=tmp_path))
    (tmp_path / "ssh").chmod(0o755)
    names = [f"n{node}" for node in range(NODES)]

    status, said, (cpu, most) = asked(tmp_path, names, 400, 400)
    print(f"{NODES} nodes, {max(sizes)} bytes each: {cpu:.1f} s of CPU, {most:.0f} MiB at the asker")
    assert status == 0 and not said["failed"] and len(said["nodes"]) == NODES
    assert said["verdict"] == "collective" and [(c["label"], c["node"]) for c in said["culprits"]] == [(f"R{STUCK}", "n37")]

    (tmp_path / "ssh").write_text(SSH.format(silent=SILENT, folder=tmp_path))
    broken = json.loads((tmp_path / f"{DAMAGED}.json").read_text())
    broken["facts"]["processes"][3]["threads"] = {"d": 7}
    (tmp_path / f"{DAMAGED}.json").write_text(json.dumps(broken))
    (tmp_path / f"{OTHER_PROGRAM}.json").write_text("Welcome to n21")
    other = json.loads((tmp_path / f"{OTHER_RELEASE}.json").read_text())
    other["facts"]["schema"] = "llm-observed/9"
    (tmp_path / f"{OTHER_RELEASE}.json").write_text(json.dumps(other))
    status, said, (cpu, most) = asked(tmp_path, names, 30, 5)
    print(f"four of them silent, damaged or of another release: {cpu:.1f} s of CPU, {most:.0f} MiB")
    assert status == 3 and [n["state"] for n in said["nodes"]] == ["read"] * (NODES - 4) + ["failed"] * 4
    why = {f["label"]: f["reason"] for f in said["failed"]}
    assert set(why) == {f"ssh:{name}" for name in (SILENT, DAMAGED, OTHER_PROGRAM, OTHER_RELEASE)}
    assert why["ssh:n10"] == "no answer in 30 s" and "damaged" in why["ssh:n20"]
    assert "no answer of gdbext" in why["ssh:n21"] and "another release" in why["ssh:n30"]
    assert {c["label"] for c in said["culprits"]} <= {f"R{STUCK}"}  # nobody that was not looked at
    gone = {int(name[1:]) * RANKS + i for name in (SILENT, DAMAGED, OTHER_PROGRAM, OTHER_RELEASE) for i in range(RANKS)}
    assert {int(label[1:]) for v in said["verdicts"] for label in v.get("not_asked", ())} <= gone
