"""Addresses by strides: every layout's elements are found again at the address they were given, and nowhere else."""

import itertools

import pytest

from gdbext.answers.addresses import place_in_worker
from gdbext.errors import GdbextError
from gdbext.kvcache import model
from gdbext.kvcache.addresses import order_of, strided_layer
from gdbext.torch.dtypes import DTYPES
from gdbext.torch.tensor import Tensor

B, N, H, D = 5, 4, 3, 2


def dense(shape, order=None):
    """Strides of a shape whose axes lie in memory in `order`, outermost first."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order or range(len(shape))):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


CASES = {
    "K and V outermost": ((2, B, N, H, D), None, "2 B N H D", {}),
    "K and V inside the block": ((B, 2, N, H, D), None, "B 2 N H D", {}),
    "heads before tokens": ((2, B, H, N, D), None, "2 B H N D", {}),
    "flashinfer HND": ((B, 2, N, H, D), (0, 1, 3, 2, 4), "B 2 N H D", {}),
    "K|V in a token": ((B, H, N, 2 * D), None, "B H N C", {}),
    "K|V in a token, tokens outside heads": ((B, H, N, 2 * D), (0, 2, 1, 3), "B H N C", {}),
    "K|V in a token, heads outermost": ((B, H, N, 2 * D), (1, 0, 2, 3), "B H N C", {}),
    "CPU slabs": ((B, H, N, 2 * D), None, "B H N C", {"slab": True}),
    "CPU slabs, K transposed": ((B, H, N, 2 * D), None, "B H N C", {"slab": True, "transposed": True}),
    "MLA": ((B, N, 7), None, "B N C", {}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_element_is_found_again(name):
    shape, axes, order, how = CASES[name]
    base, item = 0x10000, 2
    layer = strided_layer(3, "x", 0, base, item, shape, dense(shape, axes), order, head_size=D, blocks=B, **how)
    seen = set()
    for part in layer.parts:
        sizes = {d: n for d, (n, _) in part.dims.items()}
        for index in itertools.product(*(range(n) for n in sizes.values())):
            place = dict(zip(sizes, index))
            at = layer.address(part.name, place["block"], place.get("slot", 0), place.get("head", 0), place["element"])
            assert at not in seen
            seen.add(at)
            for byte in range(item):
                found = layer.find(at + byte)
                assert found is not None and found[0] == part.name
                assert {k: v for k, v in found[1].items() if k in place} == place
    total = 1
    for n in shape:
        total *= n
    assert seen == {base + i * item for i in range(total)}  # the parts cover the tensor, each element once
    assert layer.find(base - 1) is None and layer.find(base + total * item) is None


def test_the_order_is_told_by_sizes():
    assert order_of((2, 100, 16, 8, 64), 100, 16, 8, 64) == "2 B N H D"
    assert order_of((100, 2, 16, 8, 64), 100, 16, 8, 64) == "B 2 N H D"
    assert order_of((2, 100, 8, 16, 64), 100, 16, 8, 64) == "2 B H N D"
    assert order_of((100, 8, 16, 128), 100, 16, 8, 64) == "B H N C"
    assert order_of((100, 16, 576), 100, 16, 1, 576) == "B N C"
    assert order_of((2, 100, 16, 16, 64), 100, 16, 16, 64, prefer="2 B H N D") == "2 B H N D"  # a tie
    assert order_of((3, 3), 100, 16, 8, 64) == ""


def test_kernel_blocks_smaller_than_the_schedulers():
    shape = (40, H, 8, 2 * D)
    layer = strided_layer(0, "x", 0, 0, 4, shape, dense(shape), "B H N C", head_size=D, blocks=20)
    assert layer.ratio == 2
    at = layer.address("v", 7, 11, 2, 1)
    part, place = layer.find(at)
    assert (part, place["block"], place["slot"], place["head"], place["element"]) == ("v", 7, 11, 2, 1)


def test_what_is_out_of_range_is_said():
    layer = strided_layer(0, "x", 0, 0, 4, (B, H, N, 2 * D), dense((B, H, N, 2 * D)), "B H N C", head_size=D)
    for bad in ({"block": B}, {"block": 0, "slot": N}, {"block": 0, "head": H}, {"block": 0, "element": D}, {"block": -1}):
        with pytest.raises(GdbextError, match="outside"):
            layer.address("k", **bad)
    with pytest.raises(GdbextError, match="no part"):
        layer.address("q", 0)


def test_layers_that_share_memory_are_told_apart_by_the_blocks_owner():
    """As vLLM keeps hybrid models: a layer of each group in one tensor, whose blocks are the one's or the other's."""
    shape = (20, H, 16, 2 * D)
    tensor = Tensor(None, None, 0, shape=shape, stride=dense(shape), dtype=DTYPES["float32"], device="cpu", storage_data=4096)
    worker = model.Worker("DP0")
    for index, group in ((2, 0), (3, 1)):
        layer = strided_layer(index, f"layers.{index}", group, 4096, 4, shape, dense(shape), "B H N C", head_size=D, blocks=20)
        for part in layer.parts:
            part.tensor = tensor
        worker.layers.append(layer)
    pool = model.Pool("pool", 20, 20, 16, free_ids=[9])
    request = model.Request("r", blocks={0: [0, 5], 1: [7, 8]})
    cache = model.Cache("vllm", "", [pool], [model.Group(0, "sliding-window", 16), model.Group(1, "full", 16)], [request])
    for block, found, owners in ((7, 3, [("r", 0)]), (5, 2, [("r", 1)]), (9, 2, [])):
        place = place_in_worker(cache, worker, worker.layers[0].address("k", block, 3, 1, 1))
        assert (place["layer"], place["block"], place["slot"], place["head"]) == (found, block, 3, 1)
        assert [(o["request_id"], o["index"]) for o in place["owners"]] == owners
    assert place_in_worker(cache, worker, 4095) is None
