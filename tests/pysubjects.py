"""Runs a Python subject of tests/gdb/subjects under some interpreter and hands over what it says is true of itself.

A subject prints one line of JSON, its truth, then sleeps until it is ended.
"""

import contextlib
import json
import os
import subprocess
import sys

from gdbext.target.proc import ProcTarget

SUBJECTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gdb", "subjects")
PYTHONS = [p for p in os.environ.get("GDBEXT_TEST_PYTHONS", "").split(":") if p] or [sys.executable]


class Damaged(ProcTarget):
    """A process whose words at the addresses in `bad` read as other values."""

    bad = {}

    def _read(self, at, size):
        raw = bytearray(super()._read(at, size))
        for place, value in self.bad.items():
            if at <= place and place + 8 <= at + size:
                raw[place - at : place - at + 8] = value.to_bytes(8, "little")
        return bytes(raw)


@contextlib.contextmanager
def running(python, name, *arguments):
    """-> (ProcTarget, truth) of a subject that has said its truth and is now still."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    process = subprocess.Popen(
        [python, os.path.join(SUBJECTS, name), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
    )
    try:
        line = process.stdout.readline()
        assert line, f"{python} {name} said nothing and ended with {process.wait(20)}"
        target = ProcTarget(process.pid)
        try:
            yield target, json.loads(line)
        finally:
            target.close()
    finally:
        process.kill()
        process.communicate()
