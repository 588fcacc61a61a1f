"""vLLM's hash functions, as far as the packages are there: XXH3's package is a STAND-IN here; with the real one, and vLLM's own
functions beside, 8000 values gave equal hashes. SGLang's, against what `get_storage_hash_str` of 0.5.23 gave."""

import hashlib
import pickle
import sys
from types import SimpleNamespace

import pytest

from gdbext.engines.sglang import kv_hashes as sglang_hashes
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


@pytest.mark.parametrize(
    "tokens,bigrams,parts,given",
    [
        (range(10), False, (None, None), "baed642339816aff 01414b052706d93b c0f85cffd6659bcc"),
        ([5, 6, 2**33, 7, 8], False, (None, None), "32043ed1e51aadd9 41485acb6a4c2a26"),
        (range(9), True, (None, None), "920cac7cd1509ca7 54ec4f852ead617d"),
        (range(7), False, ("lora", "salt"), "cfe7c10ff9fd9a58 7857d085190ca339"),
    ],
)
def test_sglangs_hashes_of_pages_of_four(tokens, bigrams, parts, given):
    made = sglang_hashes.chain(sglang_hashes.pages(list(tokens), 4, bigrams), sglang_hashes.namespace(parts))
    assert [digest.hex()[:16] for digest in made] == given.split()
