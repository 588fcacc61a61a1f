"""Watches of several machines that ask one another for a box of one moment, through a folder."""

import json
import os
from types import SimpleNamespace

import pytest

from gdbext.watch import model, moments
from gdbext.watch.loop import Verdict
from gdbext.watch.moments import Moments

SAID = {"verdict": "lock-held", "sentence": "TP1 holds the lock that req-17 waits for", "culprits": [{"label": "TP1", "pid": 7}]}


class Side:
    """One machine with its watch: `told`, its events; `asked`: for boxes of a moment; it sees the same stall as all others."""

    def __init__(self, folder, host, monkeypatch, sentence=SAID["sentence"]):
        monkeypatch.setattr(moments.os, "uname", lambda: SimpleNamespace(nodename=host))
        monkeypatch.setattr(moments.os, "getpid", lambda: hash(host) % 10000)
        self.now, self.told, self.asked_for, self.refused = 0.0, [], [], ""
        self.own = folder / f"own-{host}"
        self.own.mkdir()
        self.verdict = Verdict({**SAID, "sentence": sentence, "requests": []})
        boxes = SimpleNamespace(refusal=lambda: self.refused, keep_one=self.keep_one)
        self.judged = []
        self.moments = Moments(str(folder / "share"), boxes, self.judge, 2, lambda: self.now)
        self.moments.watch = self

    def keep_one(self, why, verdict, watch):
        path = self.own / f"{len(list(self.own.iterdir()))}.gdbext"
        path.write_text(why)
        return {"box": str(path)}

    def judge(self, paths):
        self.judged.append([os.path.basename(one) for one in paths])
        return Verdict(SAID, text=["lock-held: of all"], ids=["req-17"])

    def tell(self, kind, **data):
        self.told.append((kind, data))

    def asked(self, why):
        self.asked_for.append(why)
        self.moments.keep(why, self.verdict, self)

    def stalls(self, why="TP1 stands"):
        return self.moments.keep(why, self.verdict, self)

    def look(self, later=1.0):
        self.now += later
        self.moments.look(None)


@pytest.fixture
def three(tmp_path, monkeypatch):
    return [Side(tmp_path, host, monkeypatch) for host in ("a", "b", "c")]


def moments_in(tmp_path):
    return sorted(one for one in (tmp_path / "share").iterdir() if one.is_dir())


def test_all_write_a_box_of_one_moment_and_who_asked_judges_them(three, tmp_path):
    first, *others = three
    first.stalls()
    for one in (*others, first):
        one.look()
    (moment,) = moments_in(tmp_path)
    assert sorted(os.listdir(moment)) == sorted(["a.gdbext", "b.gdbext", "c.gdbext", "ask.json", "hang.json", "page.md"])
    assert [one.asked_for for one in three] == [[], ["a asked: TP1 stands"], ["a asked: TP1 stands"]]
    assert first.judged == [["a.gdbext", "b.gdbext", "c.gdbext"]] and not others[0].judged
    ((kind, data),) = first.told
    assert kind == model.VERDICT and data["machines"] == 3 and data["file"] == str(moment) and "req-17" not in data["sentence"]
    assert json.loads((moment / "hang.json").read_text())["verdict"] == "lock-held"


def test_the_others_own_stall_soon_after_asks_nobody(three, tmp_path):
    for one in (three[0].stalls() and three[1], three[2], three[0]):
        one.look()
    assert three[1].stalls() is None and three[1].told[-1][0] == model.NO_BOX
    three[1].verdict = Verdict({**SAID, "verdict": "stopped", "requests": []})
    assert three[1].stalls() and len(moments_in(tmp_path)) == 1  # another one: a box here, and nobody is asked
    three[1].now += moments.SAME
    assert three[1].stalls() and len(moments_in(tmp_path)) == 2


def test_a_stall_that_another_has_just_told_of_joins_its_moment(three, tmp_path):
    three[0].stalls()
    three[1].stalls()
    three[1].look()
    assert len(moments_in(tmp_path)) == 1 and (moments_in(tmp_path)[0] / "b.gdbext").exists() and not three[1].asked_for


def test_who_does_not_come_is_waited_for_as_long_as_may_be(three):
    three[0].stalls()
    three[1].look()
    three[0].look()
    assert not three[0].judged
    three[0].look(moments.GATHER)
    assert three[0].judged == [["a.gdbext", "b.gdbext"]]
    three[0].look()
    assert len(three[0].judged) == 1


def test_where_no_box_may_be_written_nobody_is_asked(three, tmp_path):
    three[0].refused = "4 boxes were written"
    three[0].stalls()
    assert not moments_in(tmp_path)


def test_what_was_there_before_is_no_question_and_nonsense_ends_nothing(three, tmp_path, monkeypatch):
    three[0].stalls()
    late = Side(tmp_path, "d", monkeypatch)
    late.look()
    assert not late.asked_for
    for name, text in (("20200101-000000-x", "{"), ("20200101-000001-x", "[]"), ("20200101-000002-x", '{"schema": "y"}')):
        (tmp_path / "share" / name).mkdir()
        (tmp_path / "share" / name / "ask.json").write_text(text)
    (tmp_path / "share" / "20200101-000003-x").mkdir()
    late.look()
    assert not late.asked_for and not late.told
    (tmp_path / "share").rename(tmp_path / "gone")
    late.look()
    assert late.stalls()


def test_old_moments_of_its_own_are_removed(three, tmp_path, monkeypatch):
    for number in range(4):
        monkeypatch.setattr(moments.time, "strftime", lambda form: f"20260101-00000{number}")
        three[0].now += 2 * moments.SAME
        three[0].stalls()
    assert [one.name for one in moments_in(tmp_path)] == ["20260101-000002-a", "20260101-000003-a"]
