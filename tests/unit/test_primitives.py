"""The table of primitives, and which code may end a wait: at the object itself or through classes around it, drawn."""

import random
from types import SimpleNamespace

import pytest

from gdbext.cpython import poll_calls
from gdbext.primitives import table
from gdbext.stacks.givers import may_end
from gdbext.stacks.ipc_locks import shared_name
from gdbext.stacks.python_waits import find, outer_place
from gdbext.stacks.waits import Edge

ROWS = [
    (row, way) for row in table.ROWS for way in row.ways if way.ends and any(how in ("is", "not") for how in way.asks.values())
]


def test_a_class_belongs_to_one_row_and_each_question_has_a_reader():
    classes = [name for row in table.ROWS for name in row.classes]
    assert len(classes) == len(set(classes)) > 25
    hows = {
        how for row in table.ROWS for how in [*row.attributes.values(), *(how for way in row.ways for how in way.asks.values())]
    }
    known = {"is", "not", "count", "nowait", "block", "block1", "timeout", "blocking", "awaits", ""}
    assert hows - known <= poll_calls.READERS.keys()
    assert all(way.ready in ("", "pending", "room") or way.ready in row.state for row in table.ROWS for way in row.ways)


def test_a_file_of_the_program_that_ends_like_a_librarys_is_its_own():
    mine = SimpleNamespace(file="/srv/app/jobs_queue.py", function="Queue.get", line=7)
    library = SimpleNamespace(file="/usr/lib/python3.12/queue.py", function="Queue.get", line=171)
    assert outer_place([library, mine], library) == "Queue.get (jobs_queue.py:7)"
    assert find([mine]) is None


def test_a_librarys_object_in_shared_memory_is_no_thread_that_waits():
    def frame(file, held, function="wait"):
        return SimpleNamespace(file=file, function=function, line=1, locals=lambda: [("self", held)])

    def held(kind, address):
        return SimpleNamespace(type=SimpleNamespace(is_heap=True), type_name=kind, address=address)

    event, runs = held("multiprocessing.synchronize.Event", 5), held("threading.Thread", 6)

    def called(*frames):
        return shared_name(SimpleNamespace(name_of=lambda frame, address: ""), SimpleNamespace(python=frames), 7)

    library, threads = "/lib/python3.12/multiprocessing/synchronize.py", "/lib/python3.12/threading.py"
    assert called(frame(library, event), frame(threads, runs, "run")) == "the Event 0x5, shared between processes"
    condition, barrier = held("Condition", 7), held("Barrier", 8)  # whose methods are those of the barrier of threads
    assert called(frame(library, condition), frame(threads, barrier)) == "the Barrier 0x8, shared between processes"


class Made:
    """As `References`: one frame whose variable leads to a primitive at address 1 through drawn classes around it."""

    def __init__(self, rng, way):
        self.steps = rng.sample(("_q", "inner", "backend", "slot"), rng.randrange(3))
        self.root = rng.choice(("box", "jobs"))
        self.end, self.ask = rng.choice(way.ends), next(call for call, how in way.asks.items() if how in ("is", "not"))
        self.paths = [".".join([self.root, *self.steps[:n]]) for n in range(len(self.steps) + 1)]

    def of_frame(self, frame):
        return [(path, path) for path in self.paths]

    def name_of(self, frame, address):
        return self.paths[-1]

    def names(self, frame):
        return frozenset(frame.names)

    def methods(self, obj):
        at = self.paths.index(obj)
        if at == len(self.steps):
            return {}
        last = at == len(self.steps) - 1
        calls = {"deliver": self.end, "peek": self.ask} if last else {"deliver": "deliver", "peek": "peek"}
        return {name: frozenset((self.steps[at], call)) for name, call in calls.items()}


@pytest.mark.parametrize("seed", range(40))
def test_code_may_end_a_wait_through_classes_around_it(seed):
    rng = random.Random(seed)
    row, way = rng.choice(ROWS)
    made = Made(rng, way)
    through = bool(made.steps)
    edge = Edge(("p", 1), "", row.kind, how=way.name if way.want else "", address=1)

    def may(*names):
        frame = SimpleNamespace(file="/srv/app/work_queue.py", names=names)
        return may_end(made, [frame], edge)

    assert may("sleep", "deliver" if through else made.end)
    assert not may("sleep", "peek" if through else made.ask)
    assert may(*made.steps, "sleep", made.end)
    assert may(*made.steps, "sleep")  # it has the very object at hand
    if through:
        made.root, made.paths = "self", ["self" + path[len(made.root) :] for path in made.paths]
        assert not may("sleep", "run")  # a round of its own work
        assert may("sleep", "deliver")
