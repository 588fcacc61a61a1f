"""A module is found by its name's hash, as the process itself finds it, without a read of the other names; and by reading them
where that cannot be."""

import json
import os
import random
import subprocess
import sys

import pytest
from harness.subjects import PYTHONS, spawned

from gdbext.access.proc import ProcTarget
from gdbext.cpython import hashing
from gdbext.cpython.runtime import open_runtime

SUBJECT = """
import json, random, sys, types
draw = random.Random(int(sys.argv[1]))
names = ["m" + str(draw.randrange(10**6)).rjust(draw.randrange(1, 40), "0") for _ in range(5000)]
for name in names:
    sys.modules[name] = types.ModuleType(name)
gone = names[::7]
for name in gone:
    sys.modules.pop(name, None)
CHANGE
asked = [*names[::50], *gone[::20], "json", "sys", "none"]
print(json.dumps({n: n in sys.modules and id(sys.modules[n]) for n in asked}), flush=True)
sys.stdin.read()
"""
CHANGES = {  # what it does to its sys.modules -> whether the hash tells
    "many names": ("", True),
    "a key that is no str": ("sys.modules[7] = sys", True),
    "a key that is a str of its own kind": ("sys.modules[type('S', (str,), {})('s' * 9)] = sys", True),
    "names beyond ASCII": ("sys.modules['m\\xe4', ] = sys.modules['\\u4e2d'] = sys", True),
    "grown and emptied": ("kept = dict(sys.modules); [sys.modules.pop(n, None) for n in names[:4900]]", True),
    "no name that proves it": ("kept, _ = sys.modules.pop('sys'), 0", False),
}


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_name_is_found_where_the_process_finds_it(python):
    seed = random.randrange(1000)
    for what, (change, tells) in CHANGES.items():
        with spawned([python, "-c", SUBJECT.replace("CHANGE", change), str(seed)], "{") as process:
            target = ProcTarget(process.pid)
            rt = open_runtime(target)
            table = rt._modules_address(rt.interpreters()[0])
            for name, address in json.loads(process.said).items():
                found = hashing.find(rt, table, name, "sys")
                assert (found is not None) == tells, (what, seed, name)
                if tells:
                    assert [value for _, value in found] == ([address] if address else []), (what, seed, name)
                module = rt._imported(name)
                assert (module.address if module is not None else False) == address, (what, seed, name)
            target.close()


def test_few_pages_are_read_for_it():
    with spawned([sys.executable, "-c", SUBJECT.replace("CHANGE", ""), "1"], "{") as process:
        target = ProcTarget(process.pid)
        rt = open_runtime(target)
        assert rt.module("json") is not None and rt.module("none") is None
        few = len(target._pages)
        assert len(rt.modules()) > 2000 and len(target._pages) > 3 * few
        target.close()


def test_the_hash_is_the_interpreters():
    texts = ["", "a", "sys", "12345678", "threading", "torch.distributed", "m" * 63, "m" * 64, "m" * 255, "m" * 256]
    said = subprocess.run(
        [sys.executable, "-c", f"print(*[hash(t) & (1 << 64) - 1 for t in {texts!r}])"],
        env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    rounds = (1, 3) if sys.version_info >= (3, 11) else (2, 4)
    assert [hashing.siphash(0, 0, t.encode(), *rounds) for t in texts[1:]] == list(map(int, said.stdout.split()))[1:]
