"""A program that is started to be recorded."""

from __future__ import annotations

import subprocess
import time
from typing import Sequence

from ..access.proc import ProcTarget
from ..cpython.runtime import open_runtime
from ..errors import GdbextError

SECONDS = 10.0  # that its interpreter may take to begin


def start(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts a Python program, which has this terminal, and waits until its interpreter can be read. `GdbextError` for none."""
    try:
        child = subprocess.Popen(words)
    except OSError as e:
        raise GdbextError(f"{words[0]}: {e.strerror}") from None
    until = time.monotonic() + SECONDS
    while True:
        try:
            target = ProcTarget(child.pid)
            try:
                if open_runtime(target).threads():
                    return child
            finally:
                target.close()
        except GdbextError as e:
            if child.poll() is not None:
                raise GdbextError(f"{words[0]} ended with status {child.returncode} before anything was seen of it") from None
            if time.monotonic() > until:
                raise GdbextError(f"{words[0]} (pid {child.pid}) goes on, unrecorded: {e}") from None
        time.sleep(0.002)
