"""What is blanked in the copied pages of a snapshot: secrets, in both forms, and what is left of them."""

import random

import pytest

from gdbext.access import secrets
from gdbext.access.model import PAGE
from gdbext.access.proctable import ProcTable

KEY = b"sk-9f27c1d4a86be350-7713aa90c5f2"


def blanked(data, *values, start=0x7000):
    """`data` in pages of memory -> what is left of it."""
    data += bytes(-len(data) % PAGE)
    memory = {start + i: data[i : i + PAGE] for i in range(0, len(data), PAGE)}
    secrets.redact(memory, values or [KEY])
    assert all(len(page) == PAGE for page in memory.values())
    return b"".join(memory[page] for page in sorted(memory))


@pytest.mark.parametrize("form", [KEY, KEY.decode().encode("utf-32-le")])
@pytest.mark.parametrize("at", [0, 100, PAGE - 7, 3 * PAGE - 31, secrets.STRETCH * PAGE - 5, secrets.STRETCH * PAGE + 1])
def test_a_secret_is_blanked_wherever_it_lies(form, at):
    data = bytearray(random.Random(at).randbytes((secrets.STRETCH + 3) * PAGE))
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
