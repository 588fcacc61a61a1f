"""Answers of several machines as one: recordings on one time base, frames of llm-top, checks of KV caches. What each machine saw
is made up, so where it has to be in the merged answer is known."""

import json
import random

import pytest
from harness.schemas import held

from gdbext.answers import kv_nodes, recording_nodes, top
from gdbext.errors import GdbextError
from gdbext.render.text import PLAIN
from gdbext.timeline import store
from gdbext.timeline.merged import merged
from gdbext.timeline.recording import ProcessTrack, Recording, ThreadTrack


def recording(draw, pids):
    """-> (a recording of 1 s, {(pid, tid): [(time, stack)]})"""
    rec, truth = Recording(100.0, 1e9), {}
    rec.seconds = 1.0
    for pid in pids:
        process = ProcessTrack(f"R{pid}", pid)
        for look in range(10):
            process.begins.append(look / 10)
            process.ends.append(look / 10 + 0.01)
        process.finish = 1.0
        process.counters = {"steps": [(0.25, 3.0)]}
        for tid in (pid, pid + 1):
            thread = ThreadTrack(tid, "t")
            for look in range(10):
                stack = [(f"f{draw.randrange(4)}", "a.py", draw.randrange(3)) for _ in range(draw.randrange(1, 5))]
                node = 0
                for frame in stack:
                    node = rec.tree.child(node, rec.tree.frame(*frame))
                thread.add(look, node, 0)
                truth.setdefault((pid, tid), []).append((look / 10, stack))
            process.threads.append(thread)
        rec.processes.append(process)
    return rec, truth


@pytest.mark.parametrize("seed", range(5))
def test_each_stack_is_where_it_was_seen_later_by_the_machines_offset(seed):
    draw = random.Random(seed)
    answers, truths, offsets = [], {}, {}
    for node in "abc":
        rec, truths[node] = recording(draw, draw.sample(range(100, 106), 3))  # several machines have the same pids
        told, began, way = draw.random() * 3, draw.random(), draw.random() / 10
        offsets[node] = told + began + way / 2
        answer = {"recording": store.text_of(rec), "began": began, "moments": {"told": told, "way": way}, "failed": []}
        answers.append((f"ssh:{node}", json.loads(json.dumps(answer))))
    parts = [recording_nodes.part_of(name, answer, []) for name, answer in answers]
    whole = merged(parts, 5.0)
    assert len({p.pid for p in whole.recording.processes}) == len(whole.places) == 9
    for process in whole.recording.processes:
        node, more = whole.places[process.pid]
        assert process.counters["steps"][0][0] == pytest.approx(0.25 + offsets[node])
        for thread in process.threads:
            own = truths[node][process.pid - more, thread.tid - more]
            for run in process.runs(thread):
                for at, stack in own:
                    if run.begin - 1e-6 <= at + offsets[node] < run.end - 1e-6:
                        assert [tuple(f) for f in whole.recording.tree.stack(run.node)] == stack
    assert whole.recording.seconds == pytest.approx(1.0 + max(offsets.values()))
    data = recording_nodes.there({"x": [{"pid": p, "tid": p} for p in whole.places]}, whole.places)
    assert {(one["node"], one["pid"], one["tid"]) for one in data["x"]} == {
        (n, p, p) for n, t in truths.items() for p, _ in t if _ == p
    }
    known = {one["node"]: one for one in recording_nodes.nodes_data(parts)}
    assert all(known[node]["offset"] == pytest.approx(offset, abs=1e-5) for node, offset in offsets.items())


@pytest.mark.parametrize(
    "harm, why",
    [
        (lambda a: a.pop("recording"), "another release"),
        (lambda a: a.update(began="soon"), "damaged"),
        (lambda a: a.update(began=-1), "damaged"),
        (lambda a: a.update(recording=a["recording"].replace('"gdbext-record": 1', '"gdbext-record": 9')), "another release"),
        (lambda a: a.update(recording=a["recording"].replace('"threads"', '"threats"')), "damaged"),
        (lambda a: a.update(recording=a["recording"].replace('"parents":[0', '"parents":[5,5')), "damaged"),
        (lambda a: a.update(recording=a["recording"][:-9]), "damaged"),
        (lambda a: a.update(error="no process to record"), "no process"),
    ],
)
def test_a_damaged_recording_is_no_part(harm, why):
    answer = json.loads(json.dumps({"recording": store.text_of(recording(random.Random(1), [100])[0]), "began": 0.1}))
    assert recording_nodes.part_of("ssh:a", answer, []).way is None
    harm(answer)
    with pytest.raises(GdbextError, match=why):
        recording_nodes.part_of("ssh:a", answer, [])


