"""A plugin of pytest: the verdict on a test that takes too long, printed while it hangs.

    pytest -p pytest_hang --hang-after 30

A process of its own watches, so it sees also a test that keeps the GIL. The test goes on; pytest-timeout can end it.
"""

import ctypes
import os
import selectors
import subprocess
import sys

PR_SET_PTRACER = 0x59616D61  # prctl(2): with kernel.yama.ptrace_scope=1 a child may not look at its parent by itself


def pytest_addoption(parser):
    parser.addoption(
        "--hang-after", type=float, default=60.0, metavar="S", help="print a verdict on a test after so many seconds"
    )


def pytest_configure(config):
    config.pluginmanager.register(Watched(config.getoption("--hang-after")))


class Watched:
    """Tells the watching process which test runs."""

    def __init__(self, seconds):
        output = os.dup(2)  # the terminal's, whatever a test captures
        line = [sys.executable, __file__, str(os.getpid()), str(seconds)]
        self.watch = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=output, stderr=output, text=True)
        os.close(output)
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, self.watch.pid, 0, 0, 0)

    def tell(self, test):
        if self.watch.poll() is None:
            self.watch.stdin.write(test + "\n")
            self.watch.stdin.flush()

    def pytest_runtest_logstart(self, nodeid):
        self.tell(nodeid)

    def pytest_runtest_logfinish(self):
        self.tell("")

    def pytest_unconfigure(self):
        self.watch.stdin.close()
        self.watch.wait(60)


def watch(pid, seconds):
    """The watching process: it reads a line where a test begins, an empty one where it has ended."""
    import gdbext

    said, test = selectors.DefaultSelector(), ""
    said.register(0, selectors.EVENT_READ)
    while True:
        if said.select(seconds if test else None):
            text = os.read(0, 1 << 16).decode()
            if not text:
                return
            test = text.split("\n")[-2]
            continue
        try:
            verdict = gdbext.attach(pid).hang()
        except gdbext.GdbextError as e:
            verdict = f"no verdict: {e}"
        print(f"\n{test} has run for {seconds:g} s\n{verdict}", flush=True)
        test = ""


if __name__ == "__main__":
    watch(int(sys.argv[1]), float(sys.argv[2]))
