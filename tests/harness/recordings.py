"""Recordings that are made up, and what subjects say that they did while they were recorded."""

import json

from gdbext.timeline.recording import DROPPED, GIL, LOCK, RUNNING, Changes, ProcessTrack, Recording, ThreadTrack

HOSTILE = "</title><script>alert(1)</script><img src=x onerror=alert(1)>\"'&;\x1b[31m\u202e\ud800"


def made(name="work", file="/src/model.py"):
    """One process of two threads, ten looks a tenth of a second apart: main runs `work` under `step`, with a torn look at 0.5;
    the other waits for a lock, and for the GIL from 0.8 on."""
    rec = Recording(10.0, 1000.0)
    step = rec.tree.child(0, rec.tree.frame("step", "/src/loop.py", 10))
    first = rec.tree.child(step, rec.tree.frame(name, file, 20))
    second = rec.tree.child(step, rec.tree.frame(name, file, 21))
    process = ProcessTrack("TP0", 100)
    for i in range(10):
        process.begins.append(i / 10)
        process.ends.append(i / 10 + 0.001)
    main, other = ThreadTrack(100, "MainThread"), ThreadTrack(101, name)
    for look, node, state in (
        (0, step, RUNNING),
        (2, first, RUNNING),
        (4, second, RUNNING),
        (5, DROPPED, RUNNING),
        (6, first, LOCK),
    ):
        main.add(look, node, state)
    other.add(0, step, LOCK)
    other.add(8, step, GIL)
    other.ended = 9
    process.threads = [main, other]
    process.kept = [(0, 6, 0)]
    process.gil, process.gc = Changes([(0, 0), (6, -1)]), Changes([(0, 0), (3, 1), (4, 0)])
    process.counters = {name: [(0.0, 1.0), (0.5, 2.0)]}
    process.samples, process.dropped, process.finish = 19, 1, 1.0
    rec.processes, rec.seconds = [process], 1.0
    return rec


def acted(*threads, gc=(), kept=(), looks=100, label="P", pid=1):
    """(recording, process) of threads that did [(looks, calls, state)] one after the other, a hundredth of a second a look."""
    rec = Recording(100.0, 0.0)
    process = ProcessTrack(label, pid)
    rec.processes, rec.seconds, process.finish = [process], looks / 100, looks / 100
    for i in range(looks):
        process.begins.append(i / 100)
        process.ends.append(i / 100)
    for number, did in enumerate(threads):
        process.threads.append(did_it(rec, did, pid + number))
    process.gc, process.kept = Changes(gc or [(0, 0)]), list(kept)
    return rec


def did_it(rec, did, tid):
    thread, look = ThreadTrack(tid, f"thread {tid}"), 0
    for count, calls, state in did:
        node = 0
        for call in calls.split():
            function, _, file = call.partition("@")
            node = rec.tree.child(node, rec.tree.frame(function, "/x/" + (file or "own.py"), 1))
        thread.add(look, node, state)
        look += count
    return thread


def said(target, first, end):
    """{what: seconds} that the subject says of the time from `first` to `end`."""
    found = {}
    for line in target.process.stdout:
        one = json.loads(line)
        found[one["what"]] = found.get(one["what"], 0.0) + max(0.0, min(one["end"], end) - max(one["begin"], first))
        if one["end"] >= end:
            break
    return found
