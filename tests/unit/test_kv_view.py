"""Which process of an engine has the scheduler, when its memory changes under the reader."""

import types

import pytest

from gdbext.access.retry import LASTING_TRIES
from gdbext.engines.kv_view import View
from gdbext.errors import FaultError


class Rt:
    """A FAKE runtime with one thread, whose frames can be had in the looks `whole` says; in the others they are `torn`."""

    def __init__(self, whole, stopped=False, torn=None):
        self.whole, self.torn, self.looks = whole, torn, 0
        self.target = types.SimpleNamespace(is_stopped=stopped, budgets={}, invalidate=lambda: None, describe=lambda: "process 7")

    def threads(self):
        return ["main"]

    def frames(self, thread):
        if not self.whole(self.looks):
            if self.torn is None:
                raise FaultError(0x10, 8, "torn")
            return self.torn
        return [types.SimpleNamespace(locals=list)]


def scheduler(rt, there):
    def find_scheduler(rt):
        rt.looks += 1
        return "scheduler" if there(rt.looks) else None

    view = View.__new__(View)
    view.reader = types.SimpleNamespace(find_scheduler=find_scheduler)
    return view._scheduler(rt)


@pytest.mark.parametrize("torn", [None, []], ids=["unread", "none"])
@pytest.mark.parametrize("looks", [1, 3, 40])
def test_a_process_whose_frames_are_torn_is_looked_at_again(looks, torn):
    assert scheduler(Rt(lambda look: False, torn=torn), lambda look: look >= looks) == "scheduler"


@pytest.mark.parametrize("torn", [0, 5, 20])
def test_what_is_in_no_frame_of_whole_looks_is_not_there(torn):
    rt = Rt(lambda look: look > torn)
    assert scheduler(rt, lambda look: False) is None
    assert rt.looks == torn + LASTING_TRIES


def test_a_stopped_process_is_looked_at_once():
    rt = Rt(lambda look: True, stopped=True)
    assert scheduler(rt, lambda look: False) is None and rt.looks == 1
