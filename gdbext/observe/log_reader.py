"""Logs of processes, read by a helper: nothing ends a wait for a file server, and a log may lie on one, or name a file on one.

A log that several processes write to is read once. Whoever reads it gets what was written since the last reading, whoever wrote
it and whoever read it then."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any, Sequence, Tuple

from .. import log
from ..access import helpers
from ..errors import GdbextError
from .logs import Look, Tail, Traceback, file_of

MODULE = "gdbext.observe.log_reader"
PATIENCE, STARVED = 2.0, 3  # seconds that an answer is waited for, so many times where the helper wants a CPU
AGAIN = 60.0  # seconds after which a log that did not answer is asked for again
LOST = 3  # helpers left behind at the same time; with so many no log is read

Key = Tuple[int, int]  # the device and the number of a file


class Logs:
    """`cpu`: seconds of a CPU that its helpers have used since they were there."""

    def __init__(self) -> None:
        self.cpu = 0.0
        self._helper: helpers.Helper | None = None
        self._used = 0.0  # of a CPU, by the helper that there is
        self._left_behind: list[helpers.Helper] = []
        self._users: dict[Key, list[int]] = {}  # pids, as they came
        self._at: dict[Key, int] = {}  # bytes that were read
        self._late: dict[Key, float] = {}  # when one did not answer
        self._unproved: set[Key] = set()  # whose next look opens no other file: that may be what did not answer

    def join(self, pid: int, back: int = 0) -> Key | None:
        """The log of a process, which is read from now on, or from so many bytes before its end; None where it has none that
        answers."""
        found = self._ask([pid], None, back)
        if found is None or found.get("key") is None:
            return None
        key: Key = tuple(found["key"])
        self._users.setdefault(key, []).append(pid)
        self._at.setdefault(key, found["at"])
        return key

    def users(self, key: Key) -> Sequence[int]:
        """The pids of the processes whose log it is, as they joined."""
        return self._users.get(key, ())

    def read(self, key: Key) -> Look | None:
        """What came since the last reading, whoever's it was; None where it does not answer. `OSError` where it can be read no
        longer."""
        if time.monotonic() - self._late.get(key, -AGAIN) < AGAIN:
            return None
        found = self._ask(self._users[key], key)
        if found is None:
            self._late[key] = time.monotonic()
            self._unproved.add(key)
            return None
        self._unproved.discard(key)
        if found.get("key") is None:
            raise OSError(found.get("why", "it is another file now"))
        self._at[key] = found["at"]
        levels, tracebacks, skipped, written = found["look"]
        return Look(levels, [Traceback(tuple(frames), error) for frames, error in tracebacks], skipped, written)

    def leave(self, key: Key, pid: int) -> None:
        """A process's log is not wanted any longer."""
        self._users[key].remove(pid)
        if not self._users[key]:
            del self._users[key], self._at[key]
            self._late.pop(key, None)
            self._unproved.discard(key)
            if self._helper is not None:
                with contextlib.suppress(EOFError):
                    self._helper.send(json.dumps({"close": key}).encode())

    def close(self) -> None:
        """No log is read any longer."""
        if self._helper is not None:
            self._helper.end()
            self._helper = None

    def _ask(self, pids: Sequence[int], key: Key | None, back: int = 0) -> dict[str, Any] | None:
        """A helper's answer, None where none comes: then that one is left behind."""
        self._left_behind = [one for one in self._left_behind if not one.is_gone()]
        if len(self._left_behind) >= LOST:
            return None
        wanted = {"pids": pids, "key": key, "at": self._at.get(key) if key else None, "back": back}
        try:
            if self._helper is None:
                self._helper = helpers.Helper(MODULE, serve)
                self._used = json.loads(self._helper.receive(helpers.START))["cpu"]
            self._helper.send(json.dumps({**wanted, "prove": key not in self._unproved}).encode())
            found: dict[str, Any] = json.loads(self._helper.answer(PATIENCE, STARVED))
        except (GdbextError, EOFError, TimeoutError) as e:
            log.passed_over(e, "the helper that reads logs")
            if self._helper is not None:
                self._helper.end(0)
                self._left_behind.append(self._helper)
                self._helper = None
            return None
        self.cpu += found["cpu"] - self._used
        self._used = found["cpu"]
        return found


def serve(channel: helpers.Channel) -> None:
    """The process that reads."""
    tails: dict[Key, Tail] = {}
    channel.send(json.dumps({"cpu": time.process_time()}).encode())  # it is there
    while True:
        asked = json.loads(channel.receive())
        if "close" in asked:
            if tuple(asked["close"]) in tails:
                tails.pop(tuple(asked["close"])).close()
            continue
        try:
            answer = _answer(tails, asked)
        except OSError as e:
            answer = {"why": e.strerror or str(e)}
        channel.send(json.dumps({**answer, "cpu": time.process_time()}).encode())


def _answer(tails: dict[Key, Tail], asked: dict[str, Any]) -> dict[str, Any]:
    wanted = tuple(asked["key"]) if asked["key"] else None
    key = wanted if wanted in tails else None
    for pid in asked["pids"] if key is None else ():
        found = file_of(pid)
        if found is not None and wanted in (None, found[1]):
            key = found[1]
            if key not in tails:
                tails[key] = Tail(found[0], pid, asked["back"], asked["at"])
            break
    if key is None:
        return {}
    look = None
    if wanted is not None:
        try:
            look = tails[key].look(asked["prove"])
        except OSError:
            tails.pop(key).close()
            raise
    return {"key": key, "at": tails[key].at, "look": look}


def main() -> int:
    """The process, started as a module."""
    return helpers.run(serve)
