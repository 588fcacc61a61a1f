"""llm-layers on a real vLLM, eager, on two ranks that have copies of one KV head: what hooks saw, a weight of one rank that is
1 % larger, a NaN in a layer, a KV block overwritten, a stale hash. Each is named, and the engine answers as before. And on a real
SGLang, whose model's forward is called by itself: the same, and another attention backend."""

import ast
import json
import os
import platform
import re
import shutil
import sys
import time

import pytest
from harness import in_scheduler
from harness.answers import answer
from harness.engines import pid_of
from harness.gdb_run import run_gdb
from harness.heartbeats import eventually
from harness.layer_records import Records, answered, plain_run
from tools.engines import CONFIG
from tools.environments import environment

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")
HARM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "harm_kv.py")


@pytest.fixture
def plain(engine):
    """A plain program of transformers that has the engine's weights; `go`: the gdb command that lets it compute the prompt."""
    with plain_run(environment("vllm"), os.path.join(engine.folder, "model")) as one:
        yield one


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


# where serve_layers.Harm plants a NaN -> what llm-break says: the module that is the first to return it, and what of it is bad
NAN_AT = {
    "attention": r"TP1 model.layers.1.self_attn.attn \(Attention\) returned(?s:.*)none of its inputs",
    "embedding": r"(TP0 model.embed_tokens (?s:.*)these hold NaN: weight|TP1 model.embed_tokens (?s:.*)may be another rank's)",
    "rotary": r"TP1 model.layers.0.self_attn.rotary_emb \(\w+\) returned(?s:.*)these hold NaN: cos_sin_cache",
    "norm": r"TP1 model.layers.2.post_attention_layernorm \(RMSNorm\) returned(?s:.*)these hold NaN: weight",
    "head": r"TP\d logits_processor \(LogitsProcessor\) returned",
}


def planted(tell):
    """{name: command}: for each of `NAN_AT` a stop at the first NaN, and a step without one."""
    commands = {}
    for place in NAN_AT:
        commands[f"plant {place}"] = tell(f"plant {place}", "ask 1")
        commands[f"set {place}"] = "llm-break -layers nan"
        commands[f"break {place}"] = "llm-continue"
        commands[f"delete {place}"] = "delete"
        commands[f"uproot {place}"] = tell("uproot 0", "ask 1")
        commands[f"without {place}"] = "llm-layers -json"
    return commands


def on_records(steps, tell, hook):
    """{name: command}: steps as they are, harmed and mended, each recorded; and the records side by side."""
    record, compare = steps.record, steps.compare
    return {
        "attach": "llm-attach EngineCore TP0 TP1",
        "hook": tell(f"hook {hook}", "ask 1"),
        "a": record("a"),
        "again": tell("ask 1"),
        "b": record("b"),
        "harm": tell("replicate 0", "weight 1", "ask 1"),
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
        "ranks": f"llm-layers -json -compare {steps.folder}/c-TP0.jsonl {steps.folder}/c-TP1.jsonl",
        "linear": compare("a", "f"),
        "swapped": compare("a", "g"),
        "to plain": steps.compare_with_plain("a"),
        "from plain": steps.compare_with_plain("a", swapped=True),
        "harmed to plain": steps.compare_with_plain("c"),
        "linear to plain": steps.compare_with_plain("f"),
    }


