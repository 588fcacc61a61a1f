"""Random bytes over frames, code objects, dicts, types and whatever else the readers follow, in a core: an answer or one line,
always soon.

GDBEXT_FUZZ: how many cases per interpreter (default 60). The seed is the case's number, so a case found once is found again.
"""

import json
import os
import random
import signal

import pytest
from harness.subjects import PYTHONS, kernel_core, running, unlimited_core

from gdbext.access.snapshot import CoreFileTarget
from gdbext.commands.llm_bt import LlmBt
from gdbext.commands.pybt import PyBt
from gdbext.commands.pyexc import PyExc
from gdbext.commands.pyframe import PyLocals
from gdbext.commands.pyprint import PyPrint
from gdbext.commands.pythreads import PyThreads
from gdbext.errors import GdbextError
from gdbext.session.session import Session

CASES = int(os.environ.get("GDBEXT_FUZZ", "60"))
COMMANDS = [
    (PyBt, "-all -locals"),
    (LlmBt, "-all -locals -raw"),
    (PyPrint, "-any held"),
    (PyLocals, ""),
    (PyThreads, ""),
    (PyExc, ""),
]
BYTES, TEXT = 64 << 20, 8 << 20  # what one command may read and say


class Overlaid(CoreFileTarget):
    """A core with other bytes at some places."""

    damage, read_bytes = (), 0

    def _read(self, address, size):
        self.read_bytes += size
        data = super()._read(address, size)
        for at, other in self.damage:
            low, high = max(at, address), min(at + len(other), address + size)
            if low < high:
                data = data[: low - address] + other[low - at : high - at] + data[high - address :]
        return data


class Known(Session):
    """A session whose selected process is one core."""

    def __init__(self, target):
        super().__init__()
        self.core = target

    def target(self, on=None):
        return self.core


@pytest.fixture(scope="module", params=PYTHONS, ids=os.path.basename)
def core(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("core")
    with running(request.param, "py_fuzzed.py", cwd=str(folder), preexec_fn=unlimited_core) as (target, truth):
        path = str(folder / "snapshot")
        path = kernel_core(target.process, folder) or pytest.skip("the kernel writes no core files here")
    return Overlaid(path), truth


def places(target):
    """{kind: [(address, size)]} of what the readers follow."""
    session = Known(target)
    rt = session.runtime()
    L, found = (
        rt.layout,
        {
            "type": {},
            "code": {},
            "frame": {},
            "thread": {},
            "object": {},
            "dict": {},
            "text": {},
            "line table": {},
            "interpreter": {},
        },
    )
    frame_size = 80 if "iframe.localsplus" in L else L["frameobj.__size"]
    found["interpreter"] = dict.fromkeys(rt.interpreters(), 4096)
    for thread in rt.threads():
        found["thread"][thread.address] = L["tstate.__size"]
        for frame in rt.frames(thread):
            found["frame"][frame.address] = frame_size + 64
            found["code"][frame.code.address] = L["code.__size"]
            found["line table"][target.u64(frame.code.address + L[rt.dialect.table_key])] = 64
            found["text"][target.u64(frame.code.address + L["code.co_filename"])] = 64
            todo = [value for _, value in frame.locals() if value is not None]
            for value in todo[:200]:
                found["object"][value.address] = max(16, min(value.type.basicsize, 128)) + 32
                found["type"][value.type.address] = L["type.__size"]
                if value.isa("dict"):
                    found["dict"][value.address] = L["dict.__size"]
                    found["dict"][target.u64(value.address + L["dict.ma_keys"])] = 96
                    todo += [v for _, v in value.items(20)]
                elif value.isa("list", "tuple", "set", "collections.deque"):
                    todo += value.elements(20)
                elif value.type.is_heap:
                    todo += [v for _, v in value.fields() if hasattr(v, "address")][:20]
    return {kind: list(held.items()) for kind, held in found.items() if held}


def garbage(dice, target, at, size):
    """Bytes to lay over a piece of memory: random, or words that mean something to a reader."""
    kind = dice.randrange(4)
    if kind == 0:
        return dice.getrandbits(8 * size).to_bytes(size, "little")
    if kind == 1:
        return bytes([dice.choice((0, 1, 0x7F, 0x80, 0xFF))]) * size
    words = (0, 1, (1 << 64) - 1, 1 << 63, (1 << 31) - 1, 1 << 20, at, at + 8, at & -4096, dice.getrandbits(47) & -8)
    return b"".join(dice.choice(words).to_bytes(8, "little") for _ in range((size + 7) // 8))[:size]


def hung(number, frame):
    raise AssertionError("a reader hangs")


@pytest.mark.drawn(3)
def test_damaged_cores_end_in_an_answer_or_in_one_line(core):
    target, truth = core
    spots = places(target)
    assert {"frame", "code", "dict", "type", "object"} <= set(spots)
    kept = ("unwinder", "modules", "modules by path", "mappings", "mapping starts", "threads")
    signal.signal(signal.SIGALRM, hung)
    answers = refusals = 0
    try:
        for case in range(CASES):
            dice = random.Random(case)
            damage = []
            for _ in range(dice.choice((1, 1, 1, 2, 5))):
                at, size = dice.choice(spots[dice.choice(sorted(spots))])
                offset = dice.randrange(0, size, 8)
                damage.append((at + offset, garbage(dice, target, at, dice.choice((1, 4, 8, 8, 16, 64)))))
            held = {
                k: v
                for k, v in target._current_caches().items()
                if k in kept or isinstance(k, tuple) and k[0] in ("native frames", "same file")
            }
            target.damage = damage
            target.invalidate()
            target._current_caches().update(held)
            session = Known(target)
            for command, line in COMMANDS:
                target.read_bytes = 0
                signal.alarm(120)
                try:
                    answer = command().answer(session, command.parse(line))
                    text, data = answer.to_text(), answer.json(command.name)
                except GdbextError as e:
                    assert str(e) and "\n" not in str(e), (case, command.name, str(e))
                    refusals += 1
                else:
                    json.loads(data)
                    assert len(text) + len(data) < TEXT and "\x1b" not in text, (case, command.name)
                    answers += 1
                finally:
                    signal.alarm(0)
                assert target.read_bytes < BYTES, (case, command.name, target.read_bytes)
    finally:
        target.damage = ()
        target.invalidate()
    assert answers > CASES * len(COMMANDS) // 3 and refusals
