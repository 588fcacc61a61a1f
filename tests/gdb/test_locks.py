"""llm-locks on threads that wait in every way it knows, under every Python here: owners and cycles are what the process says."""

import os
import sys

import pytest
from harness.answers import answer, run
from harness.gdb_run import run_gdb
from harness.heartbeats import asleep, eventually
from harness.subjects import PYTHONS, running, spawned


def graph(said):
    """{waiter's tid: edge}"""
    return {e["waiter"]["tid"]: e for e in said["edges"]}


@pytest.mark.parametrize("python", PYTHONS)
def test_owners_and_cycles_are_what_the_process_says(python):
    with running(python, "lockgraph.py") as (target, truth):
        try:
            asleep(target.pid, truth["child"], seconds=3)  # some wait with a time limit
            said = answer(f"llm-locks {target.pid} -json")
            names = {tid: name for name, tid in truth["tids"].items()}
            found = graph(said)
            for waiter, (kind, owner) in truth["edges"].items():
                edge = found.get(truth["tids"][waiter])
                assert edge is not None, f"{waiter}: no edge"
                got = names.get(edge["owner"]["tid"]) if edge["owner"] else None
                assert (edge["kind"], got) == (kind, owner), f"{waiter}: {edge}"
            assert not {names[t] for t in found if t in names} - set(truth["edges"]), "an edge of a thread that waits for nobody"
            cycles = sorted(sorted(names[e["waiter"]["tid"]] for e in c["edges"]) for c in said["cycles"])
            assert cycles == sorted(truth["cycles"])
            assert all(c["sentence"].endswith(("none of them can continue.", "which it holds itself.")) for c in said["cycles"])
            assert found[truth["tids"]["wants with"]]["how"] == "with" and found[truth["tids"]["wants calls"]]["how"].startswith(
                "between"
            )
            gone = found[truth["tids"]["wants gone"]]
            assert [c["name"] for c in gone["candidates"]] == truth["candidates"]["wants gone"] and not gone["orphan"]
            assert (
                "of at most 1" in found[truth["tids"]["putter"]]["lock"] and "handler" in found[truth["tids"]["logger"]]["lock"]
            )

            child = answer(f"llm-locks {truth['child']} -json")
            assert sorted(e["kind"] for e in child["edges"]) == ["Lock", "RLock"], child["edges"]
            assert all(e["owner"] is None and "fork" in e["note"] for e in child["edges"]) and child["cycles"] == []
            assert all(e["orphan"] or e["candidates"] for e in child["edges"])
        finally:
            os.kill(truth["child"], 9)


def test_the_same_in_gdb_and_in_text(gdb_path):
    with running(sys.executable, "lockgraph.py") as (target, truth):
        try:
            asleep(target.pid, truth["child"], seconds=3)  # some wait with a time limit
            here = answer(f"llm-locks {target.pid} -json")
            gdb = run_gdb(
                gdb_path, [f"llm-locks -json {target.pid}", f"llm-attach {target.pid}", "llm-locks -json", "llm-detach"]
            )

            def plain(said):
                return sorted((e["waiter"]["tid"], e["kind"], (e["owner"] or {}).get("tid")) for e in said["edges"])

            assert plain(here) == plain(gdb.json(0)) == plain(gdb.json(2))
            text = run(f"llm-locks {target.pid}").to_text()
            assert (
                text.count("CYCLE: ") == 4 and "inside its with: held in in_with (lockgraph.py:" in text and "all resumed" in text
            )
        finally:
            os.kill(truth["child"], 9)


def test_who_waits_for_the_gil_and_who_has_it():
    code = (
        "import ctypes, threading, time\nlibc = ctypes.PyDLL(None)\n"
        "def hold():\n    libc.sleep(1000)\n"
        "def want():\n    while True: time.sleep(0.001)\n"
        "for n in range(2): threading.Thread(target=want, name=f'want {n}', daemon=True).start()\n"
        "print(threading.main_thread().native_id, flush=True); time.sleep(0.3); hold()\n"
    )
    with spawned([sys.executable, "-c", code], ready="") as child:
        main = int(child.said)
        eventually(lambda: len(answer(f"llm-locks {child.pid} -json")["edges"]) == 2, "both to want it")
        said = answer(f"llm-locks {child.pid} -json")
        assert (
            {e["owner"]["tid"] for e in said["edges"]} == {main}
            and {e["kind"] for e in said["edges"]} == {"GIL"}
            and len(said["edges"]) == 2
        )


def test_a_process_without_python_is_read_and_said_so():
    with spawned(["sleep", "1000"]) as child:
        said = answer(f"llm-locks {child.pid} -json")
        assert said["edges"] == [] and said["ranks_read"] == 1 and any("no CPython" in reason for reason in said["partial"])
