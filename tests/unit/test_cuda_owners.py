"""Whose the blocks of torch's CUDA caching allocator are."""

from types import SimpleNamespace

from gdbext.torch import cuda_owners


def tensor(at, device="cuda:0", parameter=False):
    held = SimpleNamespace(storage_data=at, device=device, is_parameter=parameter, counts_as_parameter=False)
    return SimpleNamespace(tensor=held)


def segment(address, states, pool=(0, 0), device=0):
    blocks = [{"address": address + 100 * i, "size": 100, "state": state} for i, state in enumerate(states)]
    active = 100 * sum(state != "inactive" for state in states)
    return {"device": device, "segment_pool_id": pool, "active_size": active, "blocks": blocks}


USED, WAITS, FREE = "active_allocated", "active_pending_free", "inactive"


def test_each_block_has_one_owner_and_the_parts_add_up():
    snapshot = {
        "segments": [
            segment(1000, [USED, USED, USED, USED, WAITS, FREE]),
            segment(2000, [FREE, FREE]),
            segment(3000, [USED, USED, FREE], pool=(0, 7)),
            segment(4000, [USED], device=1),
        ]
    }
    tensors = [
        tensor(1000, parameter=True),
        tensor(1100),
        tensor(1200),
        tensor(3000, parameter=True),
        tensor(3150),
        tensor(4000, "cpu"),
    ]
    first, second = cuda_owners.name_owners(snapshot, tensors, [1100])
    owners = [[b["owner"] for b in s["blocks"]] for s in snapshot["segments"]]
    assert owners == [
        ["parameter", "kv-cache", "tensor", "untracked", "pending", "split"],
        ["free", "free"],
        ["parameter", "private-pool", "private-pool-free"],
        ["untracked"],
    ]
    assert [(p["owner"], p["pool"], p["bytes"], p["blocks"]) for p in first["parts"]] == [
        ("parameter", None, 200, 2),
        ("kv-cache", None, 100, 1),
        ("private-pool", (0, 7), 100, 1),
        ("tensor", None, 100, 1),
        ("untracked", None, 100, 1),
        ("pending", None, 100, 1),
        ("private-pool-free", (0, 7), 100, 1),
        ("split", None, 100, 1),
        ("free", None, 200, 2),
    ]
    assert sum(p["bytes"] for p in first["parts"]) == first["reserved_bytes"] == 1100
    assert first["largest_split_bytes"] == 100 and (second["device"], second["reserved_bytes"]) == (1, 100)
