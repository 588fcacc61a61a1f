"""Processes with thread pools (gdb/subjects/pool.py)."""

import contextlib
import json
import os
import sys

from .heartbeats import asleep
from .subjects import SUBJECTS, spawned


@contextlib.contextmanager
def pools(*words, python=sys.executable):
    """-> [truth] of one running pool.py per word."""
    with contextlib.ExitStack() as stack:
        line = [python, os.path.join(SUBJECTS, "pool.py")]
        found = [stack.enter_context(spawned([*line, *word.split()], ready="{")) for word in words]
        asleep(*(p.pid for p, word in zip(found, words) if "moving" not in word))
        yield [json.loads(p.said) for p in found]
