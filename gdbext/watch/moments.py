"""Boxes of one moment on several machines: watches that share a folder ask one another for theirs when one has found a stall.

A moment is a folder there, `STAMP-HOST`, made whole by a rename, with `ask.json` ({"schema", "host", "why"}), then a box of each
machine, `HOST.gdbext`; `hang.json` and `page.md` are the one verdict on them, by who asked. `HOST-PID.watch` is there while a
watch is. No clocks are compared: a moment is new that was not there at the look before."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import time
from typing import Any, Callable, Sequence

from .. import log
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
MOMENT = re.compile(r"\d{8}-\d{6}-[A-Za-z0-9._-]{1,64}", re.ASCII)
MOST_ASK, MOST_WHY, MOST_MACHINES = 1 << 16, 200, 1024

Judge = Callable[[Sequence[str]], Verdict]  # of the paths of boxes: one verdict


class Moments:
    """`keep` is the watch's own (`loop.Hands`), `look` hears each look. `keeps`: how many moments of its own it leaves there."""

    def __init__(self, folder: str, boxes: Boxes, judge: Judge, keeps: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self.boxes, self._judge, self.keeps, self.clock = (
            files.folder_for(folder, "-share"),
            boxes,
            judge,
            keeps,
            clock,
        )
        self.host = re.sub(r"[^A-Za-z0-9._-]", "_", os.uname().nodename)[:48].lstrip(".") or "host"
        self.watch: Watch | None = None
        self._known = set(self._there())
        self._answering = ""  # the moment that the next box is for
        self._mine = ("", 0.0)  # the moment that was asked for here, and when its boxes are judged at the latest
        self._until, self._said = 0.0, ("", ())  # of the last moment: until then the same signature is the same stall
        self._mark = os.path.join(self.folder, f"{self.host}-{os.getpid()}.watch")
        with log.passing_over(GdbextError, OSError):
            files.write(self._mark, "-share", "", True)

    def close(self) -> None:
        """Nobody waits for boxes of this watch any longer."""
        with contextlib.suppress(OSError):
            os.unlink(self._mark)

    def _there(self) -> list[str]:
        with contextlib.suppress(OSError):
            return sorted(name for name in os.listdir(self.folder) if MOMENT.fullmatch(name))
        return []

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
        made = self.boxes.keep_one(why, verdict, watch)
        if moment and made is not None:
            self._until, self._said = now + SAME, said
            with log.passing_over(GdbextError, OSError):
                self._add(moment, made["box"])
        return made

    def _new(self) -> list[str]:
        """Moments that others have begun since the last look."""
        found = [name for name in self._there() if name not in self._known]
        self._known.update(found)
        return found

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
        for old in [one for one in self._there() if one.endswith(f"-{self.host}")][: -self.keeps]:
            shutil.rmtree(os.path.join(self.folder, old), ignore_errors=True)
        return name

    def _add(self, moment: str, box: str) -> None:
        """Copies a box into a moment. Several watches of one machine have a number each."""
        for number in range(1, 100):
            name = f"{self.host}{f'.{number}' if number > 1 else ''}{bundles.SUFFIX}"
            path = os.path.join(self.folder, moment, name)
            if not os.path.lexists(path):
                with reading.open_regular(box) as source, files.writing(path, "-share") as copy:
                    shutil.copyfileobj(source, copy)
                return

    # ---- a stall elsewhere ---------------------------------------------------------------------------------------------------
    def look(self, _: Any) -> None:
        """One more look of the watch: answers who asks, and judges what has come."""
        for moment in self._new():
            self._answer(moment)
        moment, due = self._mine
        if moment and (self.clock() >= due or self._complete(moment)):
            self._mine = "", 0.0
            with log.passing_over(GdbextError, OSError):
                self._together(moment)

    def _answer(self, moment: str) -> None:
        assert self.watch is not None
        with log.passing_over(GdbextError, OSError, ValueError, AttributeError):
            with reading.open_regular(os.path.join(self.folder, moment, ASK)) as f:
                told = reading.json_of(f.read(MOST_ASK), ASK)
            if told.get("schema") != SCHEMA:
                return
            host, why = (str(told.get(key))[:MOST_WHY] for key in ("host", "why"))
            self.watch.tell(model.ASKED, host=host, why=why)
            refused = self.boxes.refusal()
            if refused:  # nothing is stopped for a box that is not written
                self.watch.tell(model.NO_BOX, why=refused)
                return
            self._answering = moment
            try:
                self.watch.asked(f"{host} asked: {why}")
            finally:
                self._answering = ""

    def _boxes_of(self, moment: str) -> list[str]:
        folder = os.path.join(self.folder, moment)
        return sorted(os.path.join(folder, one) for one in os.listdir(folder) if one.endswith(bundles.SUFFIX))[:MOST_MACHINES]

    def _complete(self, moment: str) -> bool:
        """Whether each watch that is there has added its box."""
        with log.passing_over(OSError):
            watches = sum(name.endswith(".watch") for name in os.listdir(self.folder))
            return 1 < watches <= len(self._boxes_of(moment))
        return False

    def _together(self, moment: str) -> None:
        """The one verdict on the boxes of a moment."""
        boxes, watch = self._boxes_of(moment), self.watch
        if len(boxes) < 2 or watch is None:
            return
        found, folder = self._judge(boxes), os.path.join(self.folder, moment)
        ids = found.ids
        files.write(os.path.join(folder, HANG), "-share", json.dumps(found.data, default=str))
        files.write(os.path.join(folder, bundles.PAGE), "-share", "\n".join(found.text) + "\n")
        named = [{key: c.get(key) for key in ("label", "pid", "tid", "node")} for c in found.data["culprits"]]
        watch.tell(
            model.VERDICT, engine="", verdict=found.kind, sentence=without_ids(found.data["sentence"], ids), seconds=None,
            culprits=[{**c, "label": without_ids(str(c["label"] or ""), ids)} for c in named], machines=len(boxes), file=folder,
        )  # fmt: skip
