"""How answers of tools about programs that hang are scored, and what is made of two dumps."""

import pytest

from scripts.tools import bench_hangs
from scripts.tools.bench_hangs import Said, by_two_dumps, rows, score

HUNG = {"hung": True, "right": ["lock-held"], "culprits": [7]}
WELL = {"hung": False, "right": ["idle"], "culprits": []}


@pytest.mark.parametrize(
    ("truth", "said", "how"),
    [
        (HUNG, Said("hung", [7]), "right"),
        (HUNG, Said("hung"), "hung, nobody blamed"),
        (HUNG, Said("hung", [7, 8]), "wrong"),
        (HUNG, Said("well"), "wrong"),
        (HUNG, Said("unknown"), "unknown"),
        ({**HUNG, "culprits": ["dead"]}, Said("hung", [8]), "right"),
        ({**HUNG, "culprits": []}, Said("hung"), "right"),
        (WELL, Said("well"), "right"),
        (WELL, Said("hung"), "wrong"),
        (WELL, Said("unknown"), "unknown"),
    ],
)
def test_an_answer_is_scored_against_what_is_true(truth, said, how):
    assert score(truth, said) == how


def test_a_chain_that_ends_at_the_one_that_must_act_is_scored():
    chain = {"waiter": {"pid": 5, "tid": 5}, "through": [], "end": {"state": "sleeps", "why": "", "place": {"pid": 5, "tid": 7}}}
    truth = {**HUNG, "pid": 5, "ends": [7]}
    assert score(truth, Said("unknown", (), [chain])) == "end named"
    assert score({**truth, "ends": [8]}, Said("unknown", (), [chain])) == "unknown"


def test_a_tool_of_somebody_else_is_asked_by_its_command():
    ask = bench_hangs.other('sh -c \'echo "{\\"state\\": \\"hung\\", \\"blamed\\": [$0]}"\'')
    said = ask([7])
    assert (said.state, said.blamed) == ("hung", {7})
    assert bench_hangs.other("false")([7]).state == "unknown"


def dumps(monkeypatch, before, after):
    monkeypatch.setattr(bench_hangs, "BETWEEN", 0)
    looks = {pid: iter([{pid: before[pid]}, {pid: after[pid]}]) for pid in before}
    return by_two_dumps(lambda pid: next(looks[pid]), list(before))


def test_two_dumps_are_read_as_people_read_them(monkeypatch):
    a, b = (("f", 1),), (("g", 2),)
    said = dumps(monkeypatch, {1: (a, True)}, {1: (b, True)})
    assert said.state == "well"
    said = dumps(monkeypatch, {1: (a, True)}, {1: (a, True)})
    assert (said.state, said.blamed) == ("hung", set())
    ranks = {1: (a, True), 2: (a, True), 3: (a, True), 4: (b, True)}
    said = dumps(monkeypatch, ranks, ranks)
    assert (said.state, said.blamed) == ("hung", {4})
    assert by_two_dumps(lambda pid: {}, [1]).state == "unknown"


def test_the_table_counts_what_was_said():
    found = [("gdbext", HUNG, "right", 1.0, 0.0, False), ("gdbext", WELL, "wrong", 3.0, 0.004, True)]
    line = next(line for line in rows(found) if line.startswith("| gdbext"))
    assert line == "| gdbext | 1 of 1 | 0 | 0 | 0 | 0 | 0 of 1 | 0 | 1 | 2.0 | 2 | 1 |"
