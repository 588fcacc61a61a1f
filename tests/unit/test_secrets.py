"""What is blanked in the copied pages of a snapshot: secrets, in both forms, and what is left of them."""

import json
import pathlib
import random
import re
import sys

import pytest
from harness.floor import random_bytes

from gdbext.access import redaction, secrets
from gdbext.access.model import PAGE
from gdbext.access.proctable import ProcTable
from gdbext.answers import ranks as shapes

KEY = b"sk-9f27c1d4a86be350-7713aa90c5f2"


def blanked(data, *values, start=0x7000):
    """`data` in pages of memory -> what is left of it."""
    data += bytes(-len(data) % PAGE)
    memory = {start + i: data[i : i + PAGE] for i in range(0, len(data), PAGE)}
    redaction.redact(memory, values or [KEY])
    assert all(len(page) == PAGE for page in memory.values())
    return b"".join(memory[page] for page in sorted(memory))


@pytest.mark.parametrize("form", [KEY, KEY.decode().encode("utf-32-le")])
@pytest.mark.parametrize("at", [0, 100, PAGE - 7, 3 * PAGE - 31, redaction.STRETCH * PAGE - 5, redaction.STRETCH * PAGE + 1])
def test_a_secret_is_blanked_wherever_it_lies(form, at):
    data = bytearray(random_bytes(random.Random(at), (redaction.STRETCH + 3) * PAGE))
    data[at : at + len(form)] = form
    left = blanked(bytes(data))
    assert left[at : at + len(form)] == b"*" * len(form)
    assert left[:at] + left[at + len(form) :] == data[:at] + data[at + len(form) :]


@pytest.mark.parametrize("part", [KEY[:16], KEY[-16:], KEY[16:32], KEY[8:], KEY[:-8], KEY.decode().encode("utf-32-le")[16:]])
def test_what_is_left_of_a_secret_is_blanked(part):
    """Half of it in a vector register that was put on a stack; the end of it in memory that was freed and used again."""
    assert blanked(b"\1" * 50 + part + b"\2" * 50).strip(b"\0") == b"\1" * 50 + b"*" * len(part) + b"\2" * 50


def test_what_only_begins_like_a_secret_stays():
    """Files beside one whose path is kept under the name of a key; text of one letter."""
    kept = b"/home/somebody/project/engine/scheduler.py\0" + b"x" * 100
    assert blanked(kept, b"/home/somebody/project/private.pem", b"x" * 20 + b"-secret").rstrip(b"\0") == kept
    assert blanked(b"=/home/somebody/project/private.pem;", b"/home/somebody/project/private.pem").startswith(
        b"=" + b"*" * 34 + b";"
    )


def test_a_command_line_is_shown_without_its_secrets(proc):
    words = [
        "/usr/bin/python3",
        "/usr/bin/vllm",
        "serve",
        "m",
        "--api-key",
        "sk-aaaa-1111",
        "sk-bbbb-2222",
        "--hf-token=hf_cccc",
        "--port",
        "8000",
    ]
    pid = proc.add(words)
    assert (
        ProcTable(str(proc.root)).get(pid).command
        == "/usr/bin/python3 /usr/bin/vllm serve m --api-key *** *** --hf-token=*** --port 8000"
    )


NAMES = """
HF_TOKEN OPENAI_API_KEY MYSQL_PWD DB_PWD REDIS_AUTH GITHUB_PAT SENTRY_DSN SSHPASS AZURE_STORAGE_CONNECTION_STRING AUTHTOKEN
LDAP_BIND_PW SIGNINGKEY TOKENS PASS AWS_SECRET_ACCESS_KEY PGPASSWORD SLACK_BOT_TOKEN NPM_TOKEN JWT_SECRET SSL_KEY DB_CREDS
authkey authToken apiKey hf_token api-key signing_key clientSecret _passwd Authorization cookie bearer pw pat pin
""".split()
NO_NAMES = """
max_tokens MAX_TOKENS num_batched_tokens token_ids TOKENIZERS_PARALLELISM tokenizer stop_token_ids eos_token prompt_tokens key
keys cache_key sort_key path pattern author compass PATH passed bypass authors block_hash signature model request_id spinning
patience """.split()


