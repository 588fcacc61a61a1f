"""The filter of -unstopped: what the kernel refuses then, to this process, its threads and what it starts."""

import subprocess
import sys

import pytest

from gdbext.access import stop_nothing

TRIES = """
import ctypes, os, signal, subprocess, sys, threading
from gdbext.access import ptrace, stop_nothing
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
stop_nothing.install()
stop_nothing.install()  # once is enough
def told(call, *words):
    try:
        call(*words)
    except OSError as e:
        return e.errno
    return 0
def signals():
    return [told(os.kill, other.pid, number) for number in (0, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTERM, signal.SIGCONT)]
TGKILL = {"x86_64": 234, "aarch64": 131}[ptrace.MACHINE]
def tgkill(number):
    return ptrace.libc.syscall(TGKILL, other.pid, other.pid, number) and ctypes.get_errno()
found = [told(ptrace.call, ptrace.SEIZE, other.pid), signals(), tgkill(19), tgkill(18)]
thread = threading.Thread(target=lambda: found.append(signals()))
thread.start(); thread.join()
code = f"import os\\ntry: os.kill({other.pid}, 19)\\nexcept OSError as e: print(e.errno)"
found.append(int(subprocess.run([sys.executable, "-c", code], capture_output=True).stdout))
with open("/proc/self/status") as f:
    found.append("Seccomp:\\t2" in f.read())
other.kill()
print(found, other.wait())
"""


@pytest.mark.skipif(stop_nothing.ptrace.MACHINE not in stop_nothing.ARCH, reason="no list of system calls of this machine")
def test_nothing_can_be_stopped_by_a_command_that_is_to_stop_nothing():
    done = subprocess.run([sys.executable, "-c", TRIES], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[1, [0, 1, 1, 1, 0], 1, 0, [0, 1, 1, 1, 0], 1, True] -9", done.stderr


@pytest.mark.parametrize("machine", sorted(stop_nothing.ARCH))
def test_each_way_through_the_filter_ends_in_it(machine):
    """By running it, for each system call and each signal."""
    import struct

    code = list(struct.iter_unpack("<HBBI", stop_nothing.program(machine)))

    def answer(number, *arguments, arch=stop_nothing.ARCH[machine]):
        at = held = 0
        data = {stop_nothing.NUMBER: number, stop_nothing.WHICH_ARCH: arch}
        data.update({stop_nothing.ARGUMENTS + 8 * i: one for i, one in enumerate(arguments)})
        while True:
            what, yes, no, value = code[at]
            if what == stop_nothing.RETURN:
                return value
            if what == stop_nothing.LOAD:
                held = data[value]
            else:
                at += yes if (held == value if what == stop_nothing.EQUAL else held >= value) else no
            at += 1

    for number in range(1000):
        place = stop_nothing.SIGNALS[machine].get(number)
        for signal in range(65):
            arguments = [77, 77, 77, 77, 77, 77]
            arguments[place if place is not None else 1] = signal
            refused = number in stop_nothing.REFUSED[machine] or place is not None and signal not in stop_nothing.ALLOWED
            assert (answer(number, *arguments) == stop_nothing.REFUSE) == bool(refused), (number, signal)
    assert answer(0, arch=0x40000003) == answer(0x40000000 | 101) == stop_nothing.REFUSE  # i386's, x32's
