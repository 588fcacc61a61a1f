"""What must hold in a KV cache, each as a named rule with the releases it holds for (facts/kv-cache.md, sections 3 and 4.3).

`check` runs them in order: the structure of a pool before what is derived from it. The first fault leads; what a broken structure
explains is counted as following from it, not listed. A rule that a half-done update can break for a moment is `transient`: where the
engine stands in the middle of an update, its finding is set apart (`Report.transient`) instead of being called corruption.
"""

import dataclasses
import operator
from itertools import compress
from typing import Dict, List, Optional

from .model import DANGLING, NONE, shown

LIMIT = 20  # findings of one rule that are listed; the rest are counted
STRUCTURE = ("free-list-double", "free-list-cycle", "free-list-link", "free-list-end", "free-list-wild")
_ALL = "vLLM V1 (0.8.5 on)"
_HASHED = "vLLM V1 with prefix caching"
_SGL = "SGLang 0.4.9 on"

RULES = {  # name -> (what must hold, releases, whether a half-done update may break it for a moment)
    "pool-size": ("the pool lists as many blocks as it counts", _ALL, False),
    "block-object": ("every entry of the pool's list is a block", _ALL, False),
    "block-id": ("block i carries the id i", _ALL, False),
    "null-block": ("block 0, and no other, is the null block", "vLLM 0.9.2 on", False),
    "null-freed": ("a reserved block is never free", _ALL + ", " + _SGL, False),
    "free-list-double": ("no block is in the free queue twice", _ALL + ", " + _SGL, False),
    "free-list-cycle": ("the free queue ends", _ALL, False),
    "free-list-wild": ("links of the free queue lead to blocks of the pool", _ALL + ", " + _SGL, False),
    "free-list-link": ("the successor's prev link leads back", _ALL, True),
    "free-list-end": ("the free queue reaches its tail", _ALL, True),
    "free-count": ("the free counter is the length of the free queue", _ALL, True),
    "negative-ref": ("no reference count is negative", _ALL, False),
    "free-owned": ("a free block is in no request's block table", _ALL + ", " + _SGL, False),
    "free-referenced": ("a free block has no references", _ALL, True),
    "leaked": ("a block without references is in the free queue", _ALL, True),
    "owned-twice": ("a block stands once in a request's table", _ALL + ", " + _SGL, False),
    "ref-below-owners": ("a block has at least a reference for each table that holds it", _ALL, False),
    "ref-above-owners": ("a block has no more references than tables hold it, where nothing else may pin blocks", _ALL, True),
    "double-owner": ("a block in two tables is a shared prefix: it has a hash", _HASHED, False),
    "stray-links": ("a block outside the free queue has no links", _ALL, True),
    "hash-entry": ("an entry of the prefix map leads to a block with that hash", _HASHED, True),
    "hash-missing": ("a block with a hash is in the prefix map", _HASHED, True),
    "table-range": ("block tables hold ids of the pool", _ALL + ", " + _SGL, False),
    "table-short": ("a request's table covers its computed tokens (full attention)", _ALL, True),
    "request-unknown": ("a request with blocks is known to the scheduler, or waits for a transfer", _ALL, True),
    "free-level": ("a free block waits in the queue of its own memory level", "TensorRT-LLM", False),
    "free-iterator": ("a block knows its place in a free queue exactly while it stands in one", "TensorRT-LLM", True),
    "busy-count": ("the counter of busy blocks is the number of blocks with references", "RTP-LLM", True),
    "tree-link": ("a node's parent is the node that lists it", "SGLang 0.4 to 0.5.9, later with the Python tree", True),
    "tree-key": ("a node's key begins with what it is filed under and is as long as its value", "as tree-link", True),
    "tree-lock": ("every ancestor of a locked node is locked", "as tree-link", True),
    "tree-size": ("the nodes hold as many tokens as the tree counts", "as tree-link", True),
    "tree-twice": ("a slot is in one node only", "as tree-link", False),
    "free-cached": ("a free slot is in no node of the prefix tree", _SGL, False),
    "slot-shared": ("a slot that two requests use lies in the prefix tree's part of both", _SGL, False),
    "row-free": ("a free row of the request pool is no request's, and is free once", _SGL, False),
    "row-shared": ("no two requests have the same row", _SGL, False),
    "slots-lost": ("free, cached and requests' own slots make up the pool", _SGL, True),
    "worker-table": ("a worker's block table says what the scheduler's says", "vLLM V1 (0.9.2 on)", True),
    "worker-range": ("ids in a worker's tables are below the number of blocks", "vLLM V1 (0.9.2 on)", False),
    "slot-range": ("slot mappings lie inside the cache, or are -1", "vLLM V1 (0.9.2 on)", False),
    "slot-twice": ("no two tokens of a step have the same slot", "vLLM V1 (0.9.2 on)", False),
}


