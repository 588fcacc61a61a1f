"""Waits for good for a reason that llm-hang cannot know, and says its thread's id. unknowns.py REASON"""

import ctypes
import json
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


def semaphore_of_c():
    """A semaphore of C code, which neither Python nor its frames know."""
    semaphore = ctypes.create_string_buffer(64)
    libc.sem_init(semaphore, 0, 0)
    libc.sem_wait(semaphore)


def damaged_layout():
    """Its interpreter's sys.modules is a list: the table of its CPython does not fit."""
    ctypes.pythonapi.PyInterpreterState_Get.restype = ctypes.c_void_p
    words = ctypes.POINTER(ctypes.c_uint64).from_buffer(ctypes.c_void_p(ctypes.pythonapi.PyInterpreterState_Get()))
    at = next(i for i in range(4096) if words[i] == id(sys.modules))
    words[at] = id(sys.path)
    libc.pause()


print(json.dumps({"tid": threading.get_native_id()}), flush=True)
{f.__name__: f for f in (never_released, semaphore_of_c, damaged_layout)}[sys.argv[1]]()
