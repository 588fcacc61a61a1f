"""llm-layers against what the models' own forward hooks saw, and what is left in a process after it."""

import contextlib
import json
import math
import platform
import re
import subprocess
import sys

import pytest
from harness.breakpoints import OFF, SERVED, events_here
from harness.gdb_run import ROOT, run_gdb
from harness.subjects import SUBJECTS, spawned

from gdbext.access.proc import ProcTarget
from gdbext.cpython.expressions import evaluate
from gdbext.cpython.runtime import open_runtime
from gdbext.engines import rank_weights
from gdbext.session import session as session_room

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")

SEEDS = list(range(1, 15))


@contextlib.contextmanager
def subject(torch_python, tmp_path, *words):
    """-> (pid, path of its truth, the gdb command that lets it run once more)"""
    truth = tmp_path / "truth"
    with spawned([torch_python, f"{SUBJECTS}/layers.py", truth, *map(str, words)], ready="{") as one:
        one.pid = json.loads(one.said)["pid"]
        one.truth, one.go = truth, f"shell echo > /proc/{one.pid}/fd/0"
        yield one


def ask(gdb_path, one, commands, **more):
    return run_gdb(gdb_path, commands, ["-p", str(one.pid)], timeout=120, before=OFF, **more)


def same(row, true):
    """Whether a row is what the hook saw; it does not know mean and range of what is not finite."""
    for name in ("path", "call", "type", "output", "hash"):
        if row[name] != true[name]:
            return f"{name}: {row[name]!r}, not {true[name]!r}"
    if true["hash"] is None:
        return "" if row["shape"] is None and row["why"].startswith("returned ") else "a tensor that is none"
    for name in ("shape", "dtype", "nan", "inf"):
        if row[name] != true[name]:
            return f"{name}: {row[name]!r}, not {true[name]!r}"
    if "range" not in true:
        return "" if row["min"] is None else "complex numbers have no order"
    if true["range"] is None:
        return "" if row["min"] == row["max"] == "nan" else "nothing is finite"
    low, high, mean = true["range"]
    close = math.isclose(row["mean"], mean, rel_tol=1e-6, abs_tol=1e-9 * max(1, abs(low), abs(high)))
    return "" if row["min"] == low and row["max"] == high and close else f"{row} is not {true['range']}"


def test_each_modules_output_is_what_a_hook_saw(gdb_path, torch_python, tmp_path):
    """Models drawn by seed: nested, shared and called twice, outputs strided, expanded, conjugate, empty, in containers, none."""
    with subject(torch_python, tmp_path, *SEEDS) as one:
        commands = [c for n in SEEDS for c in (one.go, f"llm-layers -json -o {tmp_path}/{n}.jsonl {'-save' * (n % 2)}")]
        commands[-1:-1] = [SERVED]
        commands += ["info breakpoints", "python print(any(served), len(k._events))", one.go]
        said = ask(gdb_path, one, [*commands, "python gdb.execute('continue')"])
        truths = [json.loads(line) for line in one.truth.read_text().splitlines()]
    assert len(truths) == len(SEEDS), said.text
    kinds = set()
    for number, (seed, truth) in enumerate(zip(SEEDS, truths)):
        answer = said.json(2 * number + 1 + (number == len(SEEDS) - 1))
        rows = answer["modules"]
        wrong = [(seed, i, why) for i, (row, true) in enumerate(zip(rows, truth)) for why in [same(row, true)] if why]
        assert not wrong and len(rows) == len(truth), (wrong[:5], len(rows), len(truth))
        assert answer["ranks"][0]["calls"] == len({(t["path"], t["call"]) for t in truth})
        kinds |= {row["dtype"] for row in rows}
        lines = [json.loads(line) for line in (tmp_path / f"{seed}.jsonl").read_text().splitlines()]
        assert lines[0]["schema"] == "llm-layers-record/1" and [r["hash"] for r in lines[1:]] == [r["hash"] for r in truth]
        assert (tmp_path / f"{seed}.safetensors").exists() == bool(seed % 2)
    assert kinds >= {"float32", "float64", "bfloat16", "int64", "bool"}, kinds
    assert "No breakpoints or watchpoints" in said.outputs[2 * len(SEEDS) + 1]
    assert said.outputs[2 * len(SEEDS) + 2] == f"{events_here()} 0", said.text