def on_blocks(tell, masks):
    """{name: command}: the KV cache in the middle of a request, overwritten and restored; and how a request is sampled, also one
    with a grammar, whose `masks` the engine writes."""
    return {
        "decode": tell("ask 7"),
        "step": "llm-layers -json -step 3",
        "next": "llm-layers -json",  # a rank that was through the step before may have run into this one
        "source": f"source {HARM}",
        "sound": "llm-kv check -deep -ranks -json",
        "make stale": "python stale()",
        "stale": "llm-kv check -json",
        "overwrite": "python restore(); overwrite()",
        "overwritten": "llm-kv check -deep -json",
        "null": "python restore(); nan_null()",
        "null nan": "llm-kv check -deep -json",
        "restore": "python restore()",
        "ask oddly": tell("again 3", "oddly 3"),
        "in its prefill": "pybreak LlamaDecoderLayer.forward if hidden_states.shape[0] == 70",
        "prefills": "llm-continue",
        "unbreak": "delete",
        "computing": "llm-kv check -deep -ranks -json",
        "decodes": "llm-layers -json",
        "copies": "llm-kv check -deep -ranks -json",
        "overwrite a copy": "python overwrite_copy()",
        "copy": "llm-kv check -deep -ranks -json",
        "restore it": "python restore()",
        "oddly": "llm-layers -json -step 2",
        "sampling": "python sampling()",
        "ask by a rule": tell(f"masks {masks}", "ruled 8"),
        "ruled": "llm-layers -json -step 3",
        "grammar": "python sampling()",
        "ruled on": "llm-layers -json",
        "grammar on": "python sampling()",
    }


@pytest.mark.drawn(1, group="wrong tokens of an engine")
def test_wrong_tokens_are_traced_to_layer_rank_and_block(engine, plain, gdb_path, tmp_path):
    told = []

    def tell(*lines):
        told.extend(lines)
        return f"shell printf '%s\\n' {' '.join(repr(line) for line in lines)} > {engine.words}"

    steps = Records(tmp_path)
    run_gdb(gdb_path, [plain.go, f"llm-layers -save -o {tmp_path}/plain.jsonl"], ["-p", str(plain.pid)], timeout=120)
    commands = {
        **on_records(steps, tell, f"{tmp_path}/hook"),
        "set": "llm-break -layers nan",
        "nan again": tell("attention vllm", "nan 0", "ask 1"),
        "break": "llm-continue",
        "delete": "delete",
        "pull": tell("pull 0", "ask 1"),
        "pulled": "llm-layers -json",
        **planted(tell),
        **on_blocks(tell, f"{tmp_path}/masks"),
        "detach": "llm-detach",
    }
    run, said, text = answered(gdb_path, commands)
    as_planted(run, said, text)
    against_plain(said)
    as_overwritten(said, text, engine.said["sampling"])
    as_ruled([said[name]()["grammar"] for name in ("grammar", "grammar on")], tmp_path / "masks-0")
    told.append("ask 1")
    with open(engine.words, "w") as f:
        f.write("ask 1\n")
    given = [answer for word, answer in zip(told, answers(engine, len(told))) if word == "ask 1"]
    assert given[0] == given[1] == given[-1] and len(given) == 10 + 2 * len(NAN_AT), given
    for rank in (0, 1):
        with open(f"{tmp_path}/hook-{rank}") as f:
            seen = json.load(f)
        assert seen == [[r["path"], r["output"], r["hash"]] for r in mine(said["e"](), f"TP{rank}")]


