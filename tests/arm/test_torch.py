"""Tensors of torch's arm64 wheel: in cores that qemu's user mode wrote they equal what torch said of them."""

import contextlib
import json
import tempfile

import pytest
from harness.answers import answer
from harness.gdb_run import run_gdb
from harness.subjects import SUBJECTS, ready_core
from harness.tensors import FIELDS, Tensors, measured, same_as_truth

COMPARED = ("shape", "stride", "dtype", "storage_bytes", "repr")


@contextlib.contextmanager
def core(torch_python, name):
    with tempfile.TemporaryDirectory(prefix="gdbext-arm-") as folder:
        path = f"{folder}/truth.json"
        target, _ = ready_core([torch_python, "-W", "ignore", f"{SUBJECTS}/{name}", path], folder, "ready")
        with open(path) as f:
            yield target, json.load(f)


@pytest.fixture(scope="module")
def subject(torch_python):
    with core(torch_python, "tensors.py") as (target, truth):
        yield Tensors(target, truth)


def test_metadata_and_repr_of_every_tensor_are_torchs(subject):
    wrong = {}
    for name, truth in subject.tensors.items():
        tensor = subject.read(name)
        found = {**measured(tensor), "repr": truth["repr"] and subject.repr(tensor)}
        wrong[name] = {f: (found[f], truth[f]) for f in (*FIELDS, "repr") if found[f] != truth[f]}
    assert not {name: fields for name, fields in wrong.items() if fields}
    assert subject.rt.target.arch == "aarch64" and len(wrong) > 300


def test_grad_fn_is_named_as_python_names_it(subject):
    named = {n: t["grad_fn"] for n, t in subject.tensors.items() if t["grad_fn"]}
    assert len(named) > 6 and "DoubleBackward" in named.values()
    assert {n: subject.read(n).grad_fn for n in named} == named


def test_slices_print_as_torchs_own_views(subject):
    assert len(subject.slices) > 10
    found = [[name, text, subject.repr(subject.read(name).sliced(text))] for name, text, _ in subject.slices]
    assert found == subject.slices


def test_the_command_says_the_same_outside_gdb_and_in_it(subject, gdb_path):
    names = ["parameter", "permuted 6-D", "python function", "conj", "bfloat16 randn (33,)", "transposed"]
    lines = [f"pytensor -json -repr tensors[{name!r}]" for name in names]
    path = subject.rt.target.path
    in_gdb = run_gdb(gdb_path, lines, ["-core", path])
    for i, name in enumerate(names):
        truth = subject.tensors[name]
        for data in (answer(f"{lines[i]} -on {path}"), in_gdb.json(i)):
            assert {f: data[f] for f in COMPARED} == {f: truth[f] for f in COMPARED}
            assert int(data["data_ptr"], 16) == truth["data_ptr"]


def test_every_live_tensor_is_listed_and_storages_are_counted_once(torch_python):
    with core(torch_python, "tensors_live.py") as (target, truth):
        data = answer(f"pytensors -json -on {target.path}")
    _, extra = same_as_truth(data, truth)
    assert not extra and len(data["tensors"]) > 20
    assert data["total_bytes"] == truth["total"]
