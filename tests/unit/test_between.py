"""Two moments compared: processes that belong together, threads, memory, types, requests, by truths that were drawn first."""

import random
from types import SimpleNamespace

import pytest
from harness import work

from gdbext.access.snapshot import CoreFileTarget
from gdbext.answers import difference
from gdbext.render.text import Style
from gdbext.timeline import between
from gdbext.timeline.between import CAME, GONE, MOVED, STILL, Moment, Thread


def drawn_stack(rng):
    return [(rng.choice("fgh"), "x.py", rng.randrange(1, 9)) for _ in range(rng.randrange(1, 5))]


@pytest.mark.parametrize("seed", range(60))
def test_each_thread_is_what_was_drawn_for_it(seed):
    """The same process: by tid, whatever names and order; another: by name."""
    rng = random.Random(seed)
    same, truth, old, new = rng.random() < 0.6, {}, [], []
    for tid in rng.sample(range(1, 500), rng.randrange(1, 30)):
        name, change, stack = (
            rng.choice("ab") if same else f"n{tid}",
            rng.choice((CAME, GONE, MOVED, STILL, "")),
            drawn_stack(rng),
        )
        truth[tid if same else name] = change
        ran = rng.random()
        if change != CAME:
            old.append(Thread(tid, name, stack, change != "", 1.0))
        if change != GONE:
            later = [*stack[:-1], ("other", "y.py", 1)] if change == MOVED else stack
            new.append(Thread(tid if same else tid + 1000, name, later, True, 1.0 + ran))
    rng.shuffle(new)
    identity = ("boot", 7, 1)
    one = Moment("7", 7, identity, old)
    other = Moment("7", 7, identity if same else ("boot", 7, 2), new)
    found = list(between.threads(one, other))
    assert {(t.tid if same else t.name): t.change for t in found} == truth and len(found) == len(truth)
    for t in found:
        assert (t.cpu is not None) == (same and t.change not in (CAME, GONE)) and (t.cpu is None or 0 <= t.cpu <= 1)
        assert t.change != MOVED or t.after == ("other", "y.py", 1)


@pytest.mark.parametrize("seed", range(40))
def test_processes_that_belong_together_are_compared(seed):
    rng = random.Random(seed)
    labels = rng.sample(["TP0", "TP1", "TP2", "EngineCore", "server", "DP1.TP0"], rng.randrange(2, 6))
    restarted = {label for label in labels if rng.random() < 0.3}
    before = [Moment(label, 10 + i, ("b", 10 + i, 1)) for i, label in enumerate(labels)]
    after = [Moment(label, 10 + i, ("b", 10 + i, 2 if label in restarted else 1)) for i, label in enumerate(labels)]
    gone, fresh = after.pop(rng.randrange(len(after))).label, Moment("new", 99, ("b", 99, 1))
    after.append(fresh)
    rng.shuffle(after)
    pairs = list(between.paired(before, after))
    both = {a.label: (b.label, between.is_same(a, b)) for a, b in pairs if a and b}
    assert both == {label: (label, label not in restarted) for label in labels if label != gone}
    assert [(a.label if a else "", b.label if b else "") for a, b in pairs if not (a and b)] == [(gone, ""), ("", "new")]


@pytest.mark.parametrize("lacks", ["boot", "pid", "start", "process", ""])
@pytest.mark.parametrize("odd", [None, [1], {"a": 1}, 1.5, True])
def test_a_note_that_lacks_something_proves_no_process(lacks, odd):
    """Of a snapshot that somebody has changed: left out, or of another kind."""
    told = {"boot": "b", "pid": 7, "start": 1}
    for changed in ({k: v for k, v in told.items() if k != lacks}, {**told, lacks: odd}):
        note = {"process": odd if lacks == "process" else changed}
        found = CoreFileTarget.process(SimpleNamespace(note=note))
        assert found == (() if lacks else ("b", 7, 1))


def by_each_pair(before, after):
    """What `paired` says, by trying each with each."""
    left, found, rest = list(after), [], []
    for one in before:
        same = [o for o in left if one.identity and o.identity == one.identity]
        like = [o for o in left if o.label == one.label and not (one.identity and o.identity)]
        for twin in (same or like)[:1]:
            found.append((one, twin))
            left = [o for o in left if o is not twin]
        rest += [] if same or like else [one]
    alone = []
    for one in rest:
        like = [o for o in left if o.label == one.label] or left * (len(before) == len(after) == 1)
        found += [(one, o) for o in like[:1]]
        alone += [] if like else [(one, None)]
        left = [o for o in left if not like or o is not like[0]]
    return [*found, *alone, *((None, o) for o in left)]


