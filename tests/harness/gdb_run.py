"""Runs a real gdb in batch mode with the pack loaded, and cuts its output apart by command."""

import json
import os
import subprocess
import tempfile
import time

from tools.environments import cache_folder

from .schemas import held

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INIT = os.path.join(ROOT, "gdbext", "init.py")
MARK = "@@gdbext-test@@"
STALLED, TRIES = "gdb waits for ever", 3  # gdbext/control/quirks/vfork_stalls.py: gdb's own fault, which comes by chance


class GdbRun:
    """What one gdb said. `outputs[i]`: the text of command i (stdout and stderr together); `text`: all of it."""

    def __init__(self, text, status):
        self.text, self.status = text, status
        self.outputs = [part.strip("\n") for part in text.split(MARK + "\n")[1:-1]]  # after the last mark gdb says goodbye

    def json(self, index=-1):
        """The one line of JSON that a command printed."""
        lines = [line for line in self.outputs[index].splitlines() if line.startswith("{")]
        assert len(lines) == 1, self.outputs[index]
        return held(json.loads(lines[0]))


def run_gdb(gdb, commands, arguments=(), timeout=900, env=None, load=True, before=()):
    """`gdb -nx -q -batch`, the pack sourced, then each of `commands`. -> `GdbRun`

    `arguments`: more for gdb's command line (-p PID, -c CORE, a program); `before`: commands before those are acted on.
    """
    line = [gdb, "-nx", "-q", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set width 0", "-iex", "set auto-load off"]
    for command in before:
        line += ["-iex", command]
    line += list(arguments)
    if load:
        line += ["-ex", f"source {INIT}"]
    for command in commands:
        line += ["-ex", f"echo {MARK}\\n", "-ex", command]
    line += ["-ex", f"echo {MARK}\\n"]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON") or k == "PYTHONDONTWRITEBYTECODE"}
    clean.update(env or {})
    for _ in range(TRIES):
        text, status = _said(line, clean, timeout)
        if STALLED not in text:
            break
    return GdbRun(text, status)


def _said(line, env, timeout):
    """(what a gdb says, its exit status). It is ended where it says that it stands in a fault of its own."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env)
        end = time.monotonic() + timeout
        while True:
            try:
                child.wait(timeout=1)
            except subprocess.TimeoutExpired:
                pass
            text = os.pread(out.fileno(), os.fstat(out.fileno()).st_size, 0).decode("utf-8", "replace")
            if child.returncode is not None:
                return text, child.returncode
            late = time.monotonic() > end
            if late or STALLED in text:
                child.kill()
                child.wait()
            if late:
                raise subprocess.TimeoutExpired(line, timeout, text)


def fetched(*path):
    """What scripts/get-cuda put into the cache folder, or None."""
    found = os.path.join(cache_folder(), "cuda", *path)
    return found if os.path.exists(found) else None