@pytest.mark.parametrize("name", NAMES)
def test_names_of_secrets(name):
    assert secrets.is_secret_name(name)


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_that_only_sound_alike(name):
    assert not secrets.is_secret_name(name)


@pytest.mark.parametrize(
    "text, part",
    [
        ("postgres://bob:S3cretWord@db/x", "S3cretWord"),
        ("https://0123456789abcdef@sentry.io/1", "0123456789abcdef"),
        ("http://me:pa%40ss@proxy:1/", "pa%40ss"),
        ("Authorization: Bearer abc.def-123456", "abc.def-123456"),
        ("Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("Set-Cookie: sid=hunter22; theme=dark, then", "sid=hunter22; theme=dark"),
        ("{'cookie': 'sid=hunter22'}", "sid=hunter22"),
        ("AccountName=a;AccountKey=Zm9vYmFyYmF6==;x=1", "Zm9vYmFyYmF6=="),
        ("Server=x;User Id=sa;Password=hunter22;", "hunter22"),
        ('{"kv": {"password": "hunter22"}}', "hunter22"),
        ("{'api_key': 'hunter22'}", "hunter22"),
        ("host=x password=hunter22 port=1", "hunter22"),
        ("https://x.blob/y?sv=1&sig=Zm9vYmFyYmF6", "Zm9vYmFyYmF6"),
        ("sk-9f27c1d4a86be350", "sk-9f27c1d4a86be350"),
        ("hf_abcdefghijklmno", "hf_abcdefghijklmno"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----", "\nMIIEow\n"),
    ],
)
def test_a_text_tells_what_is_secret_in_it(text, part):
    assert secrets.secret_parts(text) == [part] and part not in secrets.hidden(text) and secrets.secret("x", text)


@pytest.mark.parametrize(
    "text",
    [
        "tcp://127.0.0.1:8000",
        "http://host:30000/v1",
        "user@host",
        "git@github.com:a/b",
        "max_tokens=128",
        "tokenizer: auto",
        "a:b@c",
        "no cookie: ok",
        "skip-this-one",
    ]
    + ["2026-11-22T10:45:00", "meta-llama/Llama-3.1-8B-Instruct", "basic usage", "token by token", "--tensor-parallel-size=2"],
)
def test_a_text_without_a_secret(text):
    assert secrets.secret_parts(text) == []


@pytest.mark.parametrize(
    "words",
    [
        ["--middleware-auth", "MARKabc123"],
        ["--kv-transfer-config", '{"connector":"x","password":"MARKabc123"}'],
        ["-H", "Authorization: Bearer MARKabc123"],
        ["--url=https://u:MARKabc123@h/"],
        ["--token", "MARKabc123"],
        ["--aws-secret-access-key=MARKabc123"],
        ["--signing.key", "MARKabc123"],
        ["--hf-overrides", '{"nested": {"auth_token": "MARKabc123"}}'],
        ["--cache", "redis://:MARKabc123@h:6379/0"],
        ["--header", "Cookie: sid=MARKabc123"],
        ["--header=X-Api-Key: MARKabc123"],
        ["--store", "DefaultEndpointsProtocol=https;AccountKey=MARKabc123;EndpointSuffix=x"],
    ],
)
def test_no_command_line_that_is_shown_has_a_secret(proc, words):
    pid = proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m", *words, "--port", "8000"])
    shown = ProcTable(str(proc.root)).get(pid).command
    assert "MARKabc123" not in shown and "***" in shown and shown.endswith("--port 8000")
    (rank,) = proc.ranks()  # the same in what llm-ranks and its JSON say
    assert (
        rank.pid == pid and "MARKabc123" not in json.dumps(shapes.RANK.data(rank)) and "***" in json.dumps(shapes.RANK.data(rank))
    )


@pytest.mark.parametrize("count", [1, 40, 3000])
def test_many_secrets_are_blanked_in_one_pass(count):
    """One among so many, in each form, whole and in part, short and long; what is beside it stays."""
    rng = random.Random(count)
    values = [
        bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyzABCDEF0123456789", k=rng.choice((8, 12, 16, 24, 90)))) for _ in range(count)
    ]
    values.append(b"with blanks; and = signs, 1234")
    for value in (values[0], values[count // 2], values[-1]):
        for form, unit in ((value, 1), (value.decode().encode("utf-16-le"), 2), (value.decode().encode("utf-32-le"), 4)):
            for part in {form, form[: 16 * unit], form[-16 * unit :]}:
                left = blanked(b"\1" * 3 + part + b"\2" * 3, *values)
                assert left.strip(b"\0") == b"\1" * 3 + b"*" * len(part) + b"\2" * 3, (value, part)
    text = b"a text of which nothing is secret " * 50
    assert blanked(text, *values).strip(b"\0") == text


@pytest.mark.parametrize("kind", ["secrets", "perhaps", "half"])
def test_more_secrets_do_not_cost_more_looks_at_the_memory(kind):
    """Calls, not time: of 16 times as many no more are made, whether they are sure, may be ones, or both."""
    letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    rng, calls = random.Random(7), {}
    data = bytes(rng.choices(letters + b" ._-/", k=64 * PAGE))
    for count in (200, 3200):
        every = [bytes(rng.choices(letters, k=40)) for _ in range(count)]
        part = {"secrets": count, "perhaps": 0, "half": count // 2}[kind]
        sought, seen = redaction._Sought(every[:part], every[part:]), [0]

        def counts(frame, event, arg, seen=seen):
            seen[0] += event in ("call", "c_call")

        sys.setprofile(counts)
        try:
            assert list(sought.spans(data)) == []
        finally:
            sys.setprofile(None)
        calls[count] = seen[0]
        assert list(sought.spans(data + every[7] + every[-7])) != [], "nothing is found: the test shows nothing"
    assert 0 < calls[3200] < 2 * calls[200], calls


def test_what_may_be_a_secret_is_blanked_as_a_whole_alone():
    sure, perhaps = secrets.values(
        [b"--worker", b"some.module.Class", b"--x", b"Opaque12345word"], [b"FOO=zz99zz99zz99", b"MODEL=Qwen2.5-7B-x"]
    )
    assert not sure and perhaps == {b"Opaque12345word", b"zz99zz99zz99"}
    memory = {0: (b"Opaque12345word zz99zz99zz99 Opaque12345 some.module.Class").ljust(PAGE, b"\0")}
    redaction.redact(memory, sure, perhaps)
    assert memory[0].rstrip(b"\0") == b"*" * 15 + b" " + b"*" * 12 + b" Opaque12345 some.module.Class"


def test_values_are_kept_by_a_list_of_names():
    for kept in ("CUDA_VISIBLE_DEVICES", "RANK", "NCCL_DEBUG", "MODEL_NAME", "PYTHONPATH"):
        assert secrets.is_kept(kept, b"value", variable=True)
    for left_out in ("HOME", "FOO", "VLLM_API_KEY", "MY_SETTING"):
        assert not secrets.is_kept(left_out, b"value", variable=True)
    assert not secrets.is_kept("NCCL_PROXY", b"http://u:secret99@h", variable=True)
    assert secrets.is_kept("TENSOR_PARALLEL_SIZE", b"2", variable=False) and not secrets.is_kept("UNKNOWN", b"2", variable=False)


def test_secrets_are_told_at_one_door():
    """No other module has a list of its own of what names or texts are secret."""
    pack = pathlib.Path(secrets.__file__).parents[1]
    others = [
        p
        for p in pack.rglob("*.py")
        if re.search(r"passw|api\[_-\]\?key|bearer", p.read_text().lower()) and p.name != "secrets.py"
    ]
    assert [
        str(p.relative_to(pack))
        for p in others
        if "re.compile" in p.read_text() and re.search(r"re\.compile\([^)]*passw", p.read_text())
    ] == []
    for user in ("cpython/privacy.py", "access/proctable.py", "cpython/kept_secrets.py", "access/collector.py"):
        assert "secrets" in (pack / user).read_text()
