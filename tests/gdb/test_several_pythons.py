"""More than one CPython in a process, and more than one interpreter on a thread: all are found, each thread says whose it is."""

import os
import re
import shutil
import subprocess

import pytest
from harness.answers import answer
from harness.gdb_run import run_gdb
from harness.heartbeats import eventually
from harness.subjects import PYTHONS, SUBJECTS, running, spawned

ASK = "import sys, sysconfig as s; v = s.get_config_var; "
ASK += "print(v('LIBDIR'), v('INSTSONAME'), sys.base_prefix, *sys.version_info[:2])"


def shared():
    """[(library, home, version)] of the CPythons for tests that have a shared library."""
    found = []
    for python in PYTHONS:
        folder, name, home, *version = subprocess.run(
            [python, "-c", ASK], capture_output=True, text=True, check=True
        ).stdout.split()
        path = os.path.join(folder, name)
        if ".so" in name and os.path.exists(path) and python.startswith(home):
            found.append((path, home, ".".join(version)))
    return found


def stacks(threads):
    return {t["name"]: [f["function"].rpartition(".")[2] for f in t["frames"] if f["kind"] == "python"] for t in threads}


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_library_that_was_never_initialised_hides_nothing(python):
    libraries = [path for path, home, _ in shared() if not python.startswith(home)]
    if not libraries:
        pytest.skip("no shared library of another CPython")
    for library in (libraries[0], libraries[-1]):
        with running(python, "two_pythons.py", library) as (target, _):
            assert any(m.path == os.path.realpath(library) for m in target.modules())
            threads = answer(f"pybt -all -on {target.pid} -json")["threads"]
            seen = stacks(threads)
            assert seen["MainThread"] == ["<module>"] and "leaf" in seen["second"] and "middle" in seen["second"]
            assert all("python" not in t and t["interpreters"] == [0] for t in threads)
            assert answer(f"pyprint value -on {target.pid} -json")["partial"] == ["unstopped"]
            groups = answer(f"llm-stacks {target.pid} -json")["groups"]
            assert any("middle" in [f["function"] for f in g["frames"]] for g in groups)


def test_two_cpythons_at_work(tmp_path, gdb_path):
    found = shared()
    if len(found) < 2 or not shutil.which("gcc"):
        pytest.skip("no two shared libraries of CPythons, or no gcc")
    host = str(tmp_path / "host")
    subprocess.run(["gcc", "-o", host, f"{SUBJECTS}/two_pythons.c", "-ldl", "-lpthread"], check=True)
    words = [host]
    for (library, home, version), name in ((found[0], "first"), (found[-1], "last")):
        code = f"import time\nvalue = {version!r}\ndef {name}_leaf(): time.sleep(1000)\n"
        code += f"def {name}_middle(): {name}_leaf()\n{name}_middle()"
        words += [library, home, code]
    with spawned(words) as process:

        def both():
            try:
                threads = answer(f"pybt -all -on {process.pid} -json")["threads"]
            except Exception:
                return None
            functions = [f["function"] for t in threads for f in t["frames"]]
            return threads if {"first_leaf", "last_leaf"} <= set(functions) else None

        eventually(both, "both interpreters at work")
        threads = {t["frames"][0]["function"]: t for t in both()}
        for (library, _, version), name in ((found[0], "first"), (found[-1], "last")):
            one = threads[f"{name}_leaf"]
            assert [f["function"] for f in one["frames"]] == [f"{name}_leaf", f"{name}_middle", "<module>"]
            assert one["python"].startswith(version) and os.path.basename(os.path.realpath(library)) in one["python"]
        assert {t["function"] for t in answer(f"pythreads -on {process.pid} -json")["threads"]} == {"first_leaf", "last_leaf"}
        said = answer(f"pyprint value -on {process.pid} -json")
        assert "2 CPythons work in it" in str(said["partial"])
        shown = {f["function"] for g in answer(f"llm-stacks {process.pid} -json")["groups"] for f in g["frames"]}
        assert {"first_leaf", "first_middle", "last_leaf", "last_middle"} <= shown and "_PyEval_EvalFrameDefault" not in shown
        ask = [f"llm-attach {process.pid}"]
        for number in (2, 3):
            ask += [f"thread {number}", "pyprint value"]
        said = run_gdb(gdb_path, [*ask, "llm-detach"])
        by_tid = {t["tid"]: t["frames"][0]["function"] for t in threads.values()}
        for heading, value in (1, 2), (3, 4):
            tid = int(re.search(r"LWP (\d+)", said.outputs[heading])[1])
            version = found[0 if by_tid[tid] == "first_leaf" else -1][2]
            assert f"'{version}'" in said.outputs[value], said.text


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_interpreters_that_one_thread_runs_are_one_stack(python, tmp_path):
    if subprocess.run([python, "-c", "import sys; sys.exit(sys.version_info[:2] == (3, 9))"]).returncode:
        pytest.skip("3.9 leaves no mark on the C stack: whose thread runs an interpreter cannot be told, each stays a row")
    with running(python, "nested_interpreters.py") as (target, truth):
        file = str(tmp_path / "shot")
        answer(f"llm-snapshot {target.pid} -o {file} -json")
        for line in (f"pybt -all -on {target.pid}", f"llm-bt -all -on {file}"):
            threads = answer(f"{line} -json")["threads"]
            seen = stacks(threads)
            assert seen["one"][:5] == ["one_leaf", "one_middle", "<module>", "caller", "outer"], (line, seen)
            assert seen["two"][:7] == ["two_leaf", "two_middle", "<module>", "inside", "<module>", "caller", "outer"]
            numbers = {t["name"]: t["interpreters"] for t in threads if t["interpreters"]}
            assert numbers["MainThread"] == [0] and numbers["one"][1:] == [0] and len(set(numbers["two"])) == 3
        frames = next(t for t in threads if t["name"] == "one")["frames"]
        between = frames[[f["function"] for f in frames].index("one_middle") + 1 :]
        names = [f["function"] for f in between if f["kind"] == "native"]
        assert not any("_PyEval" in n for n in names)
        tid = next(t["tid"] for t in threads if t["name"] == "twice")
        edges = [e for e in answer(f"llm-locks {target.pid} -json")["edges"] if e["waiter"]["tid"] == tid]
        assert len(edges) == 1 and "twice" in edges[0]["where"] and "no frame" not in edges[0]["note"], edges
