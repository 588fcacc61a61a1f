"""Runs a small script inside a live rank: what `llm-inject` stands on. The one part of the pack that writes to a process and lets it run code.

3.14 and later: CPython's own remote execution (PEP 768, Modules/_remote_debugging): a path is written beside the main thread's state and a bit
set that makes it look there at its next safe point. Earlier: gdb calls PyRun_SimpleString in the main thread, stopped where the interpreter
begins an instruction: it holds the lock there and is between two steps of its own.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import stat
import tempfile
import threading
import time

import gdb

from ..access.cli_gdb import command
from ..access.proc import ProcTarget
from ..cpython import layout as layouts
from ..cpython.runtime import open_runtime
from ..errors import FaultError, GdbextError, LayoutError
from . import pystep
from .hw_breakpoints import REGISTERS, Process

PLEASE_STOP = 1 << 5  # _PY_EVAL_PLEASE_STOP_BIT, Include/internal/pycore_ceval.h
# A script's part for each tool: it may use `port`, `result` (a path) and `said` (what is told of it).
TOOLS = {
    "debugpy": """
try:
    import debugpy
except ImportError as error:
    raise ImportError(str(error) + ": pip install debugpy beside the engine, or pip install --target FOLDER debugpy and add -path FOLDER") from None
said["port"] = debugpy.listen(("127.0.0.1", port))[1]
""",
    # The main thread goes on until somebody connects: then pdb opens in it, by a pending call (Py_AddPendingCall), where it runs Python.
    # Whoever hangs up or says quit leaves the program running: pdb's own quit would end it.
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
with open(result + ".new", "w") as f:
    json.dump(said, f)
os.replace(result + ".new", result)
"""


def script(body, port, paths, result):
    """The text of a script that runs `body`, with the folders `paths` last on sys.path, and writes what came of it to the file `result`."""
    return FRAME.format(
        port=port, result=result, paths=list(paths), body="".join("    " + line + "\n" for line in body.splitlines())
    )


class SharedTempDir:
    """Files that both this machine's user and the process see: `path` as the process names it, `here` as we do."""

    def __init__(self, target):
        root = target.root()
        self.folder = tempfile.mkdtemp(prefix="gdbext-inject-", dir=root + "/tmp")
        os.chmod(
            self.folder,
            stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO if os.stat(f"/proc/{target.pid}").st_uid != os.getuid() else stat.S_IRWXU,
        )
        self.root = root

    def path(self, name):
        return os.path.join(self.folder, name)[len(self.root) :]

    def here(self, name):
        return os.path.join(self.folder, name)


def run(pid, body, port=0, timeout=10.0, paths=()):
    """Runs `body` in the process; -> what it said of itself (`ok`, `error`, `port`, …). `GdbextError` with the reason where it cannot be."""
    target = ProcTarget(pid)
    rt = open_runtime(target)
    inferior = next((i for i in gdb.inferiors() if i.pid == pid), None)
    if rt.version < (3, 14) and inferior is None:
        raise GdbextError(
            f"process {pid}: its CPython {rt.layout.name} has no remote execution (3.14 has): llm-attach it, then gdb can call a function"
        )
    folder, said = SharedTempDir(target), {}
    try:
        with open(folder.here("run.py"), "w") as f:
            f.write(script(body, port, paths, folder.path("result")))
        said = (
            _by_remote_execution(rt, target, folder, inferior, timeout)
            if rt.version >= (3, 14)
            else _by_call(inferior, folder, timeout)
        )
    finally:
        if said.get("ok", False) is not None and "file" not in said:  # neither on its way yet nor the place of an answer
            shutil.rmtree(folder.folder, ignore_errors=True)
    return said


def _read(folder):
    try:
        with open(folder.here("result")) as f:
            return json.load(f)
    except (OSError, ValueError):
        return None


# ---- 3.14 and later --------------------------------------------------------------------------------------------------
def offsets(rt):
    """The fields of `_Py_DebugOffsets.debugger_support`; `LayoutError` where this CPython has none."""
    _, table = layouts._tables[(rt.layout.version, rt.layout.free_threaded)]
    order = {k.partition(".")[2]: v for k, v in (table.get("debug_offsets") or {}).items() if k.startswith("debugger_support.")}
    if not order:
        raise LayoutError(f"CPython {rt.layout.name} is not known to have remote execution")
    return {name: rt.target.u64(rt.address + at) for name, at in order.items()}


