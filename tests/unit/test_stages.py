"""Pipeline stages and expert-parallel groups over machines, made up: each rank meets the others of its stage in one
group, those of its column in another, by messages, and all in a third, the experts'. Who stands is known by construction."""

import random

import pytest
from harness.facts import C10D, SLEEP, inside, process, python

from gdbext.stacks.waits import Edge
from gdbext.torch.collectives import Count
from gdbext.verdict.judge import judge

RING = python("acquire_read", "dequeue", file="/x/vllm/distributed/device_communicators/shm_broadcast.py")
PARALLEL = "/x/vllm/distributed/parallel_state.py"


class Model:
    """Ranks of `stages` by `width`, one stage a machine: `rank(stage, place)` is a worker at rest that has done `step` steps."""

    def __init__(self, stages, width, step=7):
        self.stages, self.width, self.step = stages, width, step
        self.ranks = [self._worker(stage, place) for stage in range(stages) for place in range(width)]

    def __call__(self, stage, place):
        return self.ranks[stage * self.width + place]

    def _worker(self, stage, place):
        found = process(f"PP{stage}.TP{place}", RING)
        found.engine, found.job, found.node = "vllm", "10.0.0.1:29500", f"n{stage}"
        number, size = stage * self.width + place, self.stages * self.width
        default = Count(f"gloo group 0 ({size} ranks)", number, size, {"": 0}, default=True)
        messages = self.step * ((stage > 0) + (stage < self.stages - 1))
        column = Count(f"gloo group 2{place} ({self.stages} ranks)", stage, self.stages, {"": messages})
        row = Count(f"gloo group 1{stage} ({self.width} ranks)", place, self.width, {"": self.step})
        experts = Count(f"gloo group 3 ({size} ranks)", number, size, {"": self.step})
        found.counts = [default, column, row, experts]
        found.links = {"all"}
        return found

    def meets(self, found, which, op="all_reduce"):
        """It has begun one more in its row (2) or among the experts (3), and waits there."""
        main, count = found.threads[0], found.counts[which]
        main.frames, main.group = inside(op), count.group
        count.begun = {"": count.begun[""] + 1}

    def receives(self, found, peer):
        """It waits for a message of another rank."""
        main, count = found.threads[0], found.counts[1]
        main.frames = [*python("recv", file=C10D), *python("recv_tensor_dict", file=PARALLEL), *python("execute_model")]
        main.group, main.peer = count.group, peer.counts[0].rank
        count.begun = {"": count.begun[""] + 1}


def stands(found, draw):
    main = found.threads[0]
    main.frames = python("throttle", "execute_model")
    if draw.random() < 0.5:
        main.native = SLEEP
    else:
        main.edge = Edge(main.node, "the Lock self.lock", "Lock")


def lived(kind, model, draw):
    """-> the rank that is to blame, None where none is."""
    at, place = draw.randrange(model.stages), draw.randrange(model.width)
    odd = model(at, place)
    if kind == "rest":
        return None
    if kind == "experts":  # a rank does not come to the experts' exchange
        for one in model.ranks:
            model.meets(one, 3, "all_to_all_single") if one is not odd else stands(odd, draw)
        return odd
    if kind == "experts' network":
        for one in model.ranks:
            model.meets(one, 3, "all_to_all_single")
        return None
    if kind == "message":  # what a stage has sent does not arrive: it rests, and the next waits
        at = draw.randrange(1, model.stages)
        model.receives(model(at, place), model(at - 1, place))
        for other in range(model.width):
            if other != place:
                model.meets(model(at, other), 2)
        for stage in range(at + 1, model.stages):
            for column in range(model.width):
                model.receives(model(stage, column), model(stage - 1, column))
        return None
    for column in range(model.width):  # a rank of a stage stands, its row waits for it, the later stages for what it sends
        if column != place:
            model.meets(model(at, column), 2)
        for stage in range(at + 1, model.stages):
            model.receives(model(stage, column), model(stage - 1, column))
    stands(odd, draw)
    return odd


