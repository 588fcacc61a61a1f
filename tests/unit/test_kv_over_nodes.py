"""llm-kv check -ranks over machines: engines drawn by a seed, whose schedulers and workers are on several of them. They are read
while they move, at moments that differ. What is wrong is put in by hand: that is found, on the right worker, and nothing else."""

import json
import random

import pytest
from harness.caches import link

from gdbext import __version__
from gdbext.answers import kv_nodes
from gdbext.engines.kv_facts import READINGS, SCHEMA
from gdbext.errors import GdbextError
from gdbext.kvcache import exchange
from gdbext.kvcache.model import Cache, Group, Pool, Request, Row, Table, Worker
from gdbext.kvcache.rules import WORKER_COPY, WORKER_ROWS
from gdbext.render.text import PLAIN

SIZE, BLOCKS, FOR = 16, 4096, 2.0
FAULTS = {"table": "worker-table", "rows": "worker-rows", "prompt": "worker-length", "range": "worker-range"}


class Made:
    """An engine whose state at each step is known: requests come, grow by a token a step, go, and their blocks are others' then.
    "still" grows no more. `pace`: steps between two readings, 0 for one that is at rest or stands."""

    def __init__(self, draw, number):
        self.draw, self.number = draw, number
        self.pace, self.lag = draw.choice([0, 0, 1, 7, 60]), draw.randrange(3)
        self.prompts = [draw.randrange(20, 200) for _ in range(40)]
        self.order = draw.sample(range(1, BLOCKS), BLOCKS - 1)

    def requests(self, step):
        """[(name, prompt, tokens, blocks, row)] at a step: ten slots, whose requests last as many steps as their prompts have
        tokens; each slot keeps its blocks."""
        found = [("still", 50, 80, self.order[:5], 0)]
        for slot in range(1, 10):
            length = self.prompts[slot]
            turn, age = divmod(step + 31 * slot, length + 40)
            prompt = self.prompts[(slot + turn) % 40]
            blocks = self.order[100 * slot + turn % 7 :][: -(-(prompt + age) // SIZE)]
            found.append((f"r{slot}-{turn}", prompt, prompt + age, blocks, slot))
        return found

    def cache(self, step):
        pool = Pool("pool", BLOCKS, BLOCKS, SIZE)
        link(pool, range(1, BLOCKS))
        requests = [
            Request(name, "RUNNING", "running", prompt, tokens, tokens - prompt, {0: blocks}, row=row)
            for name, prompt, tokens, blocks, row in self.requests(step)
        ]
        return Cache("vllm", "0.32", [pool], [Group(0, "full", SIZE)], requests)

    def worker(self, step, label, fault):
        of = {name: one for name, *one in self.requests(max(0, step - self.lag))}
        rows = {name: Row(row, prompt, None, tokens) for name, (prompt, tokens, _, row) in of.items()}
        tables = {name: list(blocks) for name, (_, _, blocks, _) in of.items()}
        if fault == "table":
            tables["still"][2] += 1
        elif fault == "range":
            tables["still"][0] = BLOCKS + 5
        elif fault == "rows":
            rows["still"].row = 11
        elif fault == "prompt":
            rows["still"].prompt += 1
        return Worker(label, tables=[Table(0, SIZE, list(tables.items()))], rows=rows)


class Drawn:
    """Machines with one to three engines. All engines have the same size, and labels of the same names."""

    def __init__(self, seed):
        self.draw = draw = random.Random(seed)
        self.nodes = [f"n{number}" for number in range(draw.randrange(2, 5))]
        self.members = {node: [] for node in self.nodes}
        self.truth, self.sent = set(), set()  # (node, label, rule) of what is wrong; (node, label) of what has to be compared
        self.lacking = set()  # (node, label) of workers without a scheduler
        self.ways = {node: draw.random() / 4 for node in self.nodes}
        ranks = draw.choice([2, 4])
        self.heads = draw.sample(self.nodes, draw.randrange(1, len(self.nodes) + 1))
        self.shared = draw.random() < 0.3  # the engines are data-parallel replicas of one job
        for number, head in enumerate(self.heads):
            self.engine(number, head, ranks)

    def engine(self, number, head, ranks):
        draw, made = self.draw, Made(self.draw, number)
        asked = draw.random() < 0.85
        keys = ["10.0.0.1:29500" if self.shared else f"10.0.0.1:{29500 + number}"]
        replicas = {"dp": number, "dp_size": max(2, len(self.heads))} if self.shared else {"dp": None, "dp_size": 1}
        base = 1000 + draw.randrange(500)
        if asked:
            states, times = self.read(made, base, draw.random() * FOR / 2, made.cache)
            caches = [exchange.cache_data(state, False) for state in states]
            self.add(head, "EngineCore", True, [*keys, f"vLLM {number}"], times, caches=caches, dp=replicas["dp"])
        for rank in range(ranks):
            node, label = draw.choice(self.nodes), f"TP{rank}" if draw.random() < 0.5 else f"E{number}.TP{rank}"
            fault = draw.choice([None, None, *FAULTS])
            late = draw.random() * FOR / 2 if draw.random() < 0.8 else 3 * FOR
            states, times = self.read(made, base, late, lambda step, name=label, how=fault: made.worker(step, name, how))
            place = {"rank": rank + (ranks * number if self.shared else 0), **replicas}
            place["size"] = ranks * (replicas["dp_size"] if self.shared else 1)
            here = asked and node == head  # compared there
            data = [] if here else [exchange.worker_data(state) for state in states]
            if any(one["label"] == label for one in self.members[node]):
                label += f"#{number}"
            self.add(node, label, False, keys, times, workers=data, **place)
            if not here and asked and late < FOR:
                self.sent.add((node, label))
                if fault:
                    self.truth.add((node, label, FAULTS[fault]))
            elif not here:
                self.lacking.add((node, label))

    def read(self, made, base, late, state):
        """-> (what is read, the seconds between which it was). `late`: seconds after the first machine began."""
        steps = [base + round((late / FOR) * made.pace * READINGS) + made.pace * n for n in range(READINGS)]
        return [state(step) for step in steps], (late + 0.1, late + FOR)

    def add(self, node, label, schedules, keys, times, caches=(), workers=(), **more):
        began, ended = (at - self.ways[node] / 2 for at in times)
        about = {"rank": None, "size": None, "dp": None, "dp_size": 0, "keys": keys, "why": "", **more}
        states = {"caches": unlike(caches), "workers": unlike(workers)}
        one = {"label": label, "pid": 1, "engine": "vllm", "schedules": schedules, "began": began, "ended": ended}
        self.members[node].append({**one, **states, **about})

    def answers(self):
        return [(f"ssh:{node}", answer(self.members[node], self.ways[node])) for node in self.nodes]


def unlike(states):
    return [one for number, one in enumerate(states) if one not in states[:number]]


def answer(members, way=0.0, **more):
    scheduler = any(one["schedules"] for one in members)
    local = {"label": "scheduler", "pools": 1, "blocks": 100, "requests": 2}
    lists = {"violations": [], "passing": [], "changed": [], "compared": [local] if scheduler else [], "not_compared": []}
    about = {"ok": True if scheduler else None, "blocks": 100 * scheduler, "engine": "vllm", "version": "0.32"}
    facts = {"schema": SCHEMA, "version": __version__, "host": "h", "members": members}
    moments = {"told": 0.0, "way": way}
    made = {**about, "mid_update": False, "ranks": [], **lists, "facts": facts, "moments": moments, **more}
    return json.loads(json.dumps(made))


def said(data):
    """The same in all answers but for what is counted."""
    return {(one["node"], one["rank"], one["rule"]) for one in data["violations"]}


@pytest.mark.parametrize("seed", range(7100, 7160))
def test_what_is_wrong_is_found_on_its_worker_and_nothing_else(seed):
    drawn = Drawn(seed)
    data, partial = kv_nodes.merged(drawn.answers(), [], True)
    named = {(node, rank) for node, rank, _ in said(data)}
    assert named <= {(node, label.partition("#")[0]) for node, label, _ in drawn.truth} | {place[:2] for place in drawn.truth}, (
        data
    )
    assert {place[:2] for place in drawn.truth} <= named, (drawn.truth, data["violations"], data["not_compared"])
    wrong = {rule for _, _, rule in said(data)}
    assert wrong <= {rule for *_, rule in drawn.truth} | {"worker-table"}, (
        wrong
    )  # a block out of range is also not the scheduler's
    compared = {(one["node"], one["label"]) for one in data["compared"] if "rows" in one}
    assert compared == drawn.sent
    left = {
        (one["node"], one["label"])
        for one in data["not_compared"]
        if one["what"] == "block tables" and "rank" not in one["label"]
    }
    assert left == drawn.lacking, (left, drawn.lacking)
    assert not data["changed"], data["changed"]
    assert data["ok"] is (False if drawn.truth else None if not compared or worst(data) is None else True)
    assert bool(partial) >= bool(drawn.lacking)
    assert kv_nodes.lines(data, PLAIN)


def worst(data):
    return None if any(one["ok"] is None for one in data["nodes"]) else True


def two(fault=None, **more):
    """A scheduler on n0 and two workers on n1."""
    made, drawn = Made(random.Random(3), 0), Drawn(1)
    drawn.members, drawn.ways = {"n0": [], "n1": []}, {"n0": 0.0, "n1": 0.0}
    caches = [exchange.cache_data(made.cache(1000 + n), False) for n in range(3)]
    drawn.add("n0", "EngineCore", True, ["s:1"], (0.1, 2.0), caches=caches)
    for rank in range(2):
        states = [exchange.worker_data(made.worker(1000 + n, f"TP{rank}", fault if rank else None)) for n in range(3)]
        place = {"rank": rank, "size": 2, "dp_size": 1, **more}
        drawn.add("n1", f"TP{rank}", False, place.pop("keys", ["s:1"]), (0.1, 2.0), workers=states, **place)
    return drawn


def test_workers_of_another_machine_are_compared_as_on_one():
    drawn = two("table")
    data, partial = kv_nodes.merged([(f"ssh:{n}", answer(drawn.members[n])) for n in ("n0", "n1")], [], True)
    (fault,) = data["violations"]
    assert (fault["rule"], fault["request_id"], fault["rank"], fault["node"]) == ("worker-table", "still", "TP1", "n1")
    assert data["ok"] is False and data["ranks"] == ["TP0", "TP1"] and not partial and not data["not_compared"]
    text = kv_nodes.lines(data, PLAIN)
    assert text[1] == "ssh:n1  vllm 0.32: no scheduler, workers alone: 1 faults" and "compared: TP0: 9 rows" in text[2], text
    well = two()
    data, partial = kv_nodes.merged([(f"ssh:{n}", answer(well.members[n])) for n in ("n0", "n1")], [], True)
    assert data["ok"] is True and [n["ok"] for n in data["nodes"]] == [True, True] and not partial


@pytest.mark.parametrize(
    "more, why",
    [
        ({"keys": ["s:2"]}, "its scheduler is not among"),
        ({"keys": []}, "nothing says which job"),
        ({"dp": 1, "dp_size": 2}, "its scheduler is not among"),
    ],
)
def test_a_worker_of_another_job_is_compared_with_none(more, why):
    drawn = two("table", **more)
    data, partial = kv_nodes.merged([(f"ssh:{n}", answer(drawn.members[n])) for n in ("n0", "n1")], [], True)
    assert not data["violations"] and data["ok"] is None and data["ranks"] == []
    assert {(one["node"], one["label"]) for one in data["not_compared"]} == {("n1", "TP0"), ("n1", "TP1")}
    assert all(why in one["why"] for one in data["not_compared"]) and len(partial) == 2


def test_ranks_that_no_machine_has_are_named_also_of_one_that_failed():
    drawn = two()
    del drawn.members["n1"][0]
    failed = [{"label": "ssh:n2", "pid": None, "reason": "No route"}]
    data, partial = kv_nodes.merged([(f"ssh:{n}", answer(drawn.members[n])) for n in ("n0", "n1")], failed, True)
    assert data["ok"] is None and "ssh:n2: No route" in partial and data["ranks"] == ["TP1"]
    assert [(one["node"], one["label"]) for one in data["not_compared"]] == [("n0", "rank 0 of 2")]


def test_two_schedulers_of_one_store_are_not_guessed_between():
    drawn = two("table")
    other = json.loads(json.dumps(drawn.members["n0"][0]))
    data, _ = kv_nodes.merged(
        [("ssh:n0", answer(drawn.members["n0"])), ("ssh:n1", answer(drawn.members["n1"])), ("ssh:n2", answer([other]))], [], True
    )
    assert not data["violations"] and all(
        "it may be of n0:EngineCore or of n2:EngineCore" in o["why"] for o in data["not_compared"]
    )


@pytest.mark.parametrize("fault", [None, "table"])
def test_schedulers_of_all_ranks_are_compared_with_that_of_rank_0(fault):
    """SGLang: each rank keeps a scheduler with a prefix tree of its own, and each machine has compared its own ranks."""
    made, drawn = Made(random.Random(4), 0), Drawn(1)
    drawn.members = {"n0": [], "n1": []}
    for rank in range(4):
        node = f"n{rank // 2}"
        caches = [exchange.cache_data(made.cache(500), True)] * (rank % 2 == 0)
        worker = made.worker(500, f"TP{rank}", fault if rank == 3 else None)
        worker.own_tree = True
        place = {"caches": caches, "workers": [exchange.worker_data(worker)], "rank": rank, "size": 4, "dp_size": 1}
        drawn.add(node, f"TP{rank}", rank % 2 == 0, ["s:1"], (0.3, 2.0), **place)
    data, partial = kv_nodes.merged([(f"ssh:{n}", answer(drawn.members[n])) for n in ("n0", "n1")], [], True)
    assert [(one["node"], one["label"]) for one in data["compared"] if "rows" in one] == [("n1", "TP2"), ("n1", "TP3")]
    assert {(v["rank"], v["rule"]) for v in data["violations"]} == ({("TP3", "worker-table")} if fault else set())
    assert data["ok"] is (not fault) and not data["not_compared"] and not partial


@pytest.mark.parametrize("rule, judged", [(WORKER_COPY, 9), (WORKER_COPY, 0), (WORKER_ROWS, 9)])
@pytest.mark.parametrize("torn", [1, 2, 3])
def test_what_a_worker_says_of_itself_is_a_fault_if_each_state_does(rule, judged, torn):
    """`judged`: copies that the states compared which do not say so; 0: they prepared their next step."""
    drawn, made = two(), Made(random.Random(3), 0)
    states = [made.worker(1000 + n, "TP0", None) for n in range(3)]
    for number, state in enumerate(states):
        says = number < torn
        state.copies = 9 if says else judged
        state.faults = [(rule, "still", "num_blocks of still (row 0): 11 on the host, 10 for the device")] * says
    drawn.members["n1"][0]["workers"] = [exchange.worker_data(state) for state in states]
    data, _ = kv_nodes.merged([(f"ssh:{n}", answer(drawn.members[n])) for n in ("n0", "n1")], [], True)
    fault, unsure = torn == 3 or torn == 2 and not judged, torn == 1 and not judged
    assert [v["rule"] for v in data["violations"]] == [rule.name] * fault, data
    assert [v["rule"] for v in data["changed"]] == [rule.name] * unsure and data["ok"] is (None if unsure else not fault)


def test_without_a_time_in_common_nothing_is_compared():
    drawn = two("table")
    for moments, why in (({"told": 9.0, "way": 0.1}, "ask again"), ({"told": 0.0, "way": None}, "not known when")):
        answers = [("ssh:n0", answer(drawn.members["n0"])), ("ssh:n1", answer(drawn.members["n1"], moments=moments))]
        data, _ = kv_nodes.merged(answers, [], True)
        assert not data["violations"] and data["ok"] is None and all(why in one["why"] for one in data["not_compared"])


HARMS = {
    "no facts": lambda a: a.pop("facts"),
    "schema": lambda a: a["facts"].update(schema="llm-kv-tables/9"),
    "release": lambda a: a["facts"].update(version="0.1"),
    "members": lambda a: a["facts"].update(members=3),
    "label": lambda a: a["facts"]["members"][0].update(label=None),
    "rows": lambda a: a["facts"]["members"][0]["workers"][0]["tables"][0].update(rows=[5]),
    "a long run": lambda a: a["facts"]["members"][0]["workers"][0]["tables"][0].update(slots={"r": [0, 1 << 40]}),
    "a run of none": lambda a: a["facts"]["members"][0]["workers"][0]["tables"][0].update(
        slots={"r": [0, 1 << 40, 0, -(1 << 40)]}
    ),
    "half a run": lambda a: a["facts"]["members"][0]["workers"][0]["tables"][0].update(slots={"r": [7]}),
    "a rule": lambda a: a["facts"]["members"][0]["workers"][0].update(faults=[{"t": ["no-rule", "r", "x"]}]),
    "sizes": lambda a: a["facts"]["members"][0]["workers"][0].update(sizes={"d": [[1, 2, 3]]}),
    "block size": lambda a: a["facts"]["members"][0]["workers"][0]["tables"][0].update(block_size=1 << 40),
    "counts": lambda a: a["facts"]["members"][0]["workers"][0]["rows"]["d"][0][1].update(computed="many"),
}


@pytest.mark.parametrize("name", HARMS)
def test_damaged_tables_are_named_and_the_others_stay(name):
    drawn, failed = two("table"), []
    harmed = answer(drawn.members["n1"])
    HARMS[name](harmed)
    data, partial = kv_nodes.merged([("ssh:n0", answer(drawn.members["n0"])), ("ssh:n1", harmed)], failed, True)
    assert [f["label"] for f in failed] == ["ssh:n1"] and data["ok"] is None and len(partial) == 1, (failed, partial)
    assert any(word in failed[0]["reason"] for word in ("release", "damaged", "the answer", "its facts")), failed
    with pytest.raises(GdbextError):
        kv_nodes.merged([("ssh:n1", harmed)], [], True)


def test_ids_come_back_as_they_were_sent():
    draw = random.Random(5)
    for _ in range(50):
        made = Made(draw, 0)
        cache, worker = made.cache(draw.randrange(3000)), made.worker(draw.randrange(3000), "TP0", None)
        worker.tables[0].slots = [draw.choice([-1, draw.randrange(9)]) for _ in range(20)]
        (again,) = exchange.caches_of(json.loads(json.dumps([exchange.cache_data(cache, True)])))
        for request in cache.requests:
            request.status = ""  # no rule asks for it
        assert again.requests == cache.requests and again.groups == cache.groups
        assert list(again.pools[0].free_bits()) == list(cache.pools[0].free_bits())
        (back,) = exchange.workers_of(json.loads(json.dumps([exchange.worker_data(worker)])), "TP0")
        assert (back.tables, back.rows) == (worker.tables, worker.rows)
