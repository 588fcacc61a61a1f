"""-still: what must agree in a process at every moment agrees in an answer of one moment; without it an answer of different
moments says so (subjects/agreeing.py)."""

import json
import os
import time

import pytest
from harness.answers import answer, run
from harness.releases import release
from harness.subjects import PYTHONS, SUBJECTS, running, spawned

from gdbext.errors import GdbextError
from gdbext.render.text import PLAIN

PAIRS = (
    "(__main__:box.first, __main__:box.second)",
    "(__main__:table['first'], __main__:table['second'])",
    "tuple(__main__:row)",
)
LOOKS = 4
READING = (
    "pyprint __main__:names",
    "pybt -all -locals",
    "pylocals",
    "pyframe",
    "pylist",
    "llm-bt -all -locals",
    "pyexc",
    "pythreads",
)


def agree(text):
    first, second = (int(word) for word in text.strip("()").split(", "))
    return first - second in (0, 1)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("pair", PAIRS)
def test_a_copy_of_one_moment_has_what_agrees(python, pair):
    with running(python, "agreeing.py", "moves") as (target, _):
        seen = [answer(f"pyprint {pair} -still -on {target.pid}") for _ in range(LOOKS)]
    assert all(agree(one["repr"]) for one in seen), [one["repr"] for one in seen]
    assert not any("unstopped" in one["partial"] or "changed" in one["partial"] for one in seen)
    assert all(one["pauses"][0]["pid"] == target.pid for one in seen)
    assert len({one["repr"] for one in seen}) > 1  # they move


@pytest.mark.parametrize("python", PYTHONS)
def test_the_variables_of_a_frame_are_of_one_moment(python):
    with running(python, "agreeing.py", "moves") as (target, _):
        for _ in range(LOOKS):
            found = answer(f"pybt -locals -still -on {target.pid}")
            main = next(f for f in found["threads"][0]["frames"] if f["function"] == "main")
            values = {v["name"]: int(v["text"]) for v in main["locals"]}
            assert values["n"] - values["behind"] in (0, 1), values


def test_without_it_different_moments_are_named(pythons):
    """What is read of a process that runs is of one moment, or says that it is not, and how it could be."""
    told = set()
    with running(PYTHONS[0], "agreeing.py", "moves") as (target, _):
        end = time.monotonic() + 120
        while time.monotonic() < end and told != {*PAIRS, "pylocals"}:
            for pair in PAIRS:
                found = run(f"pyprint {pair} -on {target.pid}")
                shown = json.loads(found.json("pyprint"))
                if "changed" in found.partial:
                    told.add(pair)
                    assert "-still" in found.to_text(PLAIN)
                else:
                    assert agree(shown["repr"]), shown
            found = answer(f"pyframe main -on {target.pid}")
            if "changed" in found["partial"]:
                told.add("pylocals")
            else:
                values = {v["name"]: int(v["text"]) for v in found["locals"]}
                assert values["n"] - values["behind"] in (0, 1), found
    assert told == {*PAIRS, "pylocals"}


def test_of_what_is_quiet_both_say_the_same():
    with running(PYTHONS[0], "agreeing.py", "quiet") as (target, _):
        for line in READING:
            plain, still = answer(f"{line} -on {target.pid}"), answer(f"{line} -still -on {target.pid}")
            missing = [why for why in still["partial"] if "leaves no mark on the C stack" not in why]  # CPython 3.9 and 3.10
            assert "changed" not in plain["partial"] and not missing, (line, plain["partial"], still["partial"])
            assert still.pop("pauses"), line
            if line.startswith("llm-bt"):  # with the native frames, which are not to be had while it runs
                assert any(f["kind"] == "native" for f in still["threads"][0]["frames"])
                continue
            plain["partial"] = []
            assert plain == still, line


def test_what_a_copy_cannot_answer_is_refused():
    with running(PYTHONS[0], "agreeing.py", "quiet") as (target, _):
        with pytest.raises(GdbextError, match=r"\$py is of the process that runs"):
            run(f"pyprint $py.first -still -on {target.pid}")
        with pytest.raises(GdbextError, match="-samples watches"):
            run(f"pythreads -samples 3 -still -on {target.pid}")
        with pytest.raises(GdbextError, match="option -still is unknown"):
            run(f"llm-request -still r1 -on {target.pid}")
        with pytest.raises(GdbextError, match="no_such"):
            run(f"pyprint no_such -still -on {target.pid}")


def test_a_tensor_is_saved_of_one_moment(torch_python, tmp_path):
    code = (
        "import torch, json, os\nx = torch.zeros(4096)\nprint(json.dumps({'pid': os.getpid()}), flush=True)\n"
        "n = 0\nwhile True:\n    n += 1\n    x.fill_(n % 1000)\n"
    )
    with spawned([torch_python, "-c", code], ready="{") as child:
        for _ in range(4):
            found = answer(f"pytensor __main__:x -stats -still -on {child.pid}")
            stats = found["stats"]
            # one store of the vector unit at a time: the head has the new value, the tail the one before
            assert stats["max"] - stats["min"] in (0, 1, 999), stats
            assert found["pauses"] and not found["partial"]


def test_the_cache_of_a_scheduler_that_steps_is_whole(torch_python):
    """The counter that is 3 too high, and another value each time that it is read, is found, and nothing else."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    argv = [torch_python, os.path.join(SUBJECTS, "vllm_v2_steps.py"), release("vllm", "0.26.0"), "0.26.0", "counter"]
    with spawned(argv, ready='{"pid"', env=env) as child:
        for _ in range(6):  # a moment within an update says so, and to ask again
            found = answer(f"llm-kv check -still -on {child.pid}")
            assert "unstopped" not in found["partial"] and found["pauses"]
            if found["violations"]:
                break
            assert any("mid-update" in reason for reason in found["partial"]), found
    assert {v["rule"] for v in found["violations"]} == {"free-count"}, found
