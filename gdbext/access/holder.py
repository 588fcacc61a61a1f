"""Pauses threads of other processes for moments while their memory is read. A process of its own does it.

A request names the threads to pause, or those to leave alone. The answer comes while the threads are paused. They stay paused
until the next message or for the time that was requested, at most `LONGEST`. They are stopped without a signal (ptrace.py):
whatever becomes of the reader, and of this process, every thread runs on. Where this process is stopped itself, or frozen, a
timer of the kernel ends it (own_end.py); version 1's freezer of the reader's group does not reach it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import time
from typing import Any, Callable, Collection, Iterator

from .. import log
from ..errors import GdbextError, NotFoundError, UnstoppableError
from . import cgroups, helpers, own_end, ptrace, stop_nothing

MODULE = "gdbext.access.holder"
LIMIT = 0.05  # seconds that threads are paused at most, from the first one on, whatever becomes of the reader
LONGEST = 0.25  # the same for a whole copy of a process
OFTEN = 0.05  # of the periods of a quota of CPU time
SHORTEST = 0.4  # part of it that is worth a stop
SETTLING = 0.6  # part of it that may pass until all of them are paused
TIMEOUT = 0.03  # seconds that a thread may take to stop, while others are paused already
PATIENCE = 0.02  # seconds that another tracer is given to release the process
STRAY = 0.001  # seconds between two checks of threads that entered the kernel before their stop
GRACE = 0.05  # seconds after the end of a pause in which this process has to have resumed its threads, or ends
BREATH = 0.2  # seconds that a process runs before the next pause, where the one before took too long
ANSWER = 10.0  # seconds that this process may take to answer, on a machine at full load
ENDED = "the process that stops threads has ended; they run on"


class Held:
    """Threads that are paused.

    * `registers`: raw, by tid
    * `stray`: the threads that did not stop
    * `pac_mask`: raw
    * `began`: since when (monotonic); `until`: when they are resumed, `limit` seconds later
    * `seconds`: how long they were paused; set after the block
    * `over`: they were resumed before the block's end, so the memory that was read is of different moments; set after the block
    """

    def __init__(self, answer: Any, limit: float) -> None:
        self.registers = {int(tid): bytes.fromhex(raw) for tid, raw in answer["registers"].items()}
        self.stray: set[int] = set(answer["stray"])
        self.pac_mask, self.until = bytes.fromhex(answer["pac_mask"]), float(answer["until"])
        self.limit, self.began = limit, self.until - limit
        self.seconds, self.over = 0.0, False


class Holder:
    """Pauses threads of other processes, one process at a time; `UnstoppableError` where no process can be started. `pid`: the
    helper process that does it. `cpu`: its CPU seconds,
    once it was ended."""

    def __init__(self) -> None:
        self._start()
        self._past = 0.0

    def _start(self) -> None:
        if stop_nothing.installed():
            raise UnstoppableError(stop_nothing.WHY)
        try:
            self._helper = helpers.Helper(MODULE, serve)
        except GdbextError as e:
            raise UnstoppableError(str(e)) from None
        self.pid = self._helper.pid

    @property
    def cpu(self) -> float:
        return self._past + self._helper.cpu

    @contextlib.contextmanager
    def held(
        self,
        pid: int,
        only: Collection[int] | None = None,
        *,
        spare: Collection[int] = (),
        limit: float = LIMIT,
        timeout: float = TIMEOUT,
        patience: float = PATIENCE,
    ) -> Iterator[Held]:
        """Pauses threads of a process during the `with` block, `limit` seconds at most.

        They are the threads in `only`, except those in uninterruptible sleep, or else all threads but those in `spare`.
        `UnstoppableError` where the process may not be stopped. `timeout`, `patience`: as for `Stopped`."""
        if stop_nothing.installed():
            raise UnstoppableError(stop_nothing.WHY)
        named = None if only is None else list(only)
        answer = self._begin([pid, named, list(spare), min(limit, LONGEST), timeout, patience])
        if "error" in answer:
            raise (NotFoundError if answer.get("gone") else UnstoppableError)(answer["error"])
        held = Held(answer, min(limit, LONGEST))
        try:
            yield held
        finally:
            held.seconds, held.over = self._end_of(held)

    def _begin(self, what: object) -> Any:
        for again in (True, False):
            if self._helper.is_gone():  # the one before was ended
                self._past += self._helper.cpu
                time.sleep(BREATH)
                self._start()
            try:
                return self._ask(what)
            except GdbextError as e:
                log.passed_over(e)
                if not again:
                    raise
        return None

    def _end_of(self, held: Held) -> tuple[float, bool]:
        """(how long threads were paused, whether they were resumed before we asked for it)"""
        try:
            seconds, over = self._ask(None)
            return float(seconds), bool(over)
        except GdbextError as e:  # it was stopped or killed meanwhile: the kernel has resumed them
            log.passed_over(e)
            return min(time.monotonic() - held.began, held.limit + GRACE), True

    def _ask(self, what: object) -> Any:
        try:
            self._helper.send(json.dumps(what).encode())
            return json.loads(self._helper.receive(ANSWER))
        except (EOFError, TimeoutError, ValueError):
            self._helper.end()
            raise UnstoppableError(ENDED) from None

    def end(self) -> None:
        """Ends the helper process; the threads that it has paused run on."""
        self._helper.end()

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *reason: object) -> None:
        self.end()


class _Requests:
    """Requests that come in on `channel`. This process ends when the channel does."""

    def __init__(self, channel: helpers.Channel) -> None:
        self._channel = channel
        self._strays: list[ptrace.Stopped] = []
        self._deadline = own_end.Deadline()
        self._away = False  # from the reader's control groups
        self._waits = False  # it gets CPU time as those groups do
        self._short = {folder: short for folder, _, _, _, short in cgroups.quotas("self")}

    def next(self, limit: float | None = None) -> bytes | None:
        """The next message; None where none came in `limit` seconds. Without a limit strays are released as they come to their
        stop."""
        if limit is not None:
            return self._channel.receive() if self._channel.comes(limit) else None
        while True:
            self._release_strays()
            if self._channel.comes(STRAY if self._strays else None):
                return self._channel.receive()

    def _release_strays(self) -> None:
        """One of them that comes to its stop, while this process is stopped itself, is to run on too."""
        self._strays = [one for one in self._strays if not one.release_stray()]
        self._deadline.set(LONGEST + GRACE if self._strays else 0)

    def _leave(self, pid: int) -> None:
        """Goes to the control groups of the process that it is to pause, once: where the reader's are frozen, or get no CPU, this
        one is to end the pause all the same. With real-time priority a quota of CPU time does not count. Not to a group that is
        frozen itself."""
        if not self._away and not own_end.is_frozen(pid):
            self._away = True
            come_back = _come_first()
            first = os.sched_getscheduler(0) == os.SCHED_FIFO
            come_back()
            stays = cgroups.move_to(pid, cgroups.FREEZES if first else cgroups.RUNS)
            self._waits = bool(stays) and not first

    def _bounded(self, limit: float) -> float:
        """The seconds of a pause. Where this process's control groups use their CPU time up, often or since it began, it may have
        to wait for a period's end to resume the threads: the pause is shorter by that. `UnstoppableError` where little would be
        left."""
        longest = 0
        for folder, quota, period, count, short in cgroups.quotas("self") if self._waits else ():
            if short <= self._short.get(folder, 0) and short <= OFTEN * count:
                continue
            if period / 1e6 > (1 - SHORTEST) * limit:
                used = f"the control group of this command has used its CPU time up ({folder}: {quota} µs in {period} µs)"
                raise UnstoppableError(f"{used}, and a stop may take longer than {limit:g} s there")
            longest = max(longest, period)
        return limit - longest / 1e6

    def serve(self) -> None:
        """Answers them."""
        while True:
            pid, only, spare, limit, timeout, patience = json.loads(self.next() or b"null")
            self._leave(pid)
            self._come_round(pid, timeout)
            away = {tid for one in self._strays if one.pid == pid for tid in one.stray}
            if only is not None:
                only = [tid for tid in only if tid not in away and ptrace.thread_state(pid, tid) != "D"]
            stopped = ptrace.Stopped(pid, timeout, only=only, spare=away.union(spare), patience=patience)
            try:
                limit = self._bounded(limit)
                stopped.standing = SETTLING * limit
                stopped.begins = functools.partial(self._deadline.set, limit + GRACE)
                with before_others(), stopped:
                    until = stopped.began + limit
                    self._say(stopped, away, until)
                    following = self.next(max(until - time.monotonic(), 0))
            except NotFoundError as e:  # they have ended, or none was left
                if only is None:
                    self._channel.send(json.dumps({"error": str(e), "gone": True}).encode())
                    continue
                self._say(stopped, away, time.monotonic())
                following = self.next()
            except GdbextError as e:
                self._channel.send(json.dumps({"error": str(e)}).encode())
                continue
            over = following is None
            if stopped.stray:
                self._strays.append(stopped)
            self._release_strays()
            if over:
                self.next()
            self._channel.send(json.dumps([stopped.seconds, over]).encode())

    def _come_round(self, pid: int, seconds: float) -> None:
        """Waits until the strays of a process, except those in uninterruptible sleep, have come to their stop and are
        released."""
        deadline = time.monotonic() + seconds
        while True:
            self._release_strays()
            late = {tid for one in self._strays if one.pid == pid for tid in one.stray}
            if all(ptrace.thread_state(pid, tid) == "D" for tid in late) or time.monotonic() > deadline:
                return
            time.sleep(STRAY)

    def _say(self, stopped: ptrace.Stopped, away: set[int], until: float) -> None:
        registers, mask = {}, b""
        for tid in stopped.threads:
            with contextlib.suppress(OSError):  # killed meanwhile
                registers[tid] = ptrace.general_registers(tid).hex()
                mask = mask or ptrace.pac_mask(tid)
        answer = {"registers": registers, "stray": sorted(stopped.stray | away), "pac_mask": mask.hex(), "until": until}
        self._channel.send(json.dumps(answer).encode())


@contextlib.contextmanager
def before_others() -> Iterator[None]:
    """Gives this thread, and those that it starts, priority over all others on a busy machine, where this user may: another
    process is paused meanwhile. It is the lowest real-time priority; a nice value, the second choice, counts only within the
    session where Linux groups sessions (sched(7), autogroup)."""
    back = _come_first()
    try:
        yield
    finally:
        back()


def _come_first() -> Callable[[], None]:
    """-> what gives the priority back."""
    policy, param, nice = os.sched_getscheduler(0), os.sched_getparam(0), os.getpriority(os.PRIO_PROCESS, 0)
    with log.passing_over(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        return lambda: os.sched_setscheduler(0, policy, param)
    with log.passing_over(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        return lambda: os.setpriority(os.PRIO_PROCESS, 0, nice)
    return lambda: None  # neither is this user's


def serve(channel: helpers.Channel) -> None:
    """The process."""
    _Requests(channel).serve()


def main() -> int:
    """The process, started as a module."""
    return helpers.run(serve)
