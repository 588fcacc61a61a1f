"""Invariants over made-up pools of slots and their prefix trees (SGLang): a healthy one is never flagged, a fault is, by the
right rule."""

import pytest

from gdbext.kvcache import invariants, model
from gdbext.kvcache.model import Cache, Group, Pool, Request, Tree, TreeNode


def rules(cache):
    return [(v.rule, v.block) for v in invariants.check(cache).violations]


def slot_cache():
    """SGLang: 32 slots; r0 shares 1-4 with the tree and has 5, 6; r1 has 1-4 and 7; the tree holds 1-4 and 10, 11."""
    tree = Tree(
        [
            TreeNode(0, -1, [1, 2], 0, [], 1),
            TreeNode(1, 0, [], 4, [1, 2, 3, 4], 2, count=4),
            TreeNode(2, 0, [], 2, [10, 11], 0, count=2),
        ],
        2,
        4,
    )
    pool = Pool("pool", 32, 33, 1, unit="slot", reserved=(0,), tree=tree, cached_ids=[1, 2, 3, 4, 10, 11])
    pool.free_ids = [i for i in range(1, 33) if i not in (1, 2, 3, 4, 5, 6, 7, 10, 11)]
    pool.num_free = len(pool.free_ids)
    pool.counters.update(available=len(pool.free_ids), evictable=2, protected=4)
    requests = [
        Request(
            "r0", "running", "running", 5, 6, 1, {0: [1, 2, 3, 4, 5, 6]}, row=1, private=4, slots=[1, 2, 3, 4, 5, 6], allocated=6
        ),
        Request("r1", "running", "running", 4, 5, 1, {0: [1, 2, 3, 4, 7]}, row=2, private=4, slots=[1, 2, 3, 4, 7], allocated=5),
    ]
    return Cache("sglang", "1", [pool], [Group(0, "full", 1)], requests, rows={"size": 4, "free": [3, 4]})


def sgl(change):
    cache = slot_cache()
    change(cache, cache.pools[0], cache.pools[0].tree)
    return rules(cache)


def test_a_healthy_slot_cache_is_not_flagged():
    assert rules(slot_cache()) == []
    counts = model.summary(slot_cache(), 0)
    assert (counts["free"], counts["used"], counts["cached"], counts["shared"]) == (23, 7, 6, 4)


def extend(request, slot):
    def do(cache, pool, tree):
        r = cache.requests[request]
        r.blocks[0].append(slot)
        r.slots.append(slot)

    return do


SLOT_FAULTS = {
    "slot freed twice": (lambda c, p, t: (p.free_ids.append(20), setattr(p, "num_free", 24)), "free-list-double", 20),
    "slot out of range": (lambda c, p, t: p.free_ids.__setitem__(0, 99), "free-list-wild", 99),
    "padding slot freed": (lambda c, p, t: p.free_ids.__setitem__(0, 0), "null-freed", 0),
    "free slot in a request": (extend(0, 30), "free-owned", 30),
    "free slot in the tree": (lambda c, p, t: p.free_ids.__setitem__(0, 10), "free-cached", 10),
    "two requests' own slot": (extend(0, 7), "slot-shared", 7),
    "lost slots": (lambda c, p, t: p.counters.__setitem__("available", 20), "slots-lost", None),
    "row free twice": (lambda c, p, t: c.rows["free"].append(3), "row-free", None),
    "row free and used": (lambda c, p, t: c.rows["free"].append(1), "row-free", None),
    "row of two requests": (lambda c, p, t: setattr(c.requests[1], "row", 1), "row-shared", None),
    "wrong parent": (lambda c, p, t: setattr(t.nodes[2], "parent", 1), "tree-link", None),
    "wrong key": (lambda c, p, t: t.nodes[0].misfiled.append(2), "tree-key", None),
    "short value": (lambda c, p, t: setattr(t.nodes[2], "tokens", 3), "tree-key", None),
    "unlocked ancestor": (
        lambda c, p, t: (t.nodes[2].children.append(3), t.nodes.append(TreeNode(3, 2, [], 0, [], 1))),
        "tree-lock",
        None,
    ),
    "negative lock": (lambda c, p, t: setattr(t.nodes[2], "lock_ref", -1), "tree-lock", None),
    "wrong size": (lambda c, p, t: setattr(t, "evictable", 7), "tree-size", None),
    "slot in two nodes": (lambda c, p, t: t.nodes[2].slots.__setitem__(0, 4), "tree-twice", 4),
}


@pytest.mark.parametrize("name", SLOT_FAULTS)
def test_a_fault_among_slots_is_found_by_its_rule(name):
    change, rule, block = SLOT_FAULTS[name]
    found = sgl(change)
    assert (rule, block) == found[0], found
