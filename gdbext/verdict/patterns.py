"""Names of functions and files by which the rules recognise what a thread is in: those of torch, CPython and the C library. An
engine's own names come from its spec (`engines.registry`)."""

from __future__ import annotations

import re

from ..engines import registry

COLLECTIVE = re.compile(
    r"(?:^|\.)_?(all_reduce|all_gather\w*|all_to_all\w*|broadcast\w*|reduce|reduce_scatter\w*|barrier|monitored_barrier|gather\w*|"
    r"scatter\w*|send|recv|isend|irecv|send_tensor_dict|recv_tensor_dict|send_object|recv_object|gather_object)$"
)
NATIVE_COLLECTIVE = re.compile(
    r"nccl(AllReduce|AllGather|ReduceScatter|Broadcast|Send|Recv|GroupEnd|CommInit\w*)|\bgloo::|ProcessGroup(NCCL|Gloo)::"
)
DEVICE = re.compile(
    r"\b(cu(da)?(Stream|Event|Ctx|Device)Synchronize|cuMemcpy\w*|cudaMemcpy\w*|cuLaunchKernel\w*|hip\w+Synchronize)\b"
)
STORE = re.compile(
    r"(?:^|\.)(init_process_group|_store_based_barrier|rendezvous|_tcp_rendezvous_handler|_env_rendezvous_handler|_create_c10d_store)$"
)
TORCH = re.compile(r"(^|/)torch/distributed/")  # files
STORE_WAITS = re.compile(r"c10d::TCPStore::(wait|doWait|get|doGet)\b")
TRIO = re.compile(r"(^|/)trio/_core/_io_\w+\.py$")  # where its loop waits for files and other threads
SLEEP = re.compile(r"_*(clock_)?nanosleep|time_sleep|pysleep|usleep|sleep$")
INPUT = re.compile(
    r"_*(epoll_p?wait2?|poll|ppoll|p?select|accept4?|recv(from|msg)?|read|pread64|io_getevents|sigtimedwait|sigwait)$"
)
COLLECTS = re.compile(
    r"^(gc_collect|_PyGC_Collect|collect_generations|deduce_unreachable|gc_main|subtract_refs|move_unreachable)"
)
LIBRARY_FILES = re.compile(r"/(zmq|torch)/|/(contextlib|_base)\.py$|multiprocessing/\w+\.py$")
TORCH_FILES = ("torch/distributed/distributed_c10d.py",)


def collective_files() -> tuple[str, ...]:
    """Ends of the paths of files whose functions communicate with other ranks."""
    return (*TORCH_FILES, *registry.collective_files())


# the interpreter's functions that call Python code which no Python code called: Objects/typeobject.c, Modules/signalmodule.c
CALLED_FOR = (
    ("slot_tp_finalize", "a finalizer"),
    ("_PyErr_CheckSignals", "a signal handler"),
    ("PyErr_CheckSignals", "a signal handler"),
    ("PyObject_ClearWeakRefs", "a weak reference's callback"),
    ("handle_weakref", "a weak reference's callback"),
)
