"""KV tensors of two ranks, whole and harmed in one way each; says where they are and what must be named first.

kv_values.py [device]     device: in what stands for a GPU's memory (on_device.py), which `device` then says"""

import json
import os
import sys
import time

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from on_device import Device

BLOCKS, SLOTS, HEADS, SIZE = 12, 4, 2, 8
torch.set_num_threads(1)


def ranks(same):
    """Two ranks of two layers, [2, blocks, slots, heads, size] each; block 0 is reserved, 3 and 7 hold the same prefix."""
    torch.manual_seed(1)
    made = []
    for rank in range(2):
        if rank and same:
            made.append([layer.clone() for layer in made[0]])
            continue
        layers = [torch.randn(2, BLOCKS, SLOTS, HEADS, SIZE).to(torch.bfloat16) for _ in range(2)]
        for layer in layers:
            layer[:, 0] = 0
            layer[:, 7] = layer[:, 3]
        made.append(layers)
    return made


def whole(held):
    return None


def nan_in_the_null_block(held):
    held[1][0][1, 0, 2, 1, 3] = float("nan")
    return ["reserved-nan", "TP1", 0]


def nan_in_a_computed_block(held):
    held[0][1][0, 4, 0, 0, 0] = float("nan")
    return ["block-nan", "TP0", 4]


def nan_in_a_block_that_is_not_full(held):
    held[0][1][0, 9, 3] = float("nan")
    return None


def copies_apart(held):
    for layers in held:
        layers[1][1, 7] *= 1.5
    return ["prefix-copy", "TP0", 7]


def copies_as_another_batch_makes_them(held):
    for layers in held:
        layers[1][1, 7, 0, 0, 0] = torch.nextafter(layers[1][1, 7, 0, 0, 0], torch.tensor(9.0, dtype=torch.bfloat16))
    return None


def overwritten_on_one_rank(held):
    held[1][0][0, 5] = torch.randn(SLOTS, HEADS, SIZE).to(torch.bfloat16)
    return ["rank-copy", "TP1", 5]


def main():
    kept, said = [], {}
    gpu = Device(1 << 20) if sys.argv[1:] else None
    for same in (True, False):
        for change in (
            whole,
            nan_in_the_null_block,
            nan_in_a_computed_block,
            nan_in_a_block_that_is_not_full,
            copies_apart,
            copies_as_another_batch_makes_them,
            overwritten_on_one_rank,
        ):
            held = ranks(same)
            expected = change(held)
            if not same and change is overwritten_on_one_rank:
                expected = None  # ranks with heads of their own differ in all blocks
            kept.append(held)
            for layers in held if gpu else ():
                for layer in layers:
                    gpu.put(layer)
            said[f"{change.__name__} {same}"] = [[[id(layer) for layer in layers] for layers in held], expected]
    print(json.dumps({"cases": said, "device": gpu.said() if gpu else None}), flush=True)
    while True:
        time.sleep(1000)


main()
