"""The KV cache of an engine as plain data: pools of blocks, groups of layers, requests, block tables, addresses.

A reader per engine (engines/*/kv.py) fills it; rules, pictures and commands know nothing else. A pool keeps columns instead of an
object per block: a million blocks are five lists. Links are block ids or one of the four marks below.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

from ..errors import NotFoundError
from .rules import FREE_LIST_CYCLE, FREE_LIST_DOUBLE, FREE_LIST_END, FREE_LIST_LINK, FREE_LIST_WILD, Rule

if TYPE_CHECKING:
    from .addresses import Layer

NONE, HEAD, TAIL, DANGLING = -1, -2, -3, -4  # a link that is None, the queue's ends, and a pointer to nothing of this pool
Fault = Tuple[Rule, Optional[int], str]  # the rule, the block, the detail
MARKS = {NONE: "None", HEAD: "the head", TAIL: "the tail", DANGLING: "no block of this pool"}


def shown(link: int) -> str:
    """A link for people: `block 5`, `the tail`."""
    return MARKS.get(link) or f"block {link}"


@dataclass
class Walk:
    """The free queue, followed from its ends. `order`: block ids from the head as far as they go. `fault`: the first fault (rule,
    block, detail), or None. `reached`: a bytearray over ids, 1 where the queue reaches a block from either end."""

    order: list[int]
    reached: bytearray
    fault: Fault | None = None


@dataclass
class Pool:
    """A pool of `size` blocks by the engine's count; `count` of them were read. Columns run over block ids; a column that this
    engine does not keep is None.

    - `reserved`: ids that are never handed out (vLLM's null block, SGLang's padding).
    - `hashes`: a token per block, equal for equal hashes, 0 for none.
    - `hash_map`: `[(token, [block ids])]` of the engine's prefix map.
    - `free_ids`: the free ids in the engine's own order, where it keeps a list instead of links.
    - `may_pin`: in words, what other than requests may hold references; '' for nothing.
    - `pins`: `{block id: references of other, named holders}`.
    """

    name: str
    size: int
    count: int
    block_size: int  # tokens
    unit: str = "block"
    reserved: tuple[int, ...] = (0,)
    ids: list[int] | None = None
    ref_cnt: list[int] | None = None
    null_ids: list[int] | None = None  # blocks that say they are the null block
    prev: list[int] | None = None
    next: list[int] | None = None
    head_next: int = TAIL
    tail_prev: int = HEAD
    num_free: int | None = None  # the engine's counter
    torn: bool = False  # that counter changed while the pool was read
    free_ids: list[int] | None = None
    hashes: list[int] | None = None
    hash_map: list[tuple[int, Sequence[int]]] = field(default_factory=list)
    has_hash_map: bool = False
    extra_hashes: dict[int, "set[int]"] = field(default_factory=dict)  # block id -> more tokens that name it
    foreign: list[int] = field(default_factory=list)  # entries of the block list that are no blocks
    may_pin: str = ""
    pins: dict[int, int] = field(default_factory=dict)
    lent: set[int] = field(default_factory=set)  # ids that were given back, but are still read until they are reused
    cached_ids: list[int] | None = None  # ids that a prefix tree holds, where there is no hash map
    tree: "Tree" | None = None
    counters: dict[str, Any] = field(default_factory=dict)  # the engine's own counts
    notes: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)  # those that only a reader can see
    hash_text: Callable[[int], str] = str
    _walk: Walk | None = None

    @property
    def linked(self) -> bool:
        """Whether the free queue is kept as links in the blocks."""
        return self.next is not None and self.prev is not None

    @property
    def links(self) -> tuple[list[int], list[int]]:
        """The columns `prev` and `next`; empty where the queue has no links."""
        return self.prev or [], self.next or []

    def valid(self, block: int) -> bool:
        """Whether `block` is an id of this pool."""
        return 0 <= block < self.count

    def walk(self) -> Walk:
        """The free queue, followed once. A sound queue costs one step per block."""
        if self._walk is None:
            self._walk = follow(self) if self.linked else _listed(self)
        return self._walk

    def free_bits(self) -> bytearray:
        """A bytearray over ids: 1 where a block is free."""
        return self.walk().reached

    def cached(self) -> list[int]:
        """Ids that the prefix cache names."""
        if self.cached_ids is not None:
            return self.cached_ids
        if self.hashes is None:
            return []
        found = {b for _, blocks in self.hash_map for b in blocks if self.valid(b)} if self.has_hash_map else set()
        return sorted(found.union(i for i, h in enumerate(self.hashes) if h))


def _listed(pool: Pool) -> Walk:
    bits = bytearray(pool.count)
    order = [b for b in pool.free_ids or () if 0 <= b < pool.count]
    for b in order:
        bits[b] = 1
    return Walk(order, bits)


def follow(pool: Pool) -> Walk:
    """Follows a doubly linked free queue from its head, and from its tail where that fails -> `Walk`.

    A block that was queued twice has two neighbours on each side. It ends the walk early or closes a ring. The links that point
    at it identify it. So the fault names this block, not the place where the walk happened to end.
    """
    (prv, nxt), n = pool.links, pool.count
    seen, order, before, at = bytearray(n), [], HEAD, pool.head_next
    while at >= 0 and at < n and not seen[at] and prv[at] == before:
        seen[at] = 1
        order.append(at)
        before, at = at, nxt[at]
    if at == TAIL and pool.tail_prev == before:
        return Walk(order, seen)
    fault = _name_fault(pool, before, at, seen)
    while 0 <= at < n and not seen[at]:  # as far as next links go, whatever the other direction says
        seen[at] = 1
        order.append(at)
        at = nxt[at]
    backward, at = bytearray(n), pool.tail_prev
    while 0 <= at < n and not backward[at]:
        backward[at] = seen[at] = 1
        at = prv[at]
    return Walk(order, seen, fault)


def _pointed(pool: Pool) -> tuple[dict[int, int], dict[int, int]]:
    """{id: how many next links point at it}, {id: how many prev links point at it}. The queue's ends count too."""
    to_next: dict[int, int] = {}
    to_prev: dict[int, int] = {}
    prev, next_ = pool.links
    for column, ends, found in ((next_, pool.head_next, to_next), (prev, pool.tail_prev, to_prev)):
        for link in column:
            if link >= 0:
                found[link] = found.get(link, 0) + 1
        if ends >= 0:
            found[ends] = found.get(ends, 0) + 1
    return to_next, to_prev


