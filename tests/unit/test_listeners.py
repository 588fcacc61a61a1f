"""Who is asked on a port: the process's own socket, at its own address, and nobody whom another user lets listen beside it."""

import contextlib
import http.server
import os
import socket
import threading

import pytest

from gdbext.engines import endpoints, listeners, nccl_ras, profiler


class Counting(http.server.BaseHTTPRequestHandler):
    asked: list = []

    def do_GET(self):
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()

    log_message = lambda *_: None  # noqa: E731


@pytest.fixture
def stranger():
    """-> the port of a server on 127.0.0.1 whose [::1] this process has: that server stands for another user's."""
    Counting.asked = []
    with http.server.HTTPServer(("127.0.0.1", 0), Counting) as one, socket.socket(socket.AF_INET6) as six:
        six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        port = one.server_address[1]
        six.bind(("::1", port))
        six.listen()
        thread = threading.Thread(target=one.serve_forever, daemon=True)
        thread.start()
        yield port
        one.shutdown()
        thread.join()


def row_of(port, version):
    return next(row for row in listeners.rows() if row.listens and row.port == port and row.address.version == version)


def test_a_socket_of_its_own_is_found_at_its_own_address():
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("", 0)) as every:
        found = {(row.port, str(row.hosts()[0])) for row in listeners.of_process(os.getpid())}
        assert {(one.getsockname()[1], "127.0.0.1"), (every.getsockname()[1], "127.0.0.1")} <= found
    assert listeners.of_process(2**22 + 1, by_user=True) == []


@pytest.mark.parametrize("door", ["http", "ras", "profiler"])
def test_the_other_address_family_is_never_asked(stranger, door, monkeypatch):
    row = row_of(stranger, 6)
    assert listeners._end("00000000000000000000000001000000:1F90") == (listeners.LOOPBACK[6], 8080)
    monkeypatch.setattr(listeners, "of_process", lambda pid, proc="/proc", by_user=False: [row])
    monkeypatch.setattr(listeners, "of_user", lambda pid, proc="/proc": [row])
    for module in (endpoints, nccl_ras):
        monkeypatch.setattr(module, "SECONDS", 0.3)
    if door == "http":
        assert endpoints.ask(os.getpid(), stranger, "x")["health"] == "no answer in 0.3 s"
    elif door == "ras":
        assert nccl_ras.ask(os.getpid(), port=stranger)["error"] == "no answer in 0.3 s"
    else:
        monkeypatch.setattr(profiler, "PROBE", 0.3)
        assert not profiler.speaks_http(row)
    assert Counting.asked == []


@pytest.mark.parametrize(
    "theirs, ours", [("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "0.0.0.0"), ("::", "127.0.0.1"), ("127.0.0.1", "::")]
)
def test_whom_another_user_could_stand_in_for_is_not_asked(theirs, ours, monkeypatch):
    """A made-up second row, since no second user is here: a socket that the kernel may prefer, or has chosen by now."""
    with socket.create_server(("127.0.0.1", 0)) as real:
        mine = row_of(real.getsockname()[1], 4)._replace(address=listeners.ipaddress.ip_address(ours))
        other = mine._replace(address=listeners.ipaddress.ip_address(theirs), user=mine.user + 1, inode="7")
        host = next(host for host in mine.hosts() if other.may_take(host, mine.port))
        monkeypatch.setattr(listeners, "rows", lambda *_: [mine, other])
        with pytest.raises(PermissionError, match="another user listens"):
            listeners._only(mine, host)
        monkeypatch.setattr(listeners, "rows", lambda *_: [mine])
        listeners._only(mine, host)
        monkeypatch.setattr(listeners, "rows", lambda *_: [other._replace(user=mine.user)])
        with pytest.raises(PermissionError):
            listeners._only(mine, host)  # its own has been closed


def test_the_end_of_a_connection_is_compared(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as real:
        row = row_of(real.getsockname()[1], 4)
        every = listeners.rows

        def with_another(*words):
            return [one if one.listens else one._replace(user=row.user + 1, inode="9") for one in every(*words)]

        with listeners.connected(row, 1):
            real.accept()[0].close()
        monkeypatch.setattr(listeners, "rows", with_another)
        with pytest.raises(PermissionError, match="another user answers"), contextlib.ExitStack() as stack:
            stack.enter_context(listeners.connected(row, 1))
