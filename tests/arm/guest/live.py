"""Asks the pack about live processes."""

import json
import struct
import subprocess
import sys
import time

from machine import started, tell

from gdbext.access import debug_registers, ptrace
from gdbext.access.snapshot import CoreFileTarget

COUNTS = """
import ctypes, time
word = ctypes.c_long(0)
print(ctypes.addressof(word), flush=True)
while True:
    word.value += 1
    time.sleep(0.01)
"""


def ask(line):
    """The JSON answer of one command."""
    words = [sys.executable, "-m", "gdbext", *line.split(), "-json"]
    done = subprocess.run(words, cwd="/repo", capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {"failed": done.stderr[-500:]}


def frames(data):
    """[how many Python frames of the threads are right, how many there are]"""
    found = {
        str(thread["tid"]): [[f["function"], f["file"], f["line"]] for f in thread["frames"] if f["kind"] == "python"]
        for thread in data.get("threads", ())
    }
    return [sum(len(want) for tid, want in wanted.items() if found.get(tid) == want), sum(map(len, wanted.values()))]


def watched(clear):
    """Arms a watchpoint on a word that a process writes all the time, and clears it or not: whether it lives on."""
    child, address = started("-S", "-c", COUNTS)
    with ptrace.Stopped(child.pid, 5.0):
        state = bytearray(ptrace.register_set(child.pid, debug_registers.NT_ARM_HW_WATCH))
        struct.pack_into("<QI", state, 8, address & ~7, 1 | 2 << 1 | 2 << 3 | 0xFF << 5)  # on, of user code, at stores, 8 bytes
        ptrace.set_registers(child.pid, debug_registers.NT_ARM_HW_WATCH, bytes(state[: 8 + 16 * state[0]]))
        cleared = (
            [debug_registers.clear_debug_registers(child.pid), debug_registers.clear_debug_registers(child.pid)] if clear else []
        )
    time.sleep(2)
    alive = child.poll() is None
    child.kill()
    return [state[0], cleared, alive]


subject, truth = started("/repo/subjects/py_stacks.py")
wanted = {tid: [f[:3] for f in stack] for tid, stack in truth["threads"].items()}
time.sleep(2)
tell(unstopped=frames(ask(f"pybt -all -on {subject.pid}")))
taken = ask(f"llm-snapshot {subject.pid} -o /tmp/snapshot")
tell(taken=[taken.get("failed"), taken.get("partial"), taken.get("pauses")])
tell(snapshot=frames(ask("llm-bt -all -on /tmp/snapshot")))
target = CoreFileTarget("/tmp/snapshot")
stacks = [target.unwind(thread) for thread in target.threads()]
tell(signature=target.signature, native=[sum(len(s) > 8 and all(f.reliable for f in s) for s in stacks), len(stacks)])
merged = ask(f"llm-stacks {subject.pid}")
tell(stacks=[merged.get("failed"), sum(len(g["members"]) for g in merged.get("groups", ()))])
tell(runs_on=[subject.poll() is None, ptrace.status(subject.pid)["tracer"], ptrace.status(subject.pid)["state"]])
subject.kill()
subject, truth = started("/repo/subjects/gil_states.py")
time.sleep(2)
truth, looks = {tid: state for tid, (_, state) in truth.items()}, []
while len(looks) < 5 and looks[-1:] != [truth]:  # who waits asks again every 5 ms, and is in no wait for a moment
    ask(f"llm-snapshot {subject.pid} -o /tmp/gil")
    looks.append({str(t["tid"]): t["gil"] for t in ask("pythreads -on /tmp/gil")["threads"]})
tell(gil=[looks, truth])
subject.kill()
tell(armed=watched(False), cleared=watched(True))
