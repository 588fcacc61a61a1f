"""Which text counts as content in a process of an engine, and which is a word of the program and stays readable."""

import pytest

from gdbext.cpython import content, privacy
from gdbext.cpython.reprs import Repr

PRIVATE = frozenset({"prompt"})
SHOWN = """
RUNNING WAITING_FOR_REMOTE_KVS finished_stopped req-1 cmpl-3f2a_0 model_executor.worker self.k_proj Thread-1 TP0 rank3
/models/llama-3.1-8b/config.json ./a.py meta-llama/Llama-3.1-8B-Instruct model.layers.0.self_attn.qkv_proj.weight
torch.bfloat16 float8_e4m3fn fp8_ds_mla cuda:0 cpu FLASH_ATTN_VLLM_V1 nccl:cuda,gloo:cpu (2,3) [1,2] 80GiB 0.92 1e-05 50% -1
tcp://127.0.0.1:8000 ipc:///tmp/x.sock http://host:30000/v1 2026-11-22T10:45:00 0x7f00deadbeef 9f86d081884c7d659a2feaa0c55ad015
<|endoftext|> %(asctime)s --tensor-parallel-size=2 user@host a|b a&b key=value $HOME ~/.cache *.safetensors #1
""".split()
HIDDEN = (
    "Tell me a story",
    "Tell\nme",
    '{"prompt":1}',
    "it's",
    '"quoted"',
    "Hello!",
    "why?",
    "f(x){}",
    "a;b",
    "\\latex",
    "\u79d8\u5bc6",
    "na\u00efve",
    "\U0001f600",
    "\x1b[2J",
    "x" * (privacy.MAX_WORD + 1),
)


@pytest.mark.parametrize("text", SHOWN)
def test_words_of_a_program_are_shown(text):
    assert Repr(private=PRIVATE).named("note", text) == repr(text)
    assert Repr(private=PRIVATE).named("note", text.encode()) == repr(text.encode())


@pytest.mark.parametrize("text", HIDDEN)
def test_what_a_person_may_have_written_is_counted(text):
    repr_ = Repr(private=PRIVATE)
    assert repr_.named("note", text) == f"<{len(text)} characters, private: -show-content shows them>" and repr_.hidden
    assert repr_.named("note", text.encode()) == f"<{len(text.encode())} items, private: -show-content shows them>"
    assert Repr().named("note", text) == repr(text)  # in a process that is no engine's, or with -show-content


@pytest.mark.parametrize("name", ["prompt", "x", "_data", "args", "tokens", "Q", "vals", "x12", "Arrs", "toks_"])
def test_under_these_names_words_and_numbers_are_counted_too(name):
    for value in ("word", [1, 2], ("a",), [["b"]], b"word", range(3, 7), slice(3, None), 7 + 0j):
        assert "private" in Repr(private=PRIVATE).named(name, value)


@pytest.mark.parametrize("name", ["block_ids", "request_id", "status", "model", "shape", "dtype", "slots", "key", "bus", "ranks"])
def test_under_names_that_say_something_they_are_shown(name):
    assert Repr(private=PRIVATE).named(name, [1, 2]) == "[1, 2]" and Repr(private=PRIVATE).named(name, "word") == "'word'"


def test_text_that_only_programs_have_is_shown_with_its_spaces():
    for name, text in (
        ("__doc__", "Runs a step."),
        ("_fmt", "%(levelname)s %(message)s"),
        ("device_name", "NVIDIA H100 80GB HBM3"),
    ):
        assert Repr(private=PRIVATE).named(name, text) == repr(text)
        assert Repr(private=PRIVATE).named(None, {name: text, "note": text}).count("private") == 1
    assert "private" in Repr(private=frozenset({"__doc__"})).named("__doc__", "a b")  # an engine's own word comes first


def test_digests_are_no_text():
    assert "private" not in Repr(private=PRIVATE).named("block_hash", bytes(range(200, 232)))
    assert "private" in Repr(private=PRIVATE).named("block_hash", bytes(range(200, 231)))


SECRET_NAMES = "authkey auth_key api_key OPENAI_API_KEY HF_TOKEN hf_token password _passwd client_secret Authorization SSL_KEY"


def test_keys_are_counted_by_name_and_what_only_sounds_alike_is_shown():
    for name in SECRET_NAMES.split():
        for value in ("sk-word", b"sk-word", ["sk-word"]):
            assert "private" in Repr(private=PRIVATE).named(name, value), name
            assert "private" not in Repr().named(name, value)
    for name in ("block_key", "cache_keys", "eos_token_id", "keyword", "monkey", "num_tokens"):
        assert Repr(private=PRIVATE).named(name, "word") == "'word'", name
    assert Repr(private=PRIVATE).named("num_secrets", 5) == "5" and Repr(private=PRIVATE).named("api_key", None) == "None"


@pytest.mark.parametrize(
    "text,unnamed",
    [
        ("len(batch.reqs), batch.reqs[0].rid", False),
        ("[r.rid for r in batch.reqs]", False),
        ("[r for r in batch.reqs]", True),
        ("[good for good in ids]", True),
        ("[good.real for good in ids]", True),
        ("[good.tolist() for good in ids]", True),
        ("[1 for x in ids if x == 42]", True),
        ("[y for r in kept for y in r.ids]", True),
        ("len(ids), ids[0]", True),
    ],
)
def test_taking_only_items_or_a_length_does_not_say_what_a_value_is(text, unnamed):
    assert content.is_unnamed(text) == unnamed
