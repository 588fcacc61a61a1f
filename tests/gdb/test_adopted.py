"""An engine's core whose parent is no engine's: it is an orphan only where who started it has ended (subjects/adopted.py)."""

import json
import os
import subprocess
import sys

import pytest
from harness.answers import answer

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ.get("GDBEXT_TEST_PYTHON") or sys.executable
KINDS = ("spawn", "fork", "forkserver", "program")


@pytest.mark.parametrize("how", [*KINDS, "session", *("killed-" + kind for kind in KINDS)])
@pytest.mark.drawn(4)
def test_a_core_is_an_orphan_only_where_who_started_it_has_ended(how):
    argv = [PYTHON, os.path.join(HERE, "subjects", "adopted.py"), how]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as subject:
        try:
            truth = json.loads(subject.stdout.readline())
            listed = {r["pid"]: r for r in answer("llm-ranks -json")["ranks"]}
            said = answer(f"llm-hang {truth['core']} -json")
        finally:
            subject.stdin.close()
            subject.wait()
    assert truth["lost"] == how.startswith("killed-") and listed[truth["core"]]["orphan"] is truth["lost"], listed[truth["core"]]
    if truth["lost"]:
        assert f"{truth['parent']} (python" in " ".join(listed[truth["core"]]["notes"]), listed[truth["core"]]
    else:
        assert said["verdict"] == "lock-cycle" and {c["pid"] for c in said["culprits"]} == {truth["core"]}, said
