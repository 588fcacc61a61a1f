"""situations.py SEED, fSEED, gSEED, hSEED of the second to the fourth family, tSEED of trio's, lSEED of limiters', or "WAIT,
STATE[, DECOY...]": one process in a situation that the seed draws, or the words name: what it waits for, who should end that wait
and what that one does, and what else goes on beside it. Says what is true as JSON, then lives it: {"pid", "pids" to look at,
"others" to look at too, "drawn", "hung", "right": [verdicts], "culprits": [tid or pid], "ends": [tid, pid, "task NAME" or state
in which the chain of its wait may end]}.

The truth is by construction: the process knows whom it made stand, spin, end or go on.
"""

import concurrent.futures
import ctypes
import gc
import importlib.util
import json
import os
import queue
import random
import select
import signal
import sys
import threading
import time
import types

import situation_asyncio
import situation_gates
import situation_healthy
import situation_healthy_others  # noqa: F401  it adds to the family
import situation_kept
import situation_permits
import situation_processes
import situation_ranks
import situation_sleepers
import situation_tries
import situation_trio
import situation_workers
from situation_decoys import DECOYS, FORKS
from situation_parts import LATE, SPINNING, STUCK, children, forever, full, keep, listener, met, notify, others, thread, tids
from situation_truth import FIELD, OWN, ends, field_truth


def truth(kind, drawn):
    """(hung, right verdicts, culprits by name) for a wait of `kind` ("lock", "product", "child")."""
    held = {"lock": "lock-held", "product": "starved", "child": "starved"}[kind]
    if drawn in ("sleeping", "receiving"):
        return True, [held], ["ender"]
    if drawn == "behind a lock":
        return True, ["lock-held"], ["third"]
    if drawn in SPINNING:
        return True, ["livelock"], ["ender"]
    if drawn == "dead":
        return True, {"lock": ["lock-held"], "product": ["dead-thread"], "child": ["crashed"]}[kind], ["dead"]
    if drawn == "nobody":
        return True, ["unknown", "starved"], []
    if drawn == "resting":
        return False, ["idle"], []
    return False, ["busy"], []


# ---- waits of the main thread ----------------------------------------------------------------------------------------
# Each takes (draw, `drawn`: what the ender does) and gives (kind of truth, function that waits).
def a_lock(make):
    def build(draw, drawn):
        lock, has, kind = make(), threading.Event(), "lock"
        if drawn == "slow":

            def turn():
                n = 0
                while True:
                    with lock:
                        n += 1
                        time.sleep(LATE / 2)
                    time.sleep(LATE)

            def wait():
                n = 0
                while True:
                    with lock:
                        n += 1
                    time.sleep(0.01)

            thread("ender", turn)
            return kind, wait
        if drawn == "dead":

            def take():
                lock.acquire()
                has.set()

            thread("ender", take).join()
            if make is threading.Lock:
                kind = "lock without an owner"
        elif drawn == "nobody":
            lock.acquire()
            thread("beside", forever)
        else:

            def hold():
                with lock:
                    has.set()
                    (STUCK.get(drawn) or SPINNING.get(drawn))()

            thread("ender", hold)
            has.wait()

        def wait_for():
            with lock:
                pass

        return kind, wait_for

    return build


def a_product(give, take, make):
    """`give(it)` in the ender ends one `take(it)` of the main thread."""

    def build(draw, drawn):
        it = make()
        if drawn == "slow":

            def giver():
                while True:
                    time.sleep(LATE)
                    give(it)

            def wait():
                n = 0
                while True:
                    take(it)
                    n += 1

            thread("ender", giver)
            return "product", wait
        if drawn == "resting":
            s = listener()

            def serve():
                while True:
                    s.accept()
                    give(it)

            thread("ender", serve)
        elif drawn == "dead":
            made = thread("ender", lambda it: None, it)
            made.join()
            keep.append(made)

            def wait_for_dead():
                giver = made
                take(it)
                return giver

            return "product", wait_for_dead
        elif drawn != "nobody":

            def stuck(it):
                (STUCK.get(drawn) or SPINNING.get(drawn))()
                give(it)

            thread("ender", stuck, it)

        def wait_for():
            take(it)

        return "product", wait_for

    return build


def clear(event):
    event.wait()
    event.clear()


def a_join(draw, drawn):
    if drawn == "slow":

        def short():
            time.sleep(LATE)

        def wait():
            n = 0
            while True:
                n += 1
                thread("ender", short).join()

        return "product", wait
    made = thread("ender", STUCK.get(drawn) or SPINNING.get(drawn))
    return "product", made.join


def a_future(draw, drawn):
    pool = concurrent.futures.ThreadPoolExecutor(1)
    keep.append(pool)

    def wait_slow():
        n = 0
        while True:
            n += pool.submit(lambda: time.sleep(LATE) or 1).result()

    if drawn == "slow":
        return "product", wait_slow
    began = threading.Event()

    def work():
        tids["ender"] = threading.get_native_id()
        began.set()
        (STUCK.get(drawn) or SPINNING.get(drawn))()

    future = pool.submit(work)
    began.wait()
    return "product", future.result


