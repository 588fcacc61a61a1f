"""SGLang's KV cache from memory: the reader that the engine's spec names."""

from __future__ import annotations

from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...kvcache.model import Cache, Request, Worker
from ..objects import in_frames, needed_in_frames
from . import kv_scheduler, kv_worker, paths
from .names import NAMES as NAMES
from .names import RESTS_ON as RESTS_ON
from .names import VITAL as VITAL
from .paths import MODELS, ROOTS

STEP_COUNTER = paths.STEP_COUNTER


def version(rt: Runtime) -> str:
    """The release by the process's own data, '' when it is not known."""
    return rt.release(("sglang.version", "sglang", "sglang._version"))


def find_scheduler(rt: Runtime) -> Object | None:
    """The Scheduler that a frame holds, or None."""
    return in_frames(rt, ROOTS)


def find_model(rt: Runtime) -> Object | None:
    """The object that the process's model runner calls: the model, or a wrapper around it; else None."""
    return in_frames(rt, MODELS)


def read(rt: Runtime, root: Object | None = None, content: bool = False) -> Cache:
    """`Cache` of a Scheduler (default: the process's). `GdbextError` when there is none."""
    return kv_scheduler.read(rt, root or _needed(rt), version(rt), content)


def fill(rt: Runtime, scheduler: Object, requests: list[Request]) -> Cache:
    """As `read`, of a Scheduler whose requests were read just now (requests.look): their slots are filled in."""
    return kv_scheduler.read(rt, scheduler, version(rt), False, requests)


def read_worker(rt: Runtime, label: str, num_blocks: int | None = None) -> Worker:
    """`Worker`: the layers' buffers of the process's KV pool. `NotFoundError` when it has no scheduler."""
    return kv_worker.read_worker(rt, _needed(rt), label)


def _needed(rt: Runtime) -> Object:
    return needed_in_frames(rt, ROOTS, "no SGLang scheduler in its frames: is it the scheduler process? see llm-ranks")
