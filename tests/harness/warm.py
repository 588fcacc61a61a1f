"""Commands that are asked in forks of an interpreter which has the pack loaded: an answer costs what it reads, not how Python
starts. For tests that are not about the start."""

import contextlib
import json
import os
import tempfile

from .gdb_run import ROOT
from .subjects import ready_line, spawned

SERVER = """
import json, os, sys
sys.path.insert(0, os.getcwd())
from gdbext import __main__ as door
from gdbext.commands import table
from gdbext.setup import outside
table.load_all()
print("ready", flush=True)
for line in sys.stdin:
    words, path = json.loads(line)
    child = os.fork()
    if not child:
        for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), *2 * (os.open(path, os.O_WRONLY | os.O_APPEND),))):
            os.dup2(file, number)
        sys.argv[1:] = words
        door.entry()
    status = os.waitpid(child, 0)[1]
    print("status", os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status), flush=True)
"""


@contextlib.contextmanager
def asking(python, seconds=300):
    """-> function: the words of a command -> (exit status, what it says), as `python -m gdbext` says it."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    with spawned([python, "-c", SERVER], ready="ready", cwd=ROOT, env=clean, start_new_session=True) as server:

        def ask(*words):
            with tempfile.NamedTemporaryFile(mode="r", errors="replace") as said:
                server.stdin.write(json.dumps([words, said.name]) + "\n")
                server.stdin.flush()
                status = int(ready_line(server, "status", seconds).split()[1])
                return status, said.read()

        yield ask
