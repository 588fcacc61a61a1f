"""The sockets that a process listens on, from /proc, and connections that certainly reach one of them.

A port alone does not identify the listener: another user may have the same port on the other address family, or on another
address. So a connection goes to the address of a row of /proc/PID/net/tcp or tcp6. The sockets that could accept it are compared
before and after it. Source: Documentation/networking/proc_net_tcp.rst.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import sys
from typing import Iterator, NamedTuple, Union

from ..access.procfs import parse_inet, status_field

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]

LISTENS = "0A"
LATE = (socket.timeout, TimeoutError)  # a socket that gave nothing in time: two classes before Python 3.10
LOOPBACK = {4: ipaddress.ip_address("127.0.0.1"), 6: ipaddress.ip_address("::1")}


class Row(NamedTuple):
    """A TCP socket: `address` and `port`, those of the other end, whether it `listens`, its `user`, and its `inode` ("0" for a
    socket that no process holds)."""

    address: Address
    port: int
    far_address: Address
    far_port: int
    listens: bool
    user: int
    inode: str

    @property
    def is_local(self) -> bool:
        """Whether it is reached by a loopback address."""
        return self.address.is_unspecified or self.address.is_loopback

    def hosts(self) -> list[Address]:
        """The addresses to connect to: its own, for a socket on all addresses the loopback ones that it may serve."""
        if not self.address.is_unspecified:
            return [self.address]
        return [LOOPBACK[4]] if self.address.version == 4 else [LOOPBACK[6], LOOPBACK[4]]

    def may_take(self, host: Address, port: int) -> bool:
        """Whether it may be given a connection to a host's port; one on all addresses of IPv6 may serve IPv4 as well."""
        if not self.listens or self.port != port:
            return False
        return self.address == host or self.address.is_unspecified and self.address.version >= host.version


def _end(text: str) -> tuple[Address, int]:
    """(address, port) of one end as /proc shows it."""
    digits, _, port = text.partition(":")
    raw = b"".join(int(digits[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(digits), 8))
    found = ipaddress.ip_address(raw)
    return getattr(found, "ipv4_mapped", None) or found, int(port, 16)


def rows(pid: int | str = "self", proc: str = "/proc") -> list[Row]:
    """The TCP sockets of a process's network namespace; [] where they cannot be read."""
    found = []
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError, ValueError), open(f"{proc}/{pid}/net/{name}", "rb") as f:
            for row in parse_inet(f.read()):
                with contextlib.suppress(ValueError):
                    found.append(Row(*_end(row.local), *_end(row.remote), row.state == LISTENS, row.user, str(row.inode)))
    return found


def user_of(pid: int, proc: str = "/proc") -> int | None:
    """The effective user of a process; None where it is gone. The owner of its folder will not do: it is root for a process that
    may not be dumped."""
    try:
        with open(f"{proc}/{pid}/status", "rb") as f:
            return int(status_field(f.read(), b"Uid").split()[1])
    except (OSError, ValueError, IndexError):
        return None


def of_user(pid: int, proc: str = "/proc") -> list[Row]:
    """The listening sockets of a process's user in its network namespace, if that is ours too; by port."""
    user, here = user_of(pid, proc), {row.inode for row in rows("self", proc)}
    found = [r for r in rows(pid, proc) if r.listens and r.user == user and r.inode in here]
    return sorted(found, key=lambda row: row.port)


def of_process(pid: int, proc: str = "/proc", by_user: bool = False) -> list[Row]:
    """The listening sockets of a process itself, as `of_user`. Where its descriptors may not be read: those of its user when
    `by_user`, else none."""
    held = set()
    try:
        for descriptor in os.listdir(f"{proc}/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                held.add(os.readlink(f"{proc}/{pid}/fd/{descriptor}"))
    except OSError:
        return of_user(pid, proc) if by_user else []
    return [row for row in of_user(pid, proc) if f"socket:[{row.inode}]" in held]


@contextlib.contextmanager
def connected(row: Row, seconds: float) -> Iterator[socket.socket]:
    """A connection to a listening socket, closed when the `with` block is left. `OSError` where there is none, where a socket of
    another user may have accepted it, or where the row's own socket has been closed meanwhile."""
    made: socket.socket | None = None
    for host in row.hosts():
        _only(row, host)
        try:
            made = socket.create_connection((str(host), row.port), seconds)
        except OSError as e:
            if e.errno not in (errno.EADDRNOTAVAIL, errno.ENETUNREACH) or host is row.hosts()[-1]:
                raise
            continue
        break
    assert made is not None
    with made:
        _only(row, host, made)
        yield made


def _only(row: Row, host: Address, made: socket.socket | None = None) -> None:
    """`PermissionError` where another user's socket may accept a connection to `host`, or has accepted `made`."""
    all_rows = rows()
    takers = [one for one in all_rows if one.may_take(host, row.port)]
    if row.inode not in {one.inode for one in takers} or any(one.user != row.user for one in takers):
        raise PermissionError(errno.EACCES, "another user listens there")
    if made is not None:
        ours = made.getsockname()[1]
        ends = [one for one in all_rows if (one.address, one.port, one.far_port) == (host, row.port, ours) and one.inode != "0"]
        if any(one.user != row.user for one in ends):
            raise PermissionError(errno.EACCES, "another user answers there")


def who_listens(pid: int, where: str, proc: str = "/proc") -> str:
    """In words: the process that listens at HOST:PORT in a process's network namespace; '' where the host is another machine, or
    it cannot be found."""
    host, _, port = where.rpartition(":")
    host = host.rpartition("/")[2].strip("[]")
    try:
        address = LOOPBACK[4] if host == "localhost" else ipaddress.ip_address(host)
    except ValueError:
        return ""
    known = rows(pid, proc)
    takers = [row for row in known if port.isdigit() and row.may_take(address, int(port))]
    ours = address.is_loopback or any(row.address == address for row in known)
    if not known or not ours:
        return ""
    if not takers:
        return f"nothing listens at {where} any more"
    holders = [pid for _, pids in _holders(takers, proc).items() for pid in pids]
    return f"process {holders[0]} here listens at {where}" if len(set(holders)) == 1 else ""


def _holders(found: list[Row], proc: str) -> dict[str, list[int]]:
    """{inode: pids that have it}, of the processes that may be read."""
    from ..observe.system_calls import holders_of

    if proc != "/proc":
        return {}
    return {str(inode): [pid for pid, _ in pids] for inode, pids in holders_of([int(row.inode) for row in found]).items()}
