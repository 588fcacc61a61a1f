"""Real engines: a list that grows in vLLM's KV manager, and in SGLang's scheduler, is found by its path, and llm-memory's parts
are their resident memory."""

import os

import pytest
from harness.answers import answer
from harness.engines import pid_of, processes

# Finds the engine's object on the main thread's stack and makes a list of it grow.
GROW = """
while frame is not None:
    owner = frame.f_locals.get("self")
    try:
        owner = {owner}
    except AttributeError:
        frame = frame.f_back
        continue
    owner.__dict__.setdefault("finished", []).extend([i, [i]] for i in range({count}))
    break
"""
OWNERS = {
    "vllm": ("VLLM::EngineCore", "owner.scheduler.kv_cache_manager"),
    "sglang": ("sglang::scheduler_TP0", "owner.tp_worker and owner"),
}


@pytest.mark.drawn(1, group="heaps of engines")
@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_list_that_grows_is_found_by_its_path(name, running, truth, tmp_path):
    title, owner = OWNERS[name]
    pid, saved = pid_of(running.get(name), title), str(tmp_path / "before.json")

    def grown(count, command):
        """What a command answers once the list has grown, while the engine stands: at full work it takes the processors."""
        with open(os.path.join(running.folder, f"{pid}.do"), "w") as f:
            f.write(GROW.format(owner=owner, count=count))
        with truth(pid):
            return answer(command)

    first = grown(10, f"pyheap -on {pid} -save {saved} -json")
    missing = [reason for reason in first["partial"] if "were copied while it ran on" not in reason]  # of a full machine
    assert not missing and first["pauses"] and first["tracked"] > 100_000
    rows = grown(3000, f"pyheap -on {pid} -diff {saved} -json")["growth"][:5]
    # of the owner as another's attribute, or as `self` where the engine stands in one of its calls
    found = [row for row in rows if (row["owner_shown"] or "").endswith(".finished")]
    assert found, [row["owner_shown"] for row in rows]
    assert (found[0]["type"], found[0]["before"], found[0]["after"]) == ("list", 10, 3010), rows


@pytest.mark.drawn(1, group="heaps of engines")
@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_the_parts_of_every_processs_memory_are_its_resident_memory(name, running):
    pids = processes(running.get(name)).values()
    ranks = answer(f"llm-memory {','.join(map(str, pids))} -json")["ranks"]
    assert {rank["pid"] for rank in ranks} == set(pids) and len(pids) >= 3
    for rank in ranks:
        assert abs(sum(part["bytes"] for part in rank["parts"]) - rank["rss"]) <= 0.02 * rank["rss"], rank
