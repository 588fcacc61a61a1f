"""gdb's command line: the only way for text that the pack did not write itself to get into a gdb command.

`gdb.execute` cuts its argument at every newline and runs each piece. A process chooses the paths of its executable and libraries.
A newline in one of them would start a command of its own, run as the debugger's user. So `command` takes a literal template, and
refuses a value with a control character. tests/unit/test_gdb_commands.py finds every `gdb.execute` that goes another way.
"""

from __future__ import annotations

import re
from typing import Any, Callable, TypeVar

import gdb

from ..errors import GdbextError

T = TypeVar("T")

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def command(template: str, *values: str | int) -> str:
    """A gdb command: `template` (a literal) with each `{}` filled in.

    `GdbextError` where a value holds a control character, or bytes that are not UTF-8: no command can name such a file.
    """
    for value in values:
        if isinstance(value, str) and _CONTROL.search(value):
            raise GdbextError(f"not passed to gdb: it holds control characters or is not UTF-8: {ascii(value)}")
    return template.format(*values)


def quoted(path: str) -> str:
    """A path as one argument of a gdb command that splits its arguments like a shell (`file`, `add-symbol-file`)."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def basic_regex(path: str) -> str:
    r"""A basic regular expression (POSIX) that matches exactly `path`, for `sharedlibrary`. `+ ? ( ) { } |` are ordinary there:
    `\+` would make one special."""
    return "^" + re.sub(r"([.*\[\]^$\\])", r"\\\1", path) + "$"


_calls: list[Callable[[], Any]] = []
_results: list[Any] = []
_errors: list[BaseException] = []


def silently(make: Callable[[], T]) -> T:
    """The result of `make()`, with gdb's own messages swallowed.

    gdb.Breakpoint's constructor writes "Breakpoint 1 at 0x..." to the terminal. gdb can catch the output of a command only, so
    the constructor runs inside one. Not to be used in a breakpoint's stop(), which must execute no command.
    """
    _calls.append(make)
    gdb.execute("python __import__('gdbext.access.cli_gdb').access.cli_gdb._call()", to_string=True)
    if _errors:
        raise _errors.pop()
    made: T = _results.pop()
    return made


def _call() -> None:
    try:
        _results.append(_calls.pop()())
    except BaseException as e:  # given on to the caller of `silently`: here it would be text on the terminal
        _errors.append(e)


def holds_gpu_core() -> bool:
    """Whether cuda-gdb has a GPU core open. From 13.0 on it then shows a process and a thread with numbers that belong to no real
    one."""
    return "CUDA core dump" in gdb.execute("info files", to_string=True)
