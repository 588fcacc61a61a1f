"""Speaks the Debug Adapter Protocol as an editor does, over two streams: a socket's (debugpy) or a process's (gdb -i=dap)."""

import json
import os
import socket
import subprocess

import pytest

from .gdb_run import INIT

ON = "enable frame-filter global gdbext-python"


class Dap:
    """`ask(command, …)` -> the body of the answer; `event(name)` -> the body of the next event of that name."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.count, self.events, self.answers = 0, [], {}

    @classmethod
    def connect(cls, host, port, timeout=180):
        talk = socket.create_connection((host, port), timeout)
        talk.settimeout(timeout)
        stream = talk.makefile("rwb")
        return cls(stream, stream)

    def send(self, command, **arguments):
        """-> the number by which the answer is known."""
        self.count += 1
        text = json.dumps({"seq": self.count, "type": "request", "command": command, "arguments": arguments}).encode()
        self.writer.write(b"Content-Length: %d\r\n\r\n" % len(text) + text)
        self.writer.flush()
        return self.count

    def ask(self, command, **arguments):
        return self.answer(self.send(command, **arguments))

    def answer(self, number):
        while number not in self.answers:
            self._read()
        found = self.answers.pop(number)
        assert found["success"], f"{found['command']}: {found.get('message')} {found.get('body')}"
        return found.get("body") or {}

    def event(self, name):
        while True:
            for found in self.events:
                if found["event"] == name:
                    self.events.remove(found)
                    return found.get("body") or {}
            self._read()

    def _read(self):
        length = 0
        while True:
            line = self.reader.readline()
            assert line, f"the adapter closed its end; events: {self.events[-5:]}"
            if not line.strip():
                break
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        message = json.loads(self.reader.read(length))
        if message["type"] == "event":
            self.events.append(message)
        elif message["type"] == "response":
            self.answers[message["request_seq"]] = message

    def close(self):
        for stream in {self.reader, self.writer}:
            stream.close()


class GdbDap(Dap):
    """A gdb (14 and later) that is spoken to over its standard streams."""

    def __init__(self, gdb, words):
        self.process = subprocess.Popen([gdb, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        super().__init__(self.process.stdout, self.process.stdin)

    def repl(self, command):
        """What a gdb command prints, as in an editor's debug console."""
        return self.ask("evaluate", expression=command, context="repl")["result"]

    def close(self):
        self.process.kill()
        self.process.communicate()


def dap(gdb):
    """A gdb that speaks the Debug Adapter Protocol."""
    words = ["-nx", "-q", "-i=dap"]
    for command in ("set debuginfod enabled off", "set auto-load off", f"source {INIT}", ON):
        words += ["-iex", command]
    return GdbDap(gdb, words)


def gdbs_that_speak_dap():
    """The gdbs here from 14 on; skips where there is none."""
    gdbs = [g for g in os.environ.get("GDBEXT_TEST_GDB", "gdb").split(":") if g]
    speaks = ["-nx", "-batch", "-ex", "python import gdb.dap.scopes"]
    able = [g for g in gdbs if not subprocess.run([g, *speaks], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout]
    return able or pytest.skip("no gdb here speaks DAP (gdb 14 and later)")
