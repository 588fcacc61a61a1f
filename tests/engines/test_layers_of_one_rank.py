"""llm-layers -compare on engines of one rank, in single precision and in bfloat16, against a plain program of transformers with
their weights: no difference; and with a weight that is another one, the layer that has it. Where GDBEXT_TEST_LONG is set."""

import contextlib
import os
import platform
import shutil
import sys

import pytest
from harness import in_scheduler
from harness.engines import pid_of
from harness.gdb_run import run_gdb
from harness.layer_records import answered, plain_run
from tools.engines import CONFIG
from tools.environments import environment

HERE = os.path.dirname(os.path.abspath(__file__))
pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64"),
    pytest.mark.skipif(not os.environ.get("GDBEXT_TEST_LONG"), reason="starts four engines: GDBEXT_TEST_LONG=1"),
]
HARM = "runner.model.model.layers[2].input_layernorm.weight.data.mul_(1.05)"


def record_plain(gdb_path, python, model, tmp_path):
    with plain_run(python, model) as plain:
        run_gdb(gdb_path, [plain.go, f"llm-layers -save -o {tmp_path}/plain.jsonl"], ["-p", str(plain.pid)], timeout=120)


@contextlib.contextmanager
def vllm(running, truth, gdb_path, tmp_path, dtype):
    """-> (the gdb command that asks, the function that harms)"""
    words = str(tmp_path / "words")
    os.mkfifo(words)
    held = os.open(words, os.O_RDWR)
    config = {**CONFIG, "torch_dtype": dtype}
    try:
        engine = running.get("vllm", tp=1, script="serve_layers.py", config=config, args=("--words", words))
        record_plain(gdb_path, environment("vllm"), os.path.join(engine.folder, "model"), tmp_path)
        yield f"shell echo ask 1 > {words}", lambda: os.write(held, b"weight 0\n")
    finally:
        os.close(held)


@contextlib.contextmanager
def sglang(running, truth, gdb_path, tmp_path, dtype):
    """As `vllm`."""
    engine = running.get("sglang", tp=1, config={**CONFIG, "torch_dtype": dtype}, args=("--requests", "0"))
    model = tmp_path / "model"
    model.mkdir()
    shutil.copy(os.path.join(engine.folder, "model", "config.json"), model)
    record_plain(gdb_path, environment("sglang"), model, tmp_path)
    pids = [pid_of(engine, "sglang::scheduler")]
    in_scheduler.do(running, truth, pids, in_scheduler.LOAD.format(path=str(model / "model.safetensors")))
    asker = f"{sys.executable} {os.path.join(HERE, 'ask_sglang.py')} {engine.said['port']} {tmp_path}/answers"
    yield f"shell {asker} $(date +%N) 1 &", lambda: in_scheduler.do(running, truth, pids, HARM)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("engine", [vllm, sglang])
def test_one_rank_computes_what_plain_transformers_does(engine, dtype, running, truth, gdb_path, tmp_path):
    def look(name, ask):
        record = f"llm-layers -save -json -o {tmp_path}/{name}.jsonl"
        compare = f"llm-layers -json -compare {tmp_path}/{name}.jsonl {tmp_path}/plain.jsonl"
        commands = {"attach": "llm-attach TP0", "ask": ask, "step": record, "compare": compare, "detach": "llm-detach"}
        _, said, _ = answered(gdb_path, commands)
        assert {row["dtype"] for row in said["step"]()["modules"] if "norm" in row["path"]} == {dtype}
        return said["compare"]()

    with engine(running, truth, gdb_path, tmp_path, dtype) as (ask, harm):
        sound = look("sound", ask)
        harm()
        harmed = look("harmed", ask)
    assert sound["first"] is None and len(sound["rows"]) > 35, sound["first"]
    assert harmed["first"]["path"] == "model.layers.2.input_layernorm", harmed["first"]
