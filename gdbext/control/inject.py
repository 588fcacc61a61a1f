"""Runs a small script inside a live rank, for `llm-inject`. This is the one part of the pack that writes to a process and makes
it run code.

3.14 and later use CPython's own remote execution (PEP 768, Modules/_remote_debugging). A path is written into the main thread's
state, and a bit set; the thread then runs the file at its next safe point.

Before 3.14 the main thread calls PyRun_SimpleString (guarded_call.py). It is stopped where the interpreter begins an instruction:
there it holds the lock and is between two steps of its own.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Iterable

import gdb

from ..access.proc import ProcTarget
from ..cpython import layout as layouts
from ..cpython.runtime import Runtime, open_runtime
from ..errors import GdbextError, LayoutError
from . import guarded_call, injected_scripts, pystep
from .cudagdb import has_working_none
from .hw_breakpoints import Process
from .shared_folder import SharedTempDir
from .time_limit import interrupted_after, unreported_stop

PLEASE_STOP = 1 << 5  # _PY_EVAL_PLEASE_STOP_BIT, Include/internal/pycore_ceval.h


def run(pid: int, body: str, port: int = 0, timeout: float = 10.0, paths: Iterable[str] = ()) -> dict[str, Any]:
    """Runs `body` in the process and returns its report (`ok`, `error`, `port`, …). `GdbextError` with the reason where that is
    impossible."""
    target = ProcTarget(pid)
    rt = open_runtime(target)
    inferior = next((i for i in gdb.inferiors() if i.pid == pid), None)
    if not rt.minor.remote_execution and inferior is None:
        raise GdbextError(
            f"process {pid}: its CPython {rt.layout.name} has no remote execution (3.14 has): llm-attach it, then gdb can call a "
            "function"
        )
    folder, said = SharedTempDir(target), {}
    try:
        folder.write("run.py", injected_scripts.script(body, port, paths, folder.path("run.py"), folder.path("result")))
        if rt.minor.remote_execution:
            said = _by_remote_execution(rt, target, folder, inferior, timeout)
        else:
            said = _by_call(target, inferior, folder, timeout)
    finally:
        if said.get("ok", False) is not None and "file" not in said:  # neither on its way yet nor the place of an answer
            folder.remove()
        folder.close()
    return said


# ---- 3.14 and later --------------------------------------------------------------------------------------------------
def offsets(rt: Runtime) -> dict[str, int]:
    """The fields of `_Py_DebugOffsets.debugger_support`; `LayoutError` where this CPython has none."""
    fields = layouts.debug_offsets(rt.layout)
    order = {k.partition(".")[2]: v for k, v in fields.items() if k.startswith("debugger_support.")}
    if not order:
        raise LayoutError(f"CPython {rt.layout.name} is not known to have remote execution")
    return {name: rt.target.u64(rt.address + at) for name, at in order.items()}


def _by_remote_execution(rt: Runtime, target: ProcTarget, folder: SharedTempDir, inferior: Any, timeout: float) -> dict[str, Any]:
    where, main = offsets(rt), rt.threads()[0]
    if not target.u32(main.interp + where["remote_debugging_enabled"]):
        raise GdbextError(
            f"process {target.pid}: remote debugging is off in it (PYTHON_DISABLE_REMOTE_DEBUG, -X disable-remote-debug, or "
            "built without)"
        )
    support = main.address + where["remote_debugger_support"]
    path = folder.path("run.py").encode() + b"\0"
    if len(path) > where["debugger_script_path_size"]:
        raise GdbextError(
            f"the path {path!r} is longer than the {where['debugger_script_path_size']} bytes that CPython keeps for it"
        )
    try:
        mem = open(f"/proc/{target.pid}/mem", "r+b", buffering=0)
    except OSError as e:
        raise GdbextError(f"process {target.pid}: its memory cannot be written: {e.strerror}") from None
    pending, place = support + where["debugger_pending_call"], support + where["debugger_script_path"]
    folder.sweeper.will_run(pending, place, folder.path("run.py"))
    with mem:
        os.pwrite(mem.fileno(), path, place)
        os.pwrite(mem.fileno(), (1).to_bytes(4, "little"), pending)
        breaker = main.address + where["eval_breaker"]
        target.invalidate()
        os.pwrite(mem.fileno(), (target.u64(breaker) | PLEASE_STOP).to_bytes(8, "little"), breaker)
        if inferior is not None and not any(t.is_running() for t in inferior.threads()):
            return {
                "ok": None,
                "waits": "it runs once the process is continued and its main thread reaches a safe point; its result: "
                f"{folder.here('result')}",
            }
        over = _over(folder, timeout)
        began = time.monotonic()
        try:
            while not over():
                time.sleep(0.05)
        except KeyboardInterrupt:
            folder.given_up = True
        target.invalidate()
        if not _has_ended(folder) and target.u32(pending):  # taken back: it should not start an hour later
            os.pwrite(mem.fileno(), (0).to_bytes(4, "little"), pending)
            raise GdbextError(
                f"process {target.pid}: its main thread did not reach a safe point of Python in {time.monotonic() - began:.1f} s "
                f"(it is in C: llm-bt -on {target.pid} shows where); the request was taken back"
            )
    return _said(folder)


def _has_ended(folder: SharedTempDir) -> bool:
    """Whether the script has ended: it writes a result, or where it cannot write it removes itself."""
    return folder.read_json("result") is not None or not folder.has("run.py")


def _over(folder: SharedTempDir, timeout: float) -> Callable[[], bool]:
    """A function that says whether the script has ended, or has used up its time."""
    deadline = time.monotonic() + timeout
    return lambda: _has_ended(folder) or time.monotonic() >= deadline


def _said(folder: SharedTempDir) -> dict[str, Any]:
    """The script's report, or why there is none."""
    ended = not folder.has("run.py")
    said = folder.read_json("result")
    if said is not None:
        return said
    if ended:
        return {"ok": False, "error": f"it ran, but cannot write to {folder.here('result')}, so what came of it is not known"}
    if folder.given_up:
        return {
            "ok": None,
            "waits": "it goes on whenever the process runs, attached or not; its result is waited for no longer, and its folder "
            f"{folder.here('')} goes when it ends",
        }
    return {
        "ok": None,
        "waits": "it has not ended yet (or the process may not read it), and goes on whenever the process runs, attached or not; "
        f"its result: {folder.here('result')}",
    }


