"""The Python that `llm-inject` runs inside a rank."""

from __future__ import annotations

from typing import Iterable

# A script's part for each tool: it may use `port`, `result` (a path) and `said` (what is reported of it).
TOOLS = {
    "debugpy": """
try:
    import debugpy
except ImportError as error:
    way = "pip install debugpy for the engine, or pip install --target FOLDER debugpy and add -path FOLDER"
    raise ImportError(str(error) + ": " + way) from None
said["port"] = debugpy.listen(("127.0.0.1", port))[1]
""",
    # The main thread goes on until a client connects: then pdb opens in it, by a pending call (Py_AddPendingCall), where it runs
    # Python. When the client hangs up or sends quit, the program runs on: pdb's own quit would end it.
    "pdb": """
import ctypes, pdb, socket, sys, threading

class Stream:
    def __init__(self, connection):
        self.text = connection.makefile("rw", encoding="utf-8", errors="replace")
        self.flush = lambda: None

    def write(self, text):
        try:
            self.text.write(text)
            self.text.flush()
        except (OSError, ValueError):
            pass

    def readline(self):
        try:
            return self.text.readline()
        except (OSError, ValueError):
            return ""

class Pdb(pdb.Pdb):
    def do_quit(self, argument):
        self.clear_all_breaks()
        self.set_continue()
        self.stdin.text.close()
        connection.close()
        return 1

    do_q = do_exit = do_EOF = do_quit

def begin(_):
    begun.set()
    Pdb(stdin=stream, stdout=stream, nosigint=True, readrc=False).set_trace(sys._getframe().f_back)
    return 0

def wait():
    global connection, stream
    connection, _ = server.accept()
    server.close()
    stream = Stream(connection)
    ctypes.pythonapi.Py_AddPendingCall(pending, None)
    begun.wait()  # what runs is kept alive by this

begun = threading.Event()
pending = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(begin)
server = socket.create_server(("127.0.0.1", port))
said["port"] = server.getsockname()[1]
threading.Thread(target=wait, name="gdbext-pdb", daemon=True).start()
""",
    "faulthandler": """
import faulthandler
log = open(result + ".log", "w")
faulthandler.enable(log)
faulthandler.dump_traceback(log)
log.flush()
said["file"] = log.name
""",
}
FRAME = """import json, os, sys
port, result = {port}, {result!r}
said = {{"ok": True, "pid": os.getpid()}}
sys.path += {paths!r}
try:
{body}
except BaseException as error:
    said.update(ok=False, error=type(error).__name__ + ": " + str(error))
try:
    with open(result + ".new", "w") as f:
        json.dump(said, f)
    os.replace(result + ".new", result)
except OSError:
    try:
        os.unlink({path!r})  # a full disk: this is all that can be said
    except OSError:
        pass  # nobody waits for it: gdb was killed, and its folder was removed
"""
RUN = """try:
    exec(compile(open({path!r}).read(), {path!r}, "exec"), {{"__name__": "__gdbext__"}})
except FileNotFoundError:
    pass  # gdb was killed before it began
"""


def script(body: str, port: int, paths: Iterable[str], path: str, result: str) -> str:
    """The text of a script for the file `path`. It runs `body`, with the folders `paths` last on sys.path, and writes the outcome
    to the file `result`. Where it cannot write, it removes itself."""
    lines = "".join("    " + line + "\n" for line in body.splitlines())
    return FRAME.format(port=port, result=result, path=path, paths=list(paths), body=lines)


def runs(path: str) -> str:
    """Python that runs the script at `path` if it is still there; it binds no name."""
    return RUN.format(path=path)
