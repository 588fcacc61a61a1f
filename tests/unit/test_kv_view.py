"""Which process of an engine has the scheduler, when its memory changes under the reader."""

import types

import pytest
from harness import caches

from gdbext.access.retry import LASTING_TRIES
from gdbext.answers import addresses, kv_text
from gdbext.commands import llm_kv
from gdbext.engines.kv_view import View
from gdbext.errors import FaultError, NotFoundError
from gdbext.kvcache.model import Cache, Request
from gdbext.render.text import PLAIN


class Rt:
    """A FAKE runtime with one thread, whose frames can be had in the looks `whole` says; in the others they are `torn`."""

    def __init__(self, whole, stopped=False, torn=None):
        self.whole, self.torn, self.looks = whole, torn, 0
        calls = {"invalidate": lambda: None, "describe": lambda: "process 7", "has_ended": lambda: False}
        self.target = types.SimpleNamespace(is_stopped=stopped, budgets={}, **calls)

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


def test_a_count_that_the_engine_does_not_keep_is_left_out():
    data = {"groups": [], "pools": [{"name": "pool", "num_blocks": 8, "unit": "block", "block_size": 4, "free": 3, "used": 5}]}
    counts = {"shared": 0, "held": None, "reserved": 2}
    for cached, said in ((None, "3 free, 5 used, 2 reserved"), (0, "3 free, 5 used, 0 cached, 2 reserved")):
        data["pools"][0].update(counts, cached=cached)
        assert kv_text.cache_lines(caches.healthy(), [], data, PLAIN)[0].endswith(said)


@pytest.mark.parametrize("words", ["", "block 1", "block 1 -group 0", "request a", "free", "map", "check", "check -ranks"])
def test_an_engine_without_blocks_is_refused_in_one_line(words, monkeypatch):
    """Its requests are read; `Cache.pools` is empty, as of an engine without a prefix cache of blocks."""
    cache = Cache("boxed", "1", pools=[], groups=[], requests=[Request("a", queue="running")])
    target = types.SimpleNamespace(is_live=True)
    view = types.SimpleNamespace(target=target, cores=(), partial=[], missed=[], cache=lambda **how: cache, workers=lambda n: [])
    monkeypatch.setattr(llm_kv, "view_of", lambda session, args: view)
    with pytest.raises(NotFoundError, match="^boxed has no cache of blocks in this process: llm-requests lists its requests$"):
        llm_kv.LlmKv().run(None, llm_kv.LlmKv.parse(words))
    places = addresses.KvPlaces(lambda: view)
    assert places.cache is cache and places.partial == [] and places.find(0x10) is None