def _by_remote_execution(rt, target, folder, inferior, timeout):
    where, main = offsets(rt), rt.threads()[0]
    if not target.u32(main.interp + where["remote_debugging_enabled"]):
        raise GdbextError(
            f"process {target.pid}: remote debugging is off in it (PYTHON_DISABLE_REMOTE_DEBUG, -X disable-remote-debug, or built without)"
        )
    support = main.address + where["remote_debugger_support"]
    path = folder.path("run.py").encode() + b"\0"
    if len(path) > where["debugger_script_path_size"]:
        raise GdbextError(
            f"the path {path!r} is longer than the {where['debugger_script_path_size']} bytes that CPython keeps for it"
        )
    with open(f"/proc/{target.pid}/mem", "r+b", buffering=0) as mem:
        os.pwrite(mem.fileno(), path, support + where["debugger_script_path"])
        os.pwrite(mem.fileno(), (1).to_bytes(4, "little"), support + where["debugger_pending_call"])
        breaker = main.address + where["eval_breaker"]
        target.invalidate()
        os.pwrite(mem.fileno(), (target.u64(breaker) | PLEASE_STOP).to_bytes(8, "little"), breaker)
        if inferior is not None and not any(t.is_running() for t in inferior.threads()):
            return {
                "ok": None,
                "waits": f"it runs once the process is continued and its main thread reaches a safe point, and tells in {folder.here('result')}",
            }
        said = _wait(folder, timeout)
        if said is None:  # taken back: nobody wants it to start an hour later
            os.pwrite(mem.fileno(), (0).to_bytes(4, "little"), support + where["debugger_pending_call"])
            raise GdbextError(
                f"process {target.pid}: its main thread did not reach a safe point of Python in {timeout:g} s (it is in C: llm-bt -on {target.pid} shows where); the request was taken back"
            )
    return said


def _wait(folder, timeout):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        said = _read(folder)
        if said is not None:
            return said
        time.sleep(0.05)
    return None


# ---- earlier ---------------------------------------------------------------------------------------------------------
def check_calls():
    """Raises where this gdb must not call functions on this machine."""
    if not gdb.parameter("may-call-functions"):
        raise GdbextError("set may-call-functions is off: gdb may not call the function that this needs")
    found = re.search(r"\d+", gdb.VERSION)
    major = int(found.group()) if found else 0
    with open("/proc/cpuinfo") as f:
        if "amx_tile" in f.read() and major < 16:
            raise GdbextError(
                f"gdb {gdb.VERSION} cannot call functions on a CPU with AMX (the failed call would break a thread's system call): use gdb 16 or later"
            )


@contextlib.contextmanager
def unreported_stop():
    """Keeps gdb from printing a stop inside the block ("Program received signal SIGINT", a frame), which the command tells in its own words.

    `to_string` does not, nor does the log: gdb writes such a report past both. Its standard output leads nowhere meanwhile. Where a front end reads
    its records there (MI, DAP), or the TUI draws on it, the report stays.
    """
    with open("/proc/self/cmdline", "rb") as f:
        front_end = any(re.match(rb"--?i(nterpreter)?(=|$)", word) for word in f.read().split(b"\0"))
    if front_end or "not active" not in gdb.execute("info win", to_string=True):
        yield
        return
    gdb.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        gdb.flush()
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _by_call(inferior, folder, timeout):
    check_calls()
    process = Process.of(inferior)
    rt = process.rt
    main, run_string, allocate = rt.threads()[0], _address(process, "PyRun_SimpleString"), _address(process, "malloc")
    if main.tid == 0:
        raise GdbextError("the main thread is not to be found among the process's threads")
    if any(t.is_running() for t in inferior.threads()):
        raise GdbextError(f"process {inferior.pid} is running in this gdb: interrupt it first")
    run = pystep.Run(process, "llm-inject")
    steps = list(rt.dialect.walk(rt, main.address))
    for step in steps[: min(pystep.ANCESTORS, REGISTERS - len(process.used()))]:
        run.watch_frame(step, lambda now: now.tstate == main.address)
    if not run.hw_breakpoints:
        process.need(1, "llm-inject")
        raise GdbextError(f"process {inferior.pid}: its main thread runs no Python")
    ended = threading.Event()
    threading.Thread(target=_stop_after, args=(timeout, ended), daemon=True).start()
    try:
        with unreported_stop():
            done = run.go()
    finally:
        ended.set()
    if done is None:
        raise GdbextError(
            f"process {inferior.pid}: its main thread ran no line of Python in {timeout:g} s: it is stuck in C, or waits (llm-bt shows where)"
        )
    text = f"exec(compile(open({folder.path('run.py')!r}).read(), {folder.path('run.py')!r}, 'exec'), {{'__name__': '__gdbext__'}})\0".encode()
    locking = gdb.parameter("scheduler-locking")
    gdb.execute("set scheduler-locking off", to_string=True)
    try:
        buffer = int(gdb.parse_and_eval(f"((unsigned long (*)(unsigned long)) {allocate:#x})({len(text)})"))
        inferior.write_memory(buffer, text)
        result = int(gdb.parse_and_eval(f"((int (*)(unsigned long)) {run_string:#x})({buffer:#x})"))
    except (gdb.error, gdb.MemoryError) as e:
        raise GdbextError(f"process {inferior.pid}: the call failed: {str(e).splitlines()[0]}") from None
    finally:
        gdb.execute(command("set scheduler-locking {}", locking), to_string=True)
    said = _read(folder)
    if said is None:
        raise GdbextError(f"process {inferior.pid}: the script did not run (PyRun_SimpleString gave {result})")
    return said


def _stop_after(timeout, ended):
    """SIGINT to gdb itself, as Ctrl-C sends it, when nothing was reached in time."""
    if not ended.wait(timeout):
        os.kill(os.getpid(), signal.SIGINT)


def _address(process, name):
    try:
        return process.view.symbol(name)
    except (GdbextError, FaultError):
        raise GdbextError(f"{process.name}: the function {name} is not to be found in it") from None
