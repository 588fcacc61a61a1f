"""A subject: tasks in asyncio's debug mode, which keeps where each was made. Says it: {task: [[function, file, line]]}, innermost
first. made_tasks.py [python]: tasks of pure Python."""

import asyncio
import json
import os
import sys

if "python" in sys.argv:
    asyncio.Task = asyncio.tasks.Task = asyncio.tasks._CTask = asyncio.tasks._PyTask


async def rests(event):
    await event.wait()


def by_a_helper(event):
    return asyncio.ensure_future(rests(event))


async def main():
    event = asyncio.Event()
    made = {"plain": asyncio.get_running_loop().create_task(rests(event)), "helped": by_a_helper(event)}
    made["listed"] = [asyncio.ensure_future(rests(event)) for _ in range(2)][1]
    await asyncio.sleep(0)
    truth = {name: [[f.name, f.filename, f.lineno] for f in task._source_traceback][::-1] for name, task in made.items()}
    print(json.dumps({"pid": os.getpid(), "made": truth, "at": {name: id(task) for name, task in made.items()}}), flush=True)
    await asyncio.sleep(3600)


asyncio.run(main(), debug=True)
