"""Boxes of one moment on several machines: watches that share a folder ask one another for theirs when one has found a stall.

A moment is a folder there, `STAMP-HOST`, made whole by a rename, with `ask.json` ({"schema", "host", "why"}), then a box of each
machine, `HOST.gdbext`; `hang.json` and `page.md` are the one verdict on them, by who asked. `HOST-PID.watch` is there while a
watch is, which touches it. No clocks are compared: a moment is new that was not there at the look before, and a mark is old
beside this watch's own.

Who can write there gets the engines' memory and can have them stopped for it: the folder is this user's alone, and so is each
moment that is answered."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import stat
import tempfile
import time
from typing import IO, Any, Callable, Sequence

from .. import log, package
from ..access import files as reading
from ..bundle import format as bundles
from ..errors import GdbextError
from ..render import files
from . import model
from .box import Boxes
from .found import Verdict, without_ids
from .loop import Watch

SCHEMA, ASK, HANG = "gdbext-ask/1", "ask.json", "hang.json"
GATHER = 60.0  # seconds in which the others' boxes come
SAME = 120.0  # seconds after a moment in which no other one is begun: the others' own stalls are of it
STAMP = len("20261129-080000-")
MARK = re.compile(r"[A-Za-z0-9._-]{1,64}-\d{1,10}\.watch", re.ASCII)
MOMENT = re.compile(r"\d{8}-\d{6}-[A-Za-z0-9._-]{1,64}", re.ASCII)
MOST_ASK, MOST_WHY, MOST_MACHINES = 1 << 16, 200, 1024
TOUCH, OLD = 20.0, 120.0  # seconds between two touches of a mark; a watch that did not touch its mark for so long is gone

Judge = Callable[[Sequence[str]], Verdict]  # of the paths of boxes: one verdict


class Moments:
    """`keep` is the watch's own (`loop.Hands`), `look` hears each look. `keeps`: how many moments of its own it leaves there."""

    def __init__(self, folder: str, boxes: Boxes, judge: Judge, keeps: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self.boxes, self._judge = files.folder_for(folder, "-share"), boxes, judge
        self.keeps, self.clock = keeps, clock
        others = package.owned_by_us(self.folder)
        if others:
            raise GdbextError(
                f"-share {self.folder}: others could ask for the engines' memory there: {others}: name another folder"
            )
        self.host = re.sub(r"[^A-Za-z0-9._-]", "_", os.uname().nodename)[:48].lstrip(".") or "host"
        self.watch: Watch | None = None
        self._known = set(self._there())
        self._answering = ""  # the moment that the next box is for
        self._mine = ("", 0.0)  # the moment that was asked for here, and when its boxes are judged at the latest
        self._until, self._said = 0.0, ("", ())  # of the last moment: until then the same signature is the same stall
        self._mark, self._touched = os.path.join(self.folder, f"{self.host}-{os.getpid()}.watch"), clock()
        self._touch()

    def close(self) -> None:
        """Nobody waits for boxes of this watch any longer."""
        with contextlib.suppress(OSError):
            os.unlink(self._mark)

    def _there(self) -> list[str]:
        with contextlib.suppress(OSError):
            return sorted(name for name in os.listdir(self.folder) if MOMENT.fullmatch(name))
        return []

    def _touch(self) -> None:
        """Says that this watch is there. The file server's clock dates the mark, as it dates the others'."""
        with log.passing_over(GdbextError, OSError):
            files.write(self._mark, "-share", "", True)
            self._touched = self.clock()

    def _watches(self) -> int:
        """How many watches are there. Marks that watches have left behind, as one does that is killed, are removed."""
        marks = {
            name: os.lstat(os.path.join(self.folder, name)).st_mtime for name in os.listdir(self.folder) if MARK.fullmatch(name)
        }
        now = marks.get(os.path.basename(self._mark), 0.0)
        old = [name for name, at in marks.items() if at < now - OLD]
        for name in old:
            with log.passing_over(OSError):
                os.unlink(os.path.join(self.folder, name))
        return len(marks) - len(old)

    def _is_ours(self, moment: str) -> bool:
        """Whether a moment is a folder that a watch of this user has made."""
        with log.passing_over(OSError):
            there, own = os.lstat(os.path.join(self.folder, moment)), os.lstat(self._mark)
            return stat.S_ISDIR(there.st_mode) and there.st_uid == own.st_uid
        return False

    # ---- a stall here --------------------------------------------------------------------------------------------------------
    def keep(self, why: str, verdict: Verdict | None, watch: Watch) -> dict[str, Any] | None:
        """A box, also into the moment that it belongs to; the other watches are asked for theirs before it is written."""
        said, now = verdict.signature("") if verdict is not None else (why, ()), self.clock()
        if not self._answering and now < self._until and said == self._said:
            watch.tell(model.NO_BOX, why="the box of this stall was written when another machine asked for it")
            return None
        moment = self._answering
        if not moment and now >= self._until and not self.boxes.refusal():
            with log.passing_over(GdbextError, OSError):
                moment = next(iter(self._new()), "") or self._ask(why)
        made = self.boxes.keep_one(why, verdict, watch, bool(self._answering))
        if moment and made is not None:
            self._until, self._said = now + SAME, said
            with log.passing_over(GdbextError, OSError):
                self._add(moment, made["box"])
        return made

    def _new(self) -> list[str]:
        """Moments that others have begun since the last look."""
        found = [name for name in self._there() if name not in self._known]
        self._known.update(found)
        return [name for name in found if self._is_ours(name)]

    def _ask(self, why: str) -> str:
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{self.host}"
        draft = tempfile.mkdtemp(prefix=".", dir=self.folder)
        try:
            told = {"schema": SCHEMA, "host": self.host, "why": why[:MOST_WHY]}
            files.write(os.path.join(draft, ASK), "-share", json.dumps(told))
            os.rename(draft, os.path.join(self.folder, name))
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        self._known.add(name)
        self._mine = name, self.clock() + GATHER
        mine = [one for one in self._there() if one[STAMP:] == self.host and one != name]  # a clock may have been set back
        for old in mine[: len(mine) + 1 - self.keeps]:
            shutil.rmtree(os.path.join(self.folder, old), ignore_errors=True)
        return name

    def _add(self, moment: str, box: str) -> None:
        """Copies a box into a moment. Several watches of one machine have a number each."""
        for number in range(1, 100):
            name = f"{self.host}{f'.{number}' if number > 1 else ''}{bundles.SUFFIX}"
            path = os.path.join(self.folder, moment, name)
            if not os.path.lexists(path):
                with reading.open_regular(box) as source:
                    self._write(path, source)
                return

    @staticmethod
    def _write(path: str, source: IO[bytes]) -> None:
        """A file for this user alone, as the box is."""
        with contextlib.closing(files.Draft(path, "-share", mode=0o600)) as copy, copy.named():
            shutil.copyfileobj(source, copy.file)
            copy.keep()

    # ---- a stall elsewhere ---------------------------------------------------------------------------------------------------
    def look(self, _: Any) -> None:
        """One more look of the watch: answers who asks, and judges what has come."""
        if self.clock() - self._touched >= TOUCH:
            self._touch()
        for moment in self._new():
            self._answer(moment)
        moment, due = self._mine
        if moment and (self.clock() >= due or self._complete(moment)):
            self._mine = "", 0.0
            try:
                self._together(moment)
            except Exception as e:  # what other machines have written ends no watch
                log.passed_over(e)
                if self.watch is not None:
                    self.watch.tell(model.LOST, label=moment, pid=None, why=f"no verdict on its boxes: {model.reason(e)}")

    def _answer(self, moment: str) -> None:
        assert self.watch is not None
        with log.passing_over(GdbextError, OSError, ValueError, AttributeError):
            with reading.open_regular(os.path.join(self.folder, moment, ASK)) as f:
                told = reading.json_of(f.read(MOST_ASK), ASK)
            if told.get("schema") != SCHEMA:
                return
            host, why = (str(told.get(key))[:MOST_WHY] for key in ("host", "why"))
            self.watch.tell(model.ASKED, host=host, why=why)
            refused = self.boxes.refusal(asked=True)
            if refused:  # nothing is stopped for a box that is not written
                self.watch.tell(model.NO_BOX, why=refused)
                return
            self._answering = moment
            try:
                self.watch.asked(f"{host} asked: {why}")
            finally:
                self._answering = ""

    def _boxes_of(self, moment: str) -> list[str]:
        found = [os.path.join(self.folder, moment, one) for one in os.listdir(os.path.join(self.folder, moment))]
        return sorted(one for one in found if one.endswith(bundles.SUFFIX) and stat.S_ISREG(os.lstat(one).st_mode))[
            :MOST_MACHINES
        ]

    def _complete(self, moment: str) -> bool:
        """Whether each watch that is there has added its box."""
        with log.passing_over(OSError):
            return 1 < self._watches() <= len(self._boxes_of(moment))
        return False

    def _together(self, moment: str) -> None:
        """The one verdict on the boxes of a moment."""
        boxes, watch = self._boxes_of(moment), self.watch
        if len(boxes) < 2 or watch is None:
            return
        found, folder = self._judge(boxes), os.path.join(self.folder, moment)
        ids = found.ids
        page = "\n".join(found.text) + "\n"
        for name, text in ((HANG, json.dumps(found.data, default=str)), (bundles.PAGE, page)):
            self._write(os.path.join(folder, name), io.BytesIO(text.encode("utf-8", "backslashreplace")))
        named = [{key: c.get(key) for key in ("label", "pid", "tid", "node")} for c in found.data["culprits"]]
        watch.tell(
            model.VERDICT, engine="", verdict=found.kind, sentence=without_ids(found.data["sentence"], ids), seconds=None,
            culprits=[{**c, "label": without_ids(str(c["label"] or ""), ids)} for c in named], machines=len(boxes), file=folder,
        )  # fmt: skip