def as_planted(run, said, text):
    """What each command named, against what was done before it."""
    steps = said["a"]()
    assert steps["partial"] == [] and [r["label"] for r in steps["ranks"]] == ["TP0", "TP1"], run.text[-3000:]
    assert len({r["calls"] for name in ("a", "step", "next") for r in said[name]()["ranks"]}) == 1, text["next"][:1000]
    assert said["same"]()["first"] is None and all(row["equal"] for row in said["same"]()["rows"] if row["compared"])
    assert said["mended"]()["first"] is None and all(row["equal"] for row in said["mended"]()["rows"] if row["compared"])
    first = said["weight"]()["first"]
    assert (first["path"], first["output"], first["rank"]) == ("model.layers.2.input_layernorm", "[0]", 1), first
    assert 0.005 < first["relative"] < 0.02
    assert said["ranks"]()["first"]["path"] == "model.layers.2.input_layernorm"
    first = said["linear"]()["first"]
    assert (first["path"], first["rank"]) == ("model.layers.2.mlp.gate_up_proj", 1) and 0.005 < first["relative"] < 0.02, first
    first = said["linear to plain"]()["first"]
    assert first["path"] == "model.layers.2.mlp.gate_up_proj" and 0.005 < first["relative"] < 0.02, first
    parts = [f"model.layers.2.mlp.{name}_proj" for name in ("gate", "up")]
    assert first["made"]["outputs"] == parts and first["made"]["part"] in parts, first
    differs = next(row["path"] for row in said["swapped"]()["rows"] if row["compared"] and not row["equal"])
    assert said["swapped"]()["first"] is None and differs == "model.layers.0.self_attn.attn", (said["swapped"](), differs)
    for rank, path in (("TP0", "model.layers.1.mlp.gate_up_proj"), ("TP1", "model.layers.1.mlp.down_proj")):
        assert next(r["path"] for r in said["d"]()["modules"] if r["rank"] == rank and r["nan"]) == path
    assert "TP0 model.layers.1.mlp.gate_up_proj (MergedColumnParallelLinear) returned 1 NaN" in text["break"], text["break"]
    assert "none of its inputs holds a NaN" in text["break"]
    for place, module in NAN_AT.items():
        assert re.search(module, text[f"break {place}"]), text[f"break {place}"]
        assert not [row for row in said[f"without {place}"]()["modules"] if row["nan"]][:1], place
    assert [row["path"] for row in said["weights"]()["different"]] == ["model.layers.2.input_layernorm.weight"]
    assert [(row["path"], row["ranks"]) for row in said["weights"]()["unseen"]] == [("router.weight", ["TP0", "TP1"])]
    assert any("router.weight" in why for why in said["weights"]()["partial"])


def as_overwritten(said, text, sampling):
    """What the checks of blocks named, and the parameters that a request was sent with."""
    assert said["sound"]()["ok"], said["sound"]()["violations"]
    assert {"hash-tokens", "reserved-nan", "block-nan", "rank-copy"} <= {r["rule"] for r in said["sound"]()["rules"]}
    assert said["stale"]()["violations"][0]["rule"] == "hash-tokens", text["stale"]
    assert said["overwritten"]()["violations"][0]["rule"] == "rank-copy", text["overwritten"]
    first = said["null nan"]()["violations"][0]
    assert (first["rule"], first["rank"], first["block"]) == ("reserved-nan", "TP1", 0), text["null nan"]
    assert said["computing"]()["ok"] and said["copies"]()["ok"], (text["computing"], text["copies"])
    rules = {row["rule"] for row in said["copy"]()["violations"]}
    assert rules == {"prefix-copy"}, text["copy"]
    shown = {name: ast.literal_eval(said["sampling"]()["sampling"][name]) for name in sampling}
    assert json.loads(json.dumps(shown)) == sampling


def as_ruled(grammars, masks):
    """The grammar of a request in two steps, and the mask of the next token, against what the engine left of the logits."""
    left = [json.loads(line) for line in masks.read_text().splitlines()]
    for one in grammars:
        assert (one["state"], one["vocabulary"], one["allowed"]) == ("ready", 1024, len(one["tokens"])), one
        assert one["tokens"] == left[one["accepted"]] and one["allowed"] < 200, (one, left)
    assert grammars[0]["accepted"] + 1 == grammars[1]["accepted"] and grammars[0]["tokens"] != grammars[1]["tokens"]


# The modules of the engine, of one layer and around the layers, that a plain program has a counterpart of.
PAIRED = "input_layernorm self_attn.qkv_proj self_attn.o_proj self_attn post_attention_layernorm mlp.gate_up_proj mlp.act_fn"
PAIRED = [f"model.layers.N.{name}".rstrip(".") for name in (*PAIRED.split(), "mlp.down_proj", "mlp", "")]


def against_plain(said, lacks=frozenset()):
    """Two ranks of an engine against a plain program of transformers with the same weights. `lacks`: of `PAIRED`, what the engine
    returns apart."""
    layers = [path.replace("N", str(n)) for n in range(4) for path in PAIRED if path not in lacks]
    for name in ("to plain", "from plain"):
        answer = said[name]()
        assert answer["first"] is None and not any(row["why"] == "each rank has its own part" for row in answer["rows"])
        paths = [row["path"] for row in answer["rows"] if row["path"] != "model"]
        assert paths == ["model.embed_tokens", *layers, "model.norm"], answer
        assert "model.layers.N.self_attn.attn" in str(answer["partial"]) and "lm_head" in str(answer["partial"])
    assert said["harmed to plain"]()["first"]["path"] == "model.layers.2.input_layernorm"


