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


class Tensors:
    """The running process, what it wrote down, and a reader of it."""

    def __init__(self, process, truth):
        self.pid = process.pid
        self.tensors, self.beyond, self.slices = truth["tensors"], truth["beyond"], truth["slices"]
        self.rt = open_runtime(ProcTarget(self.pid))
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
        yield Tensors(process, json.load(f))


def ask(subject, line):
    args = PyTensor.parse(line + f" -on {subject.pid}")
    return PyTensor().answer(Session(), args)
