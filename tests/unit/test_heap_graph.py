"""Ways through made-up graphs against a search that is written here."""

import random

import pytest

from gdbext.heap.graph import FEW, ROOT, UNREACHED, Ways
from gdbext.heap.model import Heap

numpy = pytest.importorskip("numpy")


def heap_of(edges):
    """A `Heap` whose node i refers to `edges[i]`."""
    heap = Heap(None, numpy)
    begin, targets = [0], []
    for own in edges:
        targets += own
        begin.append(len(targets))
    heap.addresses = numpy.arange(len(edges))
    heap.begin, heap.targets = numpy.array(begin, dtype=numpy.int32), numpy.array(targets, dtype=numpy.int32)
    return heap


def distances(edges, roots):
    found, level = dict.fromkeys(roots, 0), list(roots)
    while level:
        level = [node for at in level for node in edges[at] if found.setdefault(node, found[at] + 1) == found[at] + 1]
    return found


def levels(ways):
    return [sorted({int(node) for node in level}) for level in ways.levels]


def graphs():
    """{what it is: (edges, roots)}: also those of small programs, where all nodes of a level refer to nothing."""
    many = 3 * FEW
    star = [list(range(1, many)), *([] for _ in range(many - 1))]
    yield "nothing", ([], [])
    yield "nobody is a root", (star, [])
    yield "all are roots, none refers to any", ([[] for _ in range(many)], range(many))
    yield "a star", (star, [0])
    yield "exactly FEW", ([list(range(1, FEW + 1)), *([] for _ in range(FEW))], [0])
    yield "all refer to one root", ([[0] for _ in range(many)], range(many))
    yield "a circle", ([[(i + 1) % many] for i in range(many)], [0])
    for seed in range(12):
        rng = random.Random(seed)
        count = rng.choice((60, 200, 1000))
        edges = [[rng.randrange(count) for _ in range(rng.choice((0, 0, 0, 1, 9)))] for _ in range(count)]
        yield f"seed {seed}", (edges, rng.sample(range(count), rng.choice((1, FEW, 60))))


@pytest.mark.parametrize("edges,roots", [pytest.param(*graph, id=name) for name, graph in graphs()])
def test_levels_parents_and_sums_are_those_of_a_plain_search(edges, roots):
    heap = heap_of(edges)
    ways, far = Ways(heap, roots), distances(edges, roots)
    assert levels(ways) == [sorted(n for n in far if far[n] == i) for i in range(len(set(far.values())))]
    for node, parent in enumerate(int(p) for p in ways.parents):
        if node in far and far[node]:
            assert node in edges[parent] and far[parent] + 1 == far[node]
        else:
            assert parent == (ROOT if node in far else UNREACHED)
    total = ways.gather(numpy.ones(len(edges), dtype=numpy.int64))
    assert sum(int(total[root]) for root in far if not far[root]) == len(far)
    under = ways.below(list(roots))
    assert [bool(u) for u in under] == [bool(far.get(node)) for node in range(len(edges))]
    assert all(node in [e for h in ways.holders(node) for e in edges[h]] for node in far if far[node])