# ---- earlier ---------------------------------------------------------------------------------------------------------
def _by_call(target: ProcTarget, inferior: Any, folder: SharedTempDir, timeout: float) -> dict[str, Any]:
    guarded_call.check_calls()
    if not has_working_none():
        raise GdbextError(
            "this cuda-gdb's Python is broken (its None is not Python's own, as in Debian's 11.8): no call can be made in the "
            "process; gdb can"
        )
    process = Process.of(inferior)
    rt = process.rt
    main, run_string = rt.threads()[0], _address(process, "PyRun_SimpleString")
    if main.tid == 0:
        raise GdbextError("the main thread is not to be found among the process's threads")
    if any(t.is_running() for t in inferior.threads()):
        raise GdbextError(f"process {inferior.pid} is running in this gdb: interrupt it first")
    run = pystep.Run(process, "llm-inject")
    steps = list(rt.dialect.walk(rt, main.address))
    for step in steps[: min(pystep.ANCESTORS, process.free())]:
        run.watch_frame(step, lambda now: now.tstate == main.address)
    if not run.hw_breakpoints:
        process.need(1, "llm-inject")
        raise GdbextError(f"process {inferior.pid}: its main thread runs no Python")
    with interrupted_after(timeout), unreported_stop():
        done = run.go(alone=True)
    if done is None:
        raise GdbextError(
            f"process {inferior.pid}: its main thread ran no line of Python in {timeout:g} s: it is stuck in C, or waits (llm-bt "
            "shows where)"
        )
    path = folder.path("run.py")
    text = injected_scripts.runs(path).encode() + b"\0"
    target.invalidate()
    with unreported_stop():
        folder.given_up = not guarded_call.call(target, inferior, gdb.selected_thread(), run_string, text, _over(folder, timeout))
    return _said(folder)


def _address(process: Process, name: str) -> int:
    try:
        return process.view.symbol(name)
    except GdbextError:
        raise GdbextError(f"{process.name}: the function {name} is not to be found in it") from None
