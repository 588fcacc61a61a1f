"""What the scripts on an arm64 machine (harness/arm_machine.py) need: how they tell what they see, one line
"@@ {which: {name: value}}" each, as soon as it is known, and the Python programs that they look at."""

import json
import os
import subprocess
import sys

sys.path.insert(0, "/repo")


def tell(**facts):
    """`which` is what the first process says this one is: a minor."""
    print("\n@@ " + json.dumps({os.environ["WHICH"]: facts}), flush=True)


def started(*words):
    """A Python program that runs, and the JSON of its first line."""
    child = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    return child, json.loads(child.stdout.readline())
