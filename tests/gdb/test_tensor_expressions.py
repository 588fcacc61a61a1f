"""Expressions over tensors, answered from memory, are what Python itself says in the process, with every torch that there is."""

import platform

import pytest
from harness.breakpoints import OFF
from harness.gdb_run import run_gdb
from harness.subjects import running, spawned

from gdbext.cpython.expressions import condition, evaluate
from gdbext.cpython.reprs import FULL, Repr
from gdbext.errors import GdbextError
from gdbext.session.session import Session
from gdbext.torch import adapter

numpy = pytest.importorskip("numpy")


class Subject:
    def __init__(self, target, truth):
        self.truth, self.rt = truth, Session().runtime(str(target.pid))  # which tells the Python room of torch
        self.frame = next(f for f in self.rt.frames(self.rt.threads()[0]) if f.code.name == "main")

    def text(self, text):
        return Repr(FULL)(evaluate(self.rt, text, self.frame))


@pytest.fixture(scope="module")
def subject(torch_python):
    with running(torch_python, "tensor_expressions.py") as (target, truth):
        yield Subject(target, truth)


def test_every_expression_is_what_python_says(subject):
    wrong = {}
    for text, truth in subject.truth.items():
        try:
            found = subject.text(text)
        except GdbextError as e:
            found = f"refused: {e}"
        if found != truth:
            wrong[text] = found, truth
    assert wrong == {} and len(subject.truth) > 110


def test_what_reading_cannot_answer_is_refused(subject):
    for text, why in (
        ("x == 1", "no plain value|cannot be compared|up to its own code"),
        ("x + 1", "."),
        ("x[0, 0] + 1", "."),
        ("x[7]", "index 7 is out of bounds for dimension 0 with size 3"),
        ("x[0, 0, 0]", "too many indices"),
        ("x[::-1]", "step greater than zero"),
        ("x[long]", "."),
        ("x[0, 0][0]", "too many indices"),
        ("len(x[0, 0])", "0-d"),
        ("x.sum()", "would run code"),
        ("x.T", "."),
        ("x.grad_fn.shape", "."),
        ("not x", "more than one value"),
        ("long.mean()", "no mean"),
        ("x.item()", "cannot be converted"),
        ("meta[0, 0].item()", "no values|memory of meta"),
        ("meta.isnan().any()", "no values"),
        ("x.isnan()", "any"),
    ):
        with pytest.raises(GdbextError, match=why) as e:
            subject.text(text)
        assert "\n" not in str(e.value) and "descriptor" not in str(e.value)


def test_conditions(subject):
    assert condition(subject.rt, "x[0, 1] == 1 and bad.isnan().any()", subject.frame)
    assert not condition(subject.rt, "x.isnan().any() or x.shape[0] > 3", subject.frame)


def test_a_reduction_is_bounded(subject, monkeypatch):
    monkeypatch.setattr(adapter, "MAX_REDUCED", 10)
    with pytest.raises(GdbextError, match="12 elements are more than gdbext reads"):
        subject.text("x.max()")
    assert subject.text("expanded.max()") == "tensor(2.)"  # two elements, a million times each


LAYERS = """
import sys, torch
class Layer:
    def __init__(self, number):
        self.number, self.scale = number, torch.ones(4)
    def forward(self, hidden_states):
        return hidden_states * self.scale
layers = [Layer(n) for n in range(6)]
layers[3].scale[2] = float("nan")
print("ready", flush=True)
sys.stdin.readline()
hidden = torch.ones(2, 4)
for layer in layers:
    hidden = layer.forward(hidden)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")
def test_a_breakpoint_stops_at_the_first_layer_whose_input_has_nan(gdb_path, torch_python, tmp_path):
    program = tmp_path / "layers.py"
    program.write_text(LAYERS)
    with spawned([torch_python, program], ready="ready") as one:
        said = run_gdb(
            gdb_path,
            [
                "pybreak Layer.forward if hidden_states.isnan().any()",
                f"shell echo > /proc/{one.pid}/fd/0",
                "continue",
                "pyprint self.number, hidden_states.shape[0], hidden_states[0][2].isnan().any()",
                "pyprint hidden_states[0:2]",
            ],
            ["-p", str(one.pid)],
            timeout=100,
            before=OFF,
        )
    assert "(1 debug register)" in said.outputs[0] and "hit 1" in said.outputs[2], said.text
    assert said.outputs[3].startswith("(4, 2, tensor(True)")
    rows = said.outputs[4].splitlines()  # a tensor of two rows takes two lines, as Python prints it
    assert len(rows) == 2 and rows[0] == "tensor([[1., 1., nan, 1.]," and "\\n" not in said.outputs[4], said.outputs[4]
