"""RTP-LLM and TensorRT-LLM by debug information, on compiled fakes with their type and member names (subjects/*_fake.cpp)."""

import os
import shutil
import subprocess

import pytest
from harness.gdb_run import run_gdb
from harness.subjects import spawned

SUBJECTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subjects")
FAULTS = {
    "none": None,
    "leak": ["leaked", 15],
    "freed-used": ["free-owned", 7],
    "zero-freed": ["null-freed", 0],
    "count-high": ["ref-above-owners", 3],
    "negative": ["negative-ref", 9],
    "busy": ["busy-count", None],
}


def compiled(name, folders, *options):
    """The path of a fake's program; skips where there is no compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    path = str(folders.mktemp(name) / name)
    subprocess.run([compiler, "-g", "-O0", "-std=c++17", os.path.join(SUBJECTS, name + ".cpp"), *options, "-o", path], check=True)
    return path


@pytest.fixture(scope="module", params=["current", "older"])
def fake(tmp_path_factory, request):
    """The fake with KVCacheManager and BlockPool, and with the CacheManager of before."""
    return compiled("rtp_llm_fake", tmp_path_factory, *(["-DOLDER"] if request.param == "older" else []))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.drawn(6)
def test_blocks_streams_and_faults(fake, fault, gdb_path, tmp_path):
    core = str(tmp_path / "core")
    with spawned([fake, fault], ready="READY") as child:
        commands = ["llm-kv -json", "llm-kv check -json", "llm-kv block 2 -json", "llm-requests -json", "llm-kv map -json"]
        live = run_gdb(gdb_path, commands + ([f"gcore {core}"] if fault == "none" else []), [fake, str(child.pid)])
    check = live.json(1)
    assert [[v["rule"], v["block"]] for v in check["violations"][:1]] == ([FAULTS[fault]] if FAULTS[fault] else []), check[
        "violations"
    ]
    if fault != "none":
        return
    dead = run_gdb(gdb_path, commands, [fake, core])
    for said in (live, dead):
        summary, check, block, requests, picture = (said.json(i) for i in range(5))
        assert (summary["engine"], summary["num_blocks"], summary["block_size"], summary["free"]) == ("rtp-llm", 32, 8, 25)
        assert {r["request_id"]: r["blocks"] for r in summary["requests"]} == {"101": [1, 2, 3], "102": [1, 2, 7, 8]}
        assert check["ok"] and "busy-count" in [r["rule"] for r in check["rules"]]
        assert (
            block["block"]["ref_cnt"] == 3
            and block["block"]["pins"] == 1
            and [o["request_id"] for o in block["block"]["owners"]] == ["101", "102"]
        )
        assert [(r["request_id"], r["queue"]) for r in requests["requests"]] == [
            ("101", "running"),
            ("102", "running"),
            ("103", "waiting"),
        ]
        assert picture["maps"][0]["cells"].startswith("0**B...AA")


# a stop inside a method that changes the pool explains what is half done, and no more; a stop inside one that reads explains
# nothing
@pytest.mark.parametrize(
    "stop,place,violations,passing",
    [
        ("half-free", "BlockPool::requestFree", [], ["leaked"]),
        ("half-free-used", "BlockPool::requestFree", ["free-owned"], ["leaked"]),
        ("asked-used", None, ["free-owned"], []),
    ],
)
def test_a_stop_in_the_middle_of_an_update_in_cxx(fake, stop, place, violations, passing, gdb_path, request):
    if "older" in request.node.name:
        pytest.skip("the older CacheManager's fake has no such stops")
    with spawned([fake, stop], ready="READY") as child:
        check = run_gdb(gdb_path, ["llm-kv check -json"], [fake, str(child.pid)]).json()
    assert (check["mid_update_at"], check["mid_update"]) == (place, place is not None), check
    assert ([v["rule"] for v in check["violations"]][:1], [v["rule"] for v in check["passing"]][:1]) == (
        violations[:1],
        passing[:1],
    ), check


TRT_FAULTS = {
    "none": None,
    "leak": ["leaked", 2],
    "count-low": ["ref-below-owners", 0],
    "freed-used": ["free-owned", 5],
    "wrong-level": ["free-level", 2],
    "counter": ["free-count", None],
    "iterator": ["free-iterator", 8],
    "swapped": ["block-id", 3],
    "half-released": None,
}


@pytest.fixture(scope="module")
def trt_fake(tmp_path_factory):
    return compiled("trtllm_fake", tmp_path_factory)


@pytest.mark.parametrize("fault", TRT_FAULTS)
def test_tensorrt_llm_windows_sequences_and_faults(trt_fake, fault, gdb_path):
    with spawned([trt_fake, fault], ready="READY") as child:
        said = run_gdb(
            gdb_path, ["llm-kv -json", "llm-kv check -json", "llm-kv block 1 -group 1 -json"], [trt_fake, str(child.pid)]
        )
    check = said.json(1)
    assert [[v["rule"], v["block"]] for v in check["violations"][:1]] == ([TRT_FAULTS[fault]] if TRT_FAULTS[fault] else []), (
        check["violations"]
    )
    assert check["mid_update_at"] == ("LRUEvictionPolicy::releaseBlock" if fault == "half-released" else None)
    assert [v["rule"] for v in check["passing"]] == (["free-count"] if fault == "half-released" else [])
    if fault == "none":
        summary, block = said.json(0), said.json(2)
        assert [(p["name"], p["num_blocks"], p["free"], p["block_size"]) for p in summary["pools"]] == [
            ("window 128", 16, 11, 32),
            ("window 4096", 16, 11, 32),
        ]
        assert {r["request_id"]: r["tables"] for r in summary["requests"]} == {
            "7": {"0": [0, 1, 2], "1": [0, 1, 2]},
            "9": {"0": [0, 1, 5, 6], "1": [0, 1, 5, 6]},
        }
        assert block["block"]["ref_cnt"] == 2 and sorted(o["request_id"] for o in block["block"]["owners"]) == ["7", "9"]
