"""llm-requests on a real AsyncLLM in its user's process: healthy requests move. Faults: test_serve_vllm.py."""

from harness.answers import answer
from harness.served import STUCK


def requests(engine):
    """`{user's id (or the engine's): request}` as llm-requests says of one engine."""
    return {r["external_id"] or r["request_id"]: r for r in answer(f"llm-requests {engine.said['pid']} -json")["requests"]}


def test_healthy_requests_of_vllm_move_and_keep_their_places(vllm):
    seen = {}
    for _ in range(5):
        found = requests(vllm)
        assert not {r["verdict"] for r in found.values()} & set(STUCK), found
        seen.update(found)
    moving = [r for r in seen.values() if r["verdict"] == "moving"]
    assert len(moving) >= 4 and any(r["moved"] for r in moving)
    stages = {h["stage"]: h["label"] for r in moving for h in r["hops"]}
    assert stages["frontend"] == "frontend" and stages["running"] == "EngineCore" and stages["worker"] in ("TP0", "TP1")
    assert all(r["request_id"] != name or r["external_id"] is None for name, r in seen.items())
