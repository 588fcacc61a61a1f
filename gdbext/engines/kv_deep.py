"""Checks the values of KV blocks: `llm-kv check -deep`. Needs numpy.

Reserved blocks are never written, or written with values that no kernel uses. Still a NaN in one of them reaches attention
through masked positions (0 times NaN is NaN). Blocks of one hash stand for the same tokens. Ranks that hold the same heads (fewer
KV heads than ranks) have the same numbers.

A block is checked once all its slots are computed. The host has then sampled a token after them, so the GPU's work on them has
ended whatever else runs there."""

from __future__ import annotations

from typing import Iterator, Sequence

from ..errors import GdbextError
from ..kvcache.model import Cache, Request, ValueFault, Values, Worker
from ..kvcache.rules import BLOCK_NAN, PREFIX_COPY, RANK_COPY, RESERVED_NAN
from ..torch import arrays, layer_compare, stats
from .kv_view import block_values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..kvcache.addresses import Layer, Part

MAX_BLOCKS = 2048  # in use that are checked
SAMPLES = 64  # pairs of blocks that decide whether two ranks hold the same


def read(cache: Cache, workers: Sequence[Worker], notes: list[str]) -> Values:
    """`Values` of all blocks that count. `notes`: what could not be read."""
    found = Values()
    blocks = _computed(cache)
    count = sum(map(len, blocks.values()))
    for worker in workers:
        found.looked_at[worker.rank] = 0
        try:
            found.faults += _of_worker(cache, worker, blocks, found.looked_at)
        except GdbextError as e:
            how = "were not all" if found.looked_at[worker.rank] else "cannot be"
            notes.append(f"{worker.rank}: its blocks' values {how} read: {e}")
        else:
            if not found.looked_at[worker.rank]:
                notes.append(f"{worker.rank}: no block's values were read: {'; '.join(worker.notes) or 'it has no layers'}")
    for i, one in enumerate(workers):
        for other in workers[i + 1 :]:
            try:
                faults, pairs = _of_pair(one, other, blocks)
            except GdbextError as e:
                notes.append(f"{one.rank} and {other.rank}: whether they hold the same was not compared: {e}")
                continue
            found.faults += faults
            found.pairs += pairs
    if count >= MAX_BLOCKS:
        notes.append(f"of the blocks in use, the values of {MAX_BLOCKS} were read")
    return found


def _computed(cache: Cache) -> dict[int, list[int]]:
    """{group: [blocks]} whose every slot is computed, of requests' tables; the first `MAX_BLOCKS`."""
    found: dict[int, dict[int, None]] = {}
    count = 0
    for request in cache.requests:
        for group in cache.groups:
            if group.kind not in ("full", "mla") or not group.block_size:
                continue
            pool = cache.pools[group.pool]
            whole = _written(request) // group.block_size
            for block in request.blocks.get(group.id, ())[:whole]:
                if count < MAX_BLOCKS and pool.valid(block) and block not in pool.reserved:
                    own = found.setdefault(group.id, {})
                    count += block not in own
                    own[block] = None
    return {group: list(blocks) for group, blocks in found.items()}


def _written(request: Request) -> int:
    """How many of a request's tokens are certainly in the cache of every rank, whatever step is being computed.

    They are the tokens of a prefix that it shares and, if it has sampled a token, all tokens before that one. Schedulers count a
    step's tokens as computed too early."""
    if request.output_tokens is None:
        return request.computed_tokens or 0
    sure = (request.prompt_tokens or 0) + request.output_tokens - 1 if request.output_tokens else 0
    return min(request.computed_tokens or 0, max(sure, request.private or 0))


def _parts(worker: Worker, group: int) -> Iterator[tuple[Layer, Part]]:
    for layer in worker.layers:
        if layer.group == group:
            for part in layer.parts:
                yield layer, part


def _of_worker(cache: Cache, worker: Worker, blocks: dict[int, list[int]], counts: dict[str, int]) -> Iterator[ValueFault]:
    for group in cache.groups:
        pool = cache.pools[group.pool]
        tables = {block for request in cache.requests for block in request.blocks.get(group.id, ())}
        unsure = tables - set(blocks.get(group.id, ()))  # a block has its hash before its values
        copies = [[b for b in same if pool.valid(b) and b not in unsure] for _, same in pool.hash_map if len(same) > 1]
        for layer, part in _parts(worker, group.id):
            where = f"{worker.rank}: layer {layer.index} {part.name}"
            for rule, looked_at in ((RESERVED_NAN, list(pool.reserved)), (BLOCK_NAN, blocks.get(group.id, []))):
                for block in looked_at:
                    if part.dims["block"][0] <= block * layer.ratio:
                        continue
                    source = arrays.of_tensor(block_values(layer, part, block))
                    bad = stats.has_nan(source)
                    counts[worker.rank] += 1
                    if bad:
                        count = stats.statistics(source)[0]["nan"]
                        yield ValueFault(rule, worker.rank, block, f"{where} of block {block} has {count} NaN of {source.numel}")
            for same in copies:
                for other in same[1:]:
                    why = _apart(layer, part, same[0], layer, part, other)
                    if why:
                        detail = f"{where}: blocks {same[0]} and {other} have one hash and differ {why}"
                        yield ValueFault(PREFIX_COPY, worker.rank, other, detail)


def _of_pair(one: Worker, other: Worker, blocks: dict[int, list[int]]) -> tuple[list[ValueFault], int]:
    """Where two ranks that hold the same heads differ, and how many pairs of blocks were compared. They hold the same heads where
    most of `SAMPLES` blocks are equal, and not all zeros."""
    pairs = []
    for group, numbers in blocks.items():
        mine, others = list(_parts(one, group)), list(_parts(other, group))
        if [(la.index, p.name) for la, p in mine] == [(la.index, p.name) for la, p in others]:
            pairs += [(a, b, block) for a, b in zip(mine, others) for block in numbers]
    every = max(1, len(pairs) // SAMPLES)
    alike = [not _apart(*a, block, *b, block) for a, b, block in pairs[::every] if not _is_zero(*a, block)]
    if not alike or 2 * sum(alike) <= len(alike):
        return [], 0
    found = []
    for a, b, block in pairs:
        why = _apart(*a, block, *b, block)
        if why:
            where = f"layer {a[0].index} {a[1].name} of block {block}"
            found.append(ValueFault(RANK_COPY, other.rank, block, f"{where} differs {why} on {one.rank} and {other.rank}"))
    return found, len(pairs)


def _is_zero(layer: Layer, part: Part, block: int) -> bool:
    source = arrays.of_tensor(block_values(layer, part, block))
    return all(not source.read(box).any() for box in source.boxes())


def _apart(layer: Layer, part: Part, block: int, layer2: Layer, part2: Part, block2: int) -> str:
    """ "relatively 0.5" for two blocks that differ by more than their dtype explains, "by NaN alone", "" for others."""
    a, b = (arrays.of_tensor(block_values(*one)) for one in ((layer, part, block), (layer2, part2, block2)))
    found = layer_compare.difference(a, b)
    if not found["different"]:
        return ""
    return f"relatively {found['relative']:.3g}" if found["relative"] else "by NaN alone"