def test_the_first_layer_that_differs_is_named_an_equal_pair_is_equal(gdb_path, torch_python, tmp_path):
    """A weight is changed by 1 % before the second call; the third is as the second."""
    a, b, c, plain = (str(tmp_path / f"{name}.jsonl") for name in "abcp")
    with subject(torch_python, tmp_path, "case", "weight") as one:
        said = ask(
            gdb_path,
            one,
            [
                *(one.go, f"llm-layers -save -o {a}"),
                *(one.go, f"llm-layers -save -o {b}"),
                *(one.go + "; " + one.go[6:], f"llm-layers -step 2 -save -o {c}"),
                f"llm-layers -json -compare {a} {b}",
                f"llm-layers -json -compare {b} {c}",
                f"llm-layers -compare {b} {c}",
                f"llm-layers -compare {a} {b}",
                *(f'shell grep -v saved {p} > /dev/null; sed \'s/, "saved": "[^"]*"//\' {p} > {p}.plain' for p in (a, b)),
                f"llm-layers -json -compare {a}.plain {b}.plain",
                f"llm-layers -compare {a}",
                f"llm-layers -compare {a} /etc/hostname",
                f"llm-layers -o {a}",
            ],
        )
    first = said.json(6)["first"]
    assert (first["path"], first["type"], first["call"]) == ("layers.1.0", "Linear", 0), said.text
    assert 0.005 < first["relative"] < 0.02 and first["max_abs_diff"] > 0 and len(first["index"]) == 2
    assert [row["path"] for row in said.json(6)["rows"] if row["equal"]] == ["layers.0.0", "layers.0.1", "layers.0"]
    assert said.json(7)["first"] is None and all(row["equal"] for row in said.json(7)["rows"])
    assert said.outputs[8] == "no difference in 10 outputs, bit by bit"
    assert said.outputs[9].startswith("first difference: layers.1.0 (Linear): by up to "), said.outputs[9]
    by_range = said.json(12)["first"]
    assert by_range["path"] == "layers.1.0" and by_range["index"] is None and "not saved" in by_range["why"]
    assert "takes two records" in said.outputs[13] and "no record of llm-layers" in said.outputs[14]
    assert "is there already; -force replaces it" in said.outputs[15]
    words = [sys.executable, "-m", "gdbext", "llm-layers", "-compare", b, c]
    assert subprocess.check_output(words, text=True, cwd=ROOT).startswith("no difference in 10 outputs")


def test_what_stands_in_the_way_is_said_and_nothing_stays_armed(gdb_path, torch_python, tmp_path):
    """No step comes; too few registers; a folder that is not there; then a step, after all, whose root is no loss function."""
    with subject(torch_python, tmp_path, "case", "plain") as one:
        said = ask(
            gdb_path,
            one,
            [
                "llm-layers -json -for 0.3",
                *(f"pybreak Small.forward if x is {n}" for n in "123"),
                "llm-layers",
                "delete",
                f"llm-layers -o {tmp_path}/none/x.jsonl -save",
                "llm-layers -step 0",
                "llm-layers -save",
                "llm-layers something",
                "maint info breakpoints",
                one.go + "; " + one.go[6:],
                "llm-layers -json -step 2",
                "pybt",
                "maint info breakpoints",
            ],
        )
    assert "no step came to its end in 0.3 s" in said.text and said.json(0)["modules"] == []
    assert "needs 2 of the 4 debug registers" in said.outputs[4], said.text
    assert (
        "no folder that can be written to" in said.outputs[6]
        and "-step is 1 or more" in said.outputs[7]
        and "-o FILE" in said.outputs[8]
    )
    assert "takes no operand" in said.outputs[9]
    rank = said.json(12)["ranks"][0]
    assert (rank["root"], rank["step"], rank["calls"], rank["called"], rank["modules"]) == ("Small", 2, 10, 10, 11)
    assert said.json(12)["modules"][-1]["path"] == "" and said.json(12)["partial"] == []
    assert "_wrapped_call_impl" in said.outputs[13].splitlines()[1], said.outputs[13]
    for output in (said.outputs[10], said.outputs[14]):
        assert not re.search(r"watchpoint +keep y", output), output


