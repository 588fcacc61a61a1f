"""gdb with the pack, and the subject that counts its passes, of fewer rounds: each pass takes long on this machine."""

import os
import re
import subprocess

FILE, GO = "/tmp/breakpoints.py", "/tmp/go"

with open("/repo/subjects/breakpoints.py") as _f:
    SOURCE = _f.read().replace("ROUNDS = 300", "ROUNDS = 20")
with open(FILE, "w") as _f:
    _f.write(SOURCE)
AT = {m.group(1): i for i, line in enumerate(SOURCE.splitlines(), 1) for m in [re.search(r"# LINE (\w+)$", line)] if m}


def gdb(pid, *commands):
    """A gdb that has the pack and a process, and is given commands."""
    words = ["/gdb/gdb_for_pwndbg/_vendor/bin/gdb", "-nx", "-q", "-batch"]
    start = ["set debuginfod enabled off", "set auto-solib-add off", "source /repo/gdbext/init.py", f"attach {pid}"]
    for line in (*start, *commands):
        words += ["-ex", line]
    env = {**os.environ, "PYTHONPATH": "/gdb"}
    return subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1, env=env
    )


def said_until(process, wanted=None):
    """The lines that a gdb writes until one has `wanted`."""
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line.rstrip())
        if wanted is not None and wanted in line:
            break
    return lines


def go_on(word="run"):
    """Makes the subject run something."""
    with open(GO + ".new", "w") as f:
        f.write(word)
    os.rename(GO + ".new", GO)


def going_on(word):
    """The gdb command that makes the subject run something, once it is continued."""
    return f"python open({GO!r}, 'w').write({word!r})"
