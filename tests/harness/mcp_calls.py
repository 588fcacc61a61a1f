"""Calls of the tools of `python -m gdbext mcp` by the SDK's own client (mcp_client.py)."""

import contextlib
import json
import os
import subprocess

from harness.gdb_run import ROOT
from harness.subjects import spawned

CLIENT = os.path.join(ROOT, "tests", "harness", "mcp_client.py")
MOST_CALLS, MOST_BYTES = ("why", "requests", "stacks"), 24 << 10


def has_sdk(python):
    """Whether an interpreter has the SDK."""
    return not subprocess.run([python, "-c", "import mcp, mcp_types"], stderr=subprocess.DEVNULL).returncode


@contextlib.contextmanager
def client(python, limit=60):
    """-> (the tools, function: tool, arguments -> (text, whether it failed), the client's process)"""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    with spawned([python, CLIENT, ROOT, str(limit)], ready="[", env=env) as process:

        def call(tool, **arguments):
            process.stdin.write(json.dumps([tool, arguments]) + "\n")
            process.stdin.flush()
            said = json.loads(process.stdout.readline())
            return said["text"], said["failed"]

        yield json.loads(process.said), call, process


def found_by_agent(call, *words):
    """[(tool, bytes of its answer)] that an agent needs until it has read all of `words`: at most three calls and 24 kB."""
    calls, read = [], ""
    for tool in MOST_CALLS:
        text, failed = call(tool)
        assert not failed, text
        calls.append((tool, len(text.encode())))
        read += text
        if all(word in read for word in words):
            break
    assert all(word in read for word in words), ([word for word in words if word not in read], read)
    assert sum(size for _, size in calls) <= MOST_BYTES, calls
    return calls
