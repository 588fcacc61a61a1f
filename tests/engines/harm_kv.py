"""Sourced in a gdb that has the pack: overwrites memory of an engine's processes, which nobody but a test does, and puts it back.

`stale()`: the hash of the first block of the only request, in the engine core; `overwrite()`: that block's keys of layer 1 on
TP1; `restore()`: everything."""

import json
import os
import struct

import gdb

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.engines.vllm import kv
from gdbext.session.gdb_session import session

before = []


def asked(command):
    text = gdb.execute(command + " -json", to_string=True)
    return json.loads(next(line for line in text.splitlines() if line.startswith("{")))


def pids():
    return {rank["label"]: rank["pid"] for rank in asked("llm-ranks")["ranks"]}


def poke(pid, address, data):
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as f:
        before.append((pid, address, os.pread(f.fileno(), len(data), address)))
        os.pwrite(f.fileno(), data, address)
    session.target(str(pid)).invalidate()  # what was read of a process that stands still is kept


def first_block():
    (request,) = asked("llm-kv")["requests"]
    return request["tables"]["0"][0]


def stale():
    pid = pids()["EngineCore"]
    rt = open_runtime(ProcTarget(pid))
    poke(pid, kv.read(rt).pools[0].hashes[first_block()] + rt.layout["bytes.ob_sval"], b"stale")


def overwrite():
    block = first_block()
    rt = open_runtime(ProcTarget(pids()["TP1"]))
    layer = kv.read_worker(rt, "TP1").layers[1]
    poke(rt.target.pid, layer.part("k").address(block=block * layer.ratio), struct.pack("<16f", *range(1, 17)))


def restore():
    while before:
        pid, address, data = before.pop()
        poke(pid, address, data)
        before.pop()
