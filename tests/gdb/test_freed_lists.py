"""Variables of a process that runs on: what was freed under the reader, and is a user's tokens by then, is never shown as what
a harmless name stands for; what stands still is shown."""

from collections import Counter

import pytest
from harness.subjects import PYTHONS, running

from gdbext.answers.frames import python_frame
from gdbext.commands.pyprint import PyPrint
from gdbext.cpython.runtime import open_runtime
from gdbext.cpython.tasks import tasks
from gdbext.engines import sensitive_names
from gdbext.errors import GdbextError
from gdbext.session.session import Session

LOOKS, MAX_LOOKS = 150, 600


@pytest.mark.parametrize("python", PYTHONS, ids=lambda p: p.rpartition("/")[2])
def test_no_look_shows_what_took_the_place_of_a_freed_list(python):
    seen, shown = Counter(), {}
    with running(python, "freed_lists.py") as (target, _):
        private = sensitive_names.names_for(open_runtime(target))
        for _ in range(MAX_LOOKS):
            target.invalidate()
            for frame in frames_of(open_runtime(target)):
                rows = python_frame(frame, private)["locals"]
                for row in rows:
                    assert "9900" not in row["text"] and "secret" not in row["text"], (frame, row)
                seen[frame.function] += any(row["name"] in ("frames", "blocks") for row in rows)
                if frame.function == "stands":
                    shown = {row["name"]: row["text"] for row in rows}
            if min(seen["turn"], seen["stands"], seen["waits"]) >= LOOKS:
                break
    assert min(seen["turn"], seen["stands"], seen["waits"]) >= LOOKS, seen
    assert shown.pop("request").startswith("<object object at ")
    assert shown == {"blocks": "[3, 5, 7]", "kinds": "['full', 'window']", "device": "'cpu'", "ready": shown["ready"]}


def test_the_last_result_is_the_same_at_each_reading():
    with running(PYTHONS[0], "freed_lists.py") as (target, _):
        session, found = Session(), []
        for words in ("__main__:TOKENS", "$py[1]", "$py + 1"):
            found.append(PyPrint().answer(session, PyPrint.parse(f"-show-content -on {target.pid} {words}")).data["repr"])
    assert found == ["[990017, 990023, 990029]", "990023", "990024"]


def frames_of(rt):
    """The frames of the threads, then those of the tasks that are suspended."""
    for thread in rt.threads():
        try:
            yield from [f for f in rt.frames(thread) if f.function in ("turn", "stands")]
        except GdbextError:
            continue  # it ran on each time
    try:
        for task in tasks(rt)[0]:
            yield from task.frames
    except GdbextError:
        pass