@dataclasses.dataclass
class Violation:
    """A broken rule. `more`: how many further findings of the same rule are not listed; `follows`: what follows from this one, counted."""

    rule: str
    detail: str
    block: Optional[int] = None
    request_id: Optional[str] = None
    pool: str = ""
    rank: str = ""
    more: int = 0
    follows: Dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def key(self):
        return self.rule, self.block, self.request_id, self.rank


@dataclasses.dataclass
class Report:
    """`violations`: broken rules, the first fault first; `transient`: what a half-done update may explain; `blocks`: how many were checked;
    `held`: `{pool: blocks referenced by no request}`; `rules`: names of those that were checked."""

    violations: List[Violation]
    transient: List[Violation]
    blocks: int
    held: Dict[str, int]
    rules: List[str]


class _Findings:
    def __init__(self):
        self.found, self.rules = [], []

    def rule(self, name):
        self.rules.append(name)

    def add(self, rule, detail, block=None, request_id=None, pool="", rank=""):
        same = [v for v in self.found if v.rule == rule and v.pool == pool and v.rank == rank]
        if len(same) >= LIMIT:
            same[-1].more += 1
        else:
            self.found.append(Violation(rule, detail, block, request_id, pool, rank))


def check(cache, workers=()):
    """Every rule that applies to what was read -> `Report`. `workers`: `model.Worker`s whose tables are compared."""
    found = _Findings()
    held, blocks = {}, 0
    if cache.rows:
        _rows(found, cache)  # first: a row of two requests gives both the same slots
    for number, pool in enumerate(cache.pools):
        blocks += pool.size if pool.count < pool.size else pool.count
        owners = cache.owners(number)
        _structure(found, pool)
        _free_queue(found, pool)
        for rule, block, detail in pool.faults:
            found.add(rule, detail, block, pool=pool.name)
        _tables(found, cache, number, pool)
        if pool.ref_cnt is not None:
            held[pool.name] = _references(found, pool, owners)
        _free_against_owners(found, pool, owners)
        if pool.hashes is not None and pool.has_hash_map:
            _hashes(found, pool)
        if pool.tree is not None:
            _tree(found, pool)
        if pool.ref_cnt is None:
            _slots(found, cache, pool, owners)
    for worker in workers:
        _worker(found, cache, worker)
    leading = _fold(found.found)
    transient = []
    if cache.mid_update:
        transient = [v for v in leading if RULES[v.rule][2]]
        leading = [v for v in leading if not RULES[v.rule][2]]
    return Report(leading, transient, blocks, held, list(dict.fromkeys(found.rules)))


def _fold(found):
    """What a broken free queue explains follows from it: blocks it no longer reaches, its counter, stray links. So do the slots that two
    requests of one row seem to share."""
    rows = next((v for v in found if v.rule == "row-shared"), None)
    if rows is not None:
        for v in [v for v in found if v.rule in ("slot-shared", "slots-lost")]:
            rows.follows[v.rule] = rows.follows.get(v.rule, 0) + 1 + v.more
            found.remove(v)
    for pool in {v.pool for v in found}:
        roots = [v for v in found if v.pool == pool and v.rule in STRUCTURE]
        if not roots:
            continue
        for v in [v for v in found if v.pool == pool and v.rule in ("free-count", "leaked", "stray-links")]:
            roots[0].follows[v.rule] = roots[0].follows.get(v.rule, 0) + 1 + v.more
            found.remove(v)
    return found


