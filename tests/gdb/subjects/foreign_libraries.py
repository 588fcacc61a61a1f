"""Programs for foreign_programs.py of what vLLM brings along: web servers on asyncio and uvloop, anyio, ZeroMQ, torch.distributed
with gloo."""

import asyncio
import datetime
import itertools
import os
import socket
import subprocess
import tempfile
import time
import urllib.request

from foreign_programs import LATE, forked, nap, program


def _client(port, *paths):
    """Asks a server for each path, each in a process of its own."""

    def ask(path):
        while True:
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}").read()
            time.sleep(LATE)

    for path in paths:
        forked(ask, path)
        time.sleep(0.5)


def _uvicorn(say, hung, loop, paths=("/work", "/ping"), takes=0.0):
    import fastapi
    import uvicorn

    app = fastapi.FastAPI()

    @app.get("/work")
    async def work():
        if hung:
            time.sleep(1000)
        time.sleep(takes)
        await asyncio.sleep(LATE)

    @app.get("/ping")
    async def ping():
        return "pong"

    async def main():
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", loop=loop))
        serving = asyncio.ensure_future(server.serve())
        while not server.started:
            await asyncio.sleep(LATE)
        _client(server.servers[0].sockets[0].getsockname()[1], *paths)
        say()
        await serving

    run = asyncio.run
    if loop == "uvloop":
        import uvloop

        run = uvloop.run
    run(main())


@program("loop-blocked", libraries=True)
def fastapi_handler(say, hung):
    """An async handler of FastAPI under uvicorn sleeps."""
    _uvicorn(say, hung, "asyncio")


@program("loop-blocked", libraries=True)
def fastapi_handler_on_uvloop(say, hung):
    _uvicorn(say, hung, "uvloop")


@program("loop-blocked", libraries=True)
def the_only_client_of_fastapi(say, hung):
    """Nothing else of the loop is due, and nothing lies unread."""
    _uvicorn(say, hung, "asyncio", ["/work"])


@program("loop-blocked", libraries=True)
def the_only_client_of_fastapi_on_uvloop(say, hung):
    """As before; well, each answer keeps the loop for a while."""
    _uvicorn(say, hung, "uvloop", ["/work"], takes=0.3)


@program("loop-blocked", libraries=True)
def clients_that_nobody_reads_on_uvloop(say, hung):
    """Two more have come since the handler sleeps; well, they have had their answers and stay connected."""
    import uvloop

    async def answer(reader, writer):
        while await reader.readline():
            writer.write(b"done\n")

    def ask(port):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"work\n")
            connection.recv(5)
            time.sleep(1000)

    async def main():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        children = [forked(ask, port)]
        await asyncio.sleep(1)
        if hung:
            asyncio.get_running_loop().call_soon(time.sleep, 1000)
            children += [forked(ask, port) for _ in range(2)]
        say()
        await server.serve_forever()

    uvloop.run(main())


@program("loop-blocked", "starved", libraries=True)
def aiohttp_handler(say, hung):
    """A handler of aiohttp waits for a program."""
    from aiohttp import web

    async def work(request):
        if hung:
            subprocess.run(["sleep", "1000"], check=True)
        return web.Response(text="done")

    async def main():
        app = web.Application()
        app.add_routes([web.get("/work", work)])
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        _client(site._server.sockets[0].getsockname()[1], "/work", "/work")
        say()
        for _ in itertools.count():
            await asyncio.sleep(LATE)

    asyncio.run(main())


@program("lock-cycle", libraries=True)
def anyio_locks_crosswise(say, hung):
    import anyio

    async def take(first, second):
        while True:
            async with first:
                await anyio.sleep(LATE)
                async with second:
                    await anyio.sleep(LATE)

    async def main():
        one, two = anyio.Lock(), anyio.Lock()
        async with anyio.create_task_group() as group:
            group.start_soon(take, one, two)
            group.start_soon(take, *((two, one) if hung else (one, two)))
            say()

    anyio.run(main)


@program("starved", libraries=True)
def zmq_request(say, hung):
    """A REQ socket waits for a REP socket's process, which sleeps."""
    import zmq

    path = f"ipc://{tempfile.mkdtemp()}/socket"

    def reply():
        socket = zmq.Context().socket(zmq.REP)
        socket.bind(path)
        while True:
            socket.recv()
            nap(hung)
            socket.send(b"answer")

    child = forked(reply)
    socket = zmq.Context().socket(zmq.REQ)
    socket.connect(path)
    say(child)
    while True:
        socket.send(b"question")
        socket.recv()


def _ranks(say, live):
    """This process as rank 0 and a child as rank 1; `live(rank, dist, goes)` is what each does, which calls `goes` once it has
    begun its fourth step."""
    import torch
    import torch.distributed as dist

    path = os.path.join(tempfile.mkdtemp(), "store")

    def begin(rank):
        torch.set_num_threads(1)
        limit = datetime.timedelta(seconds=900)
        dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2, timeout=limit)
        live(rank, dist, lambda: rank or say(child))

    child = forked(begin, 1)
    begin(0)


@program("collective", libraries=True)
def gradients_of_a_rank_without_data(say, hung):
    """DistributedDataParallel averages gradients in the backward pass; one rank has no more data, and waits for some."""
    import torch

    def train(rank, dist, goes):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        steps = torch.optim.SGD(model.parameters(), lr=0.01)
        for n in itertools.count():
            if n == 3:
                goes()
            if rank:
                nap(hung and n > 2)
            steps.zero_grad()
            model(torch.ones(2, 4) * n).sum().backward()
            steps.step()

    _ranks(say, train)


@program("collective", libraries=True)
def a_broadcast_whose_source_reads_a_file(say, hung):
    """Rank 1 reads what it is to broadcast from a pipe into which nobody writes."""
    read, write = os.pipe()

    def share(rank, dist, goes):
        for n in itertools.count():
            held = [n]
            if n == 3:
                goes()
            if rank:
                if not hung or n < 3:
                    os.write(write, b"x")
                os.read(read, 1)
                time.sleep(LATE)
            dist.broadcast_object_list(held, src=1)

    _ranks(say, share)
