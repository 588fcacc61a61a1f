"""Tasks that wait for tasks: in groups, in nested ones, below wait_for, in races, by gather, by as_completed and by themselves.
Prints {task: [those that await it]}, as `python -m asyncio ps` tells it from CPython 3.14 on."""

import asyncio
import asyncio.staggered
import json
import os
import sys

edges = {}


def awaits(by, *names):
    for name in names:
        edges.setdefault(name, []).append(by)


async def leaf():
    await asyncio.get_running_loop().create_future()


async def follower(task):
    await task


async def grouped(name, within=None):
    async def group():
        async with asyncio.TaskGroup() as g:
            task = g.create_task(leaf(), name=name + " leaf")
            g.create_task(follower(task), name=name + " follower")

    awaits(name, name + " leaf", name + " follower")
    awaits(name + " follower", name + " leaf")
    await (asyncio.wait_for(group(), within) if within != 0 else group())


async def nested():
    async with asyncio.TaskGroup() as outer:
        outer.create_task(grouped("inner", 0), name="inner")
        awaits("nested", "inner")


async def alone():
    """A future of its own, below an asyncio function that waits for nothing itself."""
    await asyncio.wait_for(leaf(), None)


async def race():
    await asyncio.staggered.staggered_race([leaf, leaf], delay=None)


async def main():
    held = [asyncio.create_task(alone(), name="alone")]
    if sys.version_info >= (3, 11):
        held += [asyncio.create_task(grouped(name, within), name=name) for name, within in (("plain", 0), ("none", None))]
        held.append(asyncio.create_task(nested(), name="nested"))
    children = [asyncio.create_task(leaf(), name=f"child{i}") for i in range(3)]

    async def gathers():
        await asyncio.gather(*children)

    held.append(asyncio.create_task(gathers(), name="gathers"))
    awaits("gathers", "child0", "child1", "child2")
    taken = [asyncio.create_task(leaf(), name=f"taken{i}") for i in range(2)]

    async def takes():
        for one in asyncio.as_completed(taken):
            await one

    held.append(asyncio.create_task(takes(), name="takes"))
    if sys.version_info >= (3, 13):  # earlier only the callbacks know for which it waits
        awaits("takes", "taken0", "taken1")
    racing = asyncio.create_task(race(), name="race")
    for _ in range(20):
        await asyncio.sleep(0)
    known = {*(t.get_name() for t in held + children + taken), *edges, "race", asyncio.current_task().get_name()}
    racers = sorted(t.get_name() for t in asyncio.all_tasks() if t.get_name() not in known)
    racers.sort(key=lambda name: (len(name), name))
    awaits("race", *(racers if sys.version_info >= (3, 13, 1) else racers[:1]))  # earlier it waits for those of its first turn
    print(json.dumps({"pid": os.getpid(), "edges": edges, "racers": racers}), flush=True)
    await racing


asyncio.run(main())
