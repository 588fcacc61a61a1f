"""Texts that run in a scheduler of a real SGLang (tests/engines/subject/sitecustomize.py), with its model `runner`."""

import os

FIND = """
while getattr(getattr(frame.f_locals.get("self"), "tp_worker", None), "model_runner", None) is None:
    frame = frame.f_back
runner = frame.f_locals["self"].tp_worker.model_runner
"""
LOAD = """
from safetensors.torch import load_file
runner.model.load_weights(load_file({path!r}).items())
"""


def do(running, truth, pids, text):
    """Runs `text` in each of the schedulers."""
    for pid in pids:
        with open(os.path.join(running.folder, f"{pid}.do"), "w") as f:
            f.write(FIND + text)
        with truth(pid):
            pass
