"""Python breakpoints by gdb: every pass of three places is logged, and gdb is killed while one is armed."""

import json
import re
import signal
import time

from debugger import AT, FILE, GO, gdb, go_on, said_until
from machine import started, tell

from gdbext.access import ptrace

PLACES = {"work": "{number} {step}", "loop": "{number} {each}", "closure": "{number} {add}"}

subject, _ = started(FILE, GO)
go_on()  # afterwards the instructions are specialised
first = json.loads(subject.stdout.readline())
logs = [f'pylog breakpoints.py:{AT[place]} "{text}"' for place, text in PLACES.items()]
run = gdb(subject.pid, *logs, "pybreak finished", "continue", "pybt", "delete", "detach")
lines = said_until(run, "pybreak 4: ")
began = time.monotonic()
go_on()
lines += said_until(run)
text = "\n".join(lines)
tell(
    passes={place: re.findall(rf"^[\d:.]+ \d+ breakpoints\.py:{AT[place]}  (.*)$", text, re.M) for place in PLACES},
    stop=re.findall(r"^pybreak 4: (\w+) at .*hit 1$", text, re.M),
    seconds=round(time.monotonic() - began),
    first=first,
    counted=json.loads(subject.stdout.readline()),
)
run = gdb(subject.pid, "pybreak work", "continue")
armed = said_until(run, "pybreak 1: ")
while ptrace.status(subject.pid)["state"] in "tT" and run.poll() is None:  # until gdb lets it run
    time.sleep(0.5)
tell(waiting=[armed[-1:], run.poll()])
run.send_signal(signal.SIGKILL)
run.wait()
time.sleep(5)
go_on()
tell(lived=json.loads(subject.stdout.readline() or "{}"), alive=subject.poll() is None)
