"""What else stops in Python, by gdb: steps, an exception that is raised, traced calls, a module that is imported later."""

import itertools
import json
import subprocess
import sys
import time

from debugger import FILE, GO, gdb, going_on, said_until
from machine import started, tell

truth = json.loads(subprocess.check_output([sys.executable, FILE, "steps"]))
steps = [place for place, _ in itertools.groupby([name, line] for _, name, line, depth in truth if depth > 0)]
subject, _ = started(FILE, GO)
commands = [
    *("pybreak stepped", going_on("step"), "continue", *["pystep"] * (len(steps) - 1), "delete"),
    *("pycatch ValueError if number > 5", going_on("run"), "continue", "pyprint number", "pyexc", "delete"),
    *("pytrace Machine.two", "pybreak finished", "continue", "delete"),
    *("pybreak late_module.py:7 if number == 3", going_on("late"), "continue", "pyprint number, doubled", "delete", "detach"),
]
began = time.monotonic()
run = gdb(subject.pid, *itertools.chain.from_iterable(("echo ==\\n", command) for command in commands))
outputs = [part.strip() for part in "\n".join(said_until(run)).split("==\n")][1:]
said = list(zip(commands, outputs))
tell(
    steps=steps,
    stepped=[text for _, text in said[2 : 2 + len(steps)]],
    others=dict(said[3 + len(steps) :]),
    continued=[text for command, text in said if command == "continue"],
    seconds_of_steps=round(time.monotonic() - began),
    tallies=[json.loads(subject.stdout.readline()) for word in ("step", "run", "late")],
)
