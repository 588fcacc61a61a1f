"""Real vLLM BlockPool objects, healthy and broken by hand: through /proc, in gdb live, and on a core of the same process."""

import json
import os
import subprocess

import pytest
from harness.gdb_run import run_gdb
from harness.subjects import spawned

from gdbext.access.proc import ProcTarget
from gdbext.cpython.expressions import evaluate
from gdbext.cpython.runtime import open_runtime
from gdbext.engines.vllm import kv as vllm_kv
from gdbext.kvcache import invariants, model

SUBJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subjects", "blockpools.py")
LARGE = 200_000


@pytest.fixture(scope="module")
def subject(torch_python):
    if subprocess.run(
        [torch_python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('vllm') is None)"], check=False
    ).returncode:
        pytest.skip("the environment with torch has no vLLM: run scripts/test engines, which makes one")
    with spawned([torch_python, SUBJECT, str(LARGE)], ready='{"pid"', stderr=subprocess.DEVNULL) as child:
        yield child.pid, json.loads(child.said)


@pytest.fixture(scope="module")
def pools(subject):
    """name -> BlockPool Object, read through /proc."""
    target = ProcTarget(subject[0])
    rt = open_runtime(target)
    frame = rt.frames(rt.threads()[0])[0]
    yield rt, {name: evaluate(rt, f"pools[{name!r}]", frame) for name in subject[1]["expected"]}
    target.close()


def test_every_fault_is_found_and_no_healthy_pool_is_flagged(subject, pools):
    rt, objects = pools
    assert {None} < {expected and expected[0] for expected in subject[1]["expected"].values()}
    for name, expected in subject[1]["expected"].items():
        report = invariants.check(vllm_kv.read(rt, objects[name]))
        first = [report.violations[0].rule, report.violations[0].block] if report.violations else None
        assert first == expected, f"{name}: {[(v.rule, v.block, v.detail) for v in report.violations[:3]]}"


def test_what_is_read_is_what_the_pool_says(subject, pools):
    rt, objects = pools
    assert subject[1]["said"]
    for name, said in subject[1]["said"].items():
        cache = vllm_kv.read(rt, objects[name])
        pool = cache.pools[0]
        assert pool.walk().order == said["free"] and pool.ref_cnt == said["ref_cnt"] and pool.num_free == said["num_free"], name
        assert [i for i, h in enumerate(pool.hashes) if h] == said["hashed"], name
        assert model.summary(cache, 0)["free"] == len(said["free"])


def test_a_large_pool_is_read_whole(pools):
    rt, objects = pools
    cache = vllm_kv.read(rt, objects[f"size{LARGE}"])
    assert cache.pools[0].ids == list(range(LARGE)) and len(cache.pools[0].walk().order) == LARGE - 1


LOOK = ["used", "double_append", "cycle", "leak", "swapped", "wrong_hash", "no_block", "size10000"]


def test_live_in_gdb_and_on_a_core_the_same(subject, gdb_path, tmp_path):
    pid, truth = subject
    core = str(tmp_path / "core")
    commands = [f"llm-kv check -json -pool pools['{name}']" for name in LOOK]
    commands += [
        "llm-kv -json -pool pools['used']",
        "llm-kv block 5 -json -pool pools['used']",
        "llm-kv free -json -pool pools['used']",
        "llm-kv map -json -pool pools['used']",
    ]
    live = run_gdb(gdb_path, commands + [f"gcore {core}"], ["-p", str(pid)], before=["set auto-solib-add off"], timeout=400)
    dead = run_gdb(gdb_path, commands, ["-c", core], before=["set auto-solib-add off"], timeout=400)
    os.remove(core)
    for index, command in enumerate(commands):
        one, other = live.json(index), dead.json(index)
        one.pop("partial"), other.pop("partial")
        assert one == other, command
        if index < len(LOOK):
            expected = truth["expected"][LOOK[index]]
            first = [one["violations"][0]["rule"], one["violations"][0]["block"]] if one["violations"] else None
            assert first == expected and one["ok"] == (expected is None), command
    summary, block, free = (live.json(len(LOOK) + i) for i in range(3))
    said = truth["said"]["used"]
    assert summary["num_blocks"] == 64 and summary["free"] == len(said["free"]) and free["order"] == said["free"]
    assert block["block"]["ref_cnt"] == said["ref_cnt"][5] and block["block"]["free"] == (5 in said["free"])


def test_bad_input_gives_one_clear_line(subject, gdb_path):
    bad = {
        "llm-kv": "no vLLM V1 scheduler",
        "llm-kv block x -pool pools['used']": "block's number",
        "llm-kv block 99 -pool pools['used']": "0 to 63",
        "llm-kv request nobody -pool pools['used']": "no request",
        "llm-kv zork": "no engine process is named zork",
        "llm-kv chekc": "none of block",
        "llm-kv -pool pools": "is no Scheduler",
        "llm-kv -pool pools['used'].blocks[1]": "is no Scheduler",
        "llm-addr zork": "give one address",
        "llm-addr $pc + f()": "give one address",
        "llm-addr $nobody_set_it": "neither a tensor nor an address",
        "llm-addr -kv layer=x": "none of",
        "llm-kv check extra": "takes nothing",
    }
    said = run_gdb(gdb_path, list(bad) + ["llm-addr 0x10 -json"], ["-p", str(subject[0])], before=["set auto-solib-add off"])
    for (command, wanted), output in zip(bad.items(), said.outputs):
        assert wanted in output and output.count("\n") == 0, f"{command}: {output}"
    assert said.json()["kind"] == "unmapped" and "Traceback" not in said.text


def test_an_address_may_be_a_register_or_a_variable_of_gdbs(gdb_path, subject):
    asked = ["$sp", "$sp + 8", "$pc", "$here"]
    truth = 'python print([int(gdb.parse_and_eval("(unsigned long)" + e)) for e in ("$sp", "$sp+8", "$pc", "$here")])'
    lines = ["set $here = (char *)$sp + 16", truth, *(f"llm-addr {text} -json" for text in asked)]
    said = run_gdb(gdb_path, lines, ["-p", str(subject[0])], before=["set auto-solib-add off"])
    found = [json.loads(text) for text in said.outputs[2:]]
    assert [int(one["address"], 0) for one in found] == json.loads(said.outputs[1])
    assert "stack" in found[0]["mapping"]["path"] and "x" in found[2]["mapping"]["perms"]
