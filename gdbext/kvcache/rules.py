"""The rules of a KV cache by name: each with its condition, its releases, and whether a half-done update may break it for a
moment.

Each rule is a constant, so that a mistyped one fails at import. Readers and `invariants` name rules by these alone. The source of
each: docs/sources.md.
"""

from __future__ import annotations

from dataclasses import dataclass

_ALL = "vLLM V1 (0.8.5 on)"
_HASHED = "vLLM V1 with prefix caching"
_SGL = "SGLang 0.4.9 on"
_WORKER = "vLLM V1 (0.9.2 on)"
_V2 = "vLLM's model runner V2 (0.12 on)"


@dataclass(frozen=True)
class Rule:
    """`holds`: the condition. `releases`: of which engines. `transient`: a half-done update may break it for a moment."""

    name: str
    holds: str
    releases: str
    transient: bool = False


RULES: dict[str, Rule] = {}


def _rule(name: str, holds: str, releases: str, transient: bool = False) -> Rule:
    if name in RULES:
        raise ValueError(f"two rules are called {name}")
    RULES[name] = Rule(name, holds, releases, transient)
    return RULES[name]


POOL_SIZE = _rule("pool-size", "the pool lists as many blocks as it counts", _ALL)
BLOCK_OBJECT = _rule("block-object", "every entry of the pool's list is a block", _ALL)
BLOCK_ID = _rule("block-id", "block i carries the id i", _ALL)
NULL_BLOCK = _rule("null-block", "block 0, and no other, is the null block", "vLLM 0.9.2 on")
NULL_FREED = _rule("null-freed", "a reserved block is never free", _ALL + ", " + _SGL)
FREE_LIST_DOUBLE = _rule("free-list-double", "no block is in the free queue twice", _ALL + ", " + _SGL)
FREE_LIST_CYCLE = _rule("free-list-cycle", "the free queue ends", _ALL)
FREE_LIST_WILD = _rule("free-list-wild", "links of the free queue lead to blocks of the pool", _ALL + ", " + _SGL)
FREE_LIST_LINK = _rule("free-list-link", "the successor's prev link leads back", _ALL, transient=True)
FREE_LIST_END = _rule("free-list-end", "the free queue reaches its tail", _ALL, transient=True)
FREE_COUNT = _rule("free-count", "the free counter is the length of the free queue", _ALL, transient=True)
NEGATIVE_REF = _rule("negative-ref", "no reference count is negative", _ALL)
FREE_OWNED = _rule("free-owned", "a free block is in no request's block table", _ALL + ", " + _SGL)
FREE_REFERENCED = _rule("free-referenced", "a free block has no references", _ALL, transient=True)
LEAKED = _rule("leaked", "a block without references is in the free queue", _ALL, transient=True)
OWNED_TWICE = _rule("owned-twice", "a block is in a request's table once", _ALL + ", " + _SGL)
REF_BELOW_OWNERS = _rule("ref-below-owners", "a block has at least a reference for each table that holds it", _ALL)
REF_ABOVE_OWNERS = _rule(
    "ref-above-owners",
    "a block has no more references than tables hold it, where nothing else may pin blocks",
    _ALL,
    transient=True,
)
DOUBLE_OWNER = _rule("double-owner", "a block in two tables is a shared prefix: it has a hash", _HASHED)
STRAY_LINKS = _rule("stray-links", "a block outside the free queue has no links", _ALL, transient=True)
HASH_ENTRY = _rule("hash-entry", "an entry of the prefix map leads to a block with that hash", _HASHED, transient=True)
HASH_MISSING = _rule("hash-missing", "a block with a hash is in the prefix map", _HASHED, transient=True)
HASH_TOKENS = _rule(
    "hash-tokens",
    "a block's hash is that of the tokens in it and before it",
    _HASHED + ", SGLang 0.5.3 on with the Python tree and a storage backend or KV events",
)
RESERVED_NAN = _rule("reserved-nan", "a reserved block holds no NaN, which would reach attention through masked positions", "all")
BLOCK_NAN = _rule("block-nan", "a computed block of a request holds no NaN", "all")
PREFIX_COPY = _rule("prefix-copy", "blocks of one hash hold the same values", _HASHED)
RANK_COPY = _rule("rank-copy", "ranks that hold the same KV heads hold the same values", "all")
TABLE_RANGE = _rule("table-range", "block tables hold ids of the pool", _ALL + ", " + _SGL)
TABLE_SHORT = _rule("table-short", "a request's table covers its computed tokens (full attention)", _ALL, transient=True)
REQUEST_UNKNOWN = _rule(
    "request-unknown", "a request with blocks is known to the scheduler, or waits for a transfer", _ALL, transient=True
)
REQUEST_COUNTS = _rule(
    "request-counts", "a request has no more tokens computed than it has, output that is on its way and drafts counted", _ALL
)
FREE_LEVEL = _rule("free-level", "a free block waits in the queue of its own memory level", "TensorRT-LLM")
FREE_ITERATOR = _rule(
    "free-iterator", "a block has a place in a free queue exactly while it is in one", "TensorRT-LLM", transient=True
)
BUSY_COUNT = _rule("busy-count", "the counter of busy blocks is the number of blocks with references", "RTP-LLM", transient=True)
TREE_LINK = _rule(
    "tree-link", "a node's parent is the node that lists it", "SGLang 0.4 to 0.5.9, later with the Python tree", transient=True
)
TREE_KEY = _rule(
    "tree-key", "a node's key begins with what it is filed under and is as long as its value", "as tree-link", transient=True
)
TREE_LOCK = _rule("tree-lock", "every ancestor of a locked node is locked", "as tree-link", transient=True)
TREE_SIZE = _rule("tree-size", "the nodes hold as many tokens as the tree counts", "as tree-link", transient=True)
TREE_TWICE = _rule("tree-twice", "a slot is in one node only", "as tree-link")
FREE_CACHED = _rule("free-cached", "a free slot is in no node of the prefix tree", _SGL)
SLOT_SHARED = _rule("slot-shared", "a slot that two requests use lies in the prefix tree's part of both", _SGL)
ROW_FREE = _rule("row-free", "a free row of the request pool is no request's, and is free once", _SGL)
ROW_SHARED = _rule("row-shared", "no two requests have the same row", _SGL)
SLOTS_LOST = _rule("slots-lost", "free, cached and requests' own slots make up the pool", _SGL, transient=True)
WORKER_TABLE = _rule("worker-table", "a worker's block table says what the scheduler's says", _WORKER, transient=True)
WORKER_RANGE = _rule("worker-range", "ids in a worker's tables are below the number of blocks", _WORKER)
SLOT_RANGE = _rule("slot-range", "slot mappings lie inside the cache, or are -1", _WORKER)
SLOT_TWICE = _rule("slot-twice", "no two tokens of a step have the same slot", _WORKER)
WORKER_ROWS = _rule(
    "worker-rows",
    "a row of a worker's batch is one request's in both of its maps, or is free once; a request that runs has one",
    _V2,
    transient=True,
)
WORKER_COPY = _rule(
    "worker-copy",
    "what a worker keeps twice is alike: host and device, pointers, the tables that attention reads",
    _V2,
    transient=True,
)
WORKER_TOKENS = _rule("worker-tokens", "a worker has the tokens that its request began with", _V2, transient=True)
WORKER_SAMPLING = _rule("worker-sampling", "a worker draws by the parameters of its request", _V2, transient=True)
SLOT_PLACE = _rule(
    "slot-place", "a token of a step is written to its own place in its request's block table", _V2, transient=True
)
WORKER_LENGTH = _rule(
    "worker-length", "a worker counts of a request what the scheduler sent: prompt, computed tokens, blocks", _V2, transient=True
)

# These show a broken free queue, which explains other findings.
STRUCTURE = (FREE_LIST_DOUBLE, FREE_LIST_CYCLE, FREE_LIST_LINK, FREE_LIST_END, FREE_LIST_WILD)