# ---- main threads that are well, or whose fate is their own ----------------------------------------------------------
def crosswise(make_one, make_two):
    def build(draw, drawn):
        a, b, meet = make_one(), make_two(), threading.Barrier(2)

        def other():
            with a:
                meet.wait()
                with b:
                    pass

        thread("ender", other)

        def wait():
            with b:
                meet.wait()
                with a:
                    pass

        return "cycle", wait

    return build


def resting_server(draw, drawn):
    s = listener()
    return "rest", lambda: [s.accept() for _ in iter(int, 1)]


def resting_select(draw, drawn):
    s = listener()
    return "rest", lambda: [select.select([s], [], [], 50) for _ in iter(int, 1)]


def resting_workers(draw, drawn):
    """Worker threads wait for work that the listener's thread would give them."""
    q, s = queue.Queue(), listener()

    def work(q):
        while True:
            q.get()

    for i in range(4):
        thread(f"worker-{i}", work, q)

    def serve():
        while True:
            s.accept()
            q.put(1)

    return "rest", serve


def full_prefetch(draw, drawn):
    """A producer that has filled its queue, and a consumer that waits for a client."""
    q, s = full(), listener()

    def produce(q):
        while True:
            q.put(1)

    thread("producer", produce, q)

    def serve():
        while True:
            s.accept()
            q.get()

    return "rest", serve


def computing(draw, drawn):
    def work():
        total, step = 0, 0
        while True:
            step += 1
            for i in range(2000):
                total += i * step % 7

    return "work", work


def collecting(draw, drawn):
    def work():
        cells = [[i] for i in range(100000)]
        while True:
            gc.collect()
        del cells

    return "work", work


def pumping(draw, drawn):
    """Items go through a queue between threads."""
    q = queue.Queue(4)

    def produce(q):
        n = 0
        while True:
            n += 1
            q.put(n)
            time.sleep(0.02)

    thread("producer", produce, q)

    def consume():
        n = 0
        while True:
            n += q.get()

    return "work", consume


def a_daemon(draw, drawn):
    """It waits to be told that it is to end; a thread that can reach the same looks after something now and then."""
    it = types.SimpleNamespace(stop=threading.Event(), looked=0)

    def look(it):
        while True:
            time.sleep(draw.choice((60, 3600)))
            it.looked += 1

    thread("hourly", look, it)
    return "daemon", lambda: it.stop.wait()


def waits_for_a_flag(draw, drawn):
    flag = threading.Event()

    def wait():
        while not flag.is_set():
            time.sleep(0.02)

    return "poll", wait


FAMILIES = {
    "f": FIELD,
    "g": situation_gates.WAITS,
    "h": {**situation_tries.WAITS, **situation_kept.WAITS},
    "t": situation_trio.WAITS,
    "l": situation_permits.WAITS,
    "p": situation_healthy.WAITS,
}
ANY = ("slow", "sleeping", "receiving", "behind a lock", "spinning", "trying", "nobody")
PRODUCT = (*ANY, "resting", "dead")
STANDS = ("slow", "sleeping", "behind a lock", "spinning", "trying")
WAITS = {
    "lock": (a_lock(threading.Lock), (*ANY, "dead")),
    "rlock": (a_lock(threading.RLock), (*ANY[:-1], "dead")),
    "semaphore": (a_lock(lambda: threading.Semaphore(1)), STANDS),
    "queue": (a_product(lambda q: q.put(1), lambda q: q.get(), queue.Queue), PRODUCT),
    "queue of C": (
        a_product(lambda q: q.put(1), lambda q: q.get(), queue.SimpleQueue),
        ("slow", "sleeping", "nobody", "spinning"),
    ),
    "room": (a_product(lambda q: q.get(), lambda q: q.put(1), full), STANDS),
    "event": (a_product(threading.Event.set, clear, threading.Event), PRODUCT),
    "condition": (a_product(notify, met, threading.Condition), PRODUCT),
    "join": (a_join, STANDS),
    "worker": (situation_workers.a_worker, situation_workers.STATES),
    "future": (a_future, STANDS),
    "locks crosswise": (crosswise(threading.Lock, threading.RLock), ("cycle",)),
    "conditions crosswise": (crosswise(threading.Lock, threading.Condition), ("cycle",)),
    "server": (resting_server, ("resting",)),
    "select": (resting_select, ("resting",)),
    "workers": (resting_workers, ("resting",)),
    "prefetch": (full_prefetch, ("resting",)),
    "computing": (computing, ("slow",)),
    "collecting": (collecting, ("slow",)),
    "pumping": (pumping, ("slow",)),
    "flag": (waits_for_a_flag, ("nobody",)),
    "daemon": (a_daemon, ("resting",)),
    **situation_processes.WAITS,
    **situation_asyncio.WAITS,
    **situation_ranks.WAITS,
    **situation_sleepers.WAITS,
}


