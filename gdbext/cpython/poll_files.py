"""Calls that only ask whether a file is ready, without a wait or with a time limit: select, selectors, sockets, pipes, children.

What these ask for lies in the kernel and is not read here (`poll_values.UNREAD`). Source: Modules/socketmodule.c, selectmodule.c,
posixmodule.c, _multiprocessing/semaphore.c, Lib/selectors.py.
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Iterable

from ..access.procfs import read_or_empty, state_of
from ..errors import GdbextError
from .objects import Object
from .poll_values import RAISES, UNKNOWN, Ask, Value, kinds_of, plain
from .runtime import Runtime

MAX_FILES = 256  # of one call
NONBLOCKING = 0o4000  # O_NONBLOCK of x86-64 and aarch64, octal in fdinfo
_TIMEOUT = 24  # of a socket object, behind its head: after three ints, padding and a pointer


def _asks(descriptors: Iterable[int]) -> tuple[Ask, ...]:
    return (*(Ask("Connection", None, f"file descriptor {fd}", str(fd), fd) for fd in descriptors), Ask("Pause", None))


def _limit(arguments: list[Value], named: dict[str, Value], at: int, name: str = "timeout") -> None:
    limit = plain((arguments[at] if len(arguments) > at else named.get(name, Value(None))).held)
    if limit is None or limit is UNKNOWN or limit < 0:
        raise GdbextError("it waits in the call itself")


def descriptor_of(held: Any) -> int:
    """The file descriptor of an int, a socket or a multiprocessing connection."""
    number = plain(held)
    if isinstance(number, int) and not isinstance(number, bool):
        return number
    if isinstance(held, Object):
        kinds = kinds_of(held)
        if "_socket.socket" in kinds:
            return held.rt.target.i32(held.address + held.rt.layout["object.__size"])
        if "multiprocessing.connection._ConnectionBase" in kinds:
            return int(held.attr("_handle").integer())
    raise GdbextError("a file whose descriptor is not known")


def _members(held: Any) -> list[Any]:
    if isinstance(held, Object):
        return list(held.elements(MAX_FILES))
    if isinstance(held, list):
        return held
    raise GdbextError("files that are not known")


def _select(rt: Runtime, arguments: list[Value], named: dict[str, Value]) -> Value:
    _limit(arguments, {}, 3)
    files = [descriptor_of(one) for value in arguments[:3] for one in _members(value.held)]
    return Value(UNKNOWN, _asks(files))


def _read(rt: Runtime, arguments: list[Value], named: dict[str, Value]) -> Value:
    fd = descriptor_of(arguments[0].held) if arguments else -1
    flags = re.search(rb"^flags:\s*([0-7]+)", read_or_empty(rt.target.pid or 0, f"fdinfo/{fd}"), re.M)
    if flags is None or not int(flags.group(1), 8) & NONBLOCKING:
        raise GdbextError("it waits in the read itself")
    return Value(RAISES, _asks([fd]))


def _waitpid(rt: Runtime, arguments: list[Value], named: dict[str, Value]) -> Value:
    pid, options = [plain(one.held) for one in arguments[:2]] if len(arguments) == 2 else (UNKNOWN, UNKNOWN)
    if not isinstance(pid, int) or pid <= 0 or not isinstance(options, int) or not options & os.WNOHANG:
        raise GdbextError("it waits in the call itself, or for any child")
    here = rt.target.pid_here(pid)
    if state_of(here) in ("", "Z", "X"):
        raise GdbextError("the child has ended, or is not known here")
    return Value((0, 0), (Ask("Process", None, "", str(here), here),))


def selector(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    _limit(arguments, named, 0)
    return Value(UNKNOWN, _asks(int(key.integer()) for key, _ in obj.attr("_fd_to_key").items(MAX_FILES)))


def poll_object(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    _limit(arguments, named, 0)
    rt = obj.rt
    known = rt.object(rt.target.u64(obj.address + rt.layout["object.__size"]))
    return Value(UNKNOWN, _asks(int(key.integer()) for key, _ in known.items(MAX_FILES)))


def epoll_object(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    """The kernel keeps what is registered; /proc/PID/fdinfo/FD tells it, of a process that runs."""
    _limit(arguments, named, 0)
    rt = obj.rt
    own = rt.target.i32(obj.address + rt.layout["object.__size"])
    known = re.findall(rb"^tfd:\s*(\d+)", read_or_empty(rt.target.pid or 0, f"fdinfo/{own}"), re.M)
    if not known:
        raise GdbextError("what is registered is not known")
    return Value(UNKNOWN, _asks(map(int, known[:MAX_FILES])))


def socket(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    rt, at = obj.rt, obj.address + obj.rt.layout["object.__size"]
    if rt.target.i64(at + _TIMEOUT) < 0:
        raise GdbextError("it waits in the socket itself")
    return Value(RAISES, _asks([rt.target.i32(at)]))


def connections(arguments: list[Value], named: dict[str, Value]) -> Value:
    """`multiprocessing.connection.wait(object_list, timeout)`."""
    _limit(arguments, named, 1)
    return Value(UNKNOWN, _asks([descriptor_of(one) for one in _members(arguments[0].held)] if arguments else []))


def semaphore(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
    """A SemLock that is asked for without a wait, or with a time limit."""
    blocks = plain((arguments[0] if arguments else named.get("block", Value(True))).held)
    if blocks is not False:
        _limit(arguments, named, 1)
    return Value(UNKNOWN, (Ask("SemLock", obj), Ask("Pause", None)))


FUNCTIONS: dict[str, Callable[[Any, list[Value], dict[str, Value]], Value]] = {
    "select.select": _select,
    "posix.read": _read,
    "posix.waitpid": _waitpid,
}
