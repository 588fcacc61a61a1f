"""A question about one request: only the engine that has it is looked at again, and who waits for its verdict waits for nobody
else's. Looks are made up; no process is looked at."""

import pytest

from gdbext.engines.sightings import FRONTEND, QUEUE, RUNNING, Keeper, Look, Sighting, Transfer
from gdbext.errors import MissingError, NotFoundError
from gdbext.kvcache.model import Request
from gdbext.requests import caches, collect
from gdbext.requests.model import meant

MAIN = Keeper("main", 7)


def has(*names, tokens=0, transfer=None):
    """A look at a core that runs requests"""
    found = [
        Sighting(n, RUNNING, "RUNNING", progress=(32, tokens), request=Request(n), external_id=n.split("-")[0]) for n in names
    ]
    for one in found:
        one.transfer = transfer
    return [Look("EngineCore", 2, "engine-core", ("scheduler",), found, {RUNNING: MAIN, QUEUE: MAIN})]


class Engine:
    """An engine that gives one look after the other, the last for ever"""

    name = "vllm"

    def __init__(self, instance, *looks):
        self.instance, self.looks, self.looked = instance, list(looks), 0

    def look(self):
        self.looked += 1
        return self.looks[min(self.looked, len(self.looks)) - 1], []

    def replicas(self):
        return []

    def with_role(self, *roles):
        return []


@pytest.fixture(autouse=True)
def looks(monkeypatch):
    monkeypatch.setattr(collect, "looks_at", lambda engine: engine.look())
    monkeypatch.setattr(collect, "_runs", lambda engine: True)


def asked(wanted, *engines):
    """(instances with an answer, how often each engine was looked at, how long it was waited for)"""
    waited = []
    held = collect.collect_all(engines, 1.0, waited.append, wanted)
    return [one.name for one in held], [one.looked for one in engines], sum(waited)


def goes(*names, **more):
    return has(*names, tokens=1, **more), has(*names, tokens=2, **more)


def test_only_the_engine_that_has_it_is_asked_again():
    engines = [Engine("a", *goes("x-1")), Engine("b", *goes("y-1")), Engine("c", *goes("z-1"))]
    assert asked("y-1", *engines) == (["b"], [1, 2, 1], 1.0)
    assert asked("", *[Engine("a", *goes("x-1")), Engine("b", *goes("y-1"))]) == (["a", "b"], [2, 2], 1.0)


@pytest.mark.parametrize(
    "wanted, instances",
    [("x", ["a"]), ("x-1", ["a"]), ("same", ["a", "b"]), ("be", ["a", "b"]), ("nobody", ["a", "b", "c"]), ("", ["a", "b", "c"])],
)
def test_the_users_id_a_beginning_and_what_two_engines_have(wanted, instances):
    """What nobody has may be just coming: all are asked again."""
    engines = [
        Engine("a", *goes("x-1", "same-1", "begins-1")),
        Engine("b", *goes("xy-1", "same-2", "belongs-1")),
        Engine("c", *goes("z-1")),
    ]
    assert asked(wanted, *engines)[0] == instances


def test_one_that_comes_between_the_looks_is_found():
    late = Engine("b", has(), has("new-1"))
    held = collect.collect_all([Engine("a", *goes("x-1")), late], 1.0, lambda seconds: None, "new-1")
    assert [t.request_id for t in meant("new-1", [(one.name, t) for one in held for t in one.requests])] == ["new-1"]


def test_of_one_that_waits_for_another_instance_all_are_asked():
    transfer = Transfer(("transfer", "t1"), False)
    engines = [Engine("a", *goes("x-1", transfer=transfer)), Engine("b", *goes("y-1"))]
    assert asked("x-1", *engines)[:2] == (["a", "b"], [2, 2])


def test_another_ones_verdict_is_not_waited_for():
    """`lost` stands, so that it is looked at again and again; who asks for the one that moves has his answer at once."""

    def front(turn):
        awaited = [Sighting(n, FRONTEND, "awaited", progress=(t,)) for n, t in (("lost", 0), ("moves", turn))]
        return [Look("frontend", 1, "frontend", ("frontend",), awaited), *has("moves", tokens=turn)]

    def engine():
        return Engine("a", *map(front, range(1, 6)))

    assert asked("moves", engine()) == (["a"], [2], 1.0)
    assert asked("lost", engine())[1:] == asked("", engine())[1:] and asked("lost", engine())[1][0] > 2


def test_the_caches_of_the_others_are_not_read(monkeypatch):
    read = []
    monkeypatch.setattr(caches, "_with_caches", lambda engine, held, content, copied: read.append(engine.instance) or (held, []))
    caches.of_engines([Engine("a", *goes("x-1")), Engine("b", *goes("y-1"))], 0.01, False, "x-1")
    assert read == ["a"]


def test_what_is_near_a_missing_name_is_worked_out_for_who_reads_it():
    asked_for = []
    error = MissingError("the X has no attribute y", lambda: asked_for.append(1) or "; did you mean z?")
    assert isinstance(error, NotFoundError) and not asked_for
    assert str(error) == f"{error}" == "the X has no attribute y; did you mean z?" and len(asked_for) == 2
    assert str(MissingError("plain")) == "plain"
