"""llm-watch stays: a stall is told once and so is its end, a death with its signal; what comes instead is followed."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from harness.answers import answer
from harness.gdb_run import ROOT
from harness.subjects import SUBJECTS, spawned

from gdbext.bundle import format
from gdbext.commands import llm_watch
from gdbext.engines.processes import ProcessRef
from gdbext.errors import GdbextError
from gdbext.session.session import Session
from gdbext.verdict.kinds import QUIET
from gdbext.watch import box, found, loop, model

SUBJECT = [sys.executable, os.path.join(SUBJECTS, "stalls_and_heals.py")]


class Told:
    """A watch over what `refs` lists at each search, with the real examination and real boxes."""

    def __init__(self, folder, refs, after=0.7):
        judge, boxes = llm_watch._Judge(Session(), after), box.Boxes(str(folder))
        hands = loop.Hands(judge.full, judge.glance, boxes.keep_one)
        self.watch = loop.Watch(refs(), refs, hands, loop.Settings(after=after, poll=0.05))
        self.seen = 0

    def until(self, kind, seconds=30.0):
        """Looks until something of this kind happens; -> its data."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.watch.take()
            events = list(self.watch.events)
            for number in range(self.seen, len(events)):
                if events[number].kind == kind:
                    self.seen = number + 1
                    return events[number].data
            time.sleep(0.05)
        raise AssertionError(f"no {kind} in {seconds} s: {[(e.kind, e.data) for e in self.watch.events]}")

    def kinds(self):
        return [event.kind for event in self.watch.events]


def ring_of(path):
    whole = format.Bundle(path)
    assert whole.kind == "box"
    return whole.json(box.RING), whole.read(format.PAGE).decode()


def test_a_stall_heals_a_process_dies_and_another_takes_its_place(tmp_path, monkeypatch):
    alive = []
    told = None
    with spawned(SUBJECT, ready="up", stdin=subprocess.PIPE, text=True) as child, spawned(SUBJECT, ready="up") as other:
        alive.append(child.pid)
        told = Told(tmp_path, lambda: [ProcessRef(pid, "engine") for pid in alive])
        for _ in range(20):
            told.watch.take()
            time.sleep(0.05)
        assert told.kinds() == [model.CAME] and not list(tmp_path.iterdir())
        child.stdin.write("stall\n")
        child.stdin.flush()
        verdict = told.until(model.VERDICT)
        assert verdict["verdict"] not in QUIET and verdict["seconds"] > 0.7, verdict
        file = told.until(model.BOX)["file"]
        assert told.kinds() == [model.CAME, model.STALLED, model.VERDICT, model.BOX]
        again = answer(f"llm-hang {file} -json")
        assert (again["verdict"], again["sentence"]) == (verdict["verdict"], verdict["sentence"])
        frames = answer(f"pybt -on {file}/{child.pid} -json")["threads"][0]["frames"]
        assert any(frame["function"] == "step" for frame in frames), frames
        ring, page = ring_of(file)
        places = {tuple(ring["ranks"][0]["stacks"][n])[-1] for _, _, state, n in ring["ranks"][0]["changes"] if state != "ended"}
        assert any(place.startswith("step (stalls_and_heals.py") for place in places) and verdict["verdict"] in page
        for _ in range(60):  # it is told once
            told.watch.take()
            time.sleep(0.03)
        assert told.kinds()[4:] == []
        child.stdin.write("go\n")
        child.stdin.flush()
        assert told.until(model.RECOVERED)["seconds"] > 0.7
        child.send_signal(signal.SIGKILL)
        died = told.until(model.DIED)
        assert (died["pid"], died["signal"], died["first"]) == (child.pid, "SIGKILL", True) and "step" in died["stack"][-1]
        ring, page = ring_of(told.until(model.BOX)["file"])
        assert ring["ranks"][0]["signal"] == "SIGKILL" and "Last seen in engine" in page and "step (stalls_and_heals" in page
        alive[:] = [other.pid]
        monkeypatch.setattr(told.watch.followed, "_due", 0.0)
        came = told.until(model.CAME)
        assert came == {"label": "engine", "pid": other.pid, "engine": "", "instead_of": child.pid, "at_first": False}
        other.send_signal(signal.SIGTERM)  # told to end: no box
        assert told.until(model.LEFT)["signal"] == "SIGTERM" and len(told.watch.boxes) == 2