# ---- pools of counted, linked blocks -----------------------------------------------------------------------------------
def _structure(found, pool):
    name = pool.name
    found.rule("pool-size")
    if pool.count != pool.size and (pool.linked or pool.ids is not None):
        found.add("pool-size", f"the pool counts {pool.size} {pool.unit}s and lists {pool.count}", pool=name)
    found.rule("block-object")
    for i in pool.foreign:
        found.add("block-object", f"entry {i} of the pool's list is no block", i, pool=name)
    if pool.ids is not None:
        found.rule("block-id")
        if pool.ids != list(range(pool.count)):
            strangers = set(pool.foreign)
            for i, carried in enumerate(pool.ids):
                if carried != i and i not in strangers:
                    found.add("block-id", f"block {i} carries the id {carried}", i, pool=name)
    if pool.null_ids is not None:
        found.rule("null-block")
        for i in pool.null_ids:
            if i not in pool.reserved:
                found.add("null-block", f"block {i} says that it is the null block", i, pool=name)
        for i in pool.reserved:
            if i not in pool.null_ids and pool.count:
                found.add("null-block", f"block {i} does not say that it is the null block", i, pool=name)


def _free_queue(found, pool):
    name = pool.name
    if not pool.linked and pool.free_ids is None:
        return
    walk = pool.walk()
    for rule in STRUCTURE:
        found.rule(rule)
    if walk.fault:
        found.add(walk.fault[0], walk.fault[2], walk.fault[1], pool=name)
    if pool.free_ids is not None:
        _free_list(found, pool)
    found.rule("null-freed")
    for i in pool.reserved:
        if pool.valid(i) and walk.reached[i]:
            found.add("null-freed", f"{pool.unit} {i} is reserved and stands in the free queue", i, pool=name)
    if pool.num_free is not None:
        found.rule("free-count")
        length = len(walk.order) if pool.linked else len(pool.free_ids)
        if pool.num_free != length:
            found.add("free-count", f"the counter says {pool.num_free} free {pool.unit}s, the queue has {length}", pool=name)


def _free_list(found, pool):
    """A free list without links: ids in range, each once."""
    bits = bytearray(pool.count)
    if (
        len(set(pool.free_ids)) == len(pool.free_ids)
        and pool.free_ids
        and 0 <= min(pool.free_ids)
        and max(pool.free_ids) < pool.count
    ):
        return
    for at, i in enumerate(pool.free_ids):
        if not pool.valid(i):
            found.add(
                "free-list-wild", f"place {at} of the free list holds {i}, which is no {pool.unit} of the pool", i, pool=pool.name
            )
        elif bits[i]:
            found.add("free-list-double", f"{pool.unit} {i} is in the free list twice", i, pool=pool.name)
        else:
            bits[i] = 1


def _references(found, pool, owners):
    """Reference counts against owners and the free queue -> how many blocks are held by no request."""
    for rule in ("negative-ref", "free-referenced", "leaked", "ref-below-owners", "stray-links"):
        found.rule(rule)
    if not pool.may_pin:
        found.rule("ref-above-owners")
    bits, refs, reserved, name = pool.free_bits(), pool.ref_cnt, set(pool.reserved) | set(pool.foreign), pool.name
    suspects = ()  # a free block has no references, any other has some: compared at the speed of C
    if bytearray(map(operator.not_, refs)) != bits or min(refs, default=0) < 0:
        suspects = [i for i, (free, count) in enumerate(zip(bits, refs)) if (count != 0) == free or count < 0]
    for i in suspects:
        if i in reserved:
            continue
        if refs[i] < 0:
            found.add("negative-ref", f"block {i} has {refs[i]} references", i, pool=name)
        elif bits[i]:
            if i not in owners:
                found.add("free-referenced", f"block {i} is free and has {refs[i]} references", i, pool=name)
        elif i not in owners:
            found.add("leaked", f"block {i} has no references and is not free: it is lost", i, pool=name)
    # a queue that was followed without a fault gave each of its blocks two links
    if pool.linked and (pool.walk().fault or pool.prev.count(NONE) != bits.count(0) or pool.next.count(NONE) != bits.count(0)):
        stray = [i for i, (p, n, free) in enumerate(zip(pool.prev, pool.next, bits)) if not free and (p != NONE or n != NONE)]
        for i in stray:
            if i not in pool.foreign and not (refs[i] == 0 and i not in reserved):  # a lost block is told as lost
                found.add(
                    "stray-links",
                    f"block {i} is not free and has links: prev {shown(pool.prev[i])}, next {shown(pool.next[i])}",
                    i,
                    pool=name,
                )
    if pool.counters.get("busy") is not None:
        found.rule("busy-count")
        if pool.counters["busy"] != pool.counters["referenced"]:
            found.add(
                "busy-count",
                f"the counter says {pool.counters['busy']} busy blocks, {pool.counters['referenced']} have references",
                pool=name,
            )
    held = 0
    for i in compress(range(len(refs)), refs):
        count = refs[i]
        if count <= 0 or (i in owners and count == len(owners[i])) or i in reserved:
            continue
        extra = count - len(owners.get(i, ())) - pool.pins.get(i, 0)
        if i not in owners:
            held += 1
        if extra > 0 and not pool.may_pin and not bits[i]:
            who = f"{len(owners.get(i, ()))} tables hold it" if i in owners else "no table holds it"
            found.add(
                "ref-above-owners", f"block {i} has {count} references and {who}: the others were never given back", i, pool=name
            )
    for i, held_by in sorted(owners.items()):
        if pool.valid(i) and i not in reserved and 0 <= refs[i] < len(held_by) and not bits[i]:
            names = ", ".join(dict.fromkeys(r.request_id for r, _, _ in held_by))
            found.add(
                "ref-below-owners",
                f"block {i} has {refs[i]} references and is held by {names}",
                i,
                held_by[0][0].request_id,
                pool=name,
            )
    return held


