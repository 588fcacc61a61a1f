"""RTP-LLM's processes in a FAKE /proc, and what is found of them."""

import pytest


@pytest.mark.parametrize("era", ["rtp_llm", "maga_ft"])
def test_rtp_llm_world_rank_from_the_environment(proc, era):
    backend = proc.add(title=f"{era}_backend_server", ppid=proc.add(["/usr/bin/python3", "-m", "rtp_llm.start_server"]))
    proc.add(title=f"{era}_rank-0", ppid=backend, environ={"WORLD_RANK": "8"})
    proc.add(title=f"{era}_rank-1", ppid=backend)
    found = {r.label: r for r in proc.ranks()}
    assert found["rank-0"].ranks == {"local": 0, "world": 8}
    assert found["rank-1"].ranks == {"local": 1} and "local rank" in found["rank-1"].notes[0]
