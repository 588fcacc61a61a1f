"""Threads and tasks that sleep in loops: some with a way out, some without. Says of each, by its name, whether it goes round for
ever."""

import asyncio
import json
import queue
import sys
import threading
import time

NEVER, EMPTY = [], queue.Queue()
FOR_EVER, LEAVES = [], []


def for_ever(function):
    FOR_EVER.append(function)


def leaves(function):
    LEAVES.append(function)


def nap(seconds=0.2):
    time.sleep(seconds)


@for_ever
def plain():
    while True:
        time.sleep(1)


@for_ever
def by_a_call_that_handles_errors():
    n = 0
    while True:
        try:
            n += 1
            if n % 2:
                continue
            nap()
        except ValueError:
            nap(1)
        else:
            NEVER.clear()


@for_ever
def each_item_in_turn():
    while True:
        for n in range(3):
            if n:
                with threading.Lock():
                    nap(n / 10)


@for_ever
def until_it_is_interrupted():
    try:
        while True:
            nap()
    except KeyboardInterrupt:
        print("bye")


@for_ever
def in_a_handler():
    while True:
        try:
            EMPTY.get_nowait()
        except queue.Empty:
            time.sleep(0.3)


@leaves
def once():
    time.sleep(1000)


@leaves
def until_it_is_there():
    while not NEVER:
        time.sleep(0.3)


@leaves
def by_a_break():
    while True:
        nap()
        if NEVER:
            break
    print("there")


@leaves
def by_a_return():
    while True:
        try:
            return EMPTY.get_nowait()
        except queue.Empty:
            nap()


@leaves
def by_an_error():
    while True:
        try:
            nap()
            if NEVER:
                raise StopIteration
        except StopIteration:
            break


@leaves
def by_a_handler():
    while True:
        try:
            nap()
            iter(NEVER)
        except StopIteration:
            break
    print("ended")


@leaves
def in_an_inner_loop():
    while True:
        n = 0
        while not NEVER:
            nap()
        n += 1


@leaves
def so_many_times():
    for _ in range(1 << 30):
        nap()


@leaves
def with_the_program():
    while True:
        nap()
        if NEVER:
            sys.exit()


async def goes(name):
    asyncio.current_task().set_name(name)
    if name == "for ever task":
        while True:
            await asyncio.sleep(0.3)
            NEVER.clear()
    while not NEVER:
        await asyncio.sleep(0.3)


async def main():
    tasks = [asyncio.ensure_future(goes("for ever task")), asyncio.ensure_future(goes("leaves task"))]
    await asyncio.sleep(0.2)
    goes_on = {"for ever task": True, "leaves task": False}
    goes_on.update({**{f.__name__: True for f in FOR_EVER}, **{f.__name__: False for f in LEAVES}})
    print(json.dumps({"goes": goes_on}), flush=True)
    await asyncio.gather(*tasks)


for function in FOR_EVER + LEAVES:
    threading.Thread(target=function, daemon=True).start()
asyncio.run(main())
