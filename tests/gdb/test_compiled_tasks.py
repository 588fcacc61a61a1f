"""pytasks follows a task through coroutines of Cython, which leave no frames, and names them."""

import json
import os
import shutil
import subprocess

import pytest
from harness.answers import answer
from harness.subjects import SUBJECTS, spawned

PYTHONS = [path for path in os.environ.get("GDBEXT_TEST_GREENLET_PYTHONS", "").split(":") if path]
COMPILED = {  # task -> the names of what it waits in
    "coroutine": ["compiled"],
    "generator": ["async_generator"],
    "awaitable": ["__await__"],
    "direct": ["compiled"],
    "twice": ["twice", "compiled"],
}


@pytest.fixture(scope="module", params=PYTHONS or [None])
def built(request, tmp_path_factory):
    """-> (an interpreter, the folder of the extension module `compiled` for it)."""
    if request.param is None or shutil.which("gcc") is None:
        pytest.skip("needs gcc and an environment with Cython: run scripts/test gdb, which makes it")
    folder = tmp_path_factory.mktemp("compiled")
    shutil.copy(f"{SUBJECTS}/compiled_tasks.pyx", folder / "compiled.pyx")
    made = subprocess.run([request.param, "-m", "cython", "-3", "compiled.pyx"], cwd=folder, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no Cython: {(made.stderr.strip() or 'nothing was said').splitlines()[-1]}")
    ask = [request.param, "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"]
    include = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.exists(f"{include}/Python.h"):
        pytest.skip("this Python has no headers")
    words = ["gcc", "-O1", "-w", "-shared", "-fPIC", f"-I{include}", "-o", "compiled.so", "compiled.c"]
    subprocess.run(words, cwd=folder, check=True)
    return request.param, str(folder)


def test_what_lies_behind_a_compiled_coroutine(built):
    python, folder = built
    env = {**os.environ, "PYTHONPATH": folder}
    with spawned([python, os.path.join(SUBJECTS, "compiled_tasks.py")], "{", env=env) as process:
        truth = json.loads(process.said)
        said = answer(f"pytasks -on {process.pid}")
    tasks = {task["name"]: task for task in said["tasks"]}
    assert {name: [f["function"] for f in tasks[name]["frames"]] for name in truth} == truth
    assert all(tasks[name]["waits_for"].startswith("Event.wait") for name in truth), said
    marks = {name: [line for line in said["partial"] if line.startswith(f"task {name}: in ")] for name in truth}
    assert [name for name, lines in marks.items() if lines] == list(COMPILED)
    for name, functions in COMPILED.items():
        assert all(function in marks[name][0] for function in functions), marks[name]