def mine(answer, label):
    return [row for row in answer["modules"] if row["rank"] == label and row["hash"] is not None]


# Run in a scheduler of SGLang behind in_scheduler.FIND.
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


class Steps(Records):
    """Also those that ask SGLang."""

    def __init__(self, port, folder):
        super().__init__(folder)
        self.port, self.answers = port, folder / "answers"
        self.asker = os.path.join(os.path.dirname(HARM), "ask_sglang.py")

    def ask(self, key, count=1):
        return f"shell {sys.executable} {self.asker} {self.port} {self.answers} {key} {count} &"


# what of a rank's model gets a NaN (harm_kv.py) -> what llm-break says
NAN_IN_SGLANG = {
    "embedding": ("'TP0', 'model.embed_tokens', 14 * 256 + 9", r"TP\d model.embed_tokens \(VocabParallelEmbedding\) returned"),
    "rotary": (
        "'TP1', 'model.layers.0.self_attn.rotary_emb', 17 * 32 + 3, 'cos_sin_cache'",
        r"TP1 model.layers.0.self_attn.rotary_emb \(\w+\) returned(?s:.*)these hold NaN: cos_sin_cache",
    ),
    "norm": (
        "'TP1', 'model.layers.2.post_attention_layernorm'",
        r"TP1 model.layers.2.post_attention_layernorm \(RMSNorm\) returned(?s:.*)these hold NaN: weight",
    ),
    "head": ("'TP1', 'lm_head', 7 * 256 + 3", r"TP\d logits_processor \(LogitsProcessor\) returned"),
}


def planted_in_sglang(ask):
    """{name: command}: for each of `NAN_IN_SGLANG` a stop at the first NaN, and a step without one."""
    commands = {}
    for place, (where, _) in NAN_IN_SGLANG.items():
        commands[f"plant {place}"] = f"python nan({where})"
        commands[f"set {place}"] = "llm-break -layers nan"
        commands[f"ask {place}"] = ask(f"nan-{place}")
        commands[f"break {place}"] = "llm-continue"
        commands[f"delete {place}"] = "delete"
        commands[f"uproot {place}"] = "python restore()"
        commands[f"ask without {place}"] = ask(f"without-{place}")
        commands[f"without {place}"] = "llm-layers -json"
    return commands


def in_sglang(steps):
    """{name: command}: steps as they are, harmed and mended, and the KV cache in the middle of a request."""
    ask, record, compare = steps.ask, steps.record, steps.compare
    return {
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
        "put a reserved nan": "python restore(); nan_reserved()",
        "reserved nan": "llm-kv check -deep -json",
        "overwrite": "python restore(); overwrite_slot()",
        "ask overwritten": ask("a"),
        "overwritten": record("g"),
        "restore": "python restore()",
        "ask a third time": ask("a"),
        "restored": record("h"),
        "ask steps": ask("i", 3),
        "step": "llm-layers -json -step 3",
        "keep": f"shell mkdir {steps.folder}/kept && cp {steps.folder}/hook-* {steps.folder}/kept",
        "nan again": "python nan('TP0', 'model.layers.1.mlp.gate_up_proj')",
        "set": "llm-break -layers nan",
        "ask e": ask("e"),
        "break": "llm-continue",
        "delete": "delete",
        "pull again": "python restore()",
        "ask pulled": ask("k"),
        "pulled": "llm-layers -json",  # what still had the NaN is through
        **planted_in_sglang(ask),
        "to plain": steps.compare_with_plain("a"),
        "from plain": steps.compare_with_plain("a", swapped=True),
        "harmed to plain": steps.compare_with_plain("c"),
        "same": compare("a", "b"),
        "weight": compare("a", "c"),
        "slot": compare("f", "g"),
        "mended": compare("f", "h"),
        "detach": "llm-detach",
    }


