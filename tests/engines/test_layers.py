"""llm-layers on a real vLLM, eager, on two ranks that have copies of one KV head: what hooks saw, a weight of one rank that is
1 % larger, a NaN in a layer, a KV block overwritten, a stale hash. Each is named, and the engine answers as before. And on a real
SGLang, whose model's forward is called by itself: the same, and another attention backend."""

import json
import os
import platform
import sys
import time

import pytest
from harness.answers import answer
from harness.engines import pid_of
from harness.gdb_run import run_gdb
from harness.heartbeats import eventually
from tools.engines import CONFIG

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")
HARM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "harm_kv.py")


@pytest.fixture
def engine(running, tmp_path):
    words = str(tmp_path / "words")
    os.mkfifo(words)
    config = {**CONFIG, "num_key_value_heads": 1}
    running.begin("vllm", script="serve_layers.py", config=config, args=("--words", words))
    held = os.open(words, os.O_RDWR)  # the engine reads on while nobody writes
    try:
        one = running.get("vllm", script="serve_layers.py", config=config, args=("--words", words))
        one.words = words
        yield one
    finally:
        os.close(held)
        running.stop()


def answers(engine, count):
    """What the engine answered to `count` lines, once it has."""
    end = time.monotonic() + 120
    while True:
        with open(engine.ready_file + ".answers") as f:
            lines = f.read().splitlines()
        if len(lines) >= count:
            return [json.loads(line) for line in lines]
        assert time.monotonic() < end, lines
        time.sleep(0.2)


def answered(gdb_path, commands):
    """Runs {name: command}; -> (the run, {name: a function that gives the answer's JSON}, {name: the answer})"""
    run = run_gdb(gdb_path, list(commands.values()), timeout=400)
    said = {name: (lambda i=i: run.json(i)) for i, name in enumerate(commands)}
    return run, said, {name: run.outputs[i] for i, name in enumerate(commands)}


class Records:
    """gdb commands that record a step of two ranks, and compare two."""

    def __init__(self, folder):
        self.folder = folder

    def record(self, name):
        return f"llm-layers -save -json -o {self.folder}/{name}.jsonl"

    def compare(self, one, other):
        files = [",".join(f"{self.folder}/{name}-TP{n}.jsonl" for n in (0, 1)) for name in (one, other)]
        return f"llm-layers -json -compare {' '.join(files)}"


def test_wrong_tokens_are_traced_to_layer_rank_and_block(engine, gdb_path, tmp_path):
    told = []

    def tell(*lines):
        told.extend(lines)
        return f"shell printf '%s\\n' {' '.join(repr(line) for line in lines)} > {engine.words}"

    steps = Records(tmp_path)
    record, compare = steps.record, steps.compare
    commands = {
        "attach": "llm-attach EngineCore TP0 TP1",
        "hook": tell(f"hook {tmp_path}/hook", "ask 1"),
        "a": record("a"),
        "again": tell("ask 1"),
        "b": record("b"),
        "harm": tell("weight 1", "ask 1"),
        "c": record("c"),
        "weights": "pytensors -ranks -json",
        "nan": tell("mend 1", "nan 0", "ask 1"),
        "d": "llm-layers -json",
        "clean": tell("pull 0", "ask 1"),
        "e": record("e"),
        "pack": tell("linear 1", "ask 1"),
        "f": record("f"),
        "swap": tell("unpack 1", "attention torch", "ask 1"),
        "g": record("g"),
        "same": compare("a", "b"),
        "mended": compare("a", "e"),
        "weight": compare("a", "c"),
        "ranks": f"llm-layers -json -compare {tmp_path}/c-TP0.jsonl {tmp_path}/c-TP1.jsonl",
        "linear": compare("a", "f"),
        "swapped": compare("a", "g"),
        "set": "llm-break -layers nan",
        "nan again": tell("attention vllm", "nan 0", "ask 1"),
        "break": "llm-continue",
        "delete": "delete",
        "decode": tell("pull 0", "ask 7"),
        "step": "llm-layers -json -step 3",
        "next": "llm-layers -json",  # a rank that was through the step before may have run into this one
        "source": f"source {HARM}",
        "sound": "llm-kv check -deep -ranks -json",
        "make stale": "python stale()",
        "stale": "llm-kv check -json",
        "overwrite": "python restore(); overwrite()",
        "overwritten": "llm-kv check -deep -json",
        "restore": "python restore()",
        "detach": "llm-detach",
    }
    run, said, text = answered(gdb_path, commands)
    as_planted(run, said, text)
    told.append("ask 1")
    with open(engine.words, "w") as f:
        f.write("ask 1\n")
    given = [answer for word, answer in zip(told, answers(engine, len(told))) if word == "ask 1"]
    assert given[0] == given[1] == given[-1] and len(given) == 9, given
    for rank in (0, 1):
        with open(f"{tmp_path}/hook-{rank}") as f:
            seen = json.load(f)
        assert seen == [[r["path"], r["output"], r["hash"]] for r in mine(said["e"](), f"TP{rank}")]


