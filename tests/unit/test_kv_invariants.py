"""Invariants over made-up pools: a healthy one is never flagged, whatever its history; an injected fault is, by the right rule
and block."""

import dataclasses
import importlib
import random

import pytest
from harness.caches import healthy

from gdbext.engines import registry
from gdbext.kvcache import invariants, model, picture
from gdbext.kvcache import rules as rule_names
from gdbext.kvcache.model import DANGLING, HEAD, NONE, TAIL, Pool

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402


def rules(cache, **more):
    report = invariants.check(cache, **more)
    return [(v.rule, v.block) for v in report.violations], report


def test_each_rule_is_named_once():
    """A rule's constant and its name in JSON are one word; the readers' faults and the checks name constants alone."""
    constants = {name: value for name, value in vars(rule_names).items() if isinstance(value, rule_names.Rule)}
    assert constants == {name.upper().replace("-", "_"): rule for name, rule in rule_names.RULES.items()}
    assert len(constants) > 40 and all(rule.holds and rule.releases for rule in constants.values())


def test_a_healthy_cache_is_not_flagged():
    found, report = rules(healthy())
    assert found == [] and report.transient == [] and report.blocks == 64 and len(report.rules) > 20


def append_again(cache, block):
    """What FreeKVCacheBlockQueue.append does with a block that is in the queue already."""
    pool = cache.pools[0]
    last = pool.tail_prev
    pool.next[last], pool.prev[block], pool.next[block], pool.tail_prev = block, last, TAIL, block
    pool.num_free += 1


def prepend_again(cache, block):
    pool = cache.pools[0]
    first = pool.head_next
    pool.head_next, pool.prev[block], pool.next[block], pool.prev[first] = block, HEAD, first, block
    pool.num_free += 1


def ring(cache, at, back):
    cache.pools[0].next[at] = back


def unqueue(cache, block):
    pool = cache.pools[0]
    before, after = pool.prev[block], pool.next[block]
    if before == HEAD:
        pool.head_next = after
    else:
        pool.next[before] = after
    if after == TAIL:
        pool.tail_prev = before
    else:
        pool.prev[after] = before
    pool.prev[block] = pool.next[block] = NONE
    pool.num_free -= 1


def put(column, block, value):
    def do(cache):
        getattr(cache.pools[0], column)[block] = value

    return do


def swap_ids(cache):
    ids = cache.pools[0].ids
    ids[7], ids[11] = ids[11], ids[7]


def own(request, *blocks):
    def do(cache):
        cache.requests[request].blocks[0] += blocks

    return do


def in_middle(cache):
    """Two free blocks that follow one another, neither first nor last."""
    order = cache.pools[0].walk().order
    cache.pools[0]._walk = None
    return order[20], order[21]


def break_prev(cache):
    cache.pools[0].prev[in_middle(cache)[1]] = 30 if in_middle(cache)[0] != 30 else 31


def wild_next(cache):
    cache.pools[0].next[in_middle(cache)[0]] = DANGLING


def cut(cache):
    cache.pools[0].next[in_middle(cache)[0]] = NONE


def null_freed(cache):
    append_again(cache, 0)
    cache.pools[0].num_free = len(cache.pools[0].walk().order)


def freed_while_owned(cache):
    cache.pools[0].ref_cnt[3] = 0
    append_again(cache, 3)


def free_with_references(cache):
    cache.pools[0].ref_cnt[20] = 1


def wrong_hash_entry(cache):
    pool = cache.pools[0]
    pool.hash_map = [(h, [30] if b == [9] else b) for h, b in pool.hash_map]


def unmapped_hash(cache):
    cache.pools[0].hashes[40] = 77


def unknown_request(cache):
    cache.requests[0].known = False


def short_table(cache):
    cache.requests[0].computed_tokens = 16 * 4


def bad_count(cache):
    cache.pools[0].num_free -= 2


