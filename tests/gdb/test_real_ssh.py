"""Nodes through a real ssh and a real sshd, on the loopback: what its user reads when it works, and when it does not."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys

import pytest
from harness.gdb_run import ROOT
from harness.heartbeats import eventually
from harness.subjects import spawned

SUBJECT = "import time\nprint('{}', flush=True)\ndef waits_there():\n    time.sleep(900)\nwaits_there()\n"
SERVER = """ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
PidFile none
UsePAM no
"""
CLIENT = """Host stranger
  UserKnownHostsFile /dev/null
Host unnamed
  IdentityFile {folder}/host
Host closed
  Port 1
Host * !unnamed
  IdentityFile {folder}/user
Host *
  HostName 127.0.0.1
  Port {port}
  IdentitiesOnly yes
  StrictHostKeyChecking yes
  UserKnownHostsFile {folder}/known
"""
# sshd wants a user of that name, which this machine may lack: it gets one of its own list of users.
ALONE = 'mount --bind "$0/passwd" /etc/passwd && mkdir -p /run/sshd && exec "$@"'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an `ssh` for the PATH that reaches an sshd."""
    sshd, folder = os.environ.get("GDBEXT_TEST_SSHD"), tmp_path_factory.mktemp("ssh")
    lacking = [name for name in ("ssh", "ssh-keygen", "unshare") if not shutil.which(name)] + ["sshd"] * (not sshd)
    if lacking or os.geteuid():
        pytest.skip(f"needs {', '.join(lacking) or 'root'}")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "sshd_config").write_text(SERVER.format(folder=folder, port=port))
    (folder / "ssh_config").write_text(CLIENT.format(folder=folder, port=port))
    key = (folder / "host.pub").read_text().split()[:2]
    (folder / "known").write_text(f"[127.0.0.1]:{port} {' '.join(key)}\n")
    (folder / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
    (folder / "ssh").chmod(0o755)
    with open("/etc/passwd") as f:
        (folder / "passwd").write_text(f.read() + "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n")
    words = ["unshare", "--mount", "sh", "-c", ALONE, str(folder), sshd, "-D", "-e", "-f", str(folder / "sshd_config")]
    log = folder / "log"
    with log.open("w") as kept, spawned(words, stderr=kept, start_new_session=True) as server:

        def listens():
            assert server.poll() is None, log.read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
                return True
            return False

        eventually(listens, "sshd to listen")
        yield folder


def gdbext(folder, *words):
    """-> (exit status, JSON) of a command whose ssh is real."""
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "gdbext", *map(str, words), "--json"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=400)
    assert done.stdout.startswith("{"), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_two_nodes_are_one_answer_and_an_unreached_one_has_sshs_reason(folder):
    with spawned([sys.executable, "-c", SUBJECT], ready="{") as first, spawned(
        [sys.executable, "-c", SUBJECT], ready="{"
    ) as other:
        nodes = [
            f"{first.pid}@ssh:one",
            f"{other.pid}@ssh:one",
            f"{other.pid}@ssh:two",
            "ssh:closed",
            "ssh:stranger",
            "ssh:unnamed",
        ]
        status, said = gdbext(folder, "llm-stacks", *nodes)
        assert status == 3 and said["ranks_read"] == 3, said
        (group,) = [g for g in said["groups"] if any(f["function"] == "waits_there" for f in g["frames"])]
        assert {(m["node"], m["pid"]) for m in group["members"]} == {
            ("one", first.pid),
            ("one", other.pid),
            ("two", other.pid),
        }
        why = {f["label"]: f["reason"] for f in said["failed"]}
        assert "Connection refused" in why["ssh:closed"] and "verification failed" in why["ssh:stranger"]
        assert "Permission denied" in why["ssh:unnamed"] and len(why) == 3
        status, said = gdbext(folder, "llm-hang", *nodes[:3], "-wait", "0.3")
        assert status == 0 and not said["culprits"] and not said["failed"]
        assert {(n["node"], n["processes"]) for n in said["nodes"]} == {("ssh:one", 2), ("ssh:two", 1)}
