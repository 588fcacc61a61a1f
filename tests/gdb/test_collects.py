"""llm-bt says which thread collects garbage; where no symbol tells it, that a collection is under way."""

import json
import os

import pytest
from harness.answers import answer, run
from harness.heartbeats import asleep
from harness.subjects import PYTHONS, copy, spawned

PROGRAM = """
import gc, json, os, threading, time
class Ring:
    def __del__(self, wait=time.sleep): wait(3600)
def collect():
    one = Ring(); one.self = one; del one
    gc.collect()
if KIND != "none":
    threading.Thread(target=collect, name="collector", daemon=True).start()
threading.Thread(target=time.sleep, args=(3600,), name="other", daemon=True).start()
print(json.dumps({t.name: t.native_id for t in threading.enumerate()}), flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("kind", ["symbols", "stripped", "none"])
@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_the_thread_that_collects_is_told(python, kind, tmp_path):
    argv, env, path = copy(python, tmp_path, strip=kind == "stripped")
    program = PROGRAM.replace("KIND", repr(kind))
    with spawned([*argv, "-c", program], "{", env={**os.environ, **env}) as process:
        truth = json.loads(process.said)
        asleep(process.pid)
        core = str(tmp_path / "copy")
        answer(f"llm-snapshot {process.pid} -o {core}")
        told, text = answer(f"llm-bt -all -on {core}"), run(f"llm-bt -all -on {core}").to_text()
    collect = {th["tid"] for th in told["threads"] if th["collects"]}
    assert told["collecting"] == (kind != "none")
    assert collect <= {truth.get("collector")}, "another thread than the one that does"
    if collect:
        assert "collects garbage" in text
    else:
        assert ("a garbage collection is under way" in text) == (kind != "none")
    if kind == "symbols" and "pyenv" in python:
        assert collect, "its symbols are there"
