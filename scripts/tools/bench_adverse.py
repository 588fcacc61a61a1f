"""scripts/bench --adverse: the same questions where a look is hard (no room in the engine's memory group, a read-only root,
a full disk, a frozen group, another debugger, a page that does not come), each beside the same question of a process that is
well, in the same rounds. The places are those of tests/harness/adverse.py, which the tests hold to their answers."""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time

import pytest
from harness import adverse

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMANDS = ("llm-stacks", "llm-hang", "llm-snapshot")
LIMIT = 120


@contextlib.contextmanager
def _places(folder):
    """-> [(what, pid, words before a command, more for Popen, folder for a snapshot)]; what cannot be made here is left out."""
    found = []
    out = os.path.join(folder, "out")
    os.mkdir(out)

    def add(what, make):
        try:
            found.append((what, *make()))
        except pytest.skip.Exception as e:
            print(f"{what}: not here: {e}", flush=True)

    with contextlib.ExitStack() as stack:
        enter = stack.enter_context

        def crowded():
            engine, group = enter(adverse.crowded(20 << 20))
            return engine.pid, [], {"preexec_fn": adverse.cgroups.joining(group)}, out

        def full():
            enter(adverse.full_disk(os.path.join(folder, "full")))
            env = {**os.environ, "TMPDIR": os.path.join(folder, "full")}
            return enter(adverse.program(adverse.UP)).pid, [], {"env": env}, os.path.join(folder, "full")

        def held():
            pid = enter(adverse.program(adverse.UP)).pid
            enter(adverse.held(pid))
            return pid, [], {}, out

        def absent():
            process = enter(adverse.absent(adverse.library(folder), "fuse", os.path.join(folder, "mount")))
            return process.pid, [], {}, out

        add("20 MiB to spare in the engine's memory group", crowded)
        add("read-only root, no `/tmp`", lambda: (enter(adverse.program(adverse.UP)).pid, adverse.read_only(), {}, out))
        add("full disk", full)
        add("frozen group", lambda: (enter(adverse.frozen()).pid, [], {}, out))
        add("held by another debugger", held)
        add("a page of a FUSE file that does not come", absent)
        yield found


def _ask(command, pid, before, more, out):
    """-> (seconds, how it ended: "answer", "part" for one that says what is missing, "line" for one that says why not)"""
    words = [
        *before,
        sys.executable,
        "-m",
        "gdbext",
        command,
        str(pid),
        *(["-force", "-o", out] if command == "llm-snapshot" else []),
    ]
    env = {**more.get("env", os.environ), "PYTHONPATH": ROOT}
    start = time.monotonic()
    done = subprocess.run(
        words, **{**more, "env": env}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    seconds = time.monotonic() - start
    said = (done.stderr or done.stdout).strip().splitlines()
    how = {0: "answer", 3: "part"}.get(done.returncode, "line" if done.returncode == 1 and len(said) == 1 else "?")
    if how in ("line", "?"):
        print(f"    {command}: {done.returncode}: {said[-1] if said else ''}", flush=True)
    return seconds, how


def main(rounds):
    """Prints a table for docs/measurements.md: medians."""
    with tempfile.TemporaryDirectory(prefix="gdbext-bench-") as folder, _places(folder) as places:
        with adverse.program(adverse.UP) as well, adverse.program(adverse.FILLED + adverse.UP) as big:
            rows = []
            for what, pid, before, more, out in places:
                beside = big.pid if "MiB" in what else well.pid
                cells = []
                for command in COMMANDS:
                    pairs = [
                        (_ask(command, pid, before, more, out), _ask(command, beside, [], {}, os.path.join(folder, "out")))
                        for _ in range(rounds)
                    ]
                    there, here = (statistics.median(pair[i][0] for pair in pairs) for i in (0, 1))
                    cells.append(f"{there:.2f} / {here:.2f} ({', '.join(sorted({pair[0][1] for pair in pairs}))})")
                rows.append((what, cells))
                print(what, *cells, sep="  ", flush=True)
    print("\n| where | " + " | ".join(f"`{command}` s" for command in COMMANDS) + " |")
    print("| --- " * (1 + len(COMMANDS)) + "|")
    for what, cells in rows:
        print(f"| {what} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
