"""Which function of C code each Python frame has called: of threads that say it of themselves, live and in a copy, stripped."""

import json
import os

import pytest
from harness.answers import answer, run
from harness.heartbeats import asleep
from harness.subjects import PYTHONS, copy, spawned

SUBJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subjects", "callees.py")


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_the_function_of_c_code_that_each_frame_has_called_is_told(python, tmp_path):
    argv, env, _ = copy(python, tmp_path, strip=True)
    with spawned([*argv, SUBJECT, "7"], "{", env={**os.environ, **env}) as process:
        truth = json.loads(process.said)
        asleep(process.pid)
        file = str(tmp_path / "copy")
        answer(f"llm-snapshot {process.pid} -o {file}")
        every = [answer(f"pybt -all -on {process.pid}"), answer(f"llm-bt -all -on {file}")]
        text = run(f"pybt -all -on {process.pid}").to_text()
    for told in every:
        threads = {str(th["tid"]): [f for f in th["frames"] if f["kind"] == "python"] for th in told["threads"]}
        for tid, (calls, source) in truth.items():
            found = {_own(f["function"]): f["calls"] for f in threads[tid]}
            assert {name: found.get(_own(name)) for name in calls} == calls, source
    assert " calls time.sleep" in text


def _own(name):
    """Without what it is in, which 3.9 and 3.10 do not keep."""
    return name.rpartition(".")[2]
