"""RTP-LLM by debug information, on a compiled fake with its type and member names (subjects/rtp_llm_fake.cpp): live and from a core."""

import os
import shutil
import subprocess

import pytest

from gdbrun import run_gdb

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subjects", "rtp_llm_fake.cpp")
FAULTS = {"none": None, "leak": ["leaked", 15], "freed-used": ["free-owned", 7], "zero-freed": ["null-freed", 0], "count-high": ["ref-above-owners", 3],
          "negative": ["negative-ref", 9], "busy": ["busy-count", None]}  # fmt: skip


@pytest.fixture(scope="module", params=["current", "older"])
def fake(tmp_path_factory, request):
    """The fake with KVCacheManager and BlockPool, and with the CacheManager of before."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    path = str(tmp_path_factory.mktemp("rtp") / "rtp_llm_fake")
    subprocess.run([compiler, "-g", "-O0", "-std=c++17", *(["-DOLDER"] if request.param == "older" else []), SOURCE, "-o", path], check=True)
    return path


@pytest.mark.parametrize("fault", FAULTS)
def test_blocks_streams_and_faults(fake, fault, gdb_path, tmp_path):
    child = subprocess.Popen([fake, fault], stdout=subprocess.PIPE, text=True)
    core = str(tmp_path / "core")
    try:
        assert child.stdout.readline() == "READY\n"
        commands = ["llm-kv -json", "llm-kv check -json", "llm-kv block 2 -json", "llm-requests -json", "llm-kv map -json"]
        live = run_gdb(gdb_path, commands + ([f"gcore {core}"] if fault == "none" else []), [fake, str(child.pid)])
    finally:
        child.kill()
        child.communicate()
    check = live.json(1)
    assert [[v["rule"], v["block"]] for v in check["violations"][:1]] == ([FAULTS[fault]] if FAULTS[fault] else []), check["violations"]
    if fault != "none":
        return
    dead = run_gdb(gdb_path, commands, [fake, core])
    for said in (live, dead):
        summary, check, block, requests, picture = (said.json(i) for i in range(5))
        assert (summary["engine"], summary["num_blocks"], summary["block_size"], summary["free"]) == ("rtp-llm", 32, 8, 25)
        assert {r["request_id"]: r["blocks"] for r in summary["requests"]} == {"101": [1, 2, 3], "102": [1, 2, 7, 8]}
        assert check["ok"] and "busy-count" in [r["rule"] for r in check["rules"]]
        assert block["block"]["ref_cnt"] == 3 and block["block"]["pins"] == 1 and [o["request_id"] for o in block["block"]["owners"]] == ["101", "102"]
        assert [(r["request_id"], r["queue"]) for r in requests["requests"]] == [("101", "running"), ("102", "running"), ("103", "waiting")]
        assert picture["maps"][0]["cells"].startswith("0**B...AA")