@pytest.mark.parametrize("seed", range(80))
def test_pairs_are_those_of_trying_each_with_each(seed):
    draw = random.Random(seed)

    def moments():
        many = range(draw.choice([1, 1, 2, 9]))
        return [Moment(draw.choice(["", "a", "b"]), n, draw.choice([(), ("b", draw.randrange(4), 1)])) for n in many]

    before, after = moments(), moments()
    found = list(between.paired(before, after))
    assert [tuple(map(id, pair)) for pair in found] == [tuple(map(id, pair)) for pair in by_each_pair(before, after)]


@pytest.mark.parametrize("kind", ["threads", "processes", "labels"])
def test_twice_as_many_of_one_name_take_twice_as_long(kind):
    def steps(n):
        label = (lambda i: "python") if kind != "labels" else (lambda i: f"p{i}")
        threads = [Thread(i, "python", [("f", "x", 1)]) for i in range(n if kind == "threads" else 1)]
        moments = [Moment(label(i), i, (), threads) for i in range(n if kind != "threads" else 1)]
        return work.lines_of(lambda: [list(between.threads(a, b)) for a, b in between.paired(moments, moments[::-1])])

    assert steps(600) < 2.5 * steps(300)


def test_two_processes_of_other_names_are_compared_where_each_is_alone():
    assert [(a.label, b.label) for a, b in between.paired([Moment("7", 7)], [Moment("8", 8)])] == [("7", "8")]
    assert len(list(between.paired([Moment("7", 7), Moment("6", 6)], [Moment("8", 8)]))) == 3


def test_what_grew_and_which_requests_came():
    one = Moment("x", 1, (), [], {"anonymous": 100, "files": 7}, {"list": (3, 300), "dict": (1, 50), "int": (9, 9)})
    other = Moment("x", 1, (), [], {"anonymous": 150, "files": 7, "stacks": 9}, {"list": (9, 900), "int": (9, 9), "str": (1, 60)})
    assert [(r.what, r.before, r.after) for r in between.memory(one, other)] == [("anonymous", 100, 150), ("stacks", 0, 9)]
    assert [(r.what, r.objects) for r in between.types(one, other)] == [("list", (3, 9)), ("str", (0, 1)), ("dict", (1, 0))]
    other.types = None
    assert not list(between.types(one, other)), "a heap that was not read has lost nothing"
    found = between.requests({"a": {"n": 1}, "b": {"n": 1}, "c": {"n": 1}}, {"b": {"n": 1}, "c": {"n": 2}, "d": {"n": 0}})
    assert [(r.request_id, r.change) for r in found] == [("d", CAME), ("a", GONE), ("b", STILL), ("c", MOVED)]


def test_the_text_says_what_stands_only_of_what_did_not_run():
    threads = [
        [Thread(n, name, [("f", "/a/x.py", 3)], True, cpu) for n, name, cpu in side]
        for side in (
            [(1, "main", 1.0), (2, "rests", 5.0), (3, "core", None)],
            [(1, "main", 1.5), (2, "rests", 5.0), (3, "core", None)],
        )
    ]
    sides = [[Moment("7", 7, ("b", 7, 1), each)] for each in threads]
    data = difference.difference_data(*sides, ({}, {}))
    data.update(before={"what": "a"}, after={"what": "b"}, seconds=2.0, not_compared=[])
    text = "\n".join(difference.difference_lines(data, Style(False, 80)))
    assert (
        "stands still: thread 2 (rests)  in f (x.py:3)" in text
        and "same place: thread 1 (main) (ran 500.00 ms), thread 3 (core)  in f (x.py:3)" in text
    )
    assert "None" not in text and text.startswith("a -> b: 2.00 s apart")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("", "anonymous"),
        ("[heap]", "heap (brk)"),
        ("[stack]", "stacks"),
        ("[vdso]", "anonymous"),
        ("/dev/shm/psm_1", "shared memory"),
        ("/memfd:x (deleted)", "shared memory"),
        ("/usr/lib/libc.so.6", "libraries"),
        ("/x/a.cpython-311-x86_64-linux-gnu.so", "libraries"),
        ("/dev/nvidia0", "devices"),
        ("/m/model.safetensors", "files"),
    ],
)
def test_a_mapping_is_of_its_kind(path, kind):
    assert between.mapped(path) == kind
    assert between.mapped("", True) == "stacks"