def _name_fault(pool: Pool, before: int, at: int, seen: bytearray) -> Fault:
    """The fault where the walk stopped, between `before` and `at` -> (rule, block, detail)"""
    to_next, to_prev = _pointed(pool)
    prev, next_ = pool.links
    twice = sorted(b for b, count in to_next.items() if count > 1 and to_prev.get(b, 0) > 1)
    if twice:
        block = twice[0]
        befores = [HEAD] * (pool.head_next == block) + [i for i, link in enumerate(next_) if link == block][:4]
        return (
            FREE_LIST_DOUBLE,
            block,
            f"block {block} is in the free queue twice: after {' and after '.join(shown(b) for b in befores)}",
        )
    if 0 <= at < pool.count and prev[at] == at:  # the last block, appended once more
        return FREE_LIST_DOUBLE, at, f"block {at} is in the free queue twice: after {shown(before)} and after itself"
    where = before if before >= 0 else None
    if at == DANGLING or at == HEAD or at >= pool.count:
        return FREE_LIST_WILD, where, f"the next link of {shown(before)} leads to {shown(at)}"
    if at == NONE:
        return FREE_LIST_END, where, f"the free queue ends after {shown(before)} without reaching its tail"
    if at == TAIL:
        return FREE_LIST_LINK, where, f"{shown(before)} is the last block from the head, the tail says {shown(pool.tail_prev)}"
    if seen[at]:
        return FREE_LIST_CYCLE, where, f"the next link of {shown(before)} leads back to block {at}: the free queue is a ring"
    if to_next.get(at, 0) > 1 and before >= 0:
        # two next links lead here, and its prev link names another block: the link that was followed is the false one
        return (
            FREE_LIST_LINK,
            where,
            f"the next link of {shown(before)} leads to block {at}, whose prev link says {shown(prev[at])}",
        )
    link = prev[at]
    if link == DANGLING:
        return FREE_LIST_WILD, at, f"the prev link of block {at} leads to no block of this pool"
    return FREE_LIST_LINK, at, f"block {at} follows {shown(before)}, but its prev link says {shown(link)}"


