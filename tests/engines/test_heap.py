"""The heap and the memory of real engines: a list that grows in vLLM's KV manager and in SGLang's tree cache is found by its
path, and llm-memory's parts are the resident memory."""

import os

import pytest
from harness.answers import answer
from harness.engines import pid_of, processes

# Finds the engine's object on the main thread's stack and makes a list of it grow.
GROW = """
while frame is not None:
    owner = frame.f_locals.get("self")
    for path in {paths}:
        holder = owner
        for name in path:
            holder = getattr(holder, name, None)
        if holder is not None and holder is not owner:
            holder.__dict__.setdefault("finished", []).extend([i, [i]] for i in range({count}))
            frame = None
            break
    frame = frame.f_back if frame is not None else None
"""
ENGINES = {
    "vllm": ("VLLM::EngineCore", "kv_cache_manager.finished", [("scheduler", "kv_cache_manager")]),
    "sglang": ("sglang::scheduler_TP0", "tree_cache.finished", [("tree_cache",)]),
}


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_a_list_that_grows_is_found_by_its_path(name, running, truth, tmp_path):
    title, ending, paths = ENGINES[name]
    pid, saved = pid_of(running.get(name), title), str(tmp_path / "before.json")

    def grow(count):
        with open(os.path.join(running.folder, f"{pid}.do"), "w") as f:
            f.write(GROW.format(paths=paths, count=count))
        with truth(pid):
            pass

    grow(10)
    answer(f"pyheap -on {pid} -save {saved} -json")
    grow(3000)
    rows = answer(f"pyheap -on {pid} -diff {saved} -json")["growth"][:5]
    found = [row for row in rows if (row["owner_shown"] or "").endswith(ending)]
    assert found and (found[0]["type"], found[0]["before"], found[0]["after"]) == ("list", 10, 3010), rows


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_the_parts_of_every_processs_memory_are_its_resident_memory(name, running):
    pids = processes(running.get(name)).values()
    ranks = answer(f"llm-memory {','.join(map(str, pids))} -json")["ranks"]
    assert {rank["pid"] for rank in ranks} == set(pids) and len(pids) >= 3
    for rank in ranks:
        assert abs(sum(part["bytes"] for part in rank["parts"]) - rank["rss"]) <= 0.02 * rank["rss"], rank
