"""A frame that is read while it changes may say any line: nothing counts up to it."""

from types import SimpleNamespace

import pytest

from gdbext.cpython import locks

SOURCE = ["def work():", "    one.acquire()", "    call()", "    one.release()"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("line, held", [(3, [("one", 2, 4)]), (1, []), (1 << 60, []), (-(1 << 60), [])])
def test_what_a_frame_keeps_is_told_by_its_source_whatever_its_line(line, held):
    target = SimpleNamespace(source_lines=lambda path: SOURCE, cached=lambda key, make: make())
    code = SimpleNamespace(first=1, name="work")
    frame = SimpleNamespace(file="work.py", code=code, rt=SimpleNamespace(target=target))
    assert locks._kept(frame, line) == held
