"""Sourced in a gdb that has the pack: overwrites memory of an engine's processes, which nobody but a test does, and puts it back.

`stale()`: the hash of the first block of vLLM's only request, in the engine core; `overwrite()`: that block's keys of layer 1 on
TP1, `overwrite_copy()`: on both ranks alike; `overwrite_slot()`: the values of the first slot of SGLang's first request likewise;
`nan_slot()`: a NaN in them; `nan_null()`: a NaN in block 0 of vLLM's TP1, `nan_reserved()` in slot 0 of SGLang's;
`stale_page(LABEL)`: the hash of the first page of a node of SGLang's prefix tree in Python; `grow(LABEL, PATH)`: 1 % more in
the weight of a module; `nan(LABEL, PATH)`: a NaN in it, or in another tensor of it; `restore()`: everything.

`sampling()` asks for the parameters of the only request."""

import json
import os
import struct

import gdb

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.engines import models
from gdbext.engines.sglang import kv as sglang_kv
from gdbext.engines.vllm import kv
from gdbext.session.gdb_session import session
from gdbext.torch import modules
from gdbext.torch.tensor_impl import read_tensor

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
    return asked("llm-kv")["requests"][0]["tables"]["0"][0]


def stale():
    pid = pids()["EngineCore"]
    rt = open_runtime(ProcTarget(pid))
    poke(pid, kv.read(rt).pools[0].hashes[first_block()] + rt.layout["bytes.ob_sval"], b"stale")


def overwrite():
    block = first_block()
    rt = open_runtime(ProcTarget(pids()["TP1"]))
    layer = kv.read_worker(rt, "TP1").layers[1]
    poke(rt.target.pid, layer.part("k").address(block=block * layer.ratio), struct.pack("<16f", *range(1, 17)))


def overwrite_copy():
    block = first_block()
    for label in ("TP0", "TP1"):
        rt = open_runtime(ProcTarget(pids()[label]))
        layer = kv.read_worker(rt, label).layers[1]
        poke(rt.target.pid, layer.part("k").address(block=block * layer.ratio), struct.pack("<16f", *range(1, 17)))


def nan_in_block_0(engine):
    rt = open_runtime(ProcTarget(pids()["TP1"]))
    poke(rt.target.pid, engine.read_worker(rt, "TP1").layers[2].part("v").address(block=0), struct.pack("<f", float("nan")))


def nan_null():
    nan_in_block_0(kv)


def nan_reserved():
    nan_in_block_0(sglang_kv)


def sampling():
    name = asked("llm-requests -between 0")["requests"][0]["request_id"]
    gdb.execute(f"llm-request {name} -sampling -show-content -between 0 -json")


def slot_values():
    """-> (pid of TP1, the address of the values of a slot in layer 1)"""
    block = first_block()  # of the rank that came last to the end of its step: the other may be through with the request
    rt = open_runtime(ProcTarget(pids()["TP1"]))
    return rt.target.pid, sglang_kv.read_worker(rt, "TP1").layers[1].part("v").address(block=block)


def overwrite_slot():
    poke(*slot_values(), struct.pack("<16f", *range(1, 17)))


def nan_slot():
    poke(*slot_values(), struct.pack("<f", float("nan")))


def stale_page(label):
    rt = open_runtime(ProcTarget(pids()[label]))
    held = [rt.object(node.address).attr("hash_value") for node in sglang_kv.read(rt).pools[0].tree.nodes[1:]]
    text = next(one for one in held if not one.is_none()).item(0)
    at = text.address + rt.target.read(text.address, 256).index(text.string().encode())
    poke(rt.target.pid, at, b"0123456789abcdef")


def weight(label, path, name="weight"):
    """-> (pid, the address of a parameter or buffer of the module at a path, how many bytes it has)"""
    rt = open_runtime(ProcTarget(pids()[label]))
    nodes = modules.tree(models.inner_model(models.model_of(rt)))
    module = rt.object(next(node.address for node in nodes.values() if node.path == path))
    own = dict(module.instance_entries())
    held = {key.string(): value for table in ("_parameters", "_buffers") for key, value in rt.object(own[table]).items()}
    tensor = read_tensor(rt, held[name].address)
    return rt.target.pid, tensor.data_ptr, 4 * tensor.numel


def grow(label, path):
    pid, address, size = weight(label, path)
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as f:
        values = struct.unpack(f"<{size // 4}f", os.pread(f.fileno(), size, address))
    poke(pid, address, struct.pack(f"<{size // 4}f", *(1.01 * value for value in values)))


def nan(label, path, index=5, name="weight"):
    pid, address, _ = weight(label, path, name)
    poke(pid, address + 4 * index, struct.pack("<f", float("nan")))


def restore():
    while before:
        pid, address, data = before.pop()
        poke(pid, address, data)
        before.pop()