def _free_against_owners(found, pool, owners):
    if not pool.linked and pool.free_ids is None:
        return
    found.rule("free-owned")
    bits = pool.free_bits()
    for i, held_by in sorted(owners.items()):
        if pool.valid(i) and bits[i]:
            who = held_by[0][0].request_id
            found.add(
                "free-owned",
                f"{pool.unit} {i} is free and stands in the table of {who} at {held_by[0][2]}",
                i,
                who,
                pool=pool.name,
            )


def _hashes(found, pool):
    found.rule("hash-entry")
    found.rule("hash-missing")
    hashes, name, named = pool.hashes, pool.name, {}
    mapped = [0] * pool.count
    for token, blocks in pool.hash_map:
        if len(blocks) == 1 and pool.valid(blocks[0]):
            mapped[blocks[0]] = token
    if mapped == hashes and len(pool.hash_map) == pool.count - mapped.count(0):
        return  # each entry leads to a block of its own, which carries it, and no other block carries any
    for token, blocks in pool.hash_map:
        for i in blocks:
            if not pool.valid(i):
                found.add(
                    "hash-entry",
                    f"the prefix map's entry {pool.hash_text(token)} leads to no block of this pool",
                    None,
                    pool=name,
                )
                continue
            named.setdefault(i, set()).add(token)
            if hashes[i] != token and token not in pool.extra_hashes.get(i, ()):
                carried = f"carries {pool.hash_text(hashes[i])}" if hashes[i] else "has no hash"
                found.add(
                    "hash-entry",
                    f"the prefix map's entry {pool.hash_text(token)} leads to block {i}, which {carried}",
                    i,
                    pool=name,
                )
    for i, token in enumerate(hashes):
        if token and token not in named.get(i, ()):
            if i in pool.reserved:
                continue
            found.add(
                "hash-missing",
                f"block {i} carries the hash {pool.hash_text(token)}, which the prefix map does not give for it",
                i,
                pool=name,
            )


