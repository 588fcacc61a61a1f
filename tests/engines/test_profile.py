"""llm-profile on real engines: a server is started and stopped and its traces are named; one without HTTP says what is
missing."""

import pytest
from harness.answers import answer

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
