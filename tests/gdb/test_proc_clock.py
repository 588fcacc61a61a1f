"""The clock of a process: what it ran, by the kernel's count."""

import subprocess
import sys
import time

from harness.heartbeats import asleep

from gdbext.access.proc import process_clock


def test_it_stands_while_a_process_sleeps_and_goes_on_while_it_runs():
    words = [sys.executable, "-c", "import sys\nfor line in sys.stdin:\n for _ in range(300000): pass\n print(flush=True)"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        seen = []
        for _ in range(3):
            child.stdin.write("\n")
            child.stdin.flush()
            child.stdout.readline()
            assert asleep(child.pid)
            seen.append(process_clock(child.pid))
            assert process_clock(child.pid) == seen[-1]
        child.stdin.close()
    assert seen[0] < seen[1] < seen[2] and process_clock(child.pid) is None
    began, own = time.process_time_ns(), process_clock(0)
    assert own is not None and began <= own <= time.process_time_ns()
