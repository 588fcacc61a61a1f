"""Why a request waits (`Request.blocked_by`), for the `Cache` of any engine. The head of a queue waits for a resource of its own;
the others wait for the head."""

from __future__ import annotations

from typing import Callable, Mapping, Sequence

from .model import Cache, Request

NEXT_STEP = "the next step"
GRAMMAR = "grammar: it is being compiled"
SHORT = "blocks: "  # how `shortage` begins
SHOWN = 3  # holders of blocks that are named


def running(cache: Cache) -> list[Request]:
    """The requests that run."""
    return [r for r in cache.requests if r.queue == "running"]


def explain(cache: Cache, queues: Sequence[str], reasons: Mapping[str, str], head_waits: Callable[[Request], str]) -> None:
    """Sets `blocked_by`. `queues`: those that serve their first request first. `reasons`: {queue or status: the reason of such a
    request itself}. `head_waits(request)`: the reason of the first of the other requests."""
    head = None
    for request in cache.requests:
        own = reasons.get(request.queue) or (reasons.get(request.status) if request.queue in queues else None)
        if own:
            request.blocked_by = own
        elif request.queue in queues and head is not None:
            request.blocked_by = f"queue: behind {head.request_id}"
        elif request.queue in queues:
            head = request
            request.blocked_by = head_waits(request)


def slots_are_taken(count: int) -> str:
    """The reason of a request that waits until fewer run."""
    return f"request slots: all {count} are running"


def shortage(needed: str, there: str, held: Mapping[str, int]) -> str:
    """The reason of a request that waits for blocks. `needed` and `there` are words. `held`: {request id: blocks or tokens};
    those that hold most are named."""
    most = sorted(((count, name) for name, count in held.items() if count), reverse=True)[:SHOWN]
    return f"{SHORT}needs {needed}, {there}" + (f"; {', '.join(f'{name} holds {count}' for count, name in most)}" if most else "")


def held_of_group(cache: Cache, group: int) -> Mapping[str, int]:
    """{request id: blocks of a group} of the requests that run."""
    return {r.request_id: len(r.blocks.get(group, ())) for r in running(cache)}
