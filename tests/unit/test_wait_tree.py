"""The tree of waits: from random graphs whose waits are known, each thread once, beneath the one that it waits for."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbext.answers.hang_text import ends_at, next_steps, sentence
from gdbext.answers.wait_tree import svg, tree_lines, tree_of
from gdbext.render.text import PLAIN


def place(number):
    return {"label": "R0", "pid": 7, "tid": number, "name": f"t{number}"}


def chains_of(waits, count=1):
    """Chains as llm-hang has them, of threads each of which waits for one other: {thread: the one that it waits for}."""
    made = []
    for first in sorted(waits):
        path, at = [], first
        while at in waits and at not in path:
            path.append(at)
            at = waits[at]
        ring = at in path
        end = {"place": place(at), "state": "ring" if ring else "sleeps", "why": ""}
        links = [{"place": place(one), "waits_for": f"what t{waits[one]} has"} for one in path]
        chain = {"waiter": links[0]["place"], "waits_for": links[0]["waits_for"], "through": links[1:], "end": end}
        made.append({**chain, "count": count, "also": [], "rests": False})
    return made


def nodes_of(roots, above=None):
    for node in roots:
        yield node, above
        yield from nodes_of(node["children"], node)


@given(st.integers(0, 1 << 32))
def test_each_thread_stands_once_beneath_the_one_it_waits_for(seed):
    rng = random.Random(seed)
    waits = {n: rng.randrange(1, 13) for n in range(1, rng.randrange(2, 13))}
    waits = {n: other for n, other in waits.items() if n != other}
    chains = chains_of(waits)
    rng.shuffle(chains)
    found = list(nodes_of(tree_of(chains)))
    numbers = [node["place"]["tid"] for node, _ in found if node["place"]]
    assert sorted(numbers) == sorted({*waits, *waits.values()} if waits else [])
    for node, above in found:
        if not node["waits_for"]:
            assert above is None and (node["state"] == "ring" or node["place"]["tid"] not in waits)
        elif above["state"] == "ring":
            members = [child["place"]["tid"] for child in above["children"]]
            assert node["place"]["tid"] in members
            following = members[(members.index(node["place"]["tid"]) + 1) % len(members)]
            assert waits[node["place"]["tid"]] == following
        else:
            assert waits[node["place"]["tid"]] == above["place"]["tid"]


def test_those_that_wait_alike_are_folded_and_the_culprit_is_marked():
    chains = chains_of({1: 2, 2: 3}, count=4)
    chains[0]["also"] = [place(8), place(9)]
    chains = chains_of({9: 2, 2: 3})[1:] + chains + chains_of({8: 2, 2: 3})
    roots = tree_of(chains, [place(3)])
    assert [node["place"]["tid"] for node, _ in nodes_of(roots)] == [3, 2, 1]
    assert [node["culprit"] for node, _ in nodes_of(roots)] == [True, False, False]
    assert tree_lines(roots, PLAIN) == [
        "  thread 3 (t3) sleeps",
        "  └ thread 2 (t2) waits for what t3 has (and 3 more like it)",
        "    └ thread 1 (t1) waits for what t2 has (and 3 more like it)",
    ]


def test_of_several_that_are_several_themselves_each_is_named_once():
    def several(how, *ends):
        return {"place": None, "state": "several", "why": f"{how} of {len(ends)}: several", "any_of": list(ends)}

    two, three = ({"place": place(n), "state": "sleeps", "why": ""} for n in (2, 3))
    (chain,) = chains_of({1: 9})
    chain["end"] = several("any", several("all", two, three), several("any", three))
    assert tree_lines(tree_of([chain]), PLAIN)[0] == "  several: any of R0 thread 2 (t2) sleeps; R0 thread 3 (t3) sleeps"


def test_all_of_a_tree_is_all_of_it():
    assert len(tree_lines(tree_of(chains_of(dict.fromkeys(range(1, 300), 999))), PLAIN, 0)) == 300


@pytest.mark.parametrize("files", [(), {7}])
def test_no_command_names_the_pid_of_a_core(files):
    """That number is nobody's now, or another process's."""
    verdicts = [{"verdict": "stopped", "culprits": [{"label": "7", "pid": 7}]}]
    data = {"verdict": "stopped", "verdicts": verdicts, "pauses": [{"pid": 7}], "chains": [], "not_asked_at": []}
    assert next_steps(data, files) == ([] if files else ["kill -CONT 7"])


@pytest.mark.parametrize("most", [3, 9])
def test_a_long_tree_is_cut_and_says_how_much_is_left(most):
    lines = tree_lines(tree_of(chains_of(dict.fromkeys(range(1, 20), 99))), PLAIN, most)
    assert len(lines) == most and lines[-1].strip() == f"and {20 - most + 1} more (-v)"


def test_the_graph_is_svg_with_every_name_escaped():
    chains = chains_of({1: 2})
    chains[0]["waiter"] = {**place(1), "name": "</text><script>"}
    found = svg(tree_of(chains, [place(2)]))
    assert found.startswith("<svg") and "<script>" not in found and "&lt;script&gt;" in found and "class=bad" in found


def culprit(**more):
    return {"label": "7", "pid": 7, "tid": 8, "name": "evictor", "program": "serve.py", "at": "evict (kv.py:12)", **more}


@pytest.mark.parametrize(
    "kind, culprits, said",
    [
        ("lock-held", [culprit()], "serve.py (7), thread 8 (evictor), holds a lock and does not release it, in evict (kv.py:12)"),
        (
            "lock-held",
            [culprit(holds="the Lock pool", waits_for="a Unix socket")],
            "serve.py (7), thread 8 (evictor), holds the Lock pool and does not release it, in evict (kv.py:12), "
            "where it waits for a Unix socket",
        ),
        ("stopped", [{"label": "TP1", "pid": 9, "program": "VLLM::Worker_TP1"}], "TP1 (VLLM::Worker_TP1, 9) is stopped"),
        (
            "lock-cycle",
            [culprit(), culprit(tid=7, name="MainThread")],
            "threads, tasks or processes wait for one another in a ring: serve.py (7), thread 8 (evictor), thread 7 (MainThread)",
        ),
        ("unknown", [], "not enough evidence"),
    ],
)
def test_a_verdict_is_one_sentence_with_program_process_and_line(kind, culprits, said):
    assert sentence(kind, culprits) == said


@given(st.integers(0, 1 << 32))
def test_a_sentence_without_a_culprit_says_where_most_waits_end(seed):
    draw = random.Random(seed)
    waits = {number: draw.randrange(1, number) for number in range(4, 4 + draw.randrange(1, 9))}  # they end at 1, 2 or 3
    ends = {}
    for at in waits:
        while at in waits:
            at = waits[at]
        ends[at] = ends.get(at, 0) + 1
    said = ends_at({"tree": tree_of(chains_of(waits))}, {7})
    most = [f"t{end}" for end, count in ends.items() if count == max(ends.values())]
    assert said.startswith("; the waits end at ") and any(f"({name})" in said for name in most), (said, waits)
    assert ends_at({"tree": tree_of(chains_of(waits))}, {8}) == "" == ends_at({"tree": []})