def as_planted(run, said, text):
    """What each command named, against what was done before it."""
    steps = said["a"]()
    assert steps["partial"] == [] and [r["label"] for r in steps["ranks"]] == ["TP0", "TP1"], run.text[-3000:]
    assert len({r["calls"] for name in ("a", "step", "next") for r in said[name]()["ranks"]}) == 1, text["next"][:1000]
    assert said["same"]()["first"] is None and all(row["equal"] for row in said["same"]()["rows"])
    assert said["mended"]()["first"] is None and all(row["equal"] for row in said["mended"]()["rows"])
    first = said["weight"]()["first"]
    assert (first["path"], first["output"], first["rank"]) == ("model.layers.2.input_layernorm", "[0]", 1), first
    assert 0.005 < first["relative"] < 0.02
    assert said["ranks"]()["first"]["path"] == "model.layers.2.input_layernorm"
    first = said["linear"]()["first"]
    assert (first["path"], first["rank"]) == ("model.layers.2.mlp.gate_up_proj", 1) and 0.005 < first["relative"] < 0.02, first
    differs = next(row["path"] for row in said["swapped"]()["rows"] if not row["equal"])
    assert said["swapped"]()["first"] is None and differs == "model.layers.0.self_attn.attn", (said["swapped"](), differs)
    for rank, path in (("TP0", "model.layers.1.mlp.gate_up_proj"), ("TP1", "model.layers.1.mlp.down_proj")):
        assert next(r["path"] for r in said["d"]()["modules"] if r["rank"] == rank and r["nan"]) == path
    assert "TP0 model.layers.1.mlp.gate_up_proj (MergedColumnParallelLinear) returned 1 NaN" in text["break"], text["break"]
    assert "none of its inputs holds a NaN" in text["break"]
    assert [row["path"] for row in said["weights"]()["different"]] == ["model.layers.2.input_layernorm.weight"]
    assert said["sound"]()["ok"], said["sound"]()["violations"]
    assert {"hash-tokens", "reserved-nan", "block-nan", "rank-copy"} <= {r["rule"] for r in said["sound"]()["rules"]}
    assert said["stale"]()["violations"][0]["rule"] == "hash-tokens", text["stale"]
    assert said["overwritten"]()["violations"][0]["rule"] == "rank-copy", text["overwritten"]


def mine(answer, label):
    return [row for row in answer["modules"] if row["rank"] == label and row["hash"] is not None]


# Run in a scheduler of SGLang (subject/sitecustomize.py).
FIND = """
while getattr(getattr(frame.f_locals.get("self"), "tp_worker", None), "model_runner", None) is None:
    frame = frame.f_back
runner = frame.f_locals["self"].tp_worker.model_runner
"""
HOOK = """
import hashlib, json, os, torch
names, rows = {{id(m): n for n, m in runner.model.named_modules()}}, []

def seen(module, inputs, output):
    if names.get(id(module)) == "model.embed_tokens":
        rows.clear()
    for place, t in enumerate(output) if isinstance(output, tuple) else [(None, output)]:
        if isinstance(t, torch.Tensor):
            raw = t.detach().contiguous().view(torch.uint8).numpy().tobytes()
            rows.append([names.get(id(module)), "" if place is None else f"[{{place}}]", hashlib.sha256(raw).hexdigest()])
    if names.get(id(module)) == "logits_processor":
        with open(f"{path}-{{os.getpid()}}", "w") as f:
            json.dump(rows, f)

torch.nn.modules.module.register_module_forward_hook(seen)
"""
SWAP = """
from sglang.srt.layers.attention.torch_flex_backend import TorchFlexAttnBackend
runner.kept, runner.attn_backend = runner.attn_backend, TorchFlexAttnBackend(runner)
"""
UNDO = """
import torch
runner.attn_backend = runner.kept
torch.nn.modules.module._global_forward_hooks.clear()
"""


@pytest.fixture
def rested(sglang):
    """SGLang without requests but those of a test."""
    rest = sglang.ready_file + ".rest"
    open(rest, "w").close()
    yield sglang
    os.remove(rest)


def do(running, truth, pids, text):
    """Runs `text` in each process."""
    for pid in pids:
        with open(os.path.join(running.folder, f"{pid}.do"), "w") as f:
            f.write(text)
        with truth(pid):
            pass


class Steps(Records):
    """Also those that ask SGLang."""

    def __init__(self, port, folder):
        super().__init__(folder)
        self.port, self.answers = port, folder / "answers"
        self.asker = os.path.join(os.path.dirname(HARM), "ask_sglang.py")

    def ask(self, key, count=1):
        return f"shell {sys.executable} {self.asker} {self.port} {self.answers} {key} {count} &"


