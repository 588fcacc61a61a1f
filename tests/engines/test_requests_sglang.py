"""llm-requests, llm-request and llm-hang on real SGLang with a detokenizer at work: healthy requests have the right state and
place; each fault that a request brings with it (subject/sglang_faults.py) is named with its requests, the process and the thread,
from two looks at processes that run on."""

import ast
import json
import os

import pytest
from harness.answers import answer
from harness.engines import pid_of
from harness.gdb_run import run_gdb
from harness.heartbeats import eventually
from harness.served import STUCK
from harness.served_sglang import requests, sent, steadily

HARM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "harm_kv.py")


def held_by(request, label, pid, thread=None):
    holder = request["holder"]
    assert holder and (holder["label"], holder["pid"]) == (label, pid), request
    assert thread is None or holder["thread"] == thread, request
    return True


def hung(engine, verdicts, label):
    """llm-hang's answer on the engine: one of the verdicts, and that process its culprit."""
    for _ in range(5):
        said = answer("llm-hang " + " ".join(str(pid) for pid in engine.pids()) + " -json")
        if not any("hardly gets one" in line for line in said["evidence"]):  # who gets no CPU is accused of nothing
            break
    print(said["verdict"], *said["evidence"], {p["pid"]: round(p["seconds"], 3) for p in said["pauses"]}, sep="\n    ")
    assert said["verdict"] in verdicts and {c["label"] for c in said["culprits"]} == {label}, said
    return said


def test_requests_of_sglang_are_where_they_are_and_move(sglang_text):
    stages, moving = {}, 0
    for _ in range(5):
        found = requests(sglang_text)
        assert not {r["verdict"] for r in found.values()} & set(STUCK), found
        for r in found.values():
            stages.update({h["stage"]: h["label"] for h in r["hops"]})
            moving += r["verdict"] == "moving" and r["moved"] and r["at"]["label"] == "scheduler"
    assert moving >= 5 and stages["frontend"] == "server" and stages["running"] == "scheduler"
    assert stages["detokenizer"] == "detokenizer"


def test_a_stale_page_hash_of_sglang_is_named(sglang_text, gdb_path):
    """In the prefix tree of a server that runs on; and nothing before, and after."""
    label = "scheduler"
    with sent(sglang_text, ("hashed", 64, 2000)):
        eventually(lambda: "hashed" in requests(sglang_text, "-between 0"), "the request", 120)
        check = "llm-kv check -json"
        harmed = [
            "llm-break step",
            "llm-continue",
            "delete",
            check,
            f"python stale_page({label!r})",
            check,
            "python restore()",
            check,
        ]
        run = run_gdb(gdb_path, [f"llm-attach {label}", f"source {HARM}", *harmed, "llm-detach"], timeout=200)
    sound, stale, restored = (run.json(i) for i in (5, 7, 9))
    assert sound["ok"] and restored["ok"] and "hash-tokens" in {row["rule"] for row in sound["rules"]}, run.text[-3000:]
    assert stale["violations"] and {row["rule"] for row in stale["violations"]} == {"hash-tokens"}, stale["violations"][:3]


def test_sampling_parameters_are_what_the_request_of_sglang_was_sent_with(sglang_text):
    how = {"temperature": 0.75, "top_p": 0.5, "top_k": 7, "min_p": 0.25, "frequency_penalty": 0.5, "stop_token_ids": [3, 4]}
    how.update(presence_penalty=-0.75, repetition_penalty=1.125, min_new_tokens=3, sampling_seed=2**40 + 7, n=1)
    how.update(logit_bias={"2": -100.0, "7": 3.5}, regex="(w[0-9]+)+")
    with sent(sglang_text, ("asked", 16, 2000, how)):
        eventually(lambda: "asked" in requests(sglang_text, "-between 0"), "the request", 120)
        said = answer("llm-request asked -sampling -json")
        shown = answer("llm-request asked -sampling -show-content -json")["sampling"]
    found = said["sampling"]
    content, sets = ("logit_bias", "regex"), ("stop_token_ids",)
    assert {n: float(found[n]) for n in how if n not in content + sets} == {n: how[n] for n in how if n not in content + sets}
    assert {name: ast.literal_eval(shown[name]) for name in content} == {name: how[name] for name in content}, shown
    assert not any(value in found[name] for name, value in (("logit_bias", "100"), ("regex", "w[0-9]"))), found
    assert sorted(json.loads(found["stop_token_ids"].replace("{", "[").replace("}", "]"))) == [3, 4]
    assert found["max_new_tokens"] == "2000" and found["ignore_eos"] == "True"
    assert {h["stage"] for h in said["hops"]} >= {"frontend", "running"} and "input_ids" not in json.dumps(said)


def masks_of(engine):
    """What the masks of its steps left, as the engine says, one after the other."""
    with open(os.path.join(engine.faults, "masks")) as f:
        return [tokens for line in f for tokens in json.loads(line).values()]


