"""Waits for good for a reason that llm-hang cannot know, and says its thread's id. unknowns.py REASON"""

import ctypes
import json
import mmap
import platform
import socket
import sys
import threading

libc = ctypes.CDLL(None)


def never_released():
    """A lock that no thread and no frame has; a thread that waits for clients might give it back."""
    lock = threading.Lock()
    threading.Thread(target=socket.create_server(("127.0.0.1", 0)).accept, daemon=True).start()
    lock.acquire()
    lock.acquire()


def futex_of_c():
    """A futex of C code, which neither Python nor its frames know, and which other processes may wake."""
    word = ctypes.c_int.from_buffer(mmap.mmap(-1, 4096))  # a fork would share it
    libc.syscall(98 if platform.machine() == "aarch64" else 202, ctypes.byref(word), 0, 0, None)


def damaged_layout():
    """Its interpreter's sys.modules is a list: the table of its CPython does not fit."""
    ctypes.pythonapi.PyInterpreterState_Get.restype = ctypes.c_void_p
    words = ctypes.POINTER(ctypes.c_uint64).from_buffer(ctypes.c_void_p(ctypes.pythonapi.PyInterpreterState_Get()))
    at = next(i for i in range(4096) if words[i] == id(sys.modules))
    words[at] = id(sys.path)
    libc.pause()


print(json.dumps({"tid": threading.get_native_id()}), flush=True)
{f.__name__: f for f in (never_released, futex_of_c, damaged_layout)}[sys.argv[1]]()