def test_wrong_tokens_of_sglang_are_traced_to_layer_rank_and_slot(rested, running, truth, gdb_path, tmp_path):
    pids = [pid_of(rested, f"sglang::scheduler_TP{n}") for n in (0, 1)]
    steps = Steps(rested.said["port"], tmp_path)
    ask, record, compare, answers = steps.ask, steps.record, steps.compare, steps.answers
    eventually(lambda: not answer("llm-requests -between 0 -json")["requests"], "the end of its requests", 120)
    do(running, truth, pids, FIND + HOOK.format(path=tmp_path / "hook"))
    commands = {
        "attach": "llm-attach TP0 TP1",
        "source": f"source {HARM}",
        "ask a": ask("a"),
        "a": record("a"),
        "ask b": ask("b"),
        "b": record("b"),
        "grow": "python grow('TP1', 'model.layers.2.input_layernorm')",
        "ask c": ask("c"),
        "c": record("c"),
        "weights": "pytensors -ranks -json",
        "mend": "python restore(); nan('TP0', 'model.layers.1.mlp.gate_up_proj')",
        "ask d": ask("d"),
        "d": "llm-layers -json",
        "pull": "python restore()",
        "ask again": ask("a"),
        "prefix": record("f"),
        "sound": "llm-kv check -deep -ranks -json",
        "put nan": "python nan_slot()",
        "slot nan": "llm-kv check -deep -json",
        "overwrite": "python restore(); overwrite_slot()",
        "ask overwritten": ask("a"),
        "overwritten": record("g"),
        "restore": "python restore()",
        "ask a third time": ask("a"),
        "restored": record("h"),
        "ask steps": ask("i", 3),
        "step": "llm-layers -json -step 3",
        "keep": f"shell mkdir {tmp_path}/kept && cp {tmp_path}/hook-* {tmp_path}/kept",
        "nan again": "python nan('TP0', 'model.layers.1.mlp.gate_up_proj')",
        "set": "llm-break -layers nan",
        "ask e": ask("e"),
        "break": "llm-continue",
        "delete": "delete",
        "pull again": "python restore()",
        "same": compare("a", "b"),
        "weight": compare("a", "c"),
        "slot": compare("f", "g"),
        "mended": compare("f", "h"),
        "detach": "llm-detach",
    }
    run, said, text = answered(gdb_path, commands)
    for n, pid in enumerate(pids):
        with open(f"{tmp_path}/kept/hook-{pid}") as f:
            seen = json.load(f)
        plain = [row for row in mine(said["step"](), f"TP{n}") if "." not in row["output"]]
        assert len(seen) > 40 and seen == [[r["path"], r["output"], r["hash"]] for r in plain]
    do(running, truth, pids, FIND + SWAP)
    swapped = run_gdb(gdb_path, ["llm-attach TP0 TP1", ask("j"), record("j"), compare("a", "j"), "llm-detach"], timeout=200)
    do(running, truth, pids, FIND + UNDO)
    as_planted_in_sglang(run, said, text, swapped.json(3))
    eventually(lambda: len(answers.read_text().splitlines()) == 10, "the answers", 120)
    given = {key: tokens for key, status, tokens in map(json.loads, answers.read_text().splitlines()) if status == 200}
    assert set(given) == set("abcdeij") and given["a"] == given["b"] == given["j"] == given["i"][:1], given


def as_planted_in_sglang(run, said, text, swapped):
    assert said["a"]()["partial"] == [] and [r["label"] for r in said["a"]()["ranks"]] == ["TP0", "TP1"], run.text[-3000:]
    assert {r["root"] for r in said["a"]()["ranks"]} == {"LlamaForCausalLM"}
    assert said["same"]()["first"] is None and all(row["equal"] for row in said["same"]()["rows"])
    first = said["weight"]()["first"]
    assert (first["path"], first["rank"]) == ("model.layers.2.input_layernorm", 1) and 0.005 < first["relative"] < 0.02, first
    assert [row["path"] for row in said["weights"]()["different"]] == ["model.layers.2.input_layernorm.weight"]
    path = "model.layers.1.mlp.gate_up_proj"
    assert next(r["path"] for r in said["d"]()["modules"] if r["rank"] == "TP0" and r["nan"]) == path
    assert f"TP0 {path} (MergedColumnParallelLinear) returned" in text["break"], text["break"]
    assert "none of its inputs holds a NaN" in text["break"]
    assert said["sound"]()["ok"] and {"reserved-nan", "block-nan"} <= {r["rule"] for r in said["sound"]()["rules"]}, text["sound"]
    first = said["slot nan"]()["violations"][0]
    assert (first["rule"], first["rank"]) == ("block-nan", "TP1") and "layer 1 v" in first["detail"], first
    first = said["slot"]()["first"]
    assert (first["path"], first["rank"]) == ("model.layers.1.self_attn.attn", 1), first
    assert said["mended"]()["first"] is None and all(row["equal"] for row in said["mended"]()["rows"])
    differs = next(row["path"] for row in swapped["rows"] if not row["equal"])
    assert swapped["first"] is None and differs == "model.layers.0.self_attn.attn", (swapped["first"], differs)
