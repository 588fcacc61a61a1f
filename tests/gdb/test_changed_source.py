"""Source that is not what runs is said to be so; source in an archive is read there."""

import os
import shutil
import sys
import time
import zipfile

import pytest
from harness.answers import answer, run
from harness.subjects import PYTHONS, spawned

TEXT = """import functools, sys, time


@functools.lru_cache(
    None
)
def leaf(n):
    print("ready", flush=True)
    sys.stdin.read()
    return n


class Loop:
    def run(self):
        return leaf(4)


Loop().run()
"""


def asked(pid, names=("leaf", "run", "module")):
    """{function: what is said of its source}, the innermost frame's text line."""
    found = {}
    for number, name in enumerate(names):
        said = answer(f"pyframe {number} -on {pid} -json")
        assert name in said["frame"]["function"]
        found[name] = [d for d in said["partial"] if "changed" in d]
    return found


@pytest.mark.parametrize("python", [PYTHONS[0], PYTHONS[-1]], ids=os.path.basename)
def test_source_that_was_changed_is_said(python, tmp_path):
    path = str(tmp_path / "engine.py")
    with open(path, "w") as f:
        f.write(TEXT)
    os.utime(path, (1, 1))
    with spawned([python, path], ready="ready") as process:
        # the file is new here, and the process began at once after it: what is asked is whether the content tells
        assert all("does not begin" not in d for said in asked(process.pid).values() for d in said)
        with open(path, "w") as f:
            f.write("# one line more\n" + TEXT)
        said = asked(process.pid)
        assert "does not begin leaf" in said["leaf"][0] and "does not begin run" in said["run"][0]
        assert "was changed at" in said["module"][0]
        listed = answer(f"pylist -on {process.pid} -json")
        assert any("does not begin leaf" in d for d in listed["partial"])
        with open(path, "w") as f:  # the functions begin where they did, their bodies are others
            f.write(TEXT.replace("return n", "return n + 1"))
        assert all("was changed at" in d[0] for d in asked(process.pid).values())
        os.rename(path, path + ".old")
        shutil.copyfile(path + ".old", path)
        os.utime(path, (1, 1))  # an installer keeps the time of the content
        assert "was changed at" in asked(process.pid)["run"][0]


def test_source_that_was_not_changed_raises_no_doubt():
    with spawned(
        [sys.executable, "-c", "import threading\nprint('ready', flush=True)\nthreading.Event().wait()"], ready="ready"
    ) as p:
        said = answer(f"pyframe 0 -on {p.pid} -json")
        assert os.path.basename(said["frame"]["file"]) == "threading.py"
        assert not [d for d in said["partial"] if "changed" in d]


@pytest.mark.parametrize("python", [PYTHONS[0], PYTHONS[-1]], ids=os.path.basename)
def test_source_in_an_archive(python, tmp_path):
    path = str(tmp_path / "app.pyz")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pack/__init__.py", "")
        archive.writestr("pack/engine.py", TEXT)
        archive.writestr("__main__.py", "import pack.engine\n")
    with spawned([python, path], ready="ready") as process:
        said = answer(f"pylist -on {process.pid} -json")
        assert said["lines"][said["line"] - said["lines"][0]["line"]]["text"].strip() == "sys.stdin.read()"
        assert not any("does not begin" in d or "was changed" in d for d in said["partial"])
        with zipfile.ZipFile(path + ".new", "w") as archive:  # an upgrade, which moves no line
            archive.writestr("pack/engine.py", TEXT.replace("sys.stdin.read()", "return 'other'"))
        os.replace(path + ".new", path)
        os.utime(path, (time.time() + 5,) * 2)  # a process's start is known to some hundredths of a second
        said = answer(f"pylist -on {process.pid} -json")
        assert any("engine.py was changed at" in d for d in said["partial"]), said["partial"]


CELL = """
import linecache, sys
text = "def cell(n):\\n    before = n\\n    wait()\\n    return before\\ncell(9)\\n"
name = "/tmp/ipykernel_77/1234.py"
linecache.cache[name] = (len(text), None, text.splitlines(True), name)
def wait():
    print("ready", flush=True)
    sys.stdin.read()
exec(compile(text, name, "exec"))
"""


@pytest.mark.parametrize("python", [PYTHONS[0], PYTHONS[-1]], ids=os.path.basename)
def test_source_that_only_the_process_has_is_shown(python, tmp_path):
    """A cell of Jupyter is in linecache alone: live, and in a snapshot."""
    with spawned([python, "-c", CELL], ready="ready") as process:
        answer(f"llm-snapshot {process.pid} -o {tmp_path}/x.core")
        for where in (process.pid, f"{tmp_path}/x.core"):
            said = run(f"pyframe cell -on {where}")
            assert said.data["frame"]["function"] == "cell" and "    wait()" in said.to_text(), said.to_text()
