"""Compares the block hashes of vLLM V1 with the tokens that they stand for. The hashes are recomputed as the release does.

Source: vllm/v1/core/kv_cache_utils.py, `hash_block_tokens`: H((hash of the block before, or NONE_HASH; the block's tokens; extra
keys or None)).

* From 0.10.2 on a hash is bytes, and a block carries it followed by its group's number, 4 bytes. H is SHA-256 or, from 0.12 on,
  XXH3-128 (where the package xxhash is installed). It hashes the pickle or the canonical CBOR (vllm/utils/hashing.py).
* Earlier a hash is a tuple that contains the block's tokens.

A LoRA adapter and a cache salt are extra keys (`FORMS`). Requests with other extra keys (images, embeddings) are left out.
"""

from __future__ import annotations

import hashlib
import pickle
import struct
from typing import Any, Callable, NamedTuple

from ... import log
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import GdbextError
from ...kvcache.model import Cache, Group, Request, TokenHashes
from ...package import import_package
from ..objects import at, is_set, numbers_until, optional

MODULE = "vllm.v1.core.kv_cache_utils"
MAX_TOKENS = 1 << 22  # of one request
GROUP_BYTES = 4
EXTRA = ("prompt_embeds", "prompt_embeds_hash")
FEATURES = ("mm_features", "mm_hashes", "mm_inputs")


def _sha256(value: Any) -> bytes:
    return hashlib.sha256(pickle.dumps(value, protocol=5)).digest()


def _sha256_cbor(value: Any) -> bytes:
    return hashlib.sha256(cbor(value)).digest()


def cbor(value: Any) -> bytes:
    """RFC 8949, deterministic: of None, ints, bytes, texts, tuples and lists."""
    if value is None:
        return b"\xf6"
    if isinstance(value, int):
        return _head(0, value) if value >= 0 else _head(1, -1 - value)
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    if isinstance(value, str):
        return _head(3, len(value.encode())) + value.encode()
    return _head(4, len(value)) + b"".join(map(cbor, value))


def _head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes([major << 5 | number])
    for code, width in ((24, "B"), (25, "H"), (26, "I"), (27, "Q")):
        if number < 1 << 8 * struct.calcsize(width):
            return bytes([major << 5 | code]) + struct.pack(">" + width, number)
    raise GdbextError(f"{number} is no number of a token")


FUNCTIONS: dict[str, Callable[[Any], bytes]] = {"sha256": _sha256, "sha256_cbor": _sha256_cbor}


def _functions() -> dict[str, Callable[[Any], bytes]]:
    """The hash functions that can be computed here, by vLLM's names."""
    try:
        digest = import_package("xxhash").xxh3_128_digest
    except (ImportError, AttributeError):
        return FUNCTIONS
    more = {"xxhash": lambda value: digest(pickle.dumps(value, protocol=5)), "xxhash_cbor": lambda value: digest(cbor(value))}
    return {**FUNCTIONS, **more}


class Keys:
    """The extra keys of a request. `lora`: (name, path, number) of its adapter, `salt`: None where it has none."""

    def __init__(self, lora: tuple[str, str, int] | None, salt: str | None) -> None:
        self.lora, self.salt = lora, salt

    def of_block(self, number: int, form: str) -> tuple[Any, ...] | None:
        """The extra keys of its block `number`; only the first block's have the salt."""
        if not self:
            return None
        lora, salt = FORMS[form]
        found = [lora(*self.lora)] if self.lora else []
        return tuple(found + ([salt(self.salt)] if self.salt and number == 0 else [])) or None

    def __bool__(self) -> bool:
        return bool(self.lora or self.salt)


# how releases write the two: from 0.25 on, from 0.11 on, before
FORMS: dict[str, tuple[Callable[..., Any], Callable[[str], Any]]] = {
    "tagged": (lambda name, path, number: ("lora", name, path), lambda salt: ("cache_salt", salt)),
    "named": (lambda name, path, number: name, lambda salt: salt),
    "numbered": (lambda name, path, number: number, lambda salt: salt),
}


