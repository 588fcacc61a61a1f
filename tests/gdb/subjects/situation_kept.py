"""Waits of situations.py for a lock that no frame of a thread shows who has: a generator, a coroutine or an exception keeps it.
Each takes (draw, `drawn`: who could go on with it) and gives (kind of truth, function that waits).

"slow": a thread goes on with it in turn; "sleeping", "behind a lock": a thread that has it at hand stands; "itself": the one that
waits has it; "leaked": nothing has it but a container."""

import asyncio
import threading
import time

from situation_parts import LATE, keep, stuck, thread, tids

STATES = ("slow", "sleeping", "behind a lock", "itself", "leaked")
ENDED = ("exception", "slow")


def has(lock):
    """A generator that is suspended with a lock."""
    with lock:
        yield 1
    yield 2


def has_by_hand(lock):
    lock.acquire()
    yield 1
    lock.release()
    yield 2


async def has_in_a_coroutine(lock):
    with lock:
        await Pause()


class Pause:
    def __await__(self):
        yield


def kept(make, form):
    def build(draw, drawn):
        lock = make()
        new = {"generator": has, "by hand": has_by_hand, "coroutine": has_in_a_coroutine}[form]

        def begin():
            it = new(lock)
            it.send(None)
            return it

        def go_on(it):
            try:
                it.send(None)
            except StopIteration:
                pass

        if drawn in ("slow", "sleeping", "behind a lock"):
            began = threading.Event()

            def turns():
                while True:
                    it = begin()
                    began.set()
                    time.sleep(LATE)
                    go_on(it)
                    time.sleep(LATE / 4)

            def stands():
                it = begin()
                began.set()
                stuck(drawn)()
                go_on(it)

            thread("ender", turns if drawn == "slow" else stands)
            began.wait()
        elif drawn == "leaked":
            thread("ender", lambda: keep.append([{"it": begin()}])).join()
            thread("beside", lambda lock: time.sleep(100000), lock)  # it can reach the lock, and never had it
            del tids["ender"]
        else:
            if isinstance(lock, type(threading.RLock())):
                lock = threading.Lock()
            tids["ender"] = tids["main"]

        def wait():
            n = 0
            mine = begin() if drawn == "itself" else None
            while True:
                with lock:
                    n += 1
                time.sleep(0.01)
                keep.append(mine) if n == 0 else None

        return "kept", wait

    return build


def ended(draw, drawn):
    """A lock that was taken by a call that an exception has ended."""
    lock = threading.Lock()

    def work(fails):
        lock.acquire()
        if fails:
            raise ValueError("it fails before it gives the lock back")
        time.sleep(LATE)
        lock.release()

    def run():
        try:
            work(True)
        except ValueError as e:
            keep.append(e)

    def turns():
        while True:
            work(False)
            time.sleep(LATE / 4)

    if drawn == "slow":
        thread("ender", turns)
    else:
        thread("ender", run).join()
        del tids["ender"]
        thread("beside", lambda lock: time.sleep(100000), lock)

    def wait():
        n = 0
        while True:
            with lock:
                n += 1
            time.sleep(0.01)

    return "kept", wait


def closed_loop(draw, drawn):
    """A task of a loop that is closed, or only not run, has the lock."""
    lock = threading.Lock()

    async def holder():
        with lock:
            await asyncio.sleep(100000)

    async def other():
        keep.append(asyncio.create_task(holder(), name="holder"))
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(other())
    if drawn == "closed":
        loop.close()
    keep.append(loop)
    tids["ender"] = "task"

    def wait():
        with lock:
            pass

    return "kept", wait


WAITS = {
    **{f"lock in a {form}": (kept(threading.Lock, form), STATES) for form in ("generator", "coroutine")},
    "lock in a generator by hand": (kept(threading.Lock, "by hand"), STATES),
    "condition in a generator": (kept(threading.Condition, "generator"), STATES[:3]),
    "semaphore in a generator": (kept(lambda: threading.Semaphore(1), "generator"), ("slow", "sleeping", "leaked")),
    "lock after an exception": (ended, ENDED),
    "lock of a task that is not run": (closed_loop, ("closed", "not run")),
}


def truth(drawn):
    """(hung, right verdicts, culprits by name)"""
    if drawn == "slow":
        return False, ["busy"], []
    if drawn in ("leaked", "exception"):
        return True, ["lock-held", "starved"], []
    if drawn in ("closed", "not run"):
        return True, ["lock-held", "starved"], ["task"]
    if drawn == "itself":
        return True, ["lock-cycle", "lock-held", "starved"], ["main"]
    return True, ["lock-held"], ["third"] if drawn == "behind a lock" else ["ender"]


def ends(drawn):
    return {"slow": [], "leaked": ["nobody", "ended", "unknown"], "exception": ["ended", "nobody"],
            "itself": ["main", "ring", "nobody"], "closed": ["task holder", "ended"], "not run": ["task holder"]}.get(
                drawn, ["ender", "third"])  # fmt: skip
