"""vLLM's KV cache from memory: the reader that the engine's spec names."""

from __future__ import annotations

from typing import Any

from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import NotFoundError
from ...kvcache.model import Cache, Request, Worker
from ..objects import at, in_frames, needed_in_frames, optional, sought
from . import kv_scheduler, kv_worker, kv_worker_v2
from .names import NAMES as NAMES
from .names import RESTS_ON as RESTS_ON
from .paths import ROOTS, WORKER_ROOTS

STEP_COUNTER = "current_step"  # of a scheduler


def version(rt: Runtime) -> str:
    """The release by the process's own data, '' when it is not known."""
    return rt.release(("vllm.version", "vllm._version", "vllm"))


def find_scheduler(rt: Runtime) -> Object | None:
    """The Scheduler of the process, or None: an EngineCore's in the frame of its loop, else any that a frame holds."""
    return in_frames(rt, ROOTS)


def find_model(rt: Runtime) -> Object | None:
    """The object that the process's model runner calls: the model, or a wrapper around it; else None."""
    runner = in_frames(rt, WORKER_ROOTS)
    return None if runner is None else at(runner, "model")


def read(rt: Runtime, root: Object | None = None, content: bool = False) -> Cache:
    """`Cache` from a Scheduler, a KVCacheManager or a BlockPool (default: the process's scheduler). `GdbextError` when there is
    none."""
    root = root or needed_in_frames(rt, ROOTS, "no vLLM V1 scheduler in its frames: is it the engine core? see llm-ranks")
    if at(root, "block_manager") is not None:
        raise NotFoundError(f"{rt.target.describe()}: a scheduler of vLLM's V0 engine, which left vLLM with 0.11: V1's is read")
    cache: Cache = kv_scheduler.read(rt, root, version(rt), content)
    return cache


def fill(rt: Runtime, scheduler: Object, requests: list[Request]) -> Cache:
    """As `read`, of a Scheduler whose requests were read just now (requests.look): their blocks are filled in."""
    return kv_scheduler.read(rt, scheduler, version(rt), False, requests)


def job_of(rt: Runtime) -> tuple[list[str], int | None]:
    """-> (what the processes of one engine have in common with no other, the number of its workers, None where it is not known).
    In common are its own id (Ray's workers get its configuration from it) and the address at which the ranks of several machines
    meet (config/parallel.py)."""
    root = in_frames(rt, ROOTS) or in_frames(rt, WORKER_ROOTS)
    config = at(root, "vllm_config") if root is not None else None
    parallel = at(config, "parallel_config") if config is not None else None
    own = optional(config, "instance_id", "string", "") if config is not None else ""
    keys = [f"vLLM {own}"] if own else []
    if parallel is None:
        return keys, None
    if (optional(parallel, "nnodes") or 1) > 1:
        host, port = optional(parallel, "master_addr", "string", ""), optional(parallel, "master_port")
        keys += [f"{host}:{port}"] if host and port else []
    return keys, optional(parallel, "world_size")


def sampling_row(rt: Runtime, request_id: str) -> dict[str, Any] | None:
    """{name: value} by which the process's model runner draws a request's next token. None where it has no row for the request,
    or no such rows (V1)."""
    runner = sought(rt, lambda rt: in_frames(rt, WORKER_ROOTS))
    if runner is None or not kv_worker_v2.is_v2(runner):
        return None
    return kv_worker_v2.sampling_of(runner, request_id)


def read_worker(rt: Runtime, label: str, num_blocks: int | None = None) -> Worker:
    """`Worker`: block tables and layers of the process's model runner. `NotFoundError` when it has none."""
    runner = in_frames(rt, WORKER_ROOTS)
    if runner is not None:
        return kv_worker.read_worker(rt, runner, label, num_blocks)
    raise NotFoundError(
        f"{rt.target.describe()}: no frame of it holds a vLLM model runner just now: it is starting or ending, or no worker "
        "(llm-ranks says what it is)"
    )