def test_the_mask_of_a_grammar_is_what_sglang_left_of_the_logits(sglang_text, gdb_path):
    rule = {"regex": "(w5[0-9]*w7[0-9]*)+", "logit_bias": {"2": -100.0}}
    with sent(sglang_text, ("ruled", 16, 2000, rule)):
        eventually(lambda: "ruled" in requests(sglang_text, "-between 0"), "the request", 120)
        look, stop = "llm-request ruled -sampling -show-content -between 0 -json", "llm-continue"
        before = answer(look)["grammar"]
        place = "pybreak SamplingBatchInfo.apply_logits_bias if len(self.grammars)"
        run = run_gdb(gdb_path, ["llm-attach scheduler", place, stop, look, stop, look, "delete", "llm-detach"], timeout=200)
        seen = [run.json(place)["grammar"] for place in (3, 5)]
        eventually(lambda: len(masks_of(sglang_text)) > seen[1]["accepted"], "the mask of the last of them")
        left = masks_of(sglang_text)
    assert before["state"] == "ready" and before["tokens"] is None and "apply_logits_bias" in before["why"], before
    for one in seen:
        assert one["tokens"] == left[one["accepted"]] and one["allowed"] == len(one["tokens"]) < 200, (one, run.text[-2000:])
    assert seen[0]["tokens"] != seen[1]["tokens"]


def test_requests_that_sglang_lost_and_one_that_nobody_waits_for(sglang_text):
    scheduler = pid_of(sglang_text, "sglang::scheduler")
    with sent(sglang_text, ("lost", 32, 8), ("mute", 32, 8), ("zombie", 32, 3000)):
        found = steadily(sglang_text, ("lost", "lost"), ("mute", "lost"), ("zombie", "zombie"), moving=True)
        for name in ("lost", "mute"):
            assert [h["stage"] for h in found[name]["hops"]] == ["frontend"] and found[name]["at"]["label"] == "server"
            assert "none of scheduler has it" in found[name]["evidence"][0]
        assert held_by(found["zombie"], "scheduler", scheduler) and "no process waits for it" in found["zombie"]["evidence"][0]


def test_an_endless_loop_of_sglang(sglang_text):
    """Of its detokenizer, its scheduler, and in a callback of its server's event loop, one after the other."""
    server = sglang_text.said["pid"]
    for name, label, pid, thread in (
        ("text-loops", "detokenizer", pid_of(sglang_text, "sglang::detokenizer"), "main"),
        ("step-loops", "scheduler", pid_of(sglang_text, "sglang::scheduler"), "main"),
        ("server-loops", "server", server, None),
    ):
        with sent(sglang_text, (name, 32, 8)):
            found = steadily(sglang_text, (name, "behind"), ("request-0", "behind"), ("request-1", "behind"))
            found = {name: r for name, r in found.items() if r["verdict"] in STUCK}  # a closed exchange may end late
            assert all(held_by(r, label, pid, thread) for r in found.values())
            assert all("loops_for_ever" in r["evidence"][0] for r in found.values())
            said = hung(sglang_text, ("stuck-requests", "livelock", "loop-blocked"), label)
            assert name in {r["request_id"] for r in said["requests"]} and said["requests_stuck"] == len(found)
        steadily(sglang_text, moving=True)


def test_a_prompt_that_is_larger_than_the_pool_of_sglang(sglang_text, tmp_path):
    with sent(sglang_text, ("too-large", 5000, 8)):
        behind = ("request-0", "behind"), ("request-1", "behind")
        found = steadily(sglang_text, ("too-large", "never-fits"), *behind)
        assert "room for 4096 in all" in found["too-large"]["evidence"][0]
        assert all(r["behind"] == ["too-large"] for name, r in found.items() if name != "too-large")
        (shot,) = answer(f"llm-snapshot {pid_of(sglang_text, 'sglang::scheduler')} -o {tmp_path} -json")["snapshots"]
        once = {r["request_id"]: r["verdict"] for r in answer(f"llm-requests {shot['file']} -json")["requests"]}
        assert once["too-large"] == "never-fits"  # one look is enough
    steadily(sglang_text, moving=True)


def tokenizer_workers(engine):
    """Their pids, by their titles."""
    return {pid for pid, title in engine.titles().items() if title.startswith("sglang::tokenizer_worker:")}


@pytest.mark.drawn(1, group="engines of one file", unit="sglang_workers")
def test_requests_of_two_tokenizer_workers_are_joined(sglang_workers):
    fronts, moving = set(), 0
    eventually(lambda: len(tokenizer_workers(sglang_workers)) == 2, "the second worker: the first may answer before it is there")
    workers = tokenizer_workers(sglang_workers)

    def seen():
        nonlocal moving
        for r in requests(sglang_workers).values():
            assert r["verdict"] not in STUCK, r
            known = [h["pid"] for h in r["hops"] if h["stage"] == "frontend"]
            assert len(known) < 2, r
            fronts.update(known)
            moving += bool(known) and r["verdict"] == "moving" and r["at"]["label"] == "scheduler"
        return fronts == workers and moving > 4

    eventually(seen, "requests of both", 120)


@pytest.mark.drawn(1, group="engines of one file", unit="sglang_workers")
def test_the_router_of_two_tokenizer_workers_in_an_endless_loop(sglang_workers):
    with sent(sglang_workers, ("router-loops", 32, 8)):
        found = steadily(sglang_workers, ("router-loops", "behind"), *((f"request-{n}", "behind") for n in range(4)))
        assert all(held_by(r, "server", sglang_workers.said["pid"], "router_worker_obj") for r in found.values())
        assert all("loops_for_ever" in r["evidence"][0] for r in found.values())


def test_an_ended_task_of_sglang_that_took_the_answers_in(sglang_text):
    """The last that is done to this engine."""
    with sent(sglang_text, ("deaf", 32, 8), forgotten=False):
        found = steadily(sglang_text, ("deaf", "lost"), ("request-0", "lost"), ("request-1", "lost"))
        for one in found.values():
            assert held_by(one, "server", sglang_text.said["pid"], "handle_loop") and "has ended" in one["evidence"][0]
