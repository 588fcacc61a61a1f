"""A process of 100,000 threads: some thousands of them are read, and one line says how many were not."""

import struct

import pytest

from gdbext.access import ptrace
from gdbext.access.core_writer import write_core
from gdbext.access.model import PAGE, Mapping
from gdbext.access.snapshot import CoreFileTarget
from gdbext.stacks import threads

MAIN = 100


def core(folder, count, running=()):
    """A core of so many threads: MAIN, MAIN + 1, ..., of which those in `running` ran."""
    names = ptrace.REGISTERS["x86-64"]
    raw = struct.pack(f"<{len(names)}Q", *[0x10800 if name == "rsp" else 0 for name in names])
    path = str(folder / f"core-{count}")
    note = {"pid": MAIN, "threads": {str(tid): {"name": "w", "state": "R"} for tid in running}}
    maps = [Mapping(0x10000, 0x11000, "rw-p")]
    write_core(path, "x86-64", MAIN, [(MAIN + i, raw) for i in range(count)], maps, {0x10000: bytes(PAGE)}, note=note)
    return CoreFileTarget(path)


@pytest.mark.parametrize("unmatched", [False, True])
def test_a_hundred_thousand_threads(tmp_path, unmatched):
    partial = []
    found = threads.read_threads(core(tmp_path, 100_000), None, partial, unmatched=unmatched)
    assert len(found) == threads.MOST_READ and found[0].tid == MAIN
    (said,) = [line for line in partial if "threads" in line]
    assert said.startswith(f"{100_000 - threads.MOST_READ:,} of 100,000 threads were not read"), partial


def test_who_runs_is_among_those_that_are_read_and_one_that_is_named_too(tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "MOST_READ", 8)
    target, partial = core(tmp_path, 50, running=(MAIN + 31, MAIN + 49)), []
    found = threads.read_threads(target, None, partial)
    assert [one.tid for one in found] == [MAIN, *range(MAIN + 1, MAIN + 6), MAIN + 31, MAIN + 49]
    assert partial[0].startswith("42 of 50 threads were not read"), partial
    (one,) = threads.read_threads(target, None, partial := [], only=MAIN + 40)
    assert one.tid == MAIN + 40 and not partial


def test_fewer_are_read_without_a_word(tmp_path):
    partial = []
    assert len(threads.read_threads(core(tmp_path, 60), None, partial)) == 60 and not partial
