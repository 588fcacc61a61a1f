"""What a worker's step goes by, over drawn states that are sound by construction, and over the same with one fault each: rows in
both directions, slots by place, the tables that attention reads, tokens, sampling."""

import random

import pytest
from harness.caches import healthy

from gdbext.access.fake import FakeTarget
from gdbext.access.retry import READINGS, agreeing
from gdbext.errors import ContradictionError
from gdbext.kvcache import invariants
from gdbext.kvcache.model import Cache, Group, Pool, Request, Row, Sent, Table, Worker

SIZE, ROWS = 16, 12


class State:
    """A scheduler's cache and its worker after a step, or with the counters of the next one already (`next`), which is the same
    for who reads them. Old rows and old columns hold what was there before."""

    def __init__(self, rnd, drafts):
        self.rnd, self.drafts, self.ids = rnd, drafts, iter(rnd.sample(range(1, 400), 399))
        shared = [next(self.ids) for _ in range(3)]
        self.cache = Cache("vllm", "0.32.0", [Pool("pool", 400, 400, SIZE)], [Group(0, "full", SIZE)], [])
        self.worker = Worker("TP0", ahead=1 + drafts, steps=3, every_row=True, vocabulary=256, sizes={0: SIZE})
        self.table = Table(0, SIZE, [], in_order=True)
        self.worker.tables = [self.table]
        self.sent = {}
        self.cache.sent = lambda request: self.sent[request.request_id]
        rows = rnd.sample(range(ROWS), rnd.randint(2, 6))
        self.steps = {}
        for number, row in enumerate(rows):
            self.add(f"r{number}", row, shared)
        self.table.former = [[next(self.ids) for _ in range(rnd.randint(1, 9))] for _ in range(rnd.randint(0, ROWS - len(rows)))]
        self.step()

    def add(self, name, row, shared):
        rnd = self.rnd
        prompt, output = rnd.randint(49, 120), rnd.choice((0, 3, 40))
        if output:
            taken = 1 + rnd.randint(0, self.drafts)
            begin, count = prompt + output - taken, 1 + self.drafts
        else:
            begin = rnd.randrange(48, prompt)
            count = rnd.randint(1, prompt - begin)
        blocks = list(shared) if rnd.random() < 0.5 else [next(self.ids) for _ in range(3)]
        blocks += [next(self.ids) for _ in range(-(-(begin + count) // SIZE) - 3)]
        request = Request(name, "RUNNING", "running", prompt, begin + count, output, {0: blocks}, address=1)
        self.cache.requests.append(request)
        mirror = begin if rnd.random() < 0.5 else begin + count
        mine = Row(row, prompt, prompt, mirror, prompt + output if output else prompt, {0: len(blocks)}, device=begin + 1)
        mine.tokens = [rnd.randrange(256) for _ in range(prompt)]
        mine.sampling = {"temperature": 0.5, "top_k": 256, "seed": rnd.randrange(1 << 40), "top_p": 0.8999999761581421}
        asked = {"temperature": 0.5, "top_k": rnd.choice((0, -1, 256, 999)), "seed": None, "top_p": 0.9}
        self.sent[name] = Sent(list(mine.tokens) + [7] * output, asked)
        self.worker.rows[name] = mine
        self.table.rows.append((name, list(blocks)))
        self.steps[name] = begin, count

    def step(self):
        rnd, blocks = self.rnd, dict(self.table.rows)
        order = rnd.sample(list(blocks), rnd.randint(1, len(blocks)))
        self.order = sorted(order, key=lambda name: self.steps[name][1])
        for name in self.order:
            begin, count = self.steps[name]
            places = range(begin, begin + count)
            self.table.slots += [blocks[name][place // SIZE] * SIZE + place % SIZE for place in places]
        width = max(map(len, [*blocks.values(), *self.table.former]))
        old = [[*rnd.choice([*blocks.values(), *self.table.former, [0]]), *rnd.sample(range(1, 400), width)] for _ in range(ROWS)]
        for number, name in enumerate(self.order):
            old[number][: len(blocks[name])] = blocks[name]
        self.table.gathered = [row[:width] for row in old]

    def report(self):
        return invariants.check(self.cache, [self.worker])


def states(count, drafts):
    return [State(random.Random(1000 * drafts + seed), drafts) for seed in range(count)]


@pytest.mark.parametrize("drafts", [0, 3])
def test_sound_steps_are_not_flagged_and_all_of_each_is_compared(drafts):
    for state in states(150, drafts):
        report = state.report()
        new = [v for v in report.violations if v.rule.startswith(("worker", "slot"))]
        assert not new, (new, state.order)
        (compared,) = report.compared
        assert compared.places == len(state.table.slots) and compared.gathered == len(state.order)
        assert compared.tokens == compared.sampling == len(state.worker.rows) and compared.without == ["copies"]


def lost(state, name):
    del state.worker.rows[name]
    state.table.rows = [(n, blocks) for n, blocks in state.table.rows if n != name]


def begun(state):
    return next((r.request_id for r in state.cache.requests if r.output_tokens), None)


def elsewhere(state, slot):
    """A slot of a step in a block that its request has computed, or in another one's."""
    other = state.rnd.choice([name for name, _ in state.table.rows])
    blocks = dict(state.table.rows)[other]
    block = blocks[state.rnd.randrange(len(blocks) - 1)]
    return block * SIZE + slot % SIZE if block != slot // SIZE else None


def one_slot(state):
    at = state.rnd.randrange(len(state.table.slots))
    new = elsewhere(state, state.table.slots[at])
    if new is None or new in state.table.slots or state.drafts:
        return None
    state.table.slots[at] = new
    return True


def one_copy(state):
    at = state.rnd.randrange(len(state.order))
    blocks = dict(state.table.rows)[state.order[at]]
    state.table.gathered[at][state.rnd.randrange(len(blocks))] = next(state.ids)
    return True


def swapped_copies(state):
    if len(state.order) < 2:
        return None
    rows = state.table.gathered
    rows[0], rows[1] = rows[1], rows[0]
    return True


def one_token(state):
    name = state.rnd.choice(list(state.worker.rows))
    tokens = state.worker.rows[name].tokens
    at = state.rnd.randrange(len(tokens))
    tokens[at] += 1
    return True


def one_parameter(state):
    name = state.rnd.choice(list(state.worker.rows))
    state.worker.rows[name].sampling[state.rnd.choice(("temperature", "top_k", "top_p"))] = 7
    return True


def lost_request(state):
    name = begun(state)
    if name is not None:
        lost(state, name)
        state.table.slots, state.table.gathered = [], []
    return name


FAULTS = {
    "slot-place": (one_slot,),
    "worker-copy": (one_copy, swapped_copies),
    "worker-tokens": (one_token,),
    "worker-sampling": (one_parameter,),
    "worker-rows": (lost_request,),
}


@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("rule", FAULTS)
def test_one_fault_in_a_step_is_told_by_its_rule(rule, drafts):
    planted = 0
    for plant in FAULTS[rule]:
        for state in states(40, drafts):
            if plant(state) is None:
                continue
            planted += 1
            assert rule in [v.rule for v in state.report().violations], (plant.__name__, state.order)
    assert planted > 10 or (rule, drafts) == ("slot-place", 3)


def test_what_attention_reads_is_compared_without_slots_too():
    """As with context parallelism: whose row is whose is told by what they hold, and what is old is not accused."""
    for state in states(60, 0):
        state.table.slots = []
        assert not [v for v in state.report().violations if v.rule == "worker-copy"], state.order
        name = next((n for n in state.order if n == begun(state)), None)
        if name is not None:
            del state.table.gathered[len(state.order) :]  # how many it had is known by query_start_loc
            state.table.gathered[state.order.index(name)][0] = next(state.ids)
            assert ("worker-copy", name) in [(v.rule, v.request_id) for v in state.report().violations]


def test_what_contradicts_itself_is_read_again_and_never_a_result():
    target, seen = FakeTarget({}), []

    def read():
        seen.append(len(seen))
        return seen[-1]

    target.is_stopped = False
    assert agreeing(target, read, lambda found: ["torn"] if found < 2 else []) == 2
    with pytest.raises(ContradictionError, match="torn"):
        agreeing(target, read, lambda found: ["torn"])
    assert len(seen) == 3 + READINGS
    target.is_stopped = True
    assert agreeing(target, read, lambda found: ["torn"]) == 3 + READINGS


def test_contradictions_of_a_cache_are_its_queue_counter_and_counts():
    cache = healthy()
    assert invariants.contradictions(cache) == []
    cache.pools[0].num_free = 167772166
    assert "the counter says 167772166 free blocks" in invariants.contradictions(cache)[0]
    cache = healthy()
    request = cache.requests[0]
    request.lead, request.in_flight, request.computed_tokens = 0, 0, request.prompt_tokens + request.output_tokens + 1
    assert "1 more tokens computed" in invariants.contradictions(cache)[-1]
    assert "request-counts" not in [v.rule for v in invariants.check(cache).violations]  # of one moment it may be so
    request.computed_tokens += 4
    assert "request-counts" in [v.rule for v in invariants.check(cache).violations]
    request.lead = 8
    assert invariants.contradictions(cache) == [] or "computed" not in invariants.contradictions(cache)[-1]
    request.forget_counts()
    assert request.excess == 0 and request.computed_tokens is None
