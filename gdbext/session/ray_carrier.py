"""A program of its own, for Ray's Python: runs one command line on each node of a Ray cluster, in an actor that is tied to the
node. What it reads goes to the standard input of each; of what they print each line begins with the node's name and "| ".

It needs the package ray alone, no part of gdbext: transports.py hands it over as text."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from typing import Any

READY = b"ready\n"
PART = 1 << 16
SECONDS = 60


class Runner:
    """On a node: the program, and its ends."""

    def start(self, words: list[str]) -> None:
        words[0] = sys.executable
        self.errors = tempfile.TemporaryFile()
        pipe = subprocess.PIPE
        self.program: Any = subprocess.Popen(words, cwd="/", stdin=pipe, stdout=pipe, stderr=self.errors)

    def write(self, data: bytes) -> None:
        """Empty data: the end."""
        try:
            self.program.stdin.write(data)
            self.program.stdin.flush()
            if not data:
                self.program.stdin.close()
        except OSError:
            pass  # it reads no more: what it printed says why

    def read(self) -> bytes:
        """The next bytes that it prints; none at its end."""
        return os.read(self.program.stdout.fileno(), PART)

    def complaint(self) -> bytes:
        """After its end: the last line of its error output where it has failed."""
        if self.program.wait() in (0, 3):
            return b""
        self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, self.errors.tell() - PART))
        return (self.errors.read().strip().splitlines() or [b"exit status %d" % self.program.returncode])[-1]


def names(nodes: list[dict[str, Any]]) -> list[str]:
    """A name for each node: that of its machine, its address where several have it, and its id where that is not enough."""
    found = []
    for node in nodes:
        keys = [node["NodeManagerHostname"], node["NodeManagerAddress"], f"{node['NodeManagerAddress']}-{node['NodeID'][:6]}"]
        alike = [sum(key in (n["NodeManagerHostname"], n["NodeManagerAddress"]) for n in nodes) for key in keys[:2]]
        found.append(next((key for key, count in zip(keys, alike) if count == 1), keys[2]))
    return found


class Output:
    """Standard output, a line at a time. All are ready when each has reported that, or has ended: one line says so for all."""

    def __init__(self, count: int) -> None:
        self.lock, self.left = threading.Lock(), count

    def line(self, name: str, text: bytes) -> None:
        with self.lock:
            sys.stdout.buffer.write(name.encode() + b"| " + text)
            sys.stdout.flush()

    def ready(self) -> None:
        with self.lock:
            self.left -= 1
            if self.left == 0:
                sys.stdout.buffer.write(READY)
                sys.stdout.flush()


def pump(ray: Any, actor: Any, started: Any, name: str, output: Output) -> None:
    rest, ready, said = b"", False, False
    try:
        ray.get(started)
        while True:
            data = ray.get(actor.read.remote())
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line == READY.strip() and not ready:
                    ready = True
                    output.ready()
                else:
                    said = True
                    output.line(name, line + b"\n")
            if not data:
                break
        if not said and not rest:
            rest = ray.get(actor.complaint.remote())
    except ray.exceptions.RayError as e:
        output.line(name, f"{type(e).__name__}: {(str(e).strip().splitlines() or [''])[-1]}\n".encode())
    if rest:
        output.line(name, rest + b"\n")
    if not ready:
        output.ready()


def main(words: list[str]) -> None:
    try:
        import ray  # type: ignore[import-not-found,unused-ignore]
        from ray.util.scheduling_strategies import (  # type: ignore[import-not-found,unused-ignore]
            NodeAffinitySchedulingStrategy,
        )
    except ImportError:
        sys.exit("ray: needs the package ray: run gdbext with the engine's own Python: PYTHON -m gdbext ...")
    try:
        ray.init(address=os.environ.get("RAY_ADDRESS") or "auto", log_to_driver=False, logging_level="ERROR")
    except Exception as e:  # whatever keeps it from the cluster
        sys.exit(f"the Ray cluster cannot be reached: {(str(e).strip().splitlines() or [type(e).__name__])[0]}")
    nodes = [node for node in ray.nodes() if node["Alive"]]
    output = Output(len(nodes))
    pumps: list[threading.Thread] = []
    actors: list[Any] = []
    started: list[Any] = []
    for node, name in zip(nodes, names(nodes)):
        tied = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
        made = ray.remote(Runner).options(num_cpus=0, max_restarts=0, max_concurrency=3, scheduling_strategy=tied).remote()
        started.append(made.start.remote(list(words)))
        actors.append(made)
        pumps.append(threading.Thread(target=pump, args=(ray, made, started[-1], name, output), daemon=True))
        pumps[-1].start()

    def give() -> None:
        ray.wait(started, num_returns=len(started), timeout=SECONDS)
        while True:
            data = os.read(0, PART)
            part = ray.put(data)
            ray.wait([actor.write.remote(part) for actor in actors], num_returns=len(actors), timeout=SECONDS)
            if not data:
                return

    threading.Thread(target=give, daemon=True).start()
    for one in pumps:
        one.join()


if __name__ == "__main__":
    main(sys.argv[1:])