@dataclass
class TreeNode:
    """A node of a prefix tree. `slots`: its token slots. `parent`, `children`: indices of the tree's list. `keys_match`: whether
    each child's key begins with the key under which it is filed. `tokens`: the length of its key."""

    id: int
    parent: int
    children: list[int]
    tokens: int
    slots: list[int] | None
    lock_ref: int
    address: int = 0
    misfiled: list[int] = field(default_factory=list)
    count: int = 0  # slots it holds, also where they cannot be read
    host: bool = False  # its values are in host memory only


@dataclass
class Tree:
    """A prefix tree: nodes (the first is the root), and the sizes that the engine keeps of it, in tokens. `reaching`: whether a
    lock on a node also locks its ancestors up to the root; for a window or a state it does not."""

    nodes: list[TreeNode]
    evictable: int | None = None
    protected: int | None = None
    page_size: int = 1
    reaching: bool = True
    damage: list[tuple[int, str]] = field(default_factory=list)  # (node index, what is wrong) found while reading


@dataclass
class Group:
    """Layers that share one block table. `kind`: "full", "sliding-window", "chunked", "mamba", "mla", "cross", "other";
    "unknown" where the engine's description is not there.
    `unjudged`: why a block of its tables may be free, or have fewer references than tables; '' where neither is allowed."""

    id: int
    kind: str
    block_size: int
    pool: int = 0
    layers: list[str] = field(default_factory=list)
    spec: dict[str, Any] = field(default_factory=dict)  # the engine's description: heads, head size, window
    unjudged: str = ""


@dataclass
class Request:
    """A request, with its token counts.

    `blocks`: `{group id: [block ids]}`. `queue`: "running", "waiting", "deferred", "finished" or "" (only its blocks are known).
    `private`: the first position of its table that the request owns; the prefix tree owns those before it. `age` in seconds.
    """

    request_id: str
    status: str = ""
    queue: str = ""
    prompt_tokens: int | None = None
    computed_tokens: int | None = None
    output_tokens: int | None = None
    blocks: dict[int, list[int]] = field(default_factory=dict)
    known: bool = True  # the scheduler lists it
    preemptions: int | None = 0
    age: float | None = None
    blocked_by: str = ""
    row: int | None = None
    private: int | None = None
    slots: list[int] | None = None  # token slots, where blocks are pages of several
    allocated: int | None = None  # tokens it has slots for
    transfer: bool = False  # an asynchronous transfer may hold its blocks
    address: int = 0
    content: dict[str, Any] | None = None
    in_flight: int | None = None  # output tokens of steps that were started and have no result yet (async scheduling)
    draft_tokens: int | None = None  # guessed tokens for its next step (speculative decoding)
    lead: int | None = None  # tokens that a step may compute before it has them: guessed ones; None where that is not known

    @property
    def excess(self) -> int:
        """How many more tokens are computed than it has; 0 where a number is not known."""
        if None in (self.lead, self.computed_tokens, self.prompt_tokens, self.output_tokens):
            return 0
        have = (self.prompt_tokens or 0) + (self.output_tokens or 0) + (self.in_flight or 0)
        return max(0, (self.computed_tokens or 0) - have - max(self.lead or 0, self.draft_tokens or 0))

    def forget_counts(self) -> None:
        """Makes its counts unknown."""
        self.prompt_tokens = self.computed_tokens = self.output_tokens = self.in_flight = self.draft_tokens = None


