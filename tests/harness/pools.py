"""Processes with thread pools (gdb/subjects/pool.py)."""

import contextlib
import json
import os
import subprocess
import sys

from .heartbeats import asleep
from .subjects import SUBJECTS


@contextlib.contextmanager
def pools(*words, python=sys.executable):
    """-> [truth] of one running pool.py per word."""
    found = [
        subprocess.Popen([python, os.path.join(SUBJECTS, "pool.py"), *word.split()], stdout=subprocess.PIPE, text=True)
        for word in words
    ]
    try:
        truths = [json.loads(p.stdout.readline()) for p in found]
        asleep(*(p.pid for p, word in zip(found, words) if "moving" not in word))
        yield truths
    finally:
        for p in found:
            p.kill()
            p.communicate()
