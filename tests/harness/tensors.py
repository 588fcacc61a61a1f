"""A process full of tensors (gdb/subjects/tensors.py) that wrote down what torch says of each."""

import contextlib
import json
import os
import subprocess

import pytest

from gdbext.access.proc import ProcTarget
from gdbext.commands.pytensor import PyTensor
from gdbext.cpython.runtime import open_runtime
from gdbext.session.session import Session
from gdbext.torch import layout as layouts
from gdbext.torch.repr import process_options, tensor_repr
from gdbext.torch.tensor_impl import read_tensor

from .subjects import SUBJECTS, spawned

LAZY = ["set auto-solib-add off"]
FIELDS = (
    "type",
    "shape",
    "stride",
    "dtype",
    "device",
    "layout",
    "storage_offset",
    "numel",
    "data_ptr",
    "storage_bytes",
    "requires_grad",
    "is_conj",
    "is_neg",
    "impl",
)


class Tensors:
    """A process or its core, what it wrote down, and a reader of it."""

    def __init__(self, target, truth):
        self.pid = target.pid
        self.tensors, self.beyond, self.slices = truth["tensors"], truth["beyond"], truth["slices"]
        self.rt = open_runtime(target)
        self.table = layouts.for_process(self.rt.target, self.rt)
        self.options = process_options(self.rt, self.table)

    def read(self, name):
        return read_tensor(self.rt, (self.tensors.get(name) or self.beyond[name])["address"])

    def repr(self, tensor):
        return tensor_repr(tensor, self.options)


@contextlib.contextmanager
def tensors(python, folder, *arguments):
    if subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip(f"{python} has no torch")
    path = str(folder / "truth.json")
    line = [python, "-W", "ignore", os.path.join(SUBJECTS, "tensors.py"), path, *arguments]
    with spawned(line, ready="ready") as process, open(path) as f:
        yield Tensors(ProcTarget(process.pid), json.load(f))


def measured(tensor):
    """{field: value} of a tensor that was read, as the subject writes them."""
    found = {f: getattr(tensor, f) for f in FIELDS}
    found.update(
        dtype="torch." + tensor.dtype.name, layout="torch." + tensor.layout, shape=list(tensor.shape), stride=list(tensor.stride)
    )
    return found


def same_as_truth(data, truth):
    """Compares rows of pytensors with what gdb/subjects/tensors_live.py says. -> (rows by address, those it did not name)"""
    rows = {str(int(r["address"], 0) if isinstance(r["address"], str) else int(r["address"])): r for r in data["tensors"]}
    known = dict(truth["tensors"].items())
    assert set(known) <= set(rows)
    for address, t in known.items():
        row = rows[address]
        assert (list(row["shape"]), row["dtype"], row["device"], row["bytes"]) == (
            t["shape"],
            t["dtype"],
            t["device"],
            t["bytes"],
        )
    return rows, {a: r for a, r in rows.items() if a not in known}


def ask(subject, line):
    args = PyTensor.parse(line + f" -on {subject.pid}")
    return PyTensor().answer(Session(), args)
