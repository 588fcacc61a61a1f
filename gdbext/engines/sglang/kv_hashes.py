"""Compares the page hashes of SGLang's prefix tree with the tokens that they stand for. The hashes are recomputed as the release
does.

Source: srt/mem_cache/utils.py, `compute_node_hash_values` (to 0.5.9 in radix_cache.py and hicache_storage.py). From the root on,
a page's hash is SHA-256 over the digest of the page before and the page's tokens, 4 bytes each; of bigrams both tokens count. In
a page with a token that needs more bytes each token is 0xff and 8 bytes. The first page follows nothing or, since 0.5.23, the
digest of its namespace (extra key, cache salt).

A node has hashes where a storage backend or KV events are on. A tree in Rust keeps them in memory that only Rust can read.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Sequence

from ... import log
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import GdbextError
from ...kvcache.model import Cache, TokenHashes
from ..objects import at, numbers_until, optional

MAX_TOKENS = 1 << 22  # of one node
NAMESPACE = b"sglang-cache-namespace-v1"


def check(rt: Runtime, cache: Cache) -> TokenHashes:
    """The result of comparing the hashes of all nodes of the tree with the tokens from the root to them."""
    found, pool = TokenHashes(of="nodes of the prefix tree"), cache.pools[0]
    tree = pool.tree
    digests: dict[int, bytes] = {}  # of a node's last page, by its tokens
    for index, node in enumerate(tree.nodes if tree is not None else ()):
        try:
            obj = rt.object(node.address)
            held = at(obj, "hash_value")
            carried = [o.string() for o in held.elements(MAX_TOKENS)] if held is not None and held.isa("list") else []
            if not carried:
                continue
            key = obj.attr("key")
            parts = pages(_tokens(rt, key), pool.block_size, bool(optional(key, "is_bigram", default=0)))
            if node.parent in digests:
                expected = chain(parts, digests[node.parent])
            else:  # the first of a chain: releases begin it in two ways
                named = namespace([optional(key, name, "string") for name in ("extra_key", "cache_salt")])
                expected = chain(parts, named)
                if named and [d.hex() for d in chain(parts[:1])] == carried[:1]:
                    expected = chain(parts)
        except GdbextError as e:
            log.passed_over(e)
            if rt.target.is_stopped:
                raise
            found.unread += 1  # it was evicted since the tree was read, and its memory is another's
            continue
        if not expected:
            found.left_out += 1
            continue
        digests[index] = expected[-1]
        found.checked += min(len(carried), len(expected))
        wrong = [i for i, (own, right) in enumerate(zip(carried, expected)) if own != right.hex()]
        found.function = found.function or ("sha256" if len(wrong) < len(carried) else "")
        if wrong:
            first = wrong[0]
            slots = (node.slots or [])[first * pool.block_size :]
            block = slots[0] // pool.block_size if slots else None
            more = f" (and {len(wrong) - 1} more of it)" if len(wrong) > 1 else ""
            said = f"node {node.id}: its page {first}{more} carries the hash {carried[first][:16]}…"
            found.wrong.append(("", block, f"{said}, its tokens give {expected[first].hex()[:16]}…"))
    if found.wrong and not found.function:  # nothing is called wrong by a function that gives none of them
        found.wrong, found.checked = [], 0
        found.why = "no page's hash is that of its tokens: their hash function is not one that is recomputed here"
    return found


def _tokens(rt: Runtime, key: Object) -> list[int]:
    """The tokens of a node's key; [] where they are not plain numbers."""
    held, limit = at(key, "token_ids"), optional(key, "limit")
    if held is None or held.isa("list") and held.len() and not rt.object(held.element_addresses(1)[0]).isa("int"):
        return []
    return numbers_until(rt, held, MAX_TOKENS if limit is None else min(limit, MAX_TOKENS))


def pages(tokens: list[int], size: int, bigrams: bool = False) -> list[bytes]:
    """The bytes that are hashed of each page of `size` tokens, or of pairs of neighbours."""
    units = list(zip(tokens, tokens[1:])) if bigrams else [(n,) for n in tokens]
    return [_packed([n for unit in units[at : at + size] for n in unit]) for at in range(0, len(units), size)]


def _packed(tokens: list[int]) -> bytes:
    if max(tokens) >> 32:
        return b"\xff" + struct.pack(f"<{len(tokens)}Q", *tokens)
    return struct.pack(f"<{len(tokens)}I", *tokens)


def chain(parts: list[bytes], before: bytes = b"") -> list[bytes]:
    """The digests of pages, each with the one before it; the first follows `before`."""
    made: list[bytes] = []
    for part in parts:
        before = hashlib.sha256(before + part).digest()
        made.append(before)
    return made


def namespace(parts: Sequence[str | None]) -> bytes:
    """The digest before the first page of a key with an (extra key, cache salt)."""
    if not any(part is not None for part in parts):
        return b""
    digest = hashlib.sha256(NAMESPACE)
    for part in parts:
        encoded = (part or "").encode()
        digest.update(b"\x00" if part is None else b"\x01" + len(encoded).to_bytes(8, "little") + encoded)
    return digest.digest()
