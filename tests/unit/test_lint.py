"""What lint knows of each file only shrinks (scripts/tools/known_lint.json)."""

from tools import lint

BEFORE = {"C901": {"a.py": 2, "b.py": 1}, "SLF001": {"a.py": 1}}


def test_a_file_with_more_than_is_known_is_named():
    assert lint.more({"C901": {"a.py": 3, "b.py": 1}, "SLF001": {"c.py": 1}}, BEFORE) == [("C901", "a.py"), ("SLF001", "c.py")]
    assert lint.more(BEFORE, BEFORE) == []


def test_what_is_mended_is_known_no_more():
    assert lint.fewer({"C901": {"a.py": 1, "c.py": 4}, "SLF001": {}}, BEFORE) == {"C901": {"a.py": 1}, "SLF001": {}}
    assert lint.fewer({"C901": {"a.py": 5, "b.py": 1}, "SLF001": {"a.py": 1}}, BEFORE) == BEFORE