@pytest.fixture
def as_plain(rested, running, truth, gdb_path, tmp_path):
    """A record of a plain program of transformers, whose weights SGLang has from then on. -> its schedulers' pids"""
    model = tmp_path / "model"
    model.mkdir()
    shutil.copy(os.path.join(rested.folder, "model", "config.json"), model)
    with plain_run(environment("sglang"), model) as plain:
        run_gdb(gdb_path, [plain.go, f"llm-layers -save -o {tmp_path}/plain.jsonl"], ["-p", str(plain.pid)], timeout=120)
    pids = [pid_of(rested, f"sglang::scheduler_TP{n}") for n in (0, 1)]
    eventually(lambda: not answer("llm-requests -between 0 -json")["requests"], "the end of its requests", 120)
    in_scheduler.do(running, truth, pids, in_scheduler.LOAD.format(path=str(model / "model.safetensors")))
    return pids


@pytest.mark.drawn(1, group="wrong tokens of an engine")
def test_wrong_tokens_of_sglang_are_traced_to_layer_rank_and_slot(rested, as_plain, running, truth, gdb_path, tmp_path):
    pids = as_plain
    steps = Steps(rested.said["port"], tmp_path)
    ask, record, compare, answers = steps.ask, steps.record, steps.compare, steps.answers
    in_scheduler.do(running, truth, pids, HOOK.format(path=tmp_path / "hook"))
    run, said, text = answered(gdb_path, in_sglang(steps))
    for n, pid in enumerate(pids):
        with open(f"{tmp_path}/kept/hook-{pid}") as f:
            seen = json.load(f)
        plain = [row for row in mine(said["step"](), f"TP{n}") if "." not in row["output"]]
        assert len(seen) > 40 and seen == [[r["path"], r["output"], r["hash"]] for r in plain]
    in_scheduler.do(running, truth, pids, SWAP)
    swapped = run_gdb(gdb_path, ["llm-attach TP0 TP1", ask("j"), record("j"), compare("a", "j"), "llm-detach"], timeout=200)
    in_scheduler.do(running, truth, pids, UNDO)
    as_planted_in_sglang(run, said, text, swapped.json(3))
    eventually(lambda: len(answers.read_text().splitlines()) == 11 + 2 * len(NAN_IN_SGLANG), "the answers", 120)
    given = {key: tokens for key, status, tokens in map(json.loads, answers.read_text().splitlines()) if status == 200}
    assert (
        set(given) >= {*"abcdeijk", *(f"without-{place}" for place in NAN_IN_SGLANG)}
        and given["a"] == given["b"] == given["j"] == given["i"][:1]
    ), given


def as_planted_in_sglang(run, said, text, swapped):
    assert said["a"]()["partial"] == [] and [r["label"] for r in said["a"]()["ranks"]] == ["TP0", "TP1"], run.text[-3000:]
    assert {r["root"] for r in said["a"]()["ranks"]} == {"LlamaForCausalLM"}
    assert said["same"]()["first"] is None and all(row["equal"] for row in said["same"]()["rows"] if row["compared"])
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
    first = said["reserved nan"]()["violations"][0]
    assert (first["rule"], first["rank"], first["block"]) == ("reserved-nan", "TP1", 0), first
    for place, (_, what) in NAN_IN_SGLANG.items():
        assert re.search(what, text[f"break {place}"]), text[f"break {place}"]
        assert not [row for row in said[f"without {place}"]()["modules"] if row["nan"]][:1], place
    against_plain(said, {"model.layers.N"})
    first = said["slot"]()["first"]
    assert (first["path"], first["rank"]) == ("model.layers.1.self_attn.attn", 1), first
    assert said["mended"]()["first"] is None and all(row["equal"] for row in said["mended"]()["rows"] if row["compared"])
    differs = next(row["path"] for row in swapped["rows"] if row["compared"] and not row["equal"])
    assert swapped["first"] is None and differs == "model.layers.0.self_attn.attn", (swapped["first"], differs)