LAST = healthy().pools[0].tail_prev
FAULTS = {
    "double free at the end": (lambda c: append_again(c, 20), "free-list-double", 20),
    "double free at the front": (lambda c: prepend_again(c, 20), "free-list-double", 20),
    "double free of the last": (lambda c: append_again(c, c.pools[0].tail_prev), "free-list-double", LAST),
    "leak": (lambda c: unqueue(c, 20), "leaked", 20),
    "ids swapped": (swap_ids, "block-id", 7),
    "negative count": (put("ref_cnt", 20, -1), "negative-ref", 20),
    "count too low": (put("ref_cnt", 1, 1), "ref-below-owners", 1),
    "count too high": (put("ref_cnt", 3, 2), "ref-above-owners", 3),
    "pinned and forgotten": (lambda c: (unqueue(c, 20), put("ref_cnt", 20, 1)(c)), "ref-above-owners", 20),
    "null block freed": (null_freed, "null-freed", 0),
    "another null block": (lambda c: c.pools[0].null_ids.append(33), "null-block", 33),
    "block in two tables": (own(0, 5), "double-owner", 5),
    "block in two tables, counted": (lambda c: (own(0, 5)(c), put("ref_cnt", 5, 2)(c)), "double-owner", 5),
    "block twice in a table": (lambda c: (own(0, 3)(c), put("ref_cnt", 3, 2)(c)), "owned-twice", 3),
    "freed while owned": (freed_while_owned, "free-owned", 3),
    "free with references": (free_with_references, "free-referenced", 20),
    "table with a foreign block": (own(0, DANGLING), "table-range", None),
    "wrong hash entry": (wrong_hash_entry, "hash-entry", 30),
    "hash not in the map": (unmapped_hash, "hash-missing", 40),
    "counter off": (bad_count, "free-count", None),
    "request unknown": (unknown_request, "request-unknown", None),
    "table too short": (short_table, "table-short", None),
    "pool too short": (lambda c: setattr(c.pools[0], "size", 65), "pool-size", None),
    "links outside the queue": (put("next", 3, 40), "stray-links", 3),
    "entry that is no block": (lambda c: c.pools[0].foreign.append(44), "block-object", 44),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_by_its_rule_and_block(name):
    break_it, rule, block = FAULTS[name]
    cache = healthy()
    break_it(cache)
    found, _ = rules(cache)
    assert found and found[0] == (rule, block), found


@pytest.mark.parametrize("break_it,rule", [(break_prev, "free-list-link"), (wild_next, "free-list-wild"), (cut, "free-list-end")])
def test_a_broken_link_leads_and_what_follows_is_folded(break_it, rule):
    cache = healthy()
    before, after = in_middle(cache)
    break_it(cache)
    found, report = rules(cache)
    assert [r for r, _ in found] == [rule] and found[0][1] == (after if rule == "free-list-link" else before), found
    assert report.violations[0].follows.get("leaked", 0) == 0  # walked from both ends, nothing is out of reach


def test_a_ring_names_the_block_whose_link_leads_back():
    cache = healthy()
    order = cache.pools[0].walk().order
    cache.pools[0]._walk = None
    ring(cache, order[30], order[10])
    found, _ = rules(cache)
    assert found[0] == ("free-list-cycle", order[30]), found


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_healthy_pools_are_never_flagged_faults_always_are(data):
    blocks = data.draw(st.integers(2, 200))
    seed = data.draw(st.integers(0, 1 << 30))
    rnd = random.Random(seed)
    ids = list(range(1, blocks))
    rnd.shuffle(ids)
    prefix = [ids.pop() for _ in range(min(len(ids), rnd.randrange(4)))]
    tables = [prefix + [ids.pop() for _ in range(min(len(ids), rnd.randrange(6)))] for _ in range(rnd.randrange(6))]
    cached = [b for b in range(1, blocks) if rnd.random() < 0.3]
    found, _ = rules(healthy(blocks, tables, cached, seed))
    assert found == []
    cache = healthy(blocks, tables, cached, seed)
    order = cache.pools[0].walk().order
    cache.pools[0]._walk = None
    kind = data.draw(st.sampled_from(["append", "prepend", "leak", "negative", "id", "ring"]))
    if kind == "id":
        b = rnd.randrange(blocks)
        cache.pools[0].ids[b] = blocks + 5
        expected = ("block-id", b)
    elif len(order) < 4:
        return
    else:
        at = rnd.randrange(1, len(order) - 2)
        b = order[at]
        if kind == "append":
            append_again(cache, b)
            expected = ("free-list-double", b)
        elif kind == "prepend":
            prepend_again(cache, b)
            expected = ("free-list-double", b)
        elif kind == "leak":
            unqueue(cache, b)
            expected = ("leaked", b)
        elif kind == "negative":
            cache.pools[0].ref_cnt[b] = -3
            expected = ("negative-ref", b)
        else:
            ring(cache, order[at + 1], b)
            expected = ("free-list-cycle", order[at + 1])
    found, _ = rules(cache)
    assert found[0] == expected, (kind, found)


@pytest.mark.parametrize(
    "rule,change",
    [
        ("free-count", lambda c: setattr(c.pools[0], "num_free", 3)),
        ("hash-missing", unmapped_hash),
        ("leaked", lambda c: unqueue(c, 20)),
        ("ref-above-owners", put("ref_cnt", 3, 2)),
    ],
)
def test_a_stop_in_the_middle_of_an_update_is_not_called_corruption(rule, change):
    cache = healthy()
    change(cache)
    cache.mid_update = "FreeKVCacheBlockQueue.popleft_n (kv_cache_utils.py:350)"
    found, report = rules(cache)
    assert found == [] and [v.rule for v in report.transient] == [rule]


def test_what_no_half_done_update_can_do_is_reported_during_one_too():
    cache = healthy()
    append_again(cache, 20)
    cache.mid_update = "somewhere"
    assert rules(cache)[0][0] == ("free-list-double", 20)


def test_pinned_blocks_are_counted_and_not_faults_where_something_may_pin():
    cache = healthy()
    unqueue(cache, 20)
    cache.pools[0].ref_cnt[20] = 1
    cache.pools[0].may_pin = "a KV connector"
    found, report = rules(cache)
    assert found == [] and report.held == {"pool": 1} and model.summary(cache, 0)["held"] == 1


def test_sizes_from_nothing_up():
    for blocks in (0, 1, 2):
        cache = healthy(max(blocks, 1), (), ())
        if not blocks:
            pool = cache.pools[0] = Pool("pool", 0, 0, 16, reserved=(), ref_cnt=[], prev=[], next=[], ids=[], num_free=0)
            assert pool.walk().order == []
        assert rules(cache)[0] == []


def test_many_findings_of_one_rule_are_counted():
    cache = healthy()
    cache.pools[0].ids = [999] * 64
    report = invariants.check(cache)
    assert len(report.violations) == invariants.LIMIT and report.violations[-1].more == 64 - invariants.LIMIT


# ---- workers -----------------------------------------------------------------------------------------------------------
def worker(rows, slots=(), size=16):
    return model.Worker("TP1", tables=[model.Table(0, size, rows, list(slots))])


def test_worker_tables_are_compared():
    cache = healthy()
    good = [("r0", [1, 2, 3]), ("r1", [1, 2, 4])]  # a row may be a step behind
    assert rules(cache, workers=[worker(good, [17, 18, 90, -1])])[0] == []
    for rows, slots, expected in (
        ([("r0", [1, 9, 3])], (), ("worker-table", 2)),
        ([("r0", [1, 2, 64])], (), ("worker-range", 64)),
        (good, (17, 64 * 16), ("slot-range", 64)),
        (good, (17, 20, 17), ("slot-twice", 1)),
    ):
        assert rules(healthy(), workers=[worker(rows, slots)])[0][0] == expected


def test_a_prompt_handed_over_to_one_ranks_tree_is_no_difference():
    """SGLang: two ranks a step apart. The tree's block 30 has the same tokens as r0's own block 3; 40 is free, 9 is r1's."""

    def found(own, own_tree=True, prompt=48, cached=(30,)):
        cache = healthy()
        unqueue(cache, 30)
        cache.pools[0].cached_ids = cached if cached is None else list(cached)
        cache.requests[0].prompt_tokens = prompt
        one = dataclasses.replace(worker([("r0", [1, 2, own])]), ahead=2, own_tree=own_tree)
        return "worker-table" in [rule for rule, _ in rules(cache, workers=[one])[0]]

    assert not found(30) and not found(30, cached=None)
    assert found(30, own_tree=False) and found(30, prompt=32), "ranks with one scheduler; behind the prompt"
    assert found(40) and found(4) and found(4, cached=None), "a free block, another request's"


def test_a_block_that_left_the_window_is_no_difference_to_the_workers():
    cache = healthy()
    cache.groups[0].kind, left = "sliding-window", cache.requests[0]
    cache.requests = [dataclasses.replace(left, blocks={0: [0, *left.blocks[0][1:]]}), *cache.requests[1:]]
    assert "worker-table" not in [rule for rule, _ in rules(cache, workers=[worker([("r0", [1, 2, 3])])])[0]]
    assert "worker-table" in [rule for rule, _ in rules(cache, workers=[worker([("r0", [1, 2, 9])])])[0]]


def test_kernel_blocks_smaller_than_the_managers():
    rows = [("r0", [2, 3, 4, 5, 6, 7])]
    assert rules(healthy(), workers=[worker(rows, size=8)])[0] == []


# ---- the picture ---------------------------------------------------------------------------------------------------------
def test_the_picture_shows_who_has_what():
    cells = picture.states(healthy(16), 0)
    assert (
        cells[0] == "0"
        and cells[1:3] == "**"
        and cells[3] == "B"
        and cells[4:6] == "AA"
        and cells[9] == "o"
        and set(cells[10:]) == {"."}
    )
    lines, per = picture.picture(cells)
    assert lines == [cells] and per == 1


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=".oA*", min_size=1, max_size=400), st.integers(1, 40))
def test_no_used_block_is_hidden_by_a_coarse_picture(cells, limit):
    lines, per = picture.picture(cells, 8, limit)
    whole = "".join(lines)
    assert len(whole) <= limit + 1
    for i, c in enumerate(cells):
        if c in "A*":
            assert whole[i // per] in "A*"


# ---- what the commands say of themselves -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["llm_kv", "llm_requests", "llm_addr"])
def test_help_names_the_releases_that_are_read(name):
    module = importlib.import_module(f"gdbext.commands.{name}")
    command = {"llm_kv": "LlmKv", "llm_requests": "LlmRequests", "llm_addr": "LlmAddr"}[name]
    assert f"Reads {registry.kv_releases()}." in " ".join(getattr(module, command).__doc__.split())


def lent(cache, block):
    """A block of the last request's table is given back, as HiSparse does with a page whose copy on the host is whole."""
    pool = cache.pools[0]
    pool.ref_cnt[block] = 0
    append_again(cache, block)


@pytest.mark.parametrize("stray", [False, True])
def test_a_block_that_is_lent_may_be_free_in_a_table_and_no_other(stray):
    cache = healthy()
    block, other = [b for r in cache.requests for b in r.blocks.get(0, ()) if cache.pools[0].ref_cnt[b] == 1][:2]
    cache.pools[0].lent = {block}
    for one in (block, other) if stray else (block,):
        lent(cache, one)
    assert rules(cache)[0] == ([("free-owned", other)] if stray else [])


def test_what_may_be_free_in_a_table_is_not_judged_and_the_rest_is():
    """The same state is a fault of one manager, and how another one works; what holds of both is found in both."""
    first = healthy()
    table = next(r for r in first.requests if r.blocks.get(0))
    block = next(b for b in table.blocks[0] if first.pools[0].ref_cnt[b] == 1)
    for why in ("", "pages go to the host"):
        cache = healthy()
        cache.groups[0].unjudged = why
        cache.pools[0].may_pin = why
        lent(cache, block)
        found, report = rules(cache)
        assert found == ([] if why else [("free-owned", block)])
        assert [one.why for one in report.not_compared if "free-owned" in one.what] == ([f"not judged: {why}"] if why else [])
        cache.pools[0].ref_cnt[block] = -1
        assert ("negative-ref", block) in rules(cache)[0]
