"""What is folded away is the interpreter's by its library and its symbol, and it is counted; a user's native code never is."""

import glob
import json
import os
import shutil
import subprocess

import pytest
from harness.answers import answer
from harness.subjects import PYTHONS, SUBJECTS, minor, running, spawned

LAYERS = ["call_python", "gen_tokens", "PyEngine_step", "method_dispatch", "slot_of_request", "wrapper_main", "start"]


def library(folder, strip):
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    path = str(folder / "libhidden.so")
    source = f"{SUBJECTS}/hidden_names.c"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-o", path, source, "-lpthread"], check=True)
    if strip:
        subprocess.run(["objcopy", "--strip-all", path], check=True)
    return path


def stack_with(pid, function, tmp_path):
    """The frames of the thread that runs `function`, and the answer's thread with the interpreter's frames too."""
    file = str(tmp_path / "shot")
    answer(f"llm-snapshot {pid} -o {file} -json")
    found = []
    for raw in ("", " -raw"):
        threads = answer(f"llm-bt -all -on {file} -json{raw}")["threads"]
        found += [t for t in threads if any(f["function"] == function for f in t["frames"])]
    return found


@pytest.mark.parametrize("strip", [False, True], ids=["named", "stripped"])
@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_users_native_frames_are_shown(python, strip, tmp_path):
    path = library(tmp_path, strip)
    with running(python, "hidden_names.py", path) as (target, truth):
        thread, raw = stack_with(truth["pid"], "forward", tmp_path)
    mine = [f["function"] for f in thread["frames"] if f["library"] == path]
    assert len(mine) == len(LAYERS) and (strip or mine == LAYERS)
    activations = sum(bool(f.get("activation")) for f in raw["frames"])
    python_frames = sum(f["kind"] == "python" for f in thread["frames"])
    assert thread["folded"] == len(raw["frames"]) - len(thread["frames"]) - activations and python_frames >= 2
    assert not any(f["function"].startswith(("_Py", "PyEval", "start_thread", "clone")) for f in thread["frames"])


def embedding(python, folder, strip):
    """A program that has CPython linked in, and the home of that; None where there is no static library that links."""
    ask = "import sysconfig as s, sys; print(*map(s.get_config_var, ('LIBPL', 'LIBRARY', 'INCLUDEPY', 'prefix')), sep='\\n')"
    place, name, headers, home = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.split()
    archive = next(iter(glob.glob(f"{place}/*-pic.a")), os.path.join(place, name))
    if not os.path.exists(archive) or not os.path.exists(f"{headers}/Python.h") or not shutil.which("g++"):
        return None
    host = str(folder / "engine")
    words = ["g++", "-O1", "-o", host, f"{SUBJECTS}/hidden_names_host.cpp", f"-I{headers}", archive]
    if subprocess.run([*words, "-lpthread", "-ldl", "-lutil", "-lm", "-lz", "-lexpat"], capture_output=True).returncode:
        return None
    if strip:
        subprocess.run(["strip", "-s", host], check=True)
    return host, home


@pytest.mark.parametrize("strip", [False, True], ids=["named", "stripped"])
@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_program_that_has_cpython_linked_in(python, strip, tmp_path):
    if not strip and minor(python) != 11:
        pytest.skip("a linked-in CPython with its names is like that of the others")
    built = embedding(python, tmp_path, strip) or pytest.skip("no CPython as a static library that links, or no g++")
    host = built[0]
    with spawned([*built], ready="{") as process:
        thread, _ = stack_with(json.loads(process.said)["pid"], "forward", tmp_path)
    names = [f["function"] for f in thread["frames"]]
    at = names.index("forward")
    assert [f["function"] for f in thread["frames"] if f["kind"] == "python"] == ["inner", "forward"]
    if strip:  # nothing tells whose those are: they are shown, without names; up to 3.9 nor which of them run Python
        outward = thread["frames"][at if minor(python) > 9 else 0 :]
        assert sum(not f["function"] and f["library"] == host for f in outward) >= 5
        assert minor(python) > 9 or not any(f["reliable"] for f in thread["frames"] if f["kind"] == "python")
    else:
        assert [n.partition("(")[0] for n in names[at + 1 : at + 5]] == [
            "PyScheduler::call_model",
            "gen_tokens",
            "PyEngine_run",
            "run_mod",
        ]
        assert not any(n.startswith(("_PyObject", "_PyEval", "object_vacall")) for n in names)
