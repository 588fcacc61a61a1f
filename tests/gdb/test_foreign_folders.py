"""Commands that start interpreters and gdbs of their own, in a folder where modules of somebody else lie: none of them is run."""

import os
import subprocess
import sys

import pytest
from harness import foreign
from harness.floor import oldest
from harness.gdb_run import INIT, ROOT, run_gdb
from harness.subjects import spawned

NAMES = "__future__ array bisect ctypes contextlib json mmap numpy pygments re selectors signal socket struct typing".split()
SLEEPS = "import time\nprint('ready', flush=True)\ntime.sleep(900)"
LINES = [
    "llm-stacks {P}",
    "llm-snapshot {P} -max-bytes 0 -o {D}/x",
    "llm-record {P} -for 0.3 -native",
    "llm-hang {P} -wait 0",
    "pyheap -on {P}",
]


@pytest.fixture
def workspace(tmp_path):
    return foreign.workspace(tmp_path, NAMES)


def env(more):
    return {**{k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}, **more}


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split()[0])
def test_outside_gdb(workspace, tmp_path, line):
    start = (
        "import sys; sys.path[:1] = [sys.argv.pop(1)]; from gdbext.__main__ import entry; entry()"  # as the program gdbext does
    )
    for python in filter(None, (sys.executable, oldest())):
        with spawned([sys.executable, "-c", SLEEPS], ready="ready") as one:
            words = line.format(P=one.pid, D=tmp_path).split()
            done = subprocess.run(
                [python, "-c", start, ROOT, *words, "--json", "-force"][: None if "snapshot" in line else -1],
                cwd=workspace,
                env=env({}),
                stdout=subprocess.PIPE,
                text=True,
            )
            needs = line.startswith("pyheap") and done.returncode == 1 and "needs numpy" in done.stdout  # a Python without it
            assert '"schema"' in done.stdout and (done.returncode in (0, 3) or needs and python != sys.executable), done.stdout
        assert foreign.ran(workspace) == []


def test_inside_gdb(workspace, gdb_path, tmp_path):
    with spawned([sys.executable, "-c", SLEEPS], ready="ready") as one:
        commands = [
            f"source {INIT}",
            f"llm-stacks {one.pid}",
            f"llm-attach {one.pid}",
            "llm-bt -all",
            "pyheap",
            "llm-detach",
        ]
        words = [gdb_path, "-nx", "-q", "-batch", "-iex", "set auto-load off"]
        done = subprocess.run(
            [*words, *(w for c in commands for w in ("-ex", c))],
            cwd=workspace,
            env=env({"GDBEXT_DATA": ""}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert "pyheap needs numpy" in done.stdout and "time_sleep" in done.stdout and "Traceback" not in done.stdout, done.stdout
        assert one.poll() is None
    assert foreign.ran(workspace) == []


def test_no_file_of_the_current_folder_stands_for_a_process(tmp_path, gdb_path):
    """Files named as a pid, an index, a rank and all: outside gdb, and inside before llm-ranks was asked."""
    with spawned([sys.executable, "-c", SLEEPS], ready="ready") as one:
        for name in (str(one.pid), "all", "1", "TP0", "vllm"):
            (tmp_path / name).write_text("no core")
        words = [sys.executable, "-c", "import sys; sys.path[:1] = [sys.argv.pop(1)]; from gdbext.__main__ import entry; entry()"]
        commands = [f"pybt -on {one.pid}", f"llm-stacks {one.pid}", f"llm-snapshot {one.pid} -o {tmp_path}/out/x -force"]
        os.mkdir(tmp_path / "out")
        for command in commands:
            line = [*words, ROOT, *command.split(), "--json"]
            said = subprocess.run(line, cwd=tmp_path, env=env({}), stdout=subprocess.PIPE, text=True).stdout
            assert str(one.pid) in said and '"error"' not in said, said
        typed = [f"cd {tmp_path}", *commands, f"llm-attach {one.pid}", "pybt", "llm-detach"]
        said = run_gdb(gdb_path, typed).outputs
        assert "<module>" in said[1] and "<module>" in said[5] and not any("core" in text for text in said[1:3]), said
        assert one.poll() is None
    for name in ("TP77", "nobody"):
        (tmp_path / name).write_text("no core")
        said = run_gdb(gdb_path, [f"cd {tmp_path}", f"pybt -on {name}", f"llm-attach {name}"]).outputs[1:]
        assert all(f"./{name}" in text or "no engine process" in text for text in said), said
