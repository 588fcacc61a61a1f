"""Waits of situations.py between tasks of trio, and of anyio on trio. Each takes (draw, `drawn`: what the task that has it, or is
to give it, does) and gives (kind of truth, function that waits).

"slow": it gives it in turn; "sleeping"; "in a thread": it waits for a thread that sleeps; "behind a task": a third task has what
it waits for; "nobody": it waits for an event that nobody sets; "done": it has ended without giving anything."""

import time

from situation_parts import LATE, thread, tids

KEPT = ("slow", "sleeping", "in a thread", "behind a task", "nobody")
GIVEN = (*KEPT, "done")


async def stands(trio, drawn, third):
    if drawn == "sleeping":
        await trio.sleep(100000)
    elif drawn == "in a thread":
        await trio.to_thread.run_sync(time.sleep, 100000)
    elif drawn == "behind a task":
        async with third:
            pass
    elif drawn == "nobody":
        await trio.Event().wait()


def kept(make):
    """A lock that `make(trio)` makes."""

    def tasks(trio, drawn, third):
        lock = make(trio)

        async def ender():
            while True:
                async with lock:
                    await (trio.sleep(LATE) if drawn == "slow" else stands(trio, drawn, third))
                await trio.sleep(LATE / 4)

        async def waiter():
            n = 0
            while True:
                async with lock:
                    n += 1
                await trio.sleep(LATE / 4)

        return ender, waiter

    return build(tasks)


def given(make):
    """`make(trio)` gives (give, take), coroutines."""

    def tasks(trio, drawn, third):
        give, take = make(trio)

        async def ender():
            if drawn == "done":
                return
            while True:
                await (trio.sleep(LATE) if drawn == "slow" else stands(trio, drawn, third))
                await give()

        async def waiter():
            n = 0
            while True:
                await take()
                n += 1

        return ender, waiter

    return build(tasks)


def channel(trio):
    send, receive = trio.open_memory_channel(0)
    return (lambda: send.send(1)), receive.receive


def event(trio):
    box = [trio.Event()]

    async def give():
        done, box[0] = box[0], trio.Event()
        done.set()

    return give, lambda: box[0].wait()


def build(tasks):
    def made(draw, drawn):
        import trio

        with_thread = draw.random() < 0.5

        async def main():
            third = trio.Lock()
            ender, waiter = tasks(trio, drawn, third)

            async def has():
                async with third:
                    await trio.sleep(100000)

            async with trio.open_nursery() as nursery:
                if drawn == "behind a task":
                    nursery.start_soon(has, name="third")
                    await trio.sleep(0)
                nursery.start_soon(ender, name="ender")
                await trio.sleep(0)
                nursery.start_soon(waiter, name="waiter")
                if with_thread:
                    nursery.start_soon(trio.sleep, 5000, name="beside")

        tids["ender"] = "task"
        if with_thread:
            thread("beside", time.sleep, 100000)
        return "trio", lambda: trio.run(main)

    return made


WAITS = {
    "trio lock": (kept(lambda trio: trio.Lock()), KEPT),
    "trio limiter": (kept(lambda trio: trio.CapacityLimiter(1)), KEPT),
    "trio semaphore": (kept(lambda trio: trio.Semaphore(1)), KEPT),
    "trio channel": (given(channel), GIVEN),
    "trio event": (given(event), GIVEN),
}


def truth(drawn):
    """(hung, right verdicts, culprits by name)"""
    if drawn == "slow":
        return False, ["busy"], []
    return True, ["lock-held", "starved", "lock-cycle", *(["unknown"] if drawn in ("done", "nobody") else [])], ["task"]


def ends(drawn):
    return {"slow": [], "done": ["nobody", "unknown", "ended", "ring"], "nobody": ["task ender", "nobody", "unknown", "ring"],
            "behind a task": ["task third"]}.get(drawn, ["task ender", "sleeps"])  # fmt: skip