def test_an_exception_is_a_death_with_its_status(tmp_path):
    with spawned(SUBJECT, ready="up", stdin=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL) as child:
        told = Told(tmp_path, lambda: [ProcessRef(child.pid, "job")], after=30.0)
        told.watch.take()
        child.stdin.write("raise\n")
        child.stdin.flush()
        died = told.until(model.DIED)
        assert (died["status"], died["signal"]) == (1, "") and told.until(model.BOX)["snapshots"] == 0


def test_what_dies_while_it_is_examined_is_examined_again(tmp_path):
    looked, said = [], {"sentence": "as made up", "culprits": [], "pauses": [], "failed": []}

    def judge(refs, lasted):
        looked.append([one.pid for one in refs])
        if len(looked) == 1:
            child.kill()
            child.wait()
        return found.Verdict({**said, "verdict": "unknown" if len(looked) == 1 else "crashed"})

    with spawned(SUBJECT, ready="up", stdin=subprocess.PIPE, text=True) as child:
        told = Told(tmp_path, lambda: [ProcessRef(child.pid, "job")])
        told.watch.hands.judge, told.watch.hands.glance = judge, lambda found: ""
        told.watch.take()
        child.stdin.write("stall\n")
        child.stdin.flush()
        assert told.until(model.DIED)["signal"] == "SIGKILL" and told.until(model.VERDICT)["verdict"] == "crashed"
        assert looked == [[child.pid]] * 2 and told.until(model.BOX) and told.watch.boxes[0]["verdict"] == "crashed"


def test_what_fails_does_not_end_it(tmp_path, monkeypatch):
    """No verdict, a folder that is gone, a search that fails once and one that misses a process once."""
    answers = []

    def refs():
        if answers and isinstance(answers[-1], Exception):
            raise answers.pop()
        return answers.pop() if answers else [ProcessRef(child.pid, "job")]

    def fails(found, lasted):
        raise ValueError("no verdict today")

    with spawned(SUBJECT, ready="up", stdin=subprocess.PIPE, text=True) as child:
        told = Told(tmp_path / "gone", refs)
        told.watch.hands.judge = fails
        told.watch.take()
        for answer in ([GdbextError("two are meant")], [[]], []):
            answers[:] = answer
            monkeypatch.setattr(told.watch.followed, "_due", 0.0)
            told.watch.take()
            assert list(told.watch.followed.ranks) == [child.pid]
        assert told.kinds() == [model.CAME, model.LOST]
        told.seen = 2
        (tmp_path / "gone").write_text("a file is in its place")
        child.stdin.write("stall\n")
        child.stdin.flush()
        assert told.until(model.LOST)["why"] == "no verdict: ValueError" and told.until(model.STALLED)
        assert "File exists" in told.until(model.NO_BOX)["why"]
        child.stdin.write("go\n")
        child.stdin.flush()
        assert told.until(model.RECOVERED)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_watch_that_is_told_to_end_leaves_its_memory(tmp_path, number):
    with spawned(SUBJECT, ready="up") as child:
        words = [sys.executable, "-m", "gdbext", "watch", str(child.pid), "-poll", "0.05", "-o", str(tmp_path / "boxes"), "-json"]
        with spawned(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
            assert "is watched" in watch.stderr.readline()
            time.sleep(1.5)
            watch.send_signal(number)
            out, _ = watch.communicate(timeout=30)
        said = json.loads(out)
        assert watch.returncode == 0 and said["captured"] is False and said["rounds"] > 3 and said["watched"] == 1
        assert said["events"][-1]["data"]["why"] == number.name and 0 < said["history"] <= loop.BYTES
        ring, page = ring_of(said["box"])
        assert ring["ranks"][0]["pid"] == child.pid and ring["ranks"][0]["changes"] and number.name in page
        assert os.listdir(tmp_path / "boxes") == [os.path.basename(said["box"])]
        assert open(f"/proc/{child.pid}/stat").read().rpartition(")")[2].split()[0] in "SR"
