"""asyncio tasks that wait through coroutines of Cython (compiled_tasks.pyx, built as `compiled`); prints {task: [its Python
functions, innermost first]}."""

import asyncio
import json

import compiled


async def leaf(event):
    await event.wait()


async def coroutine(event):
    await compiled.compiled(leaf(event))


async def generator(event):
    async for _ in compiled.generated(leaf(event)):
        pass


async def awaitable(event):
    await compiled.Awaitable(leaf(event))


async def plain(event):
    await leaf(event)


async def main():
    event = asyncio.Event()
    tasks = {f.__name__: f(event) for f in (coroutine, generator, awaitable, plain)}
    tasks["direct"], tasks["twice"] = compiled.compiled(leaf(event)), compiled.twice(leaf(event))
    tasks = [asyncio.create_task(c, name=name) for name, c in tasks.items()]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    own = {name: ["Event.wait", "leaf"] + [name] * (name not in ("direct", "twice")) for name in (t.get_name() for t in tasks)}
    print(json.dumps(own), flush=True)
    await event.wait()


asyncio.run(main())
