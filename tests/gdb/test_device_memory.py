"""A GPU's memory in a gdb that sees one, as far as a machine without a GPU can show it: tensors of device "cuda" in memory that
the process cannot read, and a FAKE of cuda-gdb (subjects/fake_cuda_gdb.py) that can. tests/gpu has the same on real ones."""

import contextlib
import json
import os
import platform

import pytest
from harness.gdb_run import run_gdb
from harness.subjects import SUBJECTS, spawned

OFF = ["set auto-solib-add off"]
BLOCKING = {"CUDA_LAUNCH_BLOCKING": "1"}
registers = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")


@pytest.fixture
def asked(torch_python, gdb_path):
    """-> function: commands -> (GdbRun, what the subject says of itself, what it says of its model's call); `how`: its words,
    `env`: of the subject, `fake`: of the FAKE, `seen`: whether this gdb sees the GPU; "@go" lets the model be called"""

    def ask(commands, how=(), env=(), fake=(), seen=True):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        argv = [torch_python, os.path.join(SUBJECTS, "device_tensors.py"), *how]
        with spawned(argv, ready="{", env={**clean, **dict(env)}) as process:
            said = json.loads(process.said)
            words = [w.replace("@go", f"shell echo > /proc/{said['pid']}/fd/0") for w in commands]
            before = [*OFF, f"source {SUBJECTS}/fake_cuda_gdb.py"] if seen else OFF
            more = {"FAKE_DEVICE": json.dumps(said["device"]), **dict(fake)}
            run = run_gdb(gdb_path, words, ["-p", str(said["pid"])], before=before, env=more)
            called = None
            if "@go" in commands:
                with contextlib.suppress(ValueError):
                    called = json.loads(process.stdout.readline())
        return run, said, called

    return ask


def test_values_are_those_that_torch_put_there(asked):
    names = ["t", "part", "wide", "big"]
    commands = [f"pytensor -any -stats -json {name}" for name in names]
    commands += ["pytensor -any -repr t", "pytensor -any -repr part", "pytensor -any -json -stats bad", "pytensors -nan -json"]
    run, said, _ = asked([*commands, "pytensor -any -repr big[-1]"])
    for number, name in enumerate(names):
        stats = run.json(number)["stats"]
        true = said["stats"][name]
        assert {k: stats[k] for k in ("min", "max", "zeros")} == {k: true[k] for k in ("min", "max", "zeros")}, name
        assert stats["mean"] == pytest.approx(true["mean"], rel=1e-6, abs=1e-9) and not run.json(number)["partial"]
    assert run.outputs[4:6] == [said["shown"]["t"], said["shown"]["part"]]
    assert (run.json(6)["stats"]["nan"], run.json(6)["stats"]["inf"]) == (1, 1)
    assert [(row["device"], row["nan"]) for row in run.json(7)["tensors"]] == [("cuda:0", 1)]
    assert run.json(7)["looked_at"] >= 5 and run.outputs[8] == "tensor(7., device='cuda:0')"


def test_work_that_has_not_ended_is_said(asked):
    commands = ["pytensor -any -stats -json t", "pytensor -any -json t", "pytensor -any t"]
    run, *_ = asked(commands, fake={"FAKE_KERNEL": "slow_kernel"})
    for number in (0, 1):
        (why,) = run.json(number)["partial"]
        assert why == "1 kernel is on the device (slow_kernel): what it computes may not be there yet"
    assert run.json(0)["stats"]["max"] == 11.0 and why in run.outputs[2]


def test_what_one_command_reads_is_bounded_in_time(asked):
    commands = ["pytensor -any -stats -json big", "pytensor -any -stats -json big", "pytensor -any -json -stats t"]
    preset = "python import gdbext.access.device_memory as d; d.DeviceMemory.begin.__defaults__ = (1 << 30, 0.5)"
    run, *_ = asked([preset, *commands], fake={"FAKE_SECONDS": "0.3"})
    for number in (1, 2):
        assert "2 MiB of the GPU's memory were read in 0." in run.outputs[number] and "ask for less" in run.outputs[number]
    assert run.json(3)["stats"]["max"] == 11.0  # each command anew


def test_a_plain_gdb_reads_none(asked):
    run, *_ = asked(["pytensor -any -json t", "pytensor -any -stats t"], seen=False)
    assert "the memory of cuda:0, which gdb cannot read" in run.json(0)["unavailable"] and "cuda-gdb" in run.outputs[1]


@registers
def test_modules_outputs_are_recorded_where_launches_block(asked):
    run, _, outputs = asked(["@go", "llm-layers -json", "detach"], env=BLOCKING)
    rows = {row["path"]: row for row in run.json(1)["modules"]}
    assert {path: row["hash"] for path, row in rows.items() if path} == outputs and rows[""]["hash"] == outputs["layers.2"]
    assert rows[""]["min"] < 0 < rows[""]["max"] and not run.json(1)["partial"]


@registers
def test_modules_outputs_are_not_made_up_where_they_do_not(asked):
    run, _, outputs = asked(["@go", "llm-layers -json", "detach"])
    answer = run.json(1)
    assert len(answer["modules"]) == 4 and all(row["hash"] is None and row["min"] is None for row in answer["modules"])
    assert all("CUDA_LAUNCH_BLOCKING=1" in row["why"] and row["shape"] == [4, 32] for row in answer["modules"])
    assert "4 outputs' values were not read" in answer["partial"][0] and len(answer["partial"]) == 1 and outputs


@registers
@pytest.mark.parametrize("blocks", [True, False])
def test_the_module_that_makes_the_first_nan_is_stopped_at(asked, blocks):
    commands = ["llm-break -layers nan", "@go", "continue", "pyprint self.number"]
    run, *_ = asked([*commands, "delete", "detach"] if blocks else commands[:3], ["nan"], BLOCKING if blocks else ())
    if blocks:
        assert "layers.1 (Layer) returned 1 NaN of 128" in run.text and run.outputs[3] == "1", run.text
    else:
        assert "not checked" in run.text and "CUDA_LAUNCH_BLOCKING=1" in run.text, run.text
