"""primitives.py CASE: a program that a row of `gdbext.primitives.table` makes. CASE is JSON (`harness.primitives.Case`).

A main thread, or the task that asyncio runs, waits at the primitive by `call`, or asks over and over by `ask`; "giver", a thread
or a task, has the call that ends it, `give`. `state`: "sleeps" (an hour before it gives), "ended" (it has raised before), "gives"
(at once, each time). `names`: how a class of this program around the primitive calls it and its methods, [] for none: a class
around that class for the second name. `pauses`: the call that asks does so itself. `handled`: a signal's handler gives too. Says
{"pid", "giver": its tid, 0 for a task}.
"""

import asyncio
import importlib
import inspect
import json
import os
import signal
import sys
import threading
import time

CASE = json.loads(sys.argv[1])
HOUR = 3600
began = threading.Event()
told = {"pid": os.getpid(), "giver": 0}
ASYNC = CASE["is_async"]
ASKS = {
    "is": "while not thing.{ask}({short}):\n    {pause}",
    "not": "while thing.{ask}({short}):\n    {pause}",
    "count": "while not thing.{ask}({short}):\n    {pause}",
    "raises": "while True:\n    try:\n        thing.{ask}({short})\n        break\n    except Exception:\n        {pause}",
    "blocking": "while not thing.{ask}({short}):\n    {pause}",
}


def wrapper(names, methods):
    """The source of classes round `thing`: each keeps the one before as an attribute and passes calls on."""
    lines = []
    for n, name in enumerate(names):
        lines += [f"class Box{n}:", "    def __init__(self, inner):", f"        self.{name} = inner"]
        for outer, call in methods.items():
            waits = ASYNC and outer == "take"
            inner = f"self.{name}.{outer + '()' if n else call}"
            lines += [f"    {'async ' * waits}def {outer}(self):", f"        return {'await ' * waits}{inner}"]
        lines.append(f"thing = Box{n}(thing)")
    return "\n".join(lines)


def made():
    """The primitive, in its wrappers."""
    space = {CASE["needs"].partition(".")[0]: importlib.import_module(CASE["needs"].partition(".")[0])}
    importlib.import_module(CASE["needs"])
    space["thing"] = eval(CASE["made"], space)
    if CASE["first"]:
        eval(f"thing.{CASE['first']}", space)
    methods = {"take": CASE["call"], "deliver": CASE["give"]}
    if CASE["ask"]:
        methods["peek"] = f"{CASE['ask']}({CASE['short']})"
    exec(wrapper(CASE["names"], {name: call for name, call in methods.items() if call}), space)
    return space["thing"]


GIVE = "deliver()" if CASE["names"] else CASE["give"]
CALL = "take()" if CASE["names"] else CASE["call"]
ASK = "peek" if CASE["names"] else CASE["ask"]
pause = ("await asyncio.sleep(0.01)" if ASYNC else "time.sleep(0.01)") if not CASE["pauses"] else "tries += 1"
WAIT = (
    f"{'await ' * ASYNC}thing.{CALL}"
    if not CASE["ask"]
    else ASKS[CASE["how"]].format(ask=ASK, short="" if CASE["names"] else CASE["short"], pause=pause)
)
SLEEP = f"{'await asyncio' if ASYNC else 'time'}.sleep"
GIVEN = f"{SLEEP}(HOUR)\n    given = thing.{GIVE}" if CASE["state"] == "sleeps" else f"{SLEEP}(0.01)\n    given = thing.{GIVE}"
SOURCE = f"""
import asyncio, time
HOUR = {HOUR}
{"async " * ASYNC}def waits(thing):
    tries = 0
    {WAIT.replace(chr(10), chr(10) + "    ")}

{"async " * ASYNC}def gives(thing):
    {GIVEN}
    return given
"""
code = {}
exec(compile(SOURCE, os.path.join(os.path.dirname(os.path.abspath(__file__)), "made_program.py"), "exec"), code)
boxes = []


def thread():
    told["giver"] = threading.get_native_id()
    began.set()
    if CASE["state"] == "ended":
        raise SystemExit
    while True:
        if boxes:
            code["gives"](boxes.pop())
        time.sleep(0.005)


def say():
    print(json.dumps(told), flush=True)


def lives():
    if CASE["state"] != "gives":
        thing = made()
        boxes.append(thing)
    if CASE["handled"]:
        signal.signal(signal.SIGTERM, lambda *_: code["gives"](thing))
    giver = threading.Thread(target=thread, name="giver", daemon=True)
    giver.start()
    began.wait()
    if CASE["state"] == "ended":
        giver.join()
        boxes.clear()
    elif CASE["state"] == "sleeps":
        while boxes:
            time.sleep(0.01)
    say()
    rounds = 0
    while True:
        if CASE["state"] == "gives":
            thing = made()
            boxes.append(thing)
        code["waits"](thing)
        rounds += 1


async def lives_in_a_loop():
    async def gives(thing):
        if CASE["state"] == "ended":
            raise SystemError
        given = await code["gives"](thing)
        if inspect.isawaitable(given):
            await given

    rounds = 0
    asyncio.get_running_loop().call_later(0.2, say)
    while True:
        thing = made()
        giver = asyncio.create_task(gives(thing), name="giver")
        await asyncio.sleep(0)
        await code["waits"](thing)
        await giver
        rounds += 1


if __name__ == "__main__":
    asyncio.run(lives_in_a_loop()) if ASYNC else lives()
