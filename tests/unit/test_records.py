"""The codec of dataclasses between machines: what is sent comes back, drawn objects too; what is damaged is refused by name."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from gdbext.errors import GdbextError
from gdbext.render import records


@dataclass
class Leaf:
    name: str
    at: int | None = None
    share: float = 0.0
    kept: Any = None
    other: Stranger = None  # a name that the codec does not know fits everything


@dataclass(frozen=True)
class Mark:
    text: str = ""
    at: int = 0


@dataclass
class Whole:
    leaves: list[Leaf]
    ids: list[int] = field(default_factory=list)
    by_name: dict[str, Leaf] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    place: tuple[str, int] = ("", 0)
    hosts: dict[int, str] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    many: tuple[int, ...] = ()
    secret: str = "here"


class Stranger:
    pass


CODEC = records.Codec((Leaf, Whole, Mark), left={"Whole": {"secret"}}, short=True, alike=("Mark",))


def through(value):
    return CODEC.value(json.loads(json.dumps(CODEC.data(value))))


def drawn(draw):
    def ids():
        first, step = draw.randrange(-9, 9000), draw.choice([1, 1, 1, 2, -1])
        return [first + step * n for n in range(draw.randrange(9))] + [draw.randrange(5) for _ in range(draw.randrange(4))]

    def leaf():
        return Leaf(
            draw.choice(["", "a", "r", "t"]), draw.choice([None, 0, 1 << 40]), draw.choice([0, 1.5]), draw.choice([None, ids()])
        )

    return Whole(
        [leaf() for _ in range(draw.randrange(4))],
        ids(),
        {str(n): leaf() for n in range(draw.randrange(3))},
        set(ids()),
        ("x", draw.randrange(9)),
        hosts={n: draw.choice("abc") for n in draw.sample(range(40), draw.randrange(30))},
        marks=[Mark(draw.choice("pq"), draw.randrange(2)) for _ in range(draw.randrange(9))],
        many=tuple(ids()),
    )


def test_drawn_objects_come_back_as_they_were():
    draw = random.Random()
    for _ in range(500):
        one = drawn(draw)
        assert through(one) == one


def test_runs_are_sent_where_shorter_and_members_stay_that_are_to():
    sent = CODEC.data(Whole([], list(range(1000)), secret="no"))
    assert sent["ids"] == {"r": [0, 1000]} and "secret" not in sent and CODEC.data([5, 3]) == [5, 3]
    assert records.Codec(()).data([1, 2, 3, 4, 5]) == [1, 2, 3, 4, 5]
    assert CODEC.data(Leaf("x" * 9999, kept=Stranger())) == {"c": "Leaf", "name": "x" * 2000, "kept": None}


def test_what_is_the_same_is_sent_once_and_is_one_object_again():
    hosts = {n: f"10.0.0.{n // 8}" for n in range(64)}
    writing = records.Writing(CODEC)
    sent = json.loads(
        json.dumps([writing.data(Whole([], hosts=hosts, marks=[Mark("a"), Mark("b"), Mark("a")])) for _ in range(3)])
    )
    assert sent[1]["hosts"] == {"a": 0} and sent[0]["marks"][2] == {"a": 1} and len(json.dumps(sent[1])) < 100
    reading = records.Reading(CODEC)
    found = [reading.value(one) for one in sent]
    assert [one.hosts for one in found] == [hosts] * 3 and found[0].marks == [Mark("a"), Mark("b"), Mark("a")]
    assert found[2].hosts is found[0].hosts and found[2].marks[0] is found[0].marks[0]


@pytest.mark.parametrize("data", [{"a": 9}, {"a": "x"}, {"v": [[1, [0, 5]]]}, {"v": [["x", [0, 5_000_000]]]}, {"v": [["x"]]}])
def test_what_stands_for_nothing_is_damage(data):
    with pytest.raises(records.DAMAGE):
        CODEC.value(data)
    assert records.numbers_in({"a": {"r": [0, 7, 9, 2]}, "b": [3, 4]}) == 11


HARMS = {
    "no such class": {"c": "os"},
    "a member is lacking": {"c": "Whole"},
    "text for a number": {"c": "Leaf", "name": "a", "at": "x"},
    "number for a text": {"c": "Leaf", "name": 5},
    "a float for an int": {"c": "Leaf", "name": "a", "at": 1.5},
    "no list": {"c": "Whole", "leaves": 3},
    "in a list": {"c": "Whole", "leaves": [], "ids": [1, "2"]},
    "in a dict": {"c": "Whole", "leaves": [], "by_name": {"d": [[1, None]]}},
    "a tuple of three": {"c": "Whole", "leaves": [], "place": {"t": ["x", 1, 2]}},
    "half a run": {"c": "Whole", "leaves": [], "ids": {"r": [1]}},
    "a run of less than nothing": {"c": "Whole", "leaves": [], "ids": {"r": [1, -5]}},
    "a run without end": {"c": "Whole", "leaves": [], "ids": {"r": [0, 1 << 40]}},
    "many runs without end": {"c": "Whole", "leaves": [], "ids": {"r": [0, 3_000_000] * 2}},
    "a pair of three": {"d": [[1, 2, 3]]},
    "a set of lists": {"s": [[1]]},
    "a dict of nothing": {"d": 5},
    "an unknown tag for a list": {"c": "Whole", "leaves": {"x": 1}},
}


@pytest.mark.parametrize("name", HARMS)
def test_what_is_damaged_is_refused_in_one_line(name):
    with pytest.raises(GdbextError, match="^its facts are damaged: [A-Z]"):
        records.sound("its facts are damaged", CODEC, HARMS[name])


def test_members_that_only_another_release_has_are_left_out():
    assert CODEC.value({"c": "Leaf", "name": "a", "newer": 5, "kept": {"c": "Leaf", "name": "b"}}) == Leaf("a", kept=Leaf("b"))
    assert CODEC.value({"c": "Leaf", "name": "a", "other": 7}).other == 7
