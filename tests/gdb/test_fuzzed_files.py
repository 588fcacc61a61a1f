"""A short, seeded run of the fuzzer over every file format that the pack opens; scripts/bench --fuzz N is the long one."""

import json
import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FORMATS = (
    "core",
    "snapshot",
    "library",
    "unwind",
    "gpucore",
    "npy",
    "safetensors",
    "pt",
    "merge",
    "diff",
    "record",
    "heap",
    "layers",
    "facts",
    "secrets",
    "titles",
    "expressions",
)
NEVER_REFUSED = ("secrets", "titles", "expressions")  # any text is read
FILES = 100  # of each, but for tables of which few kinds of damage are refused
MORE = {"unwind": 400, "heap": 400, "layers": 400, "record": 400}


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_read_or_refused_in_one_line(name):
    """No crash, no other exception, no file that takes more than five seconds, no file that fills the memory."""
    if name in ("npy", "safetensors", "pt", "layers"):
        pytest.importorskip("numpy")
    files = MORE.get(name, FILES)
    words = [sys.executable, "-m", "tools.fuzz", str(files), "--format", name]
    env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "scripts")}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    row = json.loads(done.stdout)
    assert row["failures"] == [] and row["files"] == files == row["read"] + row["refused"]
    assert row["read"] and (row["refused"] or name in NEVER_REFUSED), "all alike: the damage shows nothing"
    assert row["grown_mib"] < 300


BOMBS = {
    "headers": "a program header of no size, four billion times",
    "names": "ten thousand sections with the same name of 64 KiB",
    "notes": "notes of no size",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_small_files_do_not_become_big_in_memory(tmp_path, bomb):
    """Each took gigabytes, or never ended: now a budget ends it, and one line names the file."""
    code = """
import resource, struct, sys
from gdbext.access import elf
from gdbext.errors import GdbextError
path, bomb = sys.argv[1:]
elf.NOTE_SECONDS = 0.5
def head(phoff=64, phentsize=56, phnum=0, shoff=0, shnum=0, strndx=0, kind=3):
    fields = struct.pack("<HHIQQQIHHHHHH", kind, 62, 1, 0, phoff, shoff, 0, 64, phentsize, phnum, 64, shnum, strndx)
    return b"\\x7fELF\\x02\\x01\\x01" + bytes(9) + fields
with open(path, "wb") as f:
    if bomb == "headers":
        f.write(head(phnum=0xFFFF, phentsize=0, shoff=200).ljust(200, b"\\0") + bytes(44) + b"\\xff\\xff\\xff\\xff" + bytes(72))
    elif bomb == "names":
        count, start = 10000, 64
        strings = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64 + 64 * count, 65536, 0, 0, 0, 0)
        f.write(head(shoff=64, shnum=count) + strings * count + b"n" * 65535 + b"\\0")
    else:
        f.write(head(phnum=500) + struct.pack("<IIQQQQQQ", 4, 0, 1 << 20, 0, 0, 1 << 23, 0, 4) * 500)
        f.write((bytes(8) + b"\\1\\0\\0\\0") * (1 << 20))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    found = elf.Elf(path)
    found.section_heads, found.build_id, found.symbol("x")
    print("read")
except GdbextError as e:
    assert path in str(e) and "damaged" in str(e) and "\\n" not in str(e), e
    print("refused")
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10, "too much memory"
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "bomb"), bomb],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "refused\n", done.stderr
