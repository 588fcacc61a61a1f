"""The toy engine's KV cache: a list of free block ids, and requests with a list of theirs each."""

from __future__ import annotations

from ...kvcache import waiting
from ...kvcache.model import Cache, Group, Pool, Request, Worker
from ..columns import integers
from ..objects import in_frames, needed_in_frames, numbers_until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ...cpython.objects import Object
    from ...cpython.runtime import Runtime

MAX_BLOCKS = 1 << 20
ROOTS = {"ToyScheduler": ""}


def find_scheduler(rt: Runtime) -> Optional[Object]:
    """The scheduler that a frame holds, or None."""
    return in_frames(rt, ROOTS)


def read(rt: Runtime, root: Optional[Object] = None, content: bool = False) -> Cache:
    """`Cache` of the scheduler; `NotFoundError` without one."""
    scheduler = root or needed_in_frames(rt, ROOTS, "no toy scheduler in its frames")
    size, tokens = scheduler.attr("blocks").integer(), scheduler.attr("block_size").integer()
    free = integers(rt, scheduler.attr("free").element_addresses(MAX_BLOCKS))
    pool = Pool("pool", size, size, tokens, free_ids=free, num_free=len(free), reserved=())
    requests = []
    for queue in ("running", "waiting"):
        for one in scheduler.attr(queue).elements(MAX_BLOCKS):
            request = Request(one.attr("request_id").string(1000), queue, queue, address=one.address)
            request.prompt_tokens = len(numbers_until(rt, one.attr("toy_prompt"), MAX_BLOCKS))
            request.output_tokens = request.computed_tokens = one.attr("produced").integer()
            request.blocks = {0: numbers_until(rt, one.attr("blocks"), MAX_BLOCKS)}
            requests.append(request)
    cache = Cache("toy", rt.release(("toy_engine",)), [pool], [Group(0, "full", tokens)], requests)
    waiting.explain(cache, ("waiting",), {}, lambda request: waiting.shortage("more", f"{pool.num_free} free", {}))
    return cache


def read_worker(rt: Runtime, label: str, num_blocks: Optional[int] = None) -> Worker:
    """The toy engine has no memory of layers."""
    return Worker(label, target=rt.target)