def _tables(found, cache, number, pool):
    found.rule("table-range")
    groups = {g.id: g for g in cache.groups}
    hashed = pool.hashes is not None
    seen = {}
    for request in cache.requests:
        for group, blocks in request.blocks.items():
            g = groups.get(group)
            if (g.pool if g else 0) != number:
                continue
            here = {}
            for index, block in enumerate(blocks):
                if block in pool.reserved and (pool.unit == "block" or g.kind == "sliding-window"):
                    continue
                if not pool.valid(block) or block in pool.reserved:
                    what = "no block of the pool" if block == DANGLING else str(block)
                    found.add(
                        "table-range",
                        f"place {index} of the table of {request.request_id} holds {what}",
                        None if block < 0 else block,
                        request.request_id,
                        pool=pool.name,
                    )
                    continue
                if block in here:
                    found.add(
                        "owned-twice",
                        f"{pool.unit} {block} stands in the table of {request.request_id} at {here[block]} and {index}",
                        block,
                        request.request_id,
                        pool=pool.name,
                    )
                here[block] = index
                before = seen.get(block)
                if before is not None and before[0] is not request and hashed and pool.has_hash_map and not pool.hashes[block]:
                    found.add(
                        "double-owner",
                        f"block {block} belongs to {before[0].request_id} at {before[1]} and to {request.request_id} at {index}, "
                        f"and is no cached prefix",
                        block,
                        request.request_id,
                        pool=pool.name,
                    )
                seen[block] = (request, index)
            if g and g.kind in ("full", "mla") and request.computed_tokens and request.known and pool.unit == "block":
                found.rule("table-short")
                needed = -(-request.computed_tokens // g.block_size)
                if len(blocks) < needed:
                    found.add(
                        "table-short",
                        f"{request.request_id} has computed {request.computed_tokens} tokens and holds {len(blocks)} blocks of "
                        f"{g.block_size}",
                        None,
                        request.request_id,
                        pool=pool.name,
                    )
        if cache.queues and pool.unit == "block" and number == 0:
            found.rule("request-unknown")
            if not request.known and any(request.blocks.values()) and not request.transfer:
                count = sum(len(b) for b in request.blocks.values())
                found.add(
                    "request-unknown",
                    f"{request.request_id} holds {count} blocks and the scheduler does not know it",
                    None,
                    request.request_id,
                    pool=pool.name,
                )
    found.rule("owned-twice")
    if hashed:
        found.rule("double-owner")


# ---- pools of slots with a prefix tree ---------------------------------------------------------------------------------
def _tree(found, pool):
    tree, name = pool.tree, pool.name
    for rule in ("tree-link", "tree-key", "tree-lock", "tree-size", "tree-twice"):
        found.rule(rule)
    for index, why in tree.damage:
        found.add("tree-link", why, None, pool=name)
    seen = {}
    for index, node in enumerate(tree.nodes):
        label = f"node {node.id}"
        for child in node.children:
            if tree.nodes[child].parent != index:
                parent = tree.nodes[child].parent
                other = f"node {tree.nodes[parent].id}" if 0 <= parent < len(tree.nodes) else "no node of the tree"
                found.add(
                    "tree-link", f"node {tree.nodes[child].id} is a child of {label}, its parent link leads to {other}", pool=name
                )
        for child in node.misfiled:
            found.add("tree-key", f"node {tree.nodes[child].id} does not begin with what {label} files it under", pool=name)
        if index and not node.host and node.tokens != node.count:
            found.add("tree-key", f"{label} has a key of {node.tokens} tokens and holds {node.count} slots", pool=name)
        if node.lock_ref < 0:
            found.add("tree-lock", f"{label} has {node.lock_ref} locks", pool=name)
        if (
            tree.reaching
            and node.lock_ref > 0
            and index
            and 0 <= node.parent < len(tree.nodes)
            and tree.nodes[node.parent].lock_ref < 1
        ):
            found.add("tree-lock", f"{label} is locked and its parent, node {tree.nodes[node.parent].id}, is not", pool=name)
        for slot in node.slots or ():
            page = slot // tree.page_size
            if seen.setdefault(page, index) != index:
                found.add("tree-twice", f"slot {slot} is in node {tree.nodes[seen[page]].id} and in {label}", page, pool=name)
    for what, locked, counted in (("evictable", False, tree.evictable), ("protected", True, tree.protected)):
        if counted is None:
            continue
        held = sum(n.count for i, n in enumerate(tree.nodes) if i and (n.lock_ref > 0) == locked)
        if held != counted:
            found.add("tree-size", f"the tree counts {counted} {what} tokens, its nodes hold {held}", pool=name)


def _slots(found, cache, pool, owners):
    """Slots of requests, free list and tree against each other."""
    name, bits = pool.name, pool.free_bits() if pool.free_ids is not None else None
    if pool.cached_ids is not None and bits is not None:
        found.rule("free-cached")
        for i in pool.cached_ids:
            if pool.valid(i) and bits[i]:
                found.add("free-cached", f"{pool.unit} {i} is free and in the prefix tree", i, pool=name)
    found.rule("slot-shared")
    cached = set(pool.cached_ids) if pool.cached_ids is not None else None
    for i, held_by in sorted(owners.items()):
        if len({r.request_id for r, _, _ in held_by}) < 2:
            continue
        private = [
            (r, index)
            for r, _, index in held_by
            if pool.unit == "state" or r.private is not None and (index + 1) * pool.block_size > r.private
        ]
        if private and not (cached is not None and i in cached):
            names = " and ".join(dict.fromkeys(r.request_id for r, _, _ in held_by))
            found.add(
                "slot-shared",
                f"{pool.unit} {i} is used by {names}, and is {private[0][0].request_id}'s own",
                i,
                private[0][0].request_id,
                pool=name,
            )
    accounted = pool.counters
    if all(accounted.get(k) is not None for k in ("available", "evictable", "protected")) and cache.queues:
        found.rule("slots-lost")
        own = accounted.get("own")
        if own is None:
            own = 0
            for r in cache.requests if pool is cache.pools[0] else ():
                if r.private is not None:
                    own += max(0, -(-(r.allocated or 0) // pool.block_size) * pool.block_size - r.private)
        total = accounted["available"] + accounted["evictable"] + accounted["protected"] + own + accounted.get("session", 0)
        if total != pool.size * pool.block_size:
            word = "lost" if total < pool.size * pool.block_size else "counted twice"
            found.add(
                "slots-lost",
                f"{accounted['available']} available + {accounted['evictable']} evictable + {accounted['protected']} protected + {own} of requests = "
                f"{total}, the pool has {pool.size * pool.block_size}: {abs(pool.size * pool.block_size - total)} {word}",
                pool=name,
            )


def _rows(found, cache):
    found.rule("row-free")
    found.rule("row-shared")
    free, seen = set(), {}
    for row in cache.rows["free"]:
        if row in free:
            found.add("row-free", f"row {row} of the request pool is free twice")
        free.add(row)
    for request in cache.requests:
        if request.row is None:
            continue
        if request.row in free:
            found.add("row-free", f"row {request.row} is free and belongs to {request.request_id}", None, request.request_id)
        if request.row in seen:
            found.add(
                "row-shared",
                f"row {request.row} belongs to {seen[request.row]} and to {request.request_id}",
                None,
                request.request_id,
            )
        seen[request.row] = request.request_id


# ---- workers -----------------------------------------------------------------------------------------------------------
def _worker(found, cache, worker):
    """A worker's tables against the scheduler's. The worker may be a step behind: a shorter row is no fault, another id is."""
    requests = {r.request_id: r for r in cache.requests}
    for table in worker.tables:
        group = cache.group(table.group)
        if group is None:
            continue
        pool = cache.pools[group.pool]
        for rule in ("worker-table", "worker-range", "slot-range", "slot-twice"):
            found.rule(rule)
        ratio = (
            max(1, group.block_size // table.block_size) if table.block_size and group.block_size % table.block_size == 0 else 1
        )
        for request_id, row in table.rows:
            for index, block in enumerate(row):
                if not 0 <= block < pool.size * ratio:
                    found.add(
                        "worker-range",
                        f"{worker.rank}: place {index} of the row of {request_id} holds {block}, the cache has "
                        f"{pool.size * ratio} blocks",
                        block,
                        request_id,
                        pool.name,
                        worker.rank,
                    )
                    break
            request = requests.get(request_id)
            if request is None or table.group not in request.blocks:
                continue
            wanted = request.blocks[table.group]
            if ratio > 1:
                wanted = [b * ratio + k for b in wanted for k in range(ratio)]
            # a block that left the window is the null block to the scheduler; the worker's row keeps what stood there
            different = next((i for i, (a, b) in enumerate(zip(row, wanted)) if a != b and b // ratio not in pool.reserved), None)
            if different is not None:
                found.add(
                    "worker-table",
                    f"{worker.rank}: place {different} of the row of {request_id} holds {row[different]}, the scheduler says "
                    f"{wanted[different]}",
                    wanted[different],
                    request_id,
                    pool.name,
                    worker.rank,
                )
        seen = {}
        limit = pool.size * group.block_size
        for token, slot in enumerate(table.slots):
            if slot == -1:
                continue
            if not 0 <= slot < limit:
                found.add(
                    "slot-range",
                    f"{worker.rank}: token {token} of the step is written to slot {slot}, the cache has {limit}",
                    slot // group.block_size,
                    None,
                    pool.name,
                    worker.rank,
                )
            elif slot in seen:
                found.add(
                    "slot-twice",
                    f"{worker.rank}: tokens {seen[slot]} and {token} of the step are written to the same slot {slot}",
                    slot // group.block_size,
                    None,
                    pool.name,
                    worker.rank,
                )
            seen[slot] = token