class Chain(NamedTuple):
    """A request, its tokens, the hashes of its blocks and its extra keys. `whole`: how many of its tokens were its own from the
    start: an engine that cut its prompt leaves the hashes of the part that it cut off."""

    request: Request
    tokens: list[int]
    own: list[bytes]
    keys: Keys
    whole: int


def check(rt: Runtime, cache: Cache) -> TokenHashes:
    """The result of comparing the hashes of all requests and their blocks with their tokens."""
    found = TokenHashes()
    none = _none_hash(rt)
    groups = [g for g in cache.groups if g.block_size and g.kind in ("full", "mla")]
    chains: list[Chain] = []
    for request in cache.requests:
        if not request.address:
            continue
        try:
            chain = _chain(rt, request, none)
        except GdbextError as e:
            log.passed_over(e)
            if rt.target.is_stopped:
                raise
            found.unread += 1  # it ended since its cache was read, and its memory is another's
            continue
        if chain is None:
            found.left_out += 1
        else:
            chains.append(chain)
    size = _hash_size(cache, chains, none, found)
    form = _form(chains, none, size, found.function)
    for chain in chains:
        if found.function and chain.keys and not form:
            found.left_out += 1
            continue
        expected = _expected(found.function, none, chain, size, form) if found.function and none is not None else []
        _compare_request(found, chain.request, chain.own, expected[: chain.whole // size] if size else expected)
        try:
            for group in groups:
                here = expected if size == group.block_size else []
                _compare_blocks(rt, found, cache, group, chain.request, chain.tokens, here)
        except GdbextError as e:
            log.passed_over(e)
            if rt.target.is_stopped:
                raise
            found.unread += 1
    return found


def _chain(rt: Runtime, request: Request, none: bytes | None) -> Chain | None:
    """The `Chain` of a request; None where more is in its hashes than is recomputed here."""
    obj = rt.object(request.address)
    if any(is_set(obj, name) for name in EXTRA) or any(_filled(obj, name) for name in FEATURES):
        return None
    held, hashes = at(obj, "_all_token_ids"), at(obj, "block_hashes")
    tokens = numbers_until(rt, held, MAX_TOKENS) if held is not None else []
    adapter, salt = at(obj, "lora_request"), optional(obj, "cache_salt", "string", None)
    lora = None
    if adapter is not None:
        name, path = (optional(adapter, key, "string", "") for key in ("lora_name", "lora_path"))
        lora = (name, path, optional(adapter, "lora_int_id", default=0))
    own = _hashes(hashes) if hashes is not None and none is not None else []
    return Chain(request, tokens, own, Keys(lora, salt), _whole(obj, len(tokens)))


def _whole(obj: Object, count: int) -> int:
    """The number of tokens that were a request's own from the start: all of its `count` tokens. If a connector cut the prompt for
    a prefill (its parameters say `_p_side_truncated`), only the prompt. Source:
    vllm/distributed/kv_transfer/kv_connector/v1/nixl/base_scheduler.py."""
    parameters = at(obj, "kv_transfer_params")
    try:
        if parameters is not None and parameters.isa("dict") and parameters.item("_p_side_truncated").boolean():
            prompt: int | None = optional(obj, "num_prompt_tokens")
            return 0 if prompt is None else min(count, prompt)
    except GdbextError as e:
        log.passed_over(e)
    return count


def _filled(obj: Object, name: str) -> bool:
    held = at(obj, name)
    return held is not None and held.isa("list", "tuple") and held.len() > 0


def _none_hash(rt: Runtime) -> bytes | None:
    """NONE_HASH of the process, None where hashes are not bytes."""
    module = rt.module(MODULE)
    try:
        value = module.item("NONE_HASH") if module is not None else None
    except GdbextError as e:
        log.passed_over(e)
        return None
    return value.raw_bytes() if value is not None and value.isa("bytes") else None


def _hashes(held: Object) -> list[bytes]:
    return [o.raw_bytes() for o in held.elements(MAX_TOKENS) if o.isa("bytes")]


def _expected(function: str, none: bytes, chain: Chain, size: int, form: str = "tagged", limit: int | None = None) -> list[bytes]:
    """The hashes of the first `limit` blocks of a request; of all where it is None."""
    made: list[bytes] = []
    parent, hashed = none, _functions()[function]
    for number in range(len(chain.tokens) // size if limit is None else min(limit, len(chain.tokens) // size)):
        part = tuple(chain.tokens[number * size : (number + 1) * size])
        parent = hashed((parent, part, chain.keys.of_block(number, form)))
        made.append(parent)
    return made


def _form(chains: list[Chain], none: bytes | None, size: int, function: str) -> str:
    """The release's form of extra keys: the one of `FORMS` that gives most of the requests' first hashes; '' where none does."""
    if not function or none is None:
        return ""
    hashed = [chain for chain in chains if chain.keys and chain.own]
    right = {form: sum(_expected(function, none, c, size, form, 1) == c.own[:1] for c in hashed) for form in FORMS}
    best = max(right, key=lambda form: right[form])
    return best if right[best] else ""


def _hash_size(cache: Cache, chains: list[Chain], none: bytes | None, found: TokenHashes) -> int:
    """The number of tokens of a hash. It also sets `found.function`: the first function that gives a hash of some request. A
    function that gives none of the hashes proves no fault."""
    sizes = sorted({g.block_size for g in cache.groups if g.block_size})
    if none is None or not sizes:
        return 0
    hashed = [(chain, form) for chain in chains if chain.own for form in (FORMS if chain.keys else ("tagged",))]
    functions = _functions()
    for size in sizes:
        for name in functions:
            for chain, form in hashed:
                if _expected(name, none, chain, size, form, 1) == chain.own[:1]:
                    found.function = name
                    return size
    if hashed and "xxhash" not in functions:
        found.why = "no block's hash is that of its tokens by SHA-256; XXH3 needs the package xxhash in the Python that runs this"
    elif hashed:
        found.why = "no block's hash is that of its tokens: their hash function is not one that is recomputed here"
    return 0


def _compare_request(found: TokenHashes, request: Request, own: list[bytes], expected: list[bytes]) -> None:
    wrong = [i for i, (a, b) in enumerate(zip(own, expected)) if a != b]
    found.checked += min(len(own), len(expected))
    if wrong:
        more = f" (and {len(wrong) - 1} later ones)" if len(wrong) > 1 else ""
        where = f"the request's hash of its block {wrong[0]}{more} is {own[wrong[0]][:8].hex()}…"
        found.wrong.append((request.request_id, None, f"{where}, its tokens give {expected[wrong[0]][:8].hex()}…"))


def _compare_blocks(
    rt: Runtime, found: TokenHashes, cache: Cache, group: Group, request: Request, tokens: list[int], expected: list[bytes]
) -> None:
    """The hashes that the blocks of a request's table carry."""
    pool = cache.pools[group.pool]
    for index, block in enumerate(request.blocks.get(group.id, ())):
        if not pool.valid(block) or not pool.hashes or not pool.hashes[block] or block in pool.reserved:
            continue
        carried = rt.object(pool.hashes[block])
        part = tokens[index * group.block_size : (index + 1) * group.block_size]
        if len(part) < group.block_size:
            continue
        if carried.isa("bytes"):
            value = carried.raw_bytes()
            if index >= len(expected):
                continue
            right = value[:-GROUP_BYTES] == expected[index] or value == expected[index]
            said = f"carries the hash {value[:8].hex()}…, its tokens give {expected[index][:8].hex()}…"
        else:
            inside = _tokens_in(rt, carried)
            if inside is None:
                continue
            right, said = inside == part, "carries the hash of other tokens"
        found.checked += 1
        if not right:
            found.wrong.append((request.request_id, block, f"block {block}, number {index} of its table, {said}"))


def _tokens_in(rt: Runtime, carried: Object) -> list[int] | None:
    """The tokens inside a hash of earlier releases; None where it has none."""
    inner = at(carried, "block_hash") or carried
    held = at(inner, "token_ids")
    return numbers_until(rt, held, MAX_TOKENS) if held is not None else None