KINDS = ("rest", "stage", "message", "experts", "experts' network")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_who_stands_is_named_and_nobody_who_has_sent_or_rests(kind, seed):
    draw = random.Random(f"{kind} {seed}")
    model = Model(draw.choice([2, 3, 4]), draw.choice([2, 3]))
    odd = lived(kind, model, draw)
    draw.shuffle(model.ranks)
    (said,) = judge(model.ranks)
    if odd is None:
        assert said.kind in ("unknown", "idle") and not said.culprits, (said, said.evidence)
    else:
        assert said.kind == "collective" and [node[0] for node in said.culprits] == [odd.name], (said, said.evidence)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_without_one_machine_no_other_is_accused_and_it_is_named(kind, seed):
    draw = random.Random(f"without {kind} {seed}")
    model = Model(draw.choice([2, 3, 4]), draw.choice([2, 3]))
    odd = lived(kind, model, draw)
    silent = draw.randrange(model.stages)
    asked = [one for one in model.ranks if one.node != f"n{silent}"]
    for said in judge(asked):
        accused = [node[0] for node in said.culprits]
        assert accused in ([], [odd.name] if odd is not None else []), (said, said.evidence)
        assert said.kind != "busy"
        if kind.startswith("experts") and (odd is None or odd not in asked):
            gone = [one.counts[0].rank for one in model.ranks if one not in asked]
            name = model.ranks[0].counts[3].group
            assert said.not_asked == [f"rank {n} of {name}" for n in gone], (said, said.evidence)


class Attention:
    """SGLang's schedulers with data-parallel attention, `replicas` of `width`: each replica hands out its requests in a group of
    its own; all meet in `prepare_mlp_sync_batch`, whose counts of waiting requests differ, then in the forward of the experts."""

    def __init__(self, replicas, width, step=9):
        self.width, size = width, replicas * width
        self.ranks = []
        for number in range(size):
            replica, place = divmod(number, width)
            found = process(f"DP{replica}.TP{place}", role="scheduler", moved=False)
            found.engine, found.job, found.node, found.replica = "sglang", "10.0.0.1:5000", f"n{replica}", replica
            found.links = {"all"}
            found.counts = [
                Count(f"gloo group 0 ({size} ranks)", number, size, {"": 2}, default=True),
                Count(f"gloo group 4{replica} ({width} ranks)", place, width, {"": step}),
                Count(f"gloo group 5 ({size} ranks)", number, size, {"": step}),
                Count(f"gloo group 6 ({size} ranks)", number, size, {"": step}),
            ]
            self.ranks.append(found)

    def waits(self, found, which, *callers):
        main, count = found.threads[0], found.counts[which]
        main.frames = [*inside({1: "broadcast", 2: "all_gather_into_tensor", 3: "all_reduce"}[which])[:2], *python(*callers)]
        main.group, count.begun = count.group, {"": count.begun[""] + 1}

    def syncs(self, found):
        self.waits(found, 2, "prepare_mlp_sync_batch_raw", "prepare_mlp_sync_batch", "event_loop_normal")


@pytest.mark.parametrize("kind", ["stands", "forward without the others", "network"])
@pytest.mark.parametrize("seed", range(8))
def test_a_rank_whose_queue_is_of_another_length_is_awaited_where_all_meet(kind, seed):
    draw = random.Random(f"{kind} {seed}")
    model = Attention(draw.choice([2, 3]), draw.choice([1, 2]))
    odd = draw.choice(model.ranks)
    for one in model.ranks:
        if kind == "network" or one.replica != odd.replica:
            model.syncs(one)
        elif kind != "stands":  # its replica has taken no part in the sync, and runs a batch by itself
            model.waits(one, 3, "forward", "run_batch", "event_loop_normal")
        elif one is not odd:  # it waits for the requests that the odd one is to hand out
            model.waits(one, 1, "recv_requests", "event_loop_normal")
    if kind == "stands":
        stands(odd, draw)
    draw.shuffle(model.ranks)
    (said,) = judge(model.ranks)
    accused = {node[0] for node in said.culprits}
    if kind == "network":
        assert said.kind == "unknown" and not accused, (said, said.evidence)
    elif kind == "stands":
        assert said.kind == "collective" and accused == {odd.name}, (said, said.evidence)
    else:
        assert said.kind == "collective" and any(one.name in accused for one in model.ranks if one.replica == odd.replica), said
    without = [one for one in model.ranks if one.replica != odd.replica]
    for said in judge(without):
        assert not said.culprits and said.kind == "unknown" and said.not_asked, (said, said.evidence)
