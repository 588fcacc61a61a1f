"""llm-profile on real engines: a server is started and stopped and its traces are named; one without HTTP says what is
missing."""

import os

import pytest
from harness.answers import answer
from harness.heartbeats import eventually

from gdbext.errors import GdbextError


def test_vllm_without_a_server_says_so(vllm):
    with pytest.raises(GdbextError, match="vllm: no HTTP server of it was found.*--profiler-config"):
        answer("llm-profile start TP0")


def test_the_profiler_of_an_sglang_server_starts_and_stops(sglang, running):
    started = answer("llm-profile start TP0 -json")
    assert [r["label"] for r in started["ranks"]] == ["TP0", "TP1"] and started["port"] == sglang.said["port"]
    assert started["files"] == [running.folder]
    stopped = answer("llm-profile stop TP1 -json")
    assert stopped["ranks"] == started["ranks"] and len(stopped["files"]) >= 2
    for path in stopped["files"]:
        assert path.startswith(running.folder) and "trace" in path
        with open(path, "rb") as f:
            assert f.read(2) == b"\x1f\x8b"  # gzip


def test_prefill_and_decode_of_sglang_are_profiled_apart_into_a_folder(sglang, tmp_path):
    started = answer(f"llm-profile start sglang:TP0 -activities CPU -steps 2 -stage -o {tmp_path} -json")
    assert [r["label"] for r in started["ranks"]] == ["TP0", "TP1"] and started["files"] == [str(tmp_path)]
    wanted = {f"TP-{rank}-{stage}.trace.json.gz" for rank in (0, 1) for stage in ("EXTEND", "DECODE")}

    def written():
        return {name.partition("-")[2] for name in os.listdir(tmp_path)} == wanted

    eventually(written, f"{wanted} in {tmp_path}", 120)  # by itself, without a stop
    with pytest.raises(GdbextError, match="one that was started with -steps has ended by itself"):
        answer("llm-profile stop sglang:TP0")
