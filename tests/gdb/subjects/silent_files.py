"""A file server: `silent_files.py FOLDER` has every name of the folder as an empty file, until a line comes on standard input.
From then on it answers nothing. Sources: Linux, include/uapi/linux/fuse.h (version 7.31)."""

import ctypes
import os
import select
import struct
import sys

LOOKUP, FORGET, GETATTR, OPEN, STATFS, RELEASE, FLUSH, INIT, OPENDIR, INTERRUPT = 1, 2, 3, 14, 17, 18, 25, 26, 27, 36
HEAD, MOST, FOLDER, ENOSYS = struct.Struct("<IIQQ"), 1 << 17, 1, 38


def attributes(node):
    mode = 0o40755 if node == FOLDER else 0o100644
    return struct.pack("<6Q10I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(what, node, more):
    """-> bytes, or None for a request that is not known."""
    if what == INIT:
        return struct.pack("<IIIIHHII", 7, 31, 0, 0, 12, 9, 4096, 1) + bytes(36)
    if what == LOOKUP:
        number = 2 + sum(more) % 1000
        return struct.pack("<QQQQII", number, 0, 0, 0, 0, 0) + attributes(number)
    if what == GETATTR:
        return struct.pack("<QII", 0, 0, 0) + attributes(node)
    if what in (OPEN, OPENDIR):
        return struct.pack("<QII", 1, 0, 0)
    return b"" if what in (RELEASE, FLUSH) else None


def main():
    folder, device = sys.argv[1], -1
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
        how = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        failed = ctypes.CDLL(None).mount(b"silent", folder.encode(), b"fuse", 0, how)
    except OSError:
        failed = True
    print("failed" if failed else "ready", flush=True)
    silent = False
    while not failed:
        ready = select.select([device, sys.stdin], [], [])[0]
        if sys.stdin in ready:
            if silent or not sys.stdin.readline():
                return
            silent = True
            print("silent", flush=True)
        elif device in ready:
            request = os.read(device, MOST)
            _, what, number, node = HEAD.unpack_from(request)
            if silent or what in (FORGET, INTERRUPT):
                continue
            said = answer(what, node, request[40:])
            os.write(
                device, struct.pack("<IiQ", 16 + len(said or b""), 0 if said is not None else -ENOSYS, number) + (said or b"")
            )


main()
