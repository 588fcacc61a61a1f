"""How the pack itself stops a process that gdb lets run (control/time_limit.py)."""

import signal
import subprocess
import sys

import pytest
from harness.gdb_run import INIT
from harness.heartbeats import eventually, heartbeats

from gdbext.access import ptrace

ENDS_FIRST = """
python
import os, signal, subprocess, types
from gdbext.control import time_limit

FIRST = "import os, sys; os.kill(int(sys.argv[1]), 19); os.kill(int(sys.argv[2]), int(sys.argv[3])); os.kill(int(sys.argv[1]), 9)"

def kill(pid, number):
    subprocess.Popen([{python!r}, "-c", FIRST, *(str(int(n)) for n in (os.getpid(), pid, number))])

time_limit.os, time_limit.STOP = types.SimpleNamespace(**dict(vars(os), kill=kill)), signal.{number}
end
"""


@pytest.mark.parametrize("number,lives", [("SIGWINCH", True), ("SIGINT", False)])
def test_a_gdb_that_is_killed_before_it_takes_its_own_stop_costs_no_rank(number, lives, gdb_path, tmp_path):
    """With the signal that the pack uses; SIGINT, gdb's own, shows that the moment is met."""
    with heartbeats(tmp_path, 1) as (one,):
        script = tmp_path / "ends.gdb"
        script.write_text(ENDS_FIRST.format(python=sys.executable, number=number))
        words = [gdb_path, "-nx", "-batch", "-iex", "set debuginfod enabled off", "-x", INIT, "-ex", f"llm-attach {one.pid}"]
        done = subprocess.run([*words, "-x", str(script), "-ex", "llm-continue -for 0.2"], stdin=subprocess.DEVNULL, timeout=120)
        assert done.returncode == -signal.SIGKILL
        eventually(lambda: not ptrace.tracers(one.pid), "the guard to let go")
        if lives:
            assert one.runs()
        else:
            eventually(lambda: one.process.poll() is not None, "the process to end")


REFUSED = """
python
import os, types
from gdbext.control import time_limit

def kill(pid, number):
    if number == time_limit.STOP:
        raise PermissionError(1, "Operation not permitted")
    os.kill(pid, number)

time_limit.os = types.SimpleNamespace(**dict(vars(os), kill=kill))
end
"""


def test_who_may_trace_and_not_signal_comes_back_all_the_same(gdb_path, tmp_path):
    with heartbeats(tmp_path, 1) as (one,):
        script = tmp_path / "refused.gdb"
        script.write_text(REFUSED)
        words = [gdb_path, "-nx", "-batch", "-iex", "set debuginfod enabled off", "-x", INIT, "-ex", f"llm-attach {one.pid}"]
        more = ["-x", str(script), "-ex", "llm-continue -for 0.2", "-ex", "llm-detach"]
        done = subprocess.run([*words, *more], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=120)
        assert done.returncode == 0 and "stopped again" in done.stdout, done.stdout
        assert one.runs()
