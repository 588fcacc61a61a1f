"""A process whose every name is hostile: title, comm, threads, code, files, classes, attributes, keys, tasks, exceptions, torch's
version.

Each holds an escape sequence, a newline with the word FORGED behind it, and a bidirectional mark; some are 4 KiB long. Prints its
pid, then waits."""

import asyncio
import ctypes
import json
import mmap
import os
import sys
import threading
import time
import types

EVIL = "\x1b]0;PWNED\x07\nFORGED \x1b[2J\r\u202e\x9b31m"
LONG = EVIL * (4096 // len(EVIL) + 1)
ready = threading.Barrier(5)


def renamed(function, name, path):
    code = function.__code__.replace(co_name=name, co_filename=path)
    if hasattr(code, "co_qualname"):
        code = code.replace(co_qualname=name)
    return types.FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)


def set_comm(text):
    ctypes.CDLL(None).prctl(15, text.encode()[:15], 0, 0, 0)


def still(value):
    ready.wait()
    time.sleep(3600)
    return value


def handle(kind):
    try:
        raise kind(EVIL, LONG)
    except kind as e:
        e.__notes__ = [EVIL]
        ready.wait()
        time.sleep(3600)


def keep(lock):
    with lock:
        ready.wait()
        time.sleep(3600)


def serve():
    async def consume():
        await asyncio.Queue().get()

    async def main():
        task = asyncio.create_task(consume(), name=EVIL)
        asyncio.get_running_loop().call_later(0.1, ready.wait)
        await task

    asyncio.run(main())


def main():
    set_comm(EVIL[:10])
    path = os.path.join(sys.argv[1], EVIL.replace("/", ""))
    with open(path, "wb") as f:
        f.write(b"\x7fELF" + bytes(8192))
    with open(path, "rb") as f:
        mapped = mmap.mmap(f.fileno(), 4096, access=mmap.ACCESS_READ)
    kind = type(EVIL, (Exception,), {"__module__": EVIL})
    value = type(LONG, (), {"__module__": EVIL})()
    vars(value)[EVIL], vars(value)[LONG] = EVIL, {EVIL: LONG}
    torch = types.ModuleType("torch")
    torch.__version__, torch.version = "9.9" + EVIL, types.SimpleNamespace(__version__="9.9" + EVIL)
    lock = threading.Lock()
    started = [
        threading.Thread(target=renamed(handle, EVIL, path), args=(kind,), name=EVIL, daemon=True),
        threading.Thread(target=renamed(keep, LONG, LONG), args=(lock,), name=LONG, daemon=True),
        threading.Thread(target=serve, name=EVIL, daemon=True),
        threading.Thread(target=renamed(still, EVIL, EVIL), args=(value,), name=EVIL, daemon=True),
    ]
    for thread in started:
        thread.start()
    ready.wait()
    sys.modules.update({"torch": torch, EVIL: types.ModuleType(EVIL)})
    waiter = threading.Thread(target=lock.acquire, name=EVIL, daemon=True)
    waiter.start()
    time.sleep(0.3)
    print(
        json.dumps(
            {"pid": os.getpid(), "value": id(value), "mapped": ctypes.addressof(ctypes.c_char.from_buffer_copy(mapped[:1]))}
        ),
        flush=True,
    )
    time.sleep(3600)


renamed(main, EVIL, LONG)()
