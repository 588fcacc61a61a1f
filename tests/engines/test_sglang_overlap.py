"""SGLang's overlap scheduler, as on GPUs, on a CPU: requests, lengths, rows and slots against what the parked scheduler says of
itself; faults in its batch and its table; and what a request counts before its result is processed."""

import os
import time

import pytest
from harness.answers import answer
from harness.engines import kv_said, pid_of

pytestmark = pytest.mark.drawn(1, group="engines of one file", unit="sglang_overlap")

FIND = """
while type(frame.f_locals.get("self")).__name__ != "Scheduler":
    frame = frame.f_back
scheduler = frame.f_locals["self"]
batch, table = scheduler.running_batch, scheduler.req_to_token_pool.req_to_token
order = sorted(range(len(batch.reqs)), key=lambda i: batch.reqs[i].rid)
i, j = order[:2]
rows, lengths = batch.req_pool_indices_cpu, batch.seq_lens_cpu
"""
FAULTS = {  # what is done while it is parked, and undone: the rules that may name it first; none for a twin
    "first slot + 7": ("table[int(rows[i]), 0] += {0}", (7, -7), {"free-owned", "slot-shared", "tree-twice", "owned-twice"}),
    "swapped rows": ("a, b = int(rows[i]), int(rows[j]); rows[i], rows[j] = b, a", ("", ""), {"worker-rows"}),
    "a length": ("lengths[i] += {0}", (-40, 40), {"worker-length"}),
    "a length beyond": ("lengths[i] += {0}", (40, -40), {"worker-length"}),
    "a slot beyond its length": ("table[int(rows[i]), int(batch.reqs[i].kv.kv_allocated_len) + 1] += {0}", (7, -7), set()),
    "a row of nobody": ("table[0, 3] += {0}", (7, -7), set()),
}


def at_work(running, truth, pid, look, wanted=2, text="", undo=""):
    """`look()` while the scheduler is parked with so many requests in its batch, and between two updates of its cache. -> (what
    it says of itself, what `look` gave)"""
    for _ in range(60):
        for kind, code in (("do", text), ("undo", undo)):
            if code:
                with open(os.path.join(running.folder, f"{pid}.{kind}"), "w") as f:
                    f.write(f"{FIND}\nif len(batch.reqs) >= {wanted}:\n    {code}")
        with truth(pid):
            said = kv_said(running, pid)
            found = look() if len(said["batched"]) >= wanted and len(said["requests"]) >= wanted else None
        while undo and os.path.exists(os.path.join(running.folder, f"{pid}.undo")):
            time.sleep(0.01)
        if found is not None and not found["mid_update"]:
            return said, found
    raise AssertionError("it never stood between two steps with its requests in one batch")


def test_requests_lengths_rows_and_slots_are_what_it_says(running, sglang_overlap, truth):
    pid = pid_of(sglang_overlap, "sglang::scheduler")

    def look():
        check = answer(f"llm-kv check -ranks -json -on {pid}")
        return {**check, "all": answer(f"llm-kv -json -on {pid}"), "requests": answer(f"llm-requests -json -between 0 -on {pid}")}

    said, found = at_work(running, truth, pid, look)
    assert said["overlap"] is True
    assert found["ok"] is True and found["ranks"] == ["scheduler"] and found["not_compared"] == [], found
    compared = next(row for row in found["compared"] if row.get("rows"))
    assert compared["counts"] == compared["rows"] == len(said["batched"])
    assert compared["blocks"] == sum(length for _, length in said["batched"].values())
    held = {request["request_id"]: request for request in found["all"]["requests"]}
    for name, (row, allocated, protected, prompt, output, slots) in said["requests"].items():
        if row is not None:
            one = held[name]
            assert (one["row"], one["blocks"], one["cached_tokens"]) == (row, slots, protected) and len(slots) == allocated
            assert (one["prompt_tokens"], one["output_tokens"]) == (prompt, output)
            assert said["batched"][name][0] == row and one["computed_tokens"] == said["batched"][name][1]
    listed = {request["request_id"] for request in found["requests"]["requests"]}
    assert set(said["batched"]) <= listed


def test_faults_of_the_batch_and_the_table_are_named_and_twins_left_alone(running, sglang_overlap, truth):
    pid, seen = pid_of(sglang_overlap, "sglang::scheduler"), {}
    for name, (change, values, rules) in FAULTS.items():

        def look():
            return answer(f"llm-kv check -ranks -json -on {pid}")

        _, found = at_work(running, truth, pid, look, 2, change.format(values[0]), change.format(values[1]))
        first = {v["rule"] for v in found["violations"][:1]}
        seen[name] = first, found["ok"], [v["detail"] for v in found["violations"][:3]]
        assert found["ok"] is (not rules) and (first <= rules if rules else not first), (name, seen[name])
        assert not rules or first, (name, found)


def test_while_it_runs_nothing_is_broken(sglang_overlap):
    pid = pid_of(sglang_overlap, "sglang::scheduler")
    for _ in range(8):
        check = answer(f"llm-kv check -ranks -json -on {pid}")
        assert not check["violations"] and check["ok"] is True and check["ranks"] == ["scheduler"], check
