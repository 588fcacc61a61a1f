"""gdbext as one that may not trace: without capabilities, or with what Yama refuses. This kernel has no Yama: a stand-in of it.

`without_permission.py COMMAND...`: a supervisor that refuses the command, by user notifications of seccomp (seccomp_unotify(2)),
ptrace, process_vm_readv and the opening of /proc/PID/{mem,syscall,stack}: what needs PTRACE_MODE_ATTACH, nothing else.
"""

import array
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading

HERE = os.path.abspath(__file__)
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
DROPPED = ("setpriv", "--inh-caps=-all", "--bounding-set=-all")  # of root: what has capabilities may not even be looked at
YAMA = (sys.executable, HERE)  # the same user, kernel.yama.ptrace_scope=1
ATTACHES = re.compile(r"/proc/(\d+)(?:/task/\d+)?/(?:mem|syscall|stack)")
NUMBERS = {"x86_64": (317, (101, 310, 311), (2, 257, 437)), "aarch64": (277, (117, 270, 271), (56, 437))}
NEW_LISTENER, RECEIVE, SEND = 8, 0xC0502100, 0xC0182101  # SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_IOCTL_NOTIF_*
ALLOW, NOTIFY, REFUSE = 0x7FFF0000, 0x7FC00000, 0x00050000 | errno.EPERM


def said(words, mode, timeout=120):
    """(exit status, JSON) of `gdbext WORDS` as one that may not trace."""
    done = subprocess.run(
        [*mode, sys.executable, "-m", "gdbext", *map(str, words), "-json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def _program():
    _, refused, opens = NUMBERS[os.uname().machine]
    steps = [(0x20, 0, 0, 0)]  # its number
    for number in (*refused, *opens):
        steps += [(0x15, 0, 1, number), (0x06, 0, 0, REFUSE if number in refused else NOTIFY)]
    return b"".join(struct.pack("<HBBI", *step) for step in [*steps, (0x06, 0, 0, ALLOW)])


def _listener():
    """A descriptor of the notifications of this process, which is filtered from now on."""
    libc, code = ctypes.CDLL(None, use_errno=True), _program()
    held = ctypes.create_string_buffer(code, len(code))
    whole = ctypes.create_string_buffer(struct.pack("<H6xQ", len(code) // 8, ctypes.addressof(held)), 16)
    libc.prctl(38, 1, 0, 0, 0)
    listener = libc.syscall(NUMBERS[os.uname().machine][0], 1, NEW_LISTENER, ctypes.byref(whole))
    assert listener >= 0, os.strerror(ctypes.get_errno())
    return listener


def _path(who, address):
    """What a process wants to open."""
    data = b""
    with contextlib.suppress(OSError), open(f"/proc/{who}/mem", "rb", buffering=0) as memory:
        for size in (256, 16):  # it may stand at the end of its memory
            memory.seek(address)
            with contextlib.suppress(OSError):
                data = data or memory.read(size)
    return data.partition(b"\0")[0].decode("utf-8", "replace")


def _serve(listener):
    while True:
        note = bytearray(80)
        try:
            fcntl.ioctl(listener, RECEIVE, note)
            number, who, _, call, _, _, *words = struct.unpack("<QIIiIQ6Q", note)
            found = ATTACHES.fullmatch(_path(who, words[0] if call == 2 else words[1]))
            refused = found is not None and int(found[1]) != who
            fcntl.ioctl(listener, SEND, bytearray(struct.pack("<QqiI", number, 0, -errno.EACCES if refused else 0, not refused)))
        except OSError as e:
            if e.errno not in (errno.EINTR, errno.ENOENT):
                return


def main(command):
    ours, its = socket.socketpair()
    child = os.fork()
    if not child:
        listener = _listener()
        its.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))])
        its.recv(1)
        os.close(listener)
        os.execvp(command[0], command)
    its.close()
    _, more, _, _ = ours.recvmsg(1, 64)
    threading.Thread(target=_serve, args=struct.unpack("i", more[0][2][:4]), daemon=True).start()
    ours.send(b"x")
    status = os.waitpid(child, 0)[1]
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


if __name__ == "__main__":
    main(sys.argv[1:])
