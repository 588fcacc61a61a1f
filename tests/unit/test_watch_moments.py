"""Watches of several machines that ask one another for a box of one moment, through a folder."""

import json
import os
from types import SimpleNamespace

import pytest

from gdbext.errors import GdbextError
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
        boxes = SimpleNamespace(refusal=lambda asked=False: self.refused, keep_one=self.keep_one)
        self.judged = []
        self.moments = Moments(str(folder / "share"), boxes, self.judge, 2, lambda: self.now)
        self.moments.watch = self

    def keep_one(self, why, verdict, watch, asked=False):
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


def test_only_moments_of_this_user_are_answered(three, tmp_path, monkeypatch):
    """A link, a file, and another user's folder: no box follows them."""
    share, (side, *_) = tmp_path / "share", three
    ask = json.dumps({"schema": moments.SCHEMA, "host": "x", "why": "give"})
    real = os.lstat
    for number, kind in enumerate(("link", "file", "other", "own")):
        moment = share / f"20260101-00000{number}-x"
        target = tmp_path / kind
        target.mkdir()
        (target / "ask.json").write_text(ask)
        if kind == "link":
            moment.symlink_to(target)
        elif kind == "file":
            moment.write_text(ask)
        else:
            target.rename(moment)

    def owned(path, **more):
        found = real(path, **more)
        return SimpleNamespace(st_mode=found.st_mode, st_uid=found.st_uid + 1) if str(path).endswith("2-x") else found

    monkeypatch.setattr(moments.os, "lstat", owned)
    side.look()
    assert len(side.asked_for) == 1 and [one.name for one in share.glob("*/a.gdbext")] == ["a.gdbext"]
    assert (share / "20260101-000003-x" / "a.gdbext").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path / "link") == ["ask.json"]


def test_a_folder_in_which_others_may_write_is_refused(tmp_path, monkeypatch):
    for mode in (0o1777, 0o777, 0o1773):
        (tmp_path / "share").mkdir(exist_ok=True)
        os.chmod(tmp_path / "share", mode)
        with pytest.raises(GdbextError, match="others|exchanged"):
            Side(tmp_path, f"m{mode}", monkeypatch)


def test_marks_that_killed_watches_left_are_removed(three, tmp_path):
    share = tmp_path / "share"
    for number, age in enumerate((10, 3 * moments.OLD, 9 * moments.OLD)):
        mark = share / f"z-{number}.watch"
        mark.write_text("")
        at = os.lstat(share).st_mtime - age
        os.utime(mark, (at, at))
    three[0].stalls()
    for one in (*three[1:], three[0]):
        one.look()
    assert sorted(one.name for one in share.glob("z-*")) == ["z-0.watch"] and not three[0].judged
    (share / "z-0.watch").unlink()
    three[0].look()
    assert three[0].judged


def test_a_clock_that_goes_back_removes_no_new_moment(three, tmp_path, monkeypatch):
    for number, stamp in enumerate(("20260101-120000", "20260101-130000", "20260101-110000", "20260101-110001")):
        monkeypatch.setattr(moments.time, "strftime", lambda form, stamp=stamp: stamp)
        three[0].now += 2 * moments.SAME
        three[0].stalls()
        assert (tmp_path / "share" / f"{stamp}-a" / "a.gdbext").exists() and len(moments_in(tmp_path)) == min(2, number + 1)
    other = tmp_path / "share" / "20250101-000000-node-a"
    other.mkdir()
    three[0].now += 2 * moments.SAME
    monkeypatch.setattr(moments.time, "strftime", lambda form: "20260101-140000")
    three[0].stalls()
    assert other.exists()


def test_boxes_that_cannot_be_judged_are_told(three, monkeypatch):
    errors = {"x.gdbext: damaged": GdbextError("x.gdbext: damaged"), "KeyError": KeyError("pid")}
    for number, (said, error) in enumerate(errors.items()):
        monkeypatch.setattr(moments.time, "strftime", lambda form, number=number: f"20260101-00000{number}")
        monkeypatch.setattr(three[0].moments, "_judge", lambda paths, error=error: (_ for _ in ()).throw(error))
        three[0].now += 2 * moments.SAME
        three[0].stalls()
        three[1].now = three[2].now = three[0].now
        for one in (*three[1:], three[0]):
            one.look()
        assert three[0].told[-1][0] == model.LOST and said in three[0].told[-1][1]["why"]
