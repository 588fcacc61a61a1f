"""What processes of programs that are no engine are called, by command lines of gunicorn, Celery, pytest-xdist and Jupyter."""

import pytest
from harness.fake_proc import FakeProc

from gdbext.access.proctable import EXECNET, ProcTable, is_fork

PYTHON = "/usr/bin/python3"


@pytest.mark.parametrize(
    "argv, said",
    [
        ([PYTHON, "/venv/bin/gunicorn", "-w", "2", "app:app"], "gunicorn master"),
        ([PYTHON, "-m", "celery", "-A", "tasks", "worker"], "celery worker"),
        ([PYTHON, "-m", "pytest", "-n", "2"], "pytest"),
        ([PYTHON, "/venv/bin/pytest"], "pytest"),
        ([PYTHON, "-m", "ipykernel_launcher", "-f", "/run/kernel.json"], "Jupyter kernel"),
        ([PYTHON, "serve.py"], "serve.py"),
        ([PYTHON, "-m", "vllm.entrypoints.cli.main"], "-m vllm.entrypoints.cli.main"),
        ([PYTHON, "gunicorn.py"], "gunicorn.py"),
        ([PYTHON, "-u", "-c", EXECNET], "execnet worker"),
    ],
)
def test_a_program_is_called_by_its_role(tmp_path, argv, said):
    proc = FakeProc(tmp_path)
    proc.add(argv, pid=100)
    assert ProcTable(str(tmp_path)).get(100).called == said


@pytest.mark.parametrize(
    "parent, child, said",
    [
        ([PYTHON, "/venv/bin/gunicorn", "app:app"], None, "gunicorn worker"),
        ([PYTHON, "/venv/bin/celery", "worker"], None, "celery pool process"),
        ([PYTHON, "serve.py"], None, "serve.py"),
        ([PYTHON, "/venv/bin/pytest", "-n", "2"], [PYTHON, "-u", "-c", EXECNET], "pytest worker"),
        (["/venv/bin/python", "-m", "pytest", "-n", "2"], [PYTHON, "-u", "-c", EXECNET], "pytest worker"),
        ([PYTHON, "pytests.py"], [PYTHON, "-u", "-c", EXECNET], "execnet worker"),
        (["/bin/sh", "start.sh"], [PYTHON, "/venv/bin/gunicorn", "app:app"], "gunicorn master"),
    ],
)
def test_a_child_is_called_by_its_role(tmp_path, parent, child, said):
    proc = FakeProc(tmp_path)
    proc.add(parent, pid=100)
    proc.add(child or parent, pid=101, ppid=100)
    table = ProcTable(str(tmp_path))
    assert table.get(101).called == said
    assert is_fork(table.get(100).called, table.get(101).called) == (child is None)
