"""Reads the memory that llm-stacks, llm-locks, llm-hang and llm-snapshot will read, so that a collector learns which pages a copy
needs."""

from __future__ import annotations

from typing import Sequence

from .. import log
from ..access.base import Target
from ..cpython import prefetch, resolution
from ..cpython.objects import Object
from ..cpython.reprs import NORMAL, Repr
from ..cpython.runtime import Runtime, open_runtime
from ..engines import kv_view, registry, shm_rings
from ..errors import GdbextError
from ..torch import collectives, gloo_peers
from ..torch import tensor_impl as tensors
from . import async_waits, file_ends, ipc_locks, locks, prefetch_threads, reach, shared_memory
from .holders import BY_SOURCE, WITH, Holders
from .prefetch_threads import kept_secrets as kept_secrets
from .references import references_of
from .threads import ProcessView, distributed_label, place_by_environment, store_by_environment, world

KV, REACH = "-kv", "-reach"  # no expression begins so
PACKAGES = ("torch", "triton", "transformers", "numpy")  # in addition to the engines'
CHUNK = 1 << 20


def read(target: Target, *words: str) -> str:
    """Reads it from `target`; returns the first error, or ''. `words`: `KV` for the engine's KV cache and versions, `REACH` for
    the objects that expressions lead to, else Python expressions (names of any frame of the main thread). The values of tensors
    that expressions give are read too."""
    view, error = prefetch_threads.view_of(target)
    if view is None:
        return error
    reads = target.read_log
    if reads is not None and reads.repeated:
        return error
    if reads is not None and reads.of_copy:  # the rest is not worth another stop if the copy lacks it
        with reads.optional():
            return error or (_more(view, words) if words else "")
    return error or _more(view, words)


def _more(view: ProcessView, words: Sequence[str]) -> str:
    """Reads the memory for locks, labels, expressions and the KV cache."""
    error, target = "", view.target
    try:
        if view.rt is not None:
            distributed_label(view.rt)
            world(view.rt)
            shm_rings.find(view.rt)
            gloo_peers.read(view.rt, collectives.find(view.rt))
            place = place_by_environment(view.rt)
            if not collectives.store_of(view.rt) and place is not None:
                store_by_environment(view.rt)
        if any(edge.shared is not None for edge in locks.find(view)[0]):
            shared_memory.ended_processes(view)
        if not (target.read_log and target.read_log.of_copy):
            references = references_of(view.rt)
            for thread in view.threads:  # all threads: it is not known which will wait when the copy is made
                _ = thread.handles  # read, so that the copy has it
                for frame in thread.python:
                    references.reaches(frame)
            file_ends.read(view.rt, view.threads)
            holders = Holders(list(view.threads))
            for how in (WITH, BY_SOURCE):
                holders.of(how, 0)
        if view.rt is not None:
            async_waits.read(view.name, view.rt, view.threads)
        ipc_locks.held_semaphores(view)
        if words:
            prefetch.read(target)
    except GdbextError as e:
        error = str(e)
    of_copy = target.read_log is not None and target.read_log.of_copy
    for word in words:
        if word == REACH and of_copy:
            continue  # nothing of it is worth another stop
        try:
            if word == KV:
                _cache(target)
            elif word == REACH:
                reach.read(view)
            else:
                _value(open_runtime(target), word)
        except GdbextError as e:
            error = error or f"{'KV cache' if word == KV else word}: {e}"
    return error


def versions(rt: Runtime) -> dict[str, str]:
    """{package: version} of loaded packages that matter to an engine."""
    found = {}
    for name in registry.packages() + PACKAGES:
        try:
            version = rt.release((name,))
        except GdbextError as e:
            log.passed_over(e)
            continue
        if version:
            found[name] = version
    return found


def _cache(target: Target) -> None:
    versions(open_runtime(target))
    if kv_view.has_engine(open_runtime(target)):
        try:
            kv_view.View(target).cache(as_read=True)
        except GdbextError as e:
            log.passed_over(e)  # a worker has no scheduler; a cache that cannot be read is reported by llm-kv on the snapshot


def _value(rt: Runtime, text: str) -> None:
    threads = rt.threads()
    frames = rt.frames(threads[0]) if threads else []
    value = resolution.resolve(rt, text, frames, outward=True).value
    if not isinstance(value, Object):
        return
    Repr(NORMAL)(value)
    for one in [value] + (value.elements(4096) if value.isa("list", "tuple") else []):
        if tensors.is_tensor(one):
            tensor = tensors.read_tensor(rt, one.address)
            if not tensor.unavailable and tensor.storage_data and tensor.storage_bytes:
                end = tensor.storage_data + tensor.storage_bytes
                for at in range(tensor.storage_data, end, CHUNK):
                    rt.target.read(at, min(CHUNK, end - at))