def test_other_threads_models_are_no_part_of_the_step(gdb_path, torch_python, tmp_path):
    """Two threads call models all the time: one of them is recorded, whole, and none of its calls is another's."""
    with subject(torch_python, tmp_path, "case", "threads") as one:
        said = ask(gdb_path, one, ["llm-layers -json -step 3"])
    answer = said.json(0)
    assert [row["path"] for row in answer["modules"]] == ["layers.0.0", "layers.0.1", "layers.0", ""], said.text
    assert [row["call"] for row in answer["modules"]] == [0] * 4 and answer["partial"] == []


@pytest.mark.parametrize("case", ["dies", "compiled"])
def test_a_process_that_dies_and_a_module_that_is_compiled(case, gdb_path, torch_python, tmp_path):
    with subject(torch_python, tmp_path, "case", case) as one:
        said = ask(gdb_path, one, [one.go, f"llm-layers -json -o {tmp_path}/r.jsonl", "info breakpoints"])
    answer = said.json(1)
    if case == "dies":
        assert any("ended before the step did" in why for why in answer["partial"]), said.text
        assert [row["path"] for row in answer["modules"]] == ["layers.0.0", "layers.0.1", "layers.0", "layers.1.0", "layers.1.1"]
        lines = (tmp_path / "r.jsonl").read_text().splitlines()
        assert len(lines) == 6
    else:
        (why,) = answer["partial"]
        assert "2 modules were not called from Python (compiled: layers.1): start it without torch.compile" in why
        assert len(answer["modules"]) == 8 and "layers.1" in [row["path"] for row in answer["modules"]]
    assert "No breakpoints or watchpoints" in said.outputs[2]


def test_the_first_module_with_a_nan_is_named_with_its_inputs(gdb_path, torch_python, tmp_path):
    """The NaN is there from the third call on; the modules around the first that returns it are not told."""
    with subject(torch_python, tmp_path, "case", "nan") as one:
        commands = ["llm-break -layers nan", *[one.go] * 4, "continue", "pyprint self.weight[3, 5]", "continue", "pybreak -json"]
        said = ask(gdb_path, one, [*commands, "delete", one.go, "llm-layers -json"])
    for output in (said.outputs[5], said.outputs[7]):
        assert "layers.1.0 (Linear) returned 5 NaN of 320 ([5, 64] float32)" in output, said.text
        assert "none of its inputs holds a NaN" in output and "without: args[0] [5, 64] float32" in output
    assert said.outputs[6] == "tensor(nan)" and said.json(8)["breakpoints"][0]["hits"] == 2
    (why,) = re.findall("outputs of modules of .* are not checked: .*", said.text)  # once
    assert "a meta tensor has no values" in why
    rows = {row["path"]: row["nan"] for row in said.json(11)["modules"]}
    assert rows["layers.1.0"] == 5 and rows["layers.0"] == 0 and rows[""] == 5 * 64