def frame(pid, cpu):
    rank = {"label": "TP0", "pid": pid, "state": "poll", "function": "f", "file": "/a.py", "line": 3, "part": 0.9, "gil": 0.1}
    engine = {"engine": "vllm", "labels": ["TP0"], "running": 4, "waiting": pid, "tokens_per_second": 8.5, "kv_use": 0.5}
    request = {"engine": "vllm", "request_id": f"r{pid}", "without_progress": 2.0}
    lists = {
        "engines": [engine],
        "requests": [request],
        "failed": [{"label": "x", "pid": 1, "reason": "gone"}],
        "partial": ["unstopped"],
    }
    return {"ranks": [{**rank, "cpu": cpu, "rss": 5 << 20, "steps_per_second": None}], **lists}


def test_frames_of_llm_top_are_one_sorted_over_all_machines():
    failed = []
    answers = [("ssh:a", frame(7, 0.2)), ("pod/n/b", frame(7, 0.9)), ("ssh:c", {**frame(7, 0.1), "ranks": [{"pid": "7"}]})]
    data, partial = top.merged([*answers, ("ssh:d", {"error": "no python3"})], failed, "cpu")
    assert [(r["node"], r["pid"]) for r in data["ranks"]] == [("pod/n/b", 7), ("a", 7)]
    assert [f["label"] for f in failed if "node" not in f] == ["ssh:c", "ssh:d"] and "ssh:d: no python3" in partial
    assert held({"schema": "llm-top/1", "partial": partial, **data})
    text = "\n".join(top.lines(data, PLAIN))
    assert "a vllm  4 running, 7 waiting  8 tokens/s  KV 50 %  oldest without progress: r7" in text
    with pytest.raises(GdbextError, match="no python3"):
        top.merged([("ssh:d", {"error": "no python3"})], [], "order")


def checked(*faults):
    some = {"block": 3, "request_id": None, "detail": "ref_cnt 2, 1 owner", "rank": "TP0", "more": 0}
    lists = {
        "passing": [],
        "changed": [],
        "compared": [{"label": "TP0"}],
        "not_compared": [{"label": "TP1", "what": "x", "why": "y"}],
    }
    about = {"ok": not faults, "blocks": 100, "engine": "vLLM", "version": "0.32", "mid_update": False, "ranks": ["TP0"]}
    return {**about, "violations": [{**some, "rule": rule} for rule in faults], **lists}


def test_caches_of_several_machines_are_sound_only_if_all_are():
    well, ill = ("ssh:a", checked()), ("ssh:b", checked("references", "free-queue"))
    assert kv_nodes.merged([well, ("ssh:c", checked())], [])[0]["ok"]
    data, partial = kv_nodes.merged([well, ill], [])
    assert not data["ok"] and [(v["node"], v["rule"]) for v in data["violations"]] == [("b", "references"), ("b", "free-queue")]
    assert data["blocks"] == 200 and not partial and held({"schema": "llm-kv/1", "partial": partial, **data})
    assert "ssh:b  vLLM 0.32: 100 blocks: 2 faults" in kv_nodes.lines(data, PLAIN)
    for bad in ({"error": "no scheduler here"}, {**checked(), "violations": [3]}):
        failed = []
        data, partial = kv_nodes.merged([well, ("ssh:d", bad)], failed)
        assert data["ok"] is None and [f["label"] for f in failed] == ["ssh:d"] and len(partial) == 1
    assert kv_nodes.merged([well, ("ssh:c", {**checked(), "ok": None})], [])[0]["ok"] is None
    assert kv_nodes.merged([ill, ("ssh:c", {**checked(), "ok": None})], [])[0]["ok"] is False
