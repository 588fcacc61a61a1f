"""Does a job beside another one, at an engine's priority (share.py): most of what it takes, that one leaves idle."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import tempfile

from .say import Failed, say
from .share import lower_priority


def _do(job, answer, output: int) -> None:
    os.setsid()  # whose priority among sessions is its own
    lower_priority()
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.stdout = sys.stderr = open(1, "w", buffering=1, errors="replace", closefd=False)
    answer.send(job())


@contextlib.contextmanager
def beside(job, what: str):
    """`job()` in a process of its own at a lower priority, which ends with the block. -> function that waits for what it
    returns, once what it has printed is printed; `Failed`, with `what`, where it ended without that."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        receiver, sender = context.Pipe(duplex=False)
        sys.stdout.flush()
        process = context.Process(target=_do, args=(job, sender, output.fileno()))
        process.start()
        sender.close()

        def answer():
            with contextlib.suppress(OSError), open(f"/proc/{process.pid}/autogroup", "w") as f:
                f.write("0")  # the other one has ended: its session is like any other, where this user may say so
            try:
                found = receiver.recv()
            except EOFError:
                found = None
            process.join()
            output.seek(0)
            say(output.read().rstrip("\n"))
            if found is None:
                raise Failed(f"{what} ended before its end, with status {process.exitcode}")
            return found

        try:
            yield answer
        finally:
            if process.is_alive():
                process.terminate()
            process.join()
