"""What the demo types into gdb. Runs inside gdb's Python; gdbext/init.py is loaded already."""

import json
import os
import time

import gdb

from gdbext.access.cli_gdb import command

# engine -> the process to attach, the function whose frame holds its state, what to look at there
SESSIONS = {
    "vllm": [
        (
            "TP0",
            "worker_busy_loop",
            [
                "pytensor self.worker.worker.model_runner.kv_caches[0] -slice 1,0",
                "pytensor self.worker.worker.model_runner.seq_lens -slice :8",
            ],
        ),
        ("EngineCore", "run_busy_loop", ["pyprint self.scheduler.running[0].request_id", "pyprint self.scheduler.running[0]"]),
    ],
    "sglang": [
        (
            "TP0",
            "event_loop_normal",
            [
                "pyprint self.running_batch.reqs[0].rid",
                "pyprint self.running_batch.reqs[0]",
                "pytensor self.token_to_kv_pool_allocator._kvcache.k_buffer[0]",
                "pytensor self.running_batch.seq_lens",
            ],
        ),
    ],
}


def execute(template, *values):
    """Type a command: echo it, then its output. -> whether it worked."""
    print(f"\n(gdb) {template.format(*values)}", flush=True)
    start = time.monotonic()
    try:
        gdb.execute(command(template, *values))
    except gdb.error as e:
        print(e, flush=True)
        return False
    print(f"    [{time.monotonic() - start:.2f} s]", flush=True)
    return True


def frame_of(function):
    """The index of the Python frame that runs `function`, for pyframe; 0 when it cannot be found."""
    answer = json.loads(gdb.execute("pybt -json", to_string=True))
    for thread in answer["threads"]:
        for frame in thread["frames"]:
            if frame["function"].split(".")[-1] == function:
                return frame["level"]
    raise gdb.GdbError(f"no frame of {function} on the selected thread's Python stack")


def name_of(label):
    """`label`, or the pid of the demo's own process of that name where other engines on this machine have it too."""
    own = set(map(int, os.environ["GDBEXT_DEMO_PIDS"].split()))
    named = [r["pid"] for r in json.loads(gdb.execute("llm-ranks -json", to_string=True))["ranks"] if r["label"] == label]
    return label if len(named) == 1 else next((str(pid) for pid in named if pid in own), label)


def main():
    worked = [execute("llm-ranks")]
    for label, function, commands in SESSIONS[os.environ["GDBEXT_DEMO_ENGINE"]]:
        worked += [execute("llm-attach {}", name_of(label)), execute("pybt")]
        try:
            worked.append(execute("pyframe {}", frame_of(function)))
        except (gdb.error, ValueError, KeyError) as e:
            print(e)
            worked.append(False)
        worked += [execute("{}", line) for line in commands]
        worked.append(execute("llm-detach"))
    if not all(worked):
        print(f"\n{worked.count(False)} of {len(worked)} commands did not work", flush=True)
        gdb.execute("quit 1")


main()
