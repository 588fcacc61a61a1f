"""llm-kv check -deep: what the values of blocks break, in tensors of a real torch."""

import os

import pytest
from harness.subjects import running

from gdbext.access.device_memory import DeviceMemory
from gdbext.commands.llm_kv import LlmKv
from gdbext.cpython.runtime import open_runtime
from gdbext.engines import kv_deep, kv_view
from gdbext.kvcache import invariants
from gdbext.kvcache.addresses import strided_layer
from gdbext.kvcache.model import Cache, Group, Pool, Request, Worker
from gdbext.torch.tensor_impl import read_tensor

BLOCKS, SLOTS = 12, 4


def cache():
    """Request a has computed three and a half blocks, b one that has the prefix of a's first; block 0 is reserved."""
    pool = Pool("pool", BLOCKS, BLOCKS, SLOTS, hashes=[0] * BLOCKS, has_hash_map=True)
    pool.hash_map = [(11, [3, 7])]
    a = Request("a", "RUNNING", "running", computed_tokens=3 * SLOTS + 2, blocks={0: [3, 4, 5, 9]})
    b = Request("b", "RUNNING", "running", computed_tokens=SLOTS, blocks={0: [7]})
    return Cache("vllm", "0.32.0", [pool], [Group(0, "full", SLOTS)], [a, b])


def worker(rt, rank, addresses):
    found = Worker(rank)
    for index, address in enumerate(addresses):
        tensor = read_tensor(rt, address)
        layer = strided_layer(
            index, f"layers.{index}", 0, tensor.data_ptr, 2, tensor.shape, tensor.stride, "2 B N H D", blocks=BLOCKS
        )
        for part in layer.parts:
            part.tensor = tensor
        found.layers.append(layer)
    return found


def device_of(target, said, **limits):
    """What a debugger that sees a GPU would read: the file that a subject (on_device.py) keeps as its memory."""

    def read(address, size):
        with open(f"/proc/{target.pid}/fd/{said['fd']}", "rb") as f:
            return os.pread(f.fileno(), size, address - said["address"])

    memory = DeviceMemory(read)
    memory.begin(**limits)
    return memory


@pytest.mark.parametrize("where", ["host", "device"])
def test_each_harm_is_named_by_rule_rank_and_block(torch_python, where):
    with running(torch_python, "kv_values.py", *(["device"] if where == "device" else [])) as (target, told):
        rt, said = open_runtime(target), told["cases"]
        target.device_memory = device_of(target, told["device"]) if told["device"] else None
        pairs = 0
        assert {True, False} == {bool(expected) for _, expected in said.values()}
        for name, (held, expected) in said.items():
            notes = []
            workers = [worker(rt, f"TP{i}", addresses) for i, addresses in enumerate(held)]
            found = kv_deep.read(cache(), workers, notes)
            faults = found.faults
            first = [[f.rule.name, f.rank, f.block] for f in faults[:1]]
            assert first == ([expected] if expected else []) and notes == [], (name, [f.detail for f in faults[:4]], notes)
            assert all(found.looked_at[one.rank] for one in workers)
            report = invariants.check(cache(), values=found)
            named = [[v.rule, v.rank, v.block] for v in report.violations if v.rule in kv_rules()]
            assert named[:1] == first, (name, named)
            assert kv_rules() - {"rank-copy"} <= set(report.rules) and ("rank-copy" in report.rules) == bool(found.pairs)
            pairs += found.pairs
        assert pairs


def test_what_one_question_may_not_read_is_said(torch_python):
    """The first faults that were found stay; the rank and the pair that were not read to their end are named."""
    with running(torch_python, "kv_values.py", "device") as (target, told):
        rt, (held, expected) = open_runtime(target), told["cases"]["nan_in_a_computed_block True"]
        notes, workers = [], [worker(rt, f"TP{i}", addresses) for i, addresses in enumerate(held)]
        target.device_memory = device_of(target, told["device"], size=3000)
        found = kv_deep.read(cache(), workers, notes)
        assert [note.partition(":")[0] for note in notes] == ["TP0", "TP1", "TP0 and TP1"] and "were not all read" in notes[0], (
            notes
        )
        assert [[f.rule.name, f.rank, f.block] for f in found.faults] == [expected] and found.looked_at["TP0"] > 3
        target.device_memory = device_of(target, told["device"])
        (layer,) = [one for one in workers[0].layers if one.index == 1]
        assert [one["nan"] for one in kv_view.block_stats(layer, 4).values()] == [1, 0]
        target.device_memory = None
        assert "the memory of cuda:0, which gdb cannot read" in kv_view.block_stats(layer, 4)["why"]


def test_what_a_step_is_writing_is_not_looked_at():
    pool = Pool("pool", BLOCKS, BLOCKS, 1)
    for computed, output, private, looked_at in (
        (6, 0, None, 0),
        (6, 0, 4, 4),
        (6, 1, 4, 6),
        (7, 1, None, 6),
        (7, None, None, 7),
    ):
        request = Request("a", "", "running", 6, computed, output, {0: list(range(1, 8))}, private=private)
        found = kv_deep._computed(Cache("sglang", "0.5.23", [pool], [Group(0, "full", 1)], [request]))
        assert found.get(0, []) == list(range(1, looked_at + 1)), (computed, output, private)


def kv_rules():
    return {"reserved-nan", "block-nan", "prefix-copy", "rank-copy"}


def test_the_check_takes_its_options():
    args = LlmKv.parse("check -deep -ranks")
    assert args.operand_text == "check" and args.deep and args.ranks and not LlmKv.parse("check").deep
