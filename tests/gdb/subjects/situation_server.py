"""situation_server.py SOCKET [NEEDS]: imports once what situations.py and those that need "uvloop", "torch" or "vllm" import;
then lives each situation that is asked for in a fork of itself. A client writes a line: a seed or the words of a situation, and
reads what it says; with "? " before them, what that situation needs ("" for nothing)."""

import ctypes
import importlib
import os
import signal
import socket
import sys

import situation_ranks
import situations

MODULES = {
    "": [],
    "uvloop": ["uvloop"],
    "torch": ["torch.distributed"],
    "vllm": ["vllm.distributed.device_communicators.shm_broadcast"],
}


def live(words, connection):
    """In the fork: the situation says over the connection what it is."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    os.setsid()
    os.dup2(connection.fileno(), 1)
    connection.close()
    try:
        situations.main(words)
    finally:
        os._exit(1)


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main():
    listener = socket.socket(socket.AF_UNIX)
    for module in MODULES[sys.argv[2] if len(sys.argv) > 2 else ""]:
        importlib.import_module(module)
    situation_ranks.fake_library()
    listener.bind(sys.argv[1])
    listener.listen(64)
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        reap()
        words = connection.recv(4096).decode().strip()
        if words.startswith("? "):
            connection.sendall(situations.needs(situations.draw_for(words[2:])[0]).encode() + b"\n")
        elif not os.fork():
            listener.close()
            live(words, connection)
        connection.close()


if __name__ == "__main__":
    main()
