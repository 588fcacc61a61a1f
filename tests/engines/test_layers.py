"""llm-layers on a real vLLM, eager, on two ranks that have copies of one KV head: what hooks saw, a weight of one rank that is
1 % larger, a NaN in a layer, a KV block overwritten, a stale hash. Each is named, and the engine answers as before."""

import json
import os
import platform
import time

import pytest
from harness.gdb_run import run_gdb
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


def test_wrong_tokens_are_traced_to_layer_rank_and_block(engine, gdb_path, tmp_path):
    told = []

    def tell(*lines):
        told.extend(lines)
        return f"shell printf '%s\\n' {' '.join(repr(line) for line in lines)} > {engine.words}"

    def files(name):
        return [str(tmp_path / f"{name}-TP{n}.jsonl") for n in (0, 1)]

    commands = {
        "attach": "llm-attach TP0 TP1",
        "hook": tell(f"hook {tmp_path}/hook", "ask 1"),
        "a": f"llm-layers -save -json -o {tmp_path}/a.jsonl",
        "again": tell("ask 1"),
        "b": f"llm-layers -save -json -o {tmp_path}/b.jsonl",
        "harm": tell("weight 1", "ask 1"),
        "c": f"llm-layers -save -json -o {tmp_path}/c.jsonl",
        "weights": "pytensors -ranks -json",
        "nan": tell("mend 1", "nan 0", "ask 1"),
        "d": "llm-layers -json",
        "clean": tell("pull 0", "ask 1"),
        "e": f"llm-layers -save -json -o {tmp_path}/e.jsonl",
        "same": f"llm-layers -json -compare {','.join(files('a'))} {','.join(files('b'))}",
        "mended": f"llm-layers -json -compare {','.join(files('a'))} {','.join(files('e'))}",
        "weight": f"llm-layers -json -compare {','.join(files('a'))} {','.join(files('c'))}",
        "ranks": f"llm-layers -json -compare {' '.join(files('c'))}",
        "set": "llm-break -layers nan",
        "nan again": tell("nan 0", "ask 1"),
        "break": "llm-continue",
        "delete": "delete",
        "decode": tell("pull 0", "ask 4"),
        "step": "llm-layers -json -step 3",
        "source": f"source {HARM}",
        "sound": "llm-kv check -deep -ranks -json",
        "make stale": "python stale()",
        "stale": "llm-kv check -json",
        "overwrite": "python restore(); overwrite()",
        "overwritten": "llm-kv check -deep -json",
        "restore": "python restore()",
        "detach": "llm-detach",
    }
    run = run_gdb(gdb_path, list(commands.values()), timeout=400)
    said = {name: (lambda i=i: run.json(i)) for i, name in enumerate(commands)}
    text = {name: run.outputs[i] for i, name in enumerate(commands)}
    as_planted(run, said, text)
    told.append("ask 1")
    with open(engine.words, "w") as f:
        f.write("ask 1\n")
    given = [answer for word, answer in zip(told, answers(engine, len(told))) if word == "ask 1"]
    assert given[0] == given[1] == given[-1] and len(given) == 7, given
    for rank in (0, 1):
        with open(f"{tmp_path}/hook-{rank}") as f:
            seen = json.load(f)
        assert seen == [[r["path"], r["output"], r["hash"]] for r in mine(said["e"](), f"TP{rank}")]


def as_planted(run, said, text):
    """What each command named, against what was done before it."""
    steps = said["a"]()
    assert steps["partial"] == [] and [r["label"] for r in steps["ranks"]] == ["TP0", "TP1"], run.text[-3000:]
    assert said["same"]()["first"] is None and all(row["equal"] for row in said["same"]()["rows"])
    assert said["mended"]()["first"] is None
    first = said["weight"]()["first"]
    assert (first["path"], first["output"], first["rank"]) == ("model.layers.2.input_layernorm", "[0]", 1), first
    assert 0.005 < first["relative"] < 0.02
    assert said["ranks"]()["first"]["path"] == "model.layers.2.input_layernorm"
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
