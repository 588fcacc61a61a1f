"""Programs that are no engine: what their processes are called, and which test of pytest stands."""

import os
import sys

from harness.answers import answer
from harness.heartbeats import eventually
from harness.subjects import spawned

STANDS = """
import threading, time
a, b = threading.Lock(), threading.Lock()
def one():
    with a:
        time.sleep(0.2)
        with b:
            pass
def test_that_is_well():
    pass
def test_deadlock():
    threading.Thread(target=one, daemon=True).start()
    with b:
        time.sleep(0.2)
        print("stands", flush=True)
        with a:
            pass
"""


def test_the_test_that_stands_is_named(tmp_path):
    (tmp_path / "test_stands.py").write_text(STANDS)
    words = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "test_stands.py"]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}  # no worker of this run
    with spawned(words, cwd=tmp_path, env=alone) as process:

        def culprits():
            found = answer(f"llm-hang {process.pid}")
            return found["verdict"] == "lock-cycle" and found["verdicts"][0]["culprits"]

        eventually(culprits, "the deadlock")
        assert {c["program"] for c in culprits()} == {"pytest, test_stands.py::test_deadlock (call)"}


KERNEL = """
import os, sys, time, types
shell = types.ModuleType("IPython.core.interactiveshell")
sys.modules[shell.__name__] = shell
class Compiler:
    pass
class InteractiveShell:
    _instance = None
shell.InteractiveShell = InteractiveShell
InteractiveShell._instance = InteractiveShell()
InteractiveShell._instance.compile = Compiler()
first, second, other = (f"/tmp/ipykernel_{os.getpid()}/{n}.py" for n in (101, 202, 303))
InteractiveShell._instance.compile._filename_map = {first: 1, second: 12}
space = {"time": time}
exec(compile("def stands():\\n    print('READY', flush=True)\\n    time.sleep(600)", first, "exec"), space)
exec(compile("def unknown():\\n    stands()", other, "exec"), space)
exec(compile("\\nunknown()", second, "exec"), space)
"""


def test_cells_of_jupyter_have_their_numbers():
    """A FAKE of IPython's shell: the map from files to cells that its compiler keeps (IPython/core/compilerop.py)."""
    with spawned([sys.executable, "-c", KERNEL], ready="READY") as process:
        frames = answer(f"pybt -on {process.pid}")["threads"][0]["frames"]
    found = [(f["function"], f.get("cell"), f["line"]) for f in frames[:3]]
    assert found == [("stands", "In[1]", 3), ("unknown", None, 2), ("<module>", "In[12]", 2)]
    assert frames[0]["file"] == f"/tmp/ipykernel_{process.pid}/101.py"
