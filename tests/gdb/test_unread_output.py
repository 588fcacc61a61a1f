"""A program whose output nobody takes does not rest, whoever has the other end: its parent, which asks; a terminal; a client that
does not read."""

import json
import os
import socket
import subprocess
import sys

import pytest
from harness.answers import answer
from harness.heartbeats import asleep

WRITES = "import os\nwhile True: os.write(1, b'x' * 1000)"
ECHOES = "import os\nwhile True: os.write(1, os.read(0, 100))"
SERVES = """
import socket
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    one, _ = listener.accept()
    while True: one.sendall(b"x" * 100000)
"""
SILENT = "import socket, sys, time; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); time.sleep(1000)"


@pytest.fixture
def started():
    programs = []

    def start(code, *words, **more):
        programs.append(subprocess.Popen([sys.executable, "-c", code, *words], **more))
        return programs[-1]

    yield start
    for one in programs:
        one.kill()
        one.wait()


def asked(program):
    asleep(program.pid, seconds=20)
    return answer(f"llm-hang {program.pid} -wait 0.6 -json")


@pytest.mark.parametrize("end", ["its parent", "a terminal", "a client", "a client that is its parent"])
def test_one_that_waits_for_room_is_not_idle(started, end):
    if end == "its parent":
        with started(WRITES, stdout=subprocess.PIPE) as program:
            said = asked(program)
            program.kill()
    elif end == "a terminal":
        master, slave = os.openpty()
        said = asked(started(WRITES, stdout=slave))
        os.close(master), os.close(slave)
    else:
        program = started(SERVES, stdout=subprocess.PIPE)
        port = int(program.stdout.readline())
        if end == "a client":
            started(SILENT, str(port))
            said = asked(program)
        else:
            with socket.create_connection(("127.0.0.1", port)):
                said = asked(program)
        program.stdout.close()
    assert said["verdict"] != "idle" and not said["culprits"], said
    assert "waits for room in" in json.dumps(said), said


def test_one_that_waits_for_what_its_parent_may_ask_is_idle(started):
    program = started(ECHOES, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert asked(program)["verdict"] == "idle"
    program.stdin.close()
