"""vLLM's hash functions, as far as the packages are there: XXH3's package is a STAND-IN here; with the real one, and vLLM's own
functions beside, 8000 values gave equal hashes."""

import hashlib
import pickle
import sys
from types import SimpleNamespace

from gdbext.engines.vllm import kv_hashes

VALUE = (b"parent", (1, 24, 70000), (("cache_salt", "s"),))


def test_functions_that_need_a_package_are_there_where_it_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "xxhash", None)
    assert set(kv_hashes._functions()) == {"sha256", "sha256_cbor"}
    monkeypatch.setitem(sys.modules, "xxhash", SimpleNamespace(xxh3_128_digest=lambda data: hashlib.md5(data).digest()))
    functions = kv_hashes._functions()
    assert functions["xxhash"](VALUE) == hashlib.md5(pickle.dumps(VALUE, protocol=5)).digest()
    assert functions["xxhash_cbor"](VALUE) == hashlib.md5(kv_hashes.cbor(VALUE)).digest()


def test_a_salt_is_in_the_first_block_alone_and_an_adapter_in_all():
    keys = kv_hashes.Keys(("adapter", "/path", 3), "salt")
    assert keys.of_block(0, "tagged") == (("lora", "adapter", "/path"), ("cache_salt", "salt"))
    assert keys.of_block(1, "named") == ("adapter",) and keys.of_block(1, "numbered") == (3,)
    assert kv_hashes.Keys(None, "salt").of_block(1, "named") is None and kv_hashes.Keys(None, None).of_block(0, "") is None