def test_a_rank_with_other_weights_is_named(torch_python, tmp_path):
    """What is whole on a rank is told from what is cut over ranks by the layers' classes. One rank's norm has another
    value, one's packed weight; what is packed away behind a handle is no weight that is the same."""
    with subject(torch_python, tmp_path, "case", "ranks") as one:
        target = ProcTarget(one.pid)
        rt = open_runtime(target)
        session_room.register_adapters()
        frame = next(f for f in rt.frames(rt.threads()[0]) if f.function == "ranks")
        held = [(f"TP{i}", rank_weights.of_model(evaluate(rt, f"made[{i}]", frame))) for i in range(3)]
        assert sorted(held[0][1]) == ["gate.weight", "norm.bias", "norm.weight", "out.bias", "router.weight (packed)", "table"]
        found = [(row["path"], row["odd"]) for row in rank_weights.different(held)]
        assert found == [("norm.weight", ["TP1"]), ("router.weight (packed)", ["TP2"])]
        (both,) = rank_weights.different(held[:2])
        assert both["odd"] == ["TP0", "TP1"]
        (hidden,) = rank_weights.unseen(held)
        assert hidden["path"] == "gate.weight" and hidden["ranks"] == ["TP0", "TP1", "TP2"] and "packed" in hidden["why"]
        for tensors in (held[0][1], held[2][1]):
            del tensors["router.weight (packed)"]
        assert rank_weights.different([held[0], held[2]]) == []
        target.close()


def test_two_processes_at_once_have_a_record_each(gdb_path, torch_python, tmp_path):
    """The same model in both, in step; the second time one of them has another weight."""
    for name in "ab":
        (tmp_path / name).mkdir()
    with subject(torch_python, tmp_path / "a", "case", "plain") as a, subject(
        torch_python, tmp_path / "b", "case", "weight"
    ) as b:
        both, pair = f"{a.go}; {b.go[6:]}", [str(tmp_path / f"r-{one.pid}.jsonl") for one in (a, b)]
        said = run_gdb(
            gdb_path,
            [
                f"llm-attach -libraries none {a.pid} {b.pid}",
                *(both, f"llm-layers -json -save -o {tmp_path}/r.jsonl"),
                f"llm-layers -json -compare {' '.join(pair)}",
                *(both, f"llm-layers -json -save -force -o {tmp_path}/r.jsonl"),
                f"llm-layers -json -compare {' '.join(pair)}",
                *(both, f"llm-layers -json -rank {b.pid}"),
                "llm-detach",
            ],
            timeout=120,
        )
        answer = said.json(2)
        assert [(r["pid"], r["calls"]) for r in answer["ranks"]] == [(a.pid, 10), (b.pid, 10)], said.text
        assert len(answer["modules"]) == 20 and answer["partial"] == []
        assert said.json(3)["first"] is None and said.json(6)["first"]["path"] == "layers.1.0"
        assert [r["pid"] for r in said.json(8)["ranks"]] == [b.pid]
        for one in (a, b):
            assert one.poll() is None


def test_a_process_that_is_not_selected_is_read_as_it_is_now(gdb_path, torch_python, tmp_path):
    """A variable of each of two processes, asked for while the other one is selected, after each step."""
    for name in "ab":
        (tmp_path / name).mkdir()
    with subject(torch_python, tmp_path / "a", "case", "plain") as a, subject(torch_python, tmp_path / "b", "case", "plain") as b:
        asks = [f"inferior {number}" for number in (2, 1)], [f"pyprint -json -on {one.pid} step" for one in (a, b)]
        step = [f"{a.go}; {b.go[6:]}", "llm-layers -json", *(command for pair in zip(*asks) for command in pair)]
        said = run_gdb(gdb_path, [f"llm-attach -libraries none {a.pid} {b.pid}", *step, *step, *step, "llm-detach"], timeout=120)
        for number in range(3):
            first = 1 + number * len(step)
            found = [int(said.json(first + place)["repr"]) for place in (3, 5)]
            assert all(value in (number, number + 1) for value in found), (number, found)  # who is through may wait for the next
