"""Processes that hang in known ways: gdb/subjects/faults.py, and gloo ranks that take words."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time

from .answers import answer
from .heartbeats import asleep
from .subjects import SUBJECTS, ready_line, spawned


@contextlib.contextmanager
def fault(scenario, python=sys.executable):
    """-> (pid to look at, culprits' tids)"""
    words = [python, os.path.join(SUBJECTS, "faults.py"), scenario]
    with spawned(words, ready="{", start_new_session=True) as child:
        truth = json.loads(child.said)
        asleep(truth["pid"], seconds=2)  # some never do
        yield truth["pid"], truth["culprits"]


class Ranks:
    """Gloo ranks that take words."""

    def __init__(self, python, count, world, folder):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        command = [python, os.path.join(SUBJECTS, "gloo_rank.py")]
        self.folder = str(folder)
        self.processes = [
            subprocess.Popen(
                [*command, str(r), str(world), str(port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for r in range(count)
        ]
        self.pids = [int(self.expect(r, "starting")[0]) for r in range(count)]

    def expect(self, rank, word, seconds=120):
        """What a rank says after `word`. One that does not say it in time is ended."""
        return ready_line(self.processes[rank], word, seconds).split()[1:]

    def do(self, *words):
        """One word for each rank; '' for none. Then time to get there."""
        for process, word in zip(self.processes, words):
            if word:
                process.stdin.write(word + "\n")
                process.stdin.flush()
        time.sleep(0.2)
        asleep(*self.pids, seconds=1)  # some never do

    def flag(self, name):
        return os.path.join(self.folder, name)

    def meet(self, name, *words):
        """Lets the absent rank come: sets the flag, and waits until all have done their words."""
        open(self.flag(name), "w").close()
        for rank, _word in enumerate(words):
            self.expect(rank, "did")

    def hang(self):
        return answer(f"llm-hang {' '.join(map(str, self.pids))} -wait 0.6 -json")

    def close(self):
        for process in self.processes:
            process.kill()
            process.communicate()
