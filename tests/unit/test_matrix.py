"""scripts/matrix counts what is right and nothing else."""

import pytest
from tools import matrix

TRUTH = {"threads": {"7": [["f", "a.py", 3, {}], ["g", "a.py", 9, {}]]}, "main": [["h", "b.py", 1, {}]]}


def frame(function, file, line, kind="python", reliable=True):
    return {"function": function, "file": file, "line": line, "kind": kind, "reliable": reliable}


def answer(*own):
    main = [frame("tell", "b.py", 5), frame("sleep", "", None, kind="native"), frame("h", "b.py", 1)]
    return {"threads": [{"tid": 5, "frames": main}, {"tid": 7, "frames": list(own)}]}


@pytest.mark.parametrize(
    "own,count",
    [
        ([frame("f", "a.py", 3), frame("g", "a.py", 9)], 4),
        ([frame("f", "a.py", 4), frame("g", "a.py", 9)], 3),
        ([frame("g", "a.py", 9), frame("f", "a.py", 3)], 2),
        ([frame("f", "a.py", 3)], 2),
        ([frame("f", "a.py", 3), frame("g", "a.py", 9), frame("g", "a.py", 9)], 2),
        ([frame("f", "a.py", 3), frame("g", "a.py", 9, reliable=False)], 2),
        ([], 2),
    ],
)
def test_a_frame_is_right_in_its_own_place_or_not_at_all(own, count):
    assert matrix.right(answer(*own), TRUTH, 5) == (count, 4)


def test_the_table_tells_failures_and_the_sum():
    cells = {
        "1 thread": dict.fromkeys(matrix.WAYS, (4, 4)),
        "25 threads": {**dict.fromkeys(matrix.WAYS, (9, 9)), "/proc": (8, 9)},
    }
    text, whole = matrix.table([("3.11.7", "static", cells)])
    assert not whole and "| 3.11.7 | static | 4/4 | 8/9 | 4/4 | 9/9 |" in text and "51 of 52 in 8 readings." in text
    cells["25 threads"]["/proc"] = "Failed: no"
    text, whole = matrix.table([("3.11.7", "static", cells)])
    assert not whole and "| failed |" in text and "43 of 43 in 7 readings, 1 readings failed." in text
    cells["25 threads"]["/proc"] = (9, 9)
    assert matrix.table([("3.11.7", "static", cells)])[1]
