"""What sockets are is read once for processes that are looked at one after the other, and anew where that may be old."""

import os
import socket

import pytest

from gdbext.observe import system_calls


@pytest.fixture
def read(monkeypatch):
    """-> [the names of files under /proc/PID/net that were read]; the clock stands"""
    names, true = [], system_calls.read_or_empty

    def noted(pid, name):
        names.append(name)
        return true(pid, name)

    monkeypatch.setattr(system_calls, "_seen", {})
    monkeypatch.setattr(system_calls, "read_or_empty", noted)
    monkeypatch.setattr(system_calls.time, "monotonic", lambda: 100.0)
    return names


@pytest.fixture
def pair():
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        client.connect(server.getsockname())
        yield server, client


def kind(one):
    return system_calls.Files(os.getpid()).source(one.fileno()).kind


def test_one_reading_serves_all_of_a_network_namespace(read, pair):
    server, client = pair
    assert [kind(server), kind(client), kind(server)] == ["listener", "client", "listener"]
    assert sorted(read) == sorted(f"net/{name}" for name in ("tcp", "tcp6", "udp", "udp6", "unix"))


def test_a_socket_that_came_later_is_read_anew(read, pair):
    assert kind(pair[0]) == "listener"
    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))
        late.listen(1)
        assert kind(late) == "listener" and len(read) == 10


def test_after_a_few_milliseconds_all_is_read_anew(read, pair, monkeypatch):
    assert kind(pair[0]) == "listener"
    before = system_calls.Files(os.getpid()).source(pair[0].fileno()).unread
    with socket.create_connection(pair[0].getsockname()):
        assert system_calls.Files(os.getpid()).source(pair[0].fileno()).unread == before
        monkeypatch.setattr(system_calls.time, "monotonic", lambda: 100.0 + system_calls.FRESH)
        assert system_calls.Files(os.getpid()).source(pair[0].fileno()).unread == before + 1