@dataclass
class Table:
    """Block tables of one group in one process. `rows`: `[(request id, [block ids])]`. `slots`: the slot mapping of the last
    step.

    - `former`: the tables that requests left in rows which are free now.
    - `gathered`: the rows that attention reads, in the order of the last step; those behind its requests are of older steps.
    - `in_order`: a request's tokens have slots in the order of its table, none on other ranks."""

    group: int
    block_size: int
    rows: list[tuple[str, list[int]]]
    slots: list[int] = field(default_factory=list)
    former: list[list[int]] = field(default_factory=list)
    gathered: list[list[int]] = field(default_factory=list)
    in_order: bool = False


@dataclass
class Row:
    """A worker's counts of one request, in tokens, apart from the block table. None: it keeps no such count, or keeps it on the
    device.

    `prefill`: the tokens that it had to compute at the start: the prompt, and those generated before a preemption. `device`:
    the computed tokens by the device's own counter, where `computed` is its mirror. `blocks`: `{group: the length of its block
    table}`. `tokens`: ids of the first of them. `sampling`: by what its next token is drawn.
    """

    row: int
    prompt: int | None = None
    prefill: int | None = None
    computed: int | None = None
    total: int | None = None
    blocks: dict[int, int] = field(default_factory=dict)
    device: int | None = None
    tokens: list[int] = field(default_factory=list)
    sampling: dict[str, Any] = field(default_factory=dict)


@dataclass
class Sent:
    """What a scheduler sends a worker of a request: ids of its first tokens, and its sampling parameters; None or {} where it has
    none."""

    tokens: list[int] | None = None
    sampling: dict[str, Any] = field(default_factory=dict)


@dataclass
class Worker:
    """The state of one rank: its block tables and the layers' memory (`addresses.Layer`).

    - `rows`: its counts of requests by their names, where it keeps any.
    - `ahead`: tokens of a step that may be counted before they are sampled.
    - `own_tree`: it has a prefix tree of its own, which may be a step behind the scheduler's.
    - `unread`: `[(what, why)]` of tables and counts that cannot be compared.
    - `faults`: those that only a reader can see: the rule, the request or '', the detail.
    - `every_row`: `rows` are all that it has, so that a request without one is not known to it.
    - `copies`: how many values that it keeps twice (host and device, pointers) were compared.
    - `requests`: how many requests its last step had, None where that is not known.
    - `vocabulary`: how many tokens there are, None where that is not known.
    """

    rank: str
    layers: list[Layer] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    layout: str = ""
    notes: list[str] = field(default_factory=list)
    target: Any = None
    rows: dict[str, Row] = field(default_factory=dict)
    ahead: int = 1
    own_tree: bool = False
    steps: int = 8  # it may be behind its scheduler, or ahead of the results that it has: pipeline, async scheduling
    sizes: dict[int, int] = field(default_factory=dict)  # group -> tokens of a block of its table
    unread: list[tuple[str, str]] = field(default_factory=list)
    faults: list[tuple[Rule, str, str]] = field(default_factory=list)
    mid_update: str = ""
    every_row: bool = False
    copies: int = 0
    requests: int | None = None
    vocabulary: int | None = None


@dataclass
class TokenHashes:
    """The result of recomputing block hashes from the tokens.

    - `function`: the hash function; '' where it is not known (`why`).
    - `wrong`: `[(request id, block or None, detail)]`.
    - `left_out`: requests that hash more than their tokens; `unread`: requests that changed during the read.
    - `of`: the kind of objects with the hashes, in words.
    """

    function: str = ""
    checked: int = 0
    wrong: list[tuple[str, int | None, str]] = field(default_factory=list)
    left_out: int = 0
    unread: int = 0
    why: str = ""
    of: str = "requests"


