"""A program of its own, which a node's python3 is given as text: takes the pack into memory and becomes it.

Words: the pack's size and its SHA-256, "offered" or "sent", then those of the command. A pack that is sent comes by standard
input. For one that is offered the program first says whether it needs that: the user's cache folder keeps the last pack, and it
counts only with that very sum. Whatever goes wrong there costs the time of a transfer and nothing else."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys


def kept_pack(folder: str, size: int, digest: str) -> bytes:
    """The pack of an earlier command, or nothing."""
    with contextlib.suppress(OSError):
        fd = os.open(os.path.join(folder, digest), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as f:
            data = f.read(size + 1)
        if hashlib.sha256(data).hexdigest() == digest:
            return data
    return b""


def keep(folder: str, data: bytes, digest: str) -> None:
    """Puts the pack into the folder in the place of others."""
    with contextlib.suppress(OSError):
        os.makedirs(folder, 0o700, exist_ok=True)
        unfinished = os.path.join(folder, f".{os.getpid()}")
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as f:
            f.write(data)
        for name in os.listdir(folder):
            if len(name) == len(digest) and name != digest:
                os.unlink(os.path.join(folder, name))
        os.replace(unfinished, os.path.join(folder, digest))


def main(length: str, digest: str, way: str, *words: str) -> None:
    size, base = int(length), os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(base, "gdbext", "packs") if os.path.isabs(base) else ""
    data = kept_pack(folder, size, digest) if folder and way == "offered" else b""
    if way == "offered":
        print("has-pack" if data else "needs-pack", flush=True)
    if not data:
        while len(data) < size:
            part = sys.stdin.buffer.read(size - len(data))
            if not part:
                sys.exit("the pack did not arrive whole")
            data += part
        if hashlib.sha256(data).hexdigest() != digest:
            sys.exit("the pack arrived damaged")
        if folder and way == "offered":
            keep(folder, data, digest)
    f = os.memfd_create("gdbext.pyz", 0)
    with open(f, "wb", closefd=False) as memory:
        memory.write(data)
    os.execv(sys.executable, [sys.executable, "/proc/self/fd/%d" % f, *words])


if __name__ == "__main__":
    main(*sys.argv[1:])
