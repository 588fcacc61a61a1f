"""C++ and Rust names for people, with limits of size and time for each: 400 bytes of a symbol may expand to more text than
there is memory."""

from __future__ import annotations

import atexit
import functools
import gc
import os
import re
import select
import signal
import sys
import threading
import time
from typing import Any

from .. import package
from . import demangler, rust_names
from .demangler import MAX_NAME
from .text import shorten

PLAIN, MAX_REFERENCES = (
    2048,
    16,
)  # bytes, and references of a name that can grow 360-fold at most (e ** (16 / e)), within milliseconds
PATIENCE = 10.0  # seconds that the other process is waited for on a busy machine; it ends itself long before
MAX_ENDS = 4  # processes that names have ended: after so many, names are left as they are
_REFERENCE = re.compile(r"S[0-9A-Z]*_|T[L0-9]?[0-9A-Z]*_")  # to an earlier part, or an argument of the template


@functools.lru_cache(maxsize=65536)
def demangle(name: str) -> str:
    """`_ZN2at4_ops3mul4callE…` -> `at::_ops::mul::call(…)`, by the C++ library's own demangler, cut at MAX_NAME characters.
    Names of Rust: `rust_names`.

    Other text is returned unchanged. So is a name whose text does not fit MAX_NAME, or the time and memory of `demangler`."""
    if name.startswith("_R") and len(name) <= MAX_NAME:
        return rust_names.demangle(name)
    name = re.sub(r"(?<=E)\.llvm\.\d+$", "", name)  # of LLVM's, which C++'s demangler refuses
    if not name.startswith("_Z"):
        return shorten(name, MAX_NAME)
    if len(name) <= PLAIN and sum(1 for _ in _REFERENCE.finditer(name)) <= MAX_REFERENCES:
        text = demangler.work(name)
    else:
        text = _apart.ask(name) if len(name) <= MAX_NAME else name
    text = rust_names.without_escapes(text) if text != name and rust_names.is_old(name) else text
    return text if len(text) <= MAX_NAME else shorten(name, MAX_NAME)


class _Apart:
    """A process that demangles names which may expand, and ends where one does; started with the first such name."""

    def __init__(self) -> None:
        self._process: Any = None
        self._ends = 0

    def ask(self, name: str) -> str:
        """The text of a name, or the name itself."""
        if self._ends >= MAX_ENDS:
            return name
        try:
            if self._process is None:
                self._start()
            data = name.encode()
            self._process.stdin.write(b"%d\n" % len(data) + data)
            self._process.stdin.flush()
            return self._hear().decode("utf-8", "replace") or name
        except (OSError, ValueError):
            self._ends += 1
            self.end()
            return name

    def _start(self) -> None:
        # gdb, and any other process with threads, cannot be forked: a lock may be held in the fork for ever.
        self._process = _spawned() if "gdb" in sys.modules or threading.active_count() > 1 else _Forked()
        atexit.register(self.end)

    def _hear(self) -> bytes:
        """Its next answer; `ValueError` where it has ended or takes too long."""
        until, kept, wanted = time.monotonic() + PATIENCE, b"", -1
        pipe, poll = self._process.stdout.fileno(), select.poll()  # not select(), for descriptors from 1024 on
        poll.register(pipe, select.POLLIN)
        while wanted < 0 or len(kept) < wanted:
            if not poll.poll(max(until - time.monotonic(), 0) * 1000):
                raise ValueError("too late")
            part = os.read(pipe, 1 << 16)
            if not part:
                raise ValueError("it has ended")
            kept += part
            if wanted < 0 and b"\n" in kept:
                size, _, kept = kept.partition(b"\n")
                wanted = int(size)
        return kept

    def end(self) -> None:
        """Ends the process, where there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            process.stdout.close()
            try:
                process.stdin.close()
            except OSError:
                pass  # its unread input


class _Forked:
    """`demangler.serve` in a fork of this process, which has imported it already. The rest is as of a `Popen`."""

    def __init__(self) -> None:
        theirs, ours = os.pipe()
        back, told = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _serve(theirs, told)
        os.close(theirs)
        os.close(told)
        self.stdin, self.stdout = os.fdopen(ours, "wb"), os.fdopen(back, "rb")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        os.waitpid(self.pid, 0)


def _serve(asked: int, told: int) -> None:
    """The fork: it ends here, with no file open but these two."""
    try:
        os.setsid()  # ^C is for the process that asks
        package.first_to_go()
        gc.disable()
        for number in {int(name) for name in os.listdir("/proc/self/fd")} - {asked, told}:
            try:
                os.close(number)
            except OSError:
                pass  # the one by which they were listed
        demangler.serve(os.fdopen(asked, "rb"), os.fdopen(told, "wb"))
    finally:  # it must not go on with the code of the process that it is a fork of
        os._exit(0)


def _spawned() -> Any:
    """`demangler.main` in an interpreter of its own, a `Popen`."""
    import shutil  # here: hardly any name needs them
    import subprocess

    own = sys.executable or ""
    python = own if os.path.basename(own).startswith("python") else shutil.which("python3")
    if python is None:
        raise OSError("no python3")
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    line = package.program(python, "gdbext.render.demangler")
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.Popen(line, cwd="/", env=env, start_new_session=True, **pipes)


_apart = _Apart()


def short(name: str, limit: int = 100) -> str:
    """A function's name without its arguments, its template arguments folded when it is long."""
    text = demangle(name)
    depth, braces, out = 0, 0, []
    if len(text) > limit and text.startswith("<"):
        return rust_names.short(text, limit)
    if len(text) <= limit:
        return text
    for c in text.replace("(anonymous namespace)", "{anonymous}"):
        if depth == 0:
            braces += (c == "{") - (c == "}")  # {lambda(int)#1} is a name, its parentheses are none of the arguments'
        if c == "<":
            if depth == 0:
                out.append("<…>")
            depth += 1
        elif c == ">" and depth:
            depth -= 1
        elif c == "(" and depth == 0 and braces == 0 and out:
            break
        elif depth == 0:
            out.append(c)
    folded = "".join(out)
    return folded if folded.strip() else text[:limit]
