"""Records of an engine's steps by llm-layers: the commands that make and compare them, and their answers by name."""

import contextlib
import os

from harness.gdb_run import run_gdb
from harness.subjects import spawned

ENGINES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "engines")


@contextlib.contextmanager
def plain_run(python, model):
    """A plain program of transformers with the model of a folder, which gets weights where it has none; `go`: the gdb command by
    which it computes the prompt."""
    words = [python, os.path.join(ENGINES, "plain_transformers.py"), model]
    with spawned(words, ready="{", env={**os.environ, "HF_HUB_OFFLINE": "1"}) as one:
        one.go = f"shell echo > /proc/{one.pid}/fd/0"
        yield one


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

    def compare_with_plain(self, name, swapped=False):
        files = [",".join(f"{self.folder}/{name}-TP{n}.jsonl" for n in (0, 1)), f"{self.folder}/plain.jsonl"]
        return f"llm-layers -json -compare {' '.join(files[::-1] if swapped else files)}"