@dataclass
class ValueFault:
    """A broken rule about the values in a block: the rule, whose memory it is, the block, the detail."""

    rule: Rule
    rank: str
    block: int
    detail: str


@dataclass
class Values:
    """The result of checking the blocks' values: `faults`. `looked_at`: `{rank: how many blocks of how many layers and parts}`.
    `pairs`: pairs of blocks on two ranks that hold the same and were compared."""

    faults: list[ValueFault] = field(default_factory=list)
    looked_at: dict[str, int] = field(default_factory=dict)
    pairs: int = 0


@dataclass
class Cache:
    """The whole cache. `mid_update`: the place in the middle of a change at which the engine is, or ''."""

    engine: str
    version: str
    pools: list[Pool]
    groups: list[Group]
    requests: list[Request]
    mid_update: str = ""
    counters: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    queues: bool = True  # the scheduler's request lists were read
    token_hashes: Callable[[], TokenHashes] | None = None  # recomputes every hash: for a check alone
    sent: Callable[[Request], Sent] | None = None  # for a check of workers
    rows: dict[str, Any] | None = None  # request rows of a pool of rows: {"size", "free": [...], "first"}
    unjudged: dict[str, str] = field(default_factory=dict)  # {rule that rests on an attribute that is not there: the attribute}

    def of_blocks(self) -> Cache:
        """Itself. `NotFoundError`: its engine has requests and no pool of blocks, so that there are no blocks to ask about."""
        if not self.pools:
            raise NotFoundError(f"{self.engine} has no cache of blocks in this process: llm-requests lists its requests")
        return self

    def group(self, number: int) -> Group | None:
        """The group with this id, or None."""
        return next((g for g in self.groups if g.id == number), None)

    def owners(self, pool: int = 0) -> Owners:
        """`{block id: [(request, group id, index)]}` of one pool, reserved blocks left out."""
        found: Owners = {}
        groups, reserved = {g.id: g.pool for g in self.groups}, set(self.pools[pool].reserved)
        for request in self.requests:
            for group, blocks in request.blocks.items():
                if groups.get(group, 0) != pool:
                    continue
                for index, block in enumerate(blocks):
                    if block not in reserved:
                        found.setdefault(block, []).append((request, group, index))
        return found


Owners = Dict[int, List[Tuple[Request, int, int]]]  # block id -> [(request, group id, index in its table)]


def summary(cache: Cache, number: int) -> dict[str, Any]:
    """Counts of one pool: `{num_blocks, free, used, cached, shared, held, reserved}`.

    `used`: owned by requests or pinned (neither free nor reserved nor only cached). `cached`: named by the prefix cache, free or
    not. `shared`: in more than one request. `held`: referenced, but by no request.
    """
    pool = cache.pools[number]
    owners, bits = cache.owners(number), pool.free_bits()
    cached = pool.counters.get("cached") if pool.cached_ids is None and pool.hashes is None else len(pool.cached())
    free = sum(bits)
    reserved = sum(1 for r in pool.reserved if pool.valid(r) and not bits[r])
    held = (
        [i for i, refs in enumerate(pool.ref_cnt) if refs > 0 and i not in owners and i not in pool.reserved]
        if pool.ref_cnt
        else []
    )
    known = pool.linked or pool.free_ids is not None
    if not known:
        free = pool.num_free if pool.num_free is not None else 0
    if pool.ref_cnt is not None:
        used = pool.count - free - reserved
    else:
        used = len(owners)
    return {
        "num_blocks": pool.size,
        "free": free,
        "used": used,
        "cached": cached,
        "shared": sum(len({r.request_id for r, _, _ in o}) > 1 for o in owners.values()),
        "held": len(held),
        "reserved": reserved,
    }