def needs(name):
    """What an interpreter must have for a wait of this name: "uvloop", "torch", "vllm" or ""."""
    if name in situation_healthy.NEEDS:
        return situation_healthy.NEEDS[name]
    if name in situation_asyncio.UVLOOP:
        return "uvloop"
    return "vllm" if name in situation_ranks.RINGS else "torch" if name in situation_ranks.GLOO else ""


def draw_for(seed):
    """(name of the wait, what the ender does, decoys) that a seed draws, or that words name as "drawn" does."""
    if not seed[1:].isdigit():
        name, drawn, *decoys = seed.split(", ")
        return name, drawn, [d for d in DECOYS if d.__name__ in decoys]
    family = FAMILIES.get(seed[0], WAITS)
    draw = random.Random(int(seed) if family is WAITS else seed)
    pairs = [(name, drawn) for name, (_, states) in family.items() for drawn in states]
    name, drawn = pairs[draw.randrange(len(pairs))]
    decoys = draw.sample(DECOYS, draw.choice((0, 1, 1, 2, 3)))
    return name, drawn, decoys


def truth_of(kind, drawn):
    """(hung, right verdicts, culprits by name)"""
    if kind.startswith("field"):
        return field_truth(kind, drawn)
    if kind == "program":
        return situation_healthy.truth(drawn)
    if kind == "gate":
        return situation_gates.truth(drawn)
    if kind in OWN:
        return OWN[kind].truth(drawn)
    if kind == "cycle":
        return True, ["lock-cycle"], ["ender", "main", "task"]
    if kind == "lock without an owner":
        return True, ["lock-held", "starved", "unknown"], ["dead"]
    if kind == "async lock":
        return True, ["lock-held"], ["task"]
    if kind == "loop":
        return True, ["loop-blocked"] + (["lock-held"] if drawn == "behind a lock" else []), ["main", "third"]
    if kind == "rest":
        return False, ["idle"], []
    if kind == "work":
        return False, ["busy"], ["main"]
    if kind == "work for others":
        return (True, ["livelock"], ["ender"]) if drawn in situation_workers.FOR_EVER else (False, ["busy"], [])
    if kind == "poll":
        return True, ["unknown"], []
    if kind == "daemon":
        return False, ["idle", "unknown"], []
    if kind == "task":
        return truth_of_task(drawn)
    if kind == "device" and drawn != "slow":
        return True, ["kernel"], []
    if kind.startswith("sleep") or kind == "service":
        return situation_sleepers.truth(kind, drawn)
    if kind == "ranks":
        return truth_of_ranks(drawn)
    return truth({"device": "product", "thread's product": "product", "ring": "product"}.get(kind, kind), drawn)


def truth_of_task(drawn):
    """A task waits for what another task of its loop does not give."""
    if drawn in SPINNING:
        return True, ["loop-blocked", "livelock"], ["main"]
    if drawn in ("dead", "behind a future"):
        return True, ["unknown", "dead-thread", "starved"], ["task"]
    return truth("product", drawn)[:2] + (["task"] if drawn == "sleeping" else [],)


def truth_of_ranks(drawn):
    """Ranks wait in a collective for one that does not come."""
    if drawn == "cycle":
        return True, ["collective"], ["ender", "main"]
    if drawn == "behind a lock":
        return True, ["collective", "lock-held"], ["ender", "third"]
    return (False, ["busy"], []) if drawn == "slow" else (True, ["collective", "livelock"], ["ender"])


def leave_to_torch(name):
    """Goes on in the interpreter that has torch, uvloop and vLLM, where this one has not; says so where there is none."""
    if not needs(name) or importlib.util.find_spec("uvloop"):
        return
    python = os.environ.get("GDBEXT_TEST_TORCH_PYTHON")
    if not python:
        print(json.dumps({"left_out": "no interpreter with torch, uvloop and vLLM"}), flush=True)
        sys.exit(0)
    os.execv(python, [python, *sys.argv])


def main(seed):
    tids["main"] = threading.get_native_id()
    name, drawn, decoys = draw_for(seed)
    leave_to_torch(name)
    for decoy in decoys:
        if decoy in FORKS:
            decoy()
    with_children = list(children)
    family = next(one for one in (WAITS, *FAMILIES.values()) if name in one)
    kind, wait = family[name][0](random.Random(seed), drawn)
    for decoy in decoys:
        if decoy not in FORKS:
            decoy()
    hung, right, culprits = truth_of(kind, drawn)
    while "third" in culprits and "main" not in culprits and "third" not in tids:
        time.sleep(0.01)  # it begins in the ender's thread
    told = [tids[c] for c in culprits if c in tids] + [c for c in culprits if c in ("dead", "task")]
    mine = [pid for pid in children if pid not in with_children]
    said = {
        "pid": os.getpid(),
        "pids": mine,
        "others": others,
        "drawn": f"{name}, {drawn}" + "".join(f", {d.__name__}" for d in decoys),
        "hung": hung,
        "right": right,
        "culprits": told,
        "ends": [tids.get(end, end) for end in (ends(kind, drawn, culprits) if hung else ())],
    }
    print(json.dumps(said), flush=True)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    wait()


if __name__ == "__main__":
    main(sys.argv[1])
