"""A line of every command that runs outside gdb, on programs that have something of everything."""

import re

# Threads that run, wait for a lock and sleep, tasks, an exception in flight, and functions that a spinning thread may change.
SUBJECT = """
import asyncio, itertools, threading, time
lock, counts, seen = threading.Lock(), [0], {"a": 1}
def spins():
    for i in itertools.count():
        counts[0] = len(seen) + i
        if not i % 10000:
            time.sleep(0.05)  # for as long as a file's tests go on: the processors are others' too
def waits():
    with lock:
        pass
async def main():
    tasks = [asyncio.create_task(asyncio.sleep(900), name=f"task-{i}") for i in range(3)]
    await asyncio.gather(*tasks)
def handles():
    try:
        {}["missing"]
    except KeyError:
        threading.Event().wait()
lock.acquire()
for one in (spins, waits, lambda: asyncio.run(main()), handles):
    threading.Thread(target=one, daemon=True).start()
time.sleep(0.5)
print("ready", flush=True)
threading.Event().wait()
"""
OK, NO, ANY = (0, 3), (1,), (0, 1, 3)
# {name: [(words, exit statuses, what it says)]}; P is the process, D a new folder, G a core of a GPU, C a snapshot of P
LINES = {
    "llm": [("guide", OK, "llm-hang")],
    "llm-ranks": [("", OK, '"ranks"')],
    "llm-bt": [("-all -on P", OK, '"threads"'), ("-still -on P", OK, '"pauses"')],
    "pybt": [("-all -locals -on P", OK, "spins")],
    "pyframe": [("0 -on P", OK, '"frame"')],
    "pyup": [("0 -on P", OK, '"frame"')],
    "pydown": [("0 -on P", OK, '"frame"')],
    "pylist": [("-on P", ANY, "")],
    "pylocals": [("-on P", OK, '"locals"'), ("-still -on P", OK, '"pauses"')],
    "pyprint": [("sorted(seen.items())+[len(counts)] -on P", OK, "('a', 1), 1")],
    "pythreads": [("-on P", OK, '"threads"'), ("-samples 3 -on P", OK, '"samples"')],
    "pyexc": [("-locals -on P", OK, "KeyError")],
    "pytasks": [("-all -on P", OK, "task-1"), ("-still -on P", OK, "task-1")],
    "pytensor": [("counts -on P", NO, "error")],
    "pytensors": [("-on P", ANY, "")],
    "pyheap": [
        ("-on P -all -save D/heap", ANY, '"pyheap/1"'),  # one line where this Python has no numpy
        ("-on C", ANY, '"pyheap/1"'),
        ("-on P -diff D/heap -unstopped", ANY, '"pyheap/1"'),
    ],
    "llm-inject": [("debugpy P", NO, "-unsafe")],
    "llm-profile": [("start P", NO, "error")],
    "llm-layers": [("-compare D/a D/b", NO, "error")],
    "llm-kv": [("-on P", NO, "error")],
    "llm-requests": [("P", ANY, "")],
    "llm-request": [("req-1 -on P", NO, "error")],
    "llm-memory": [("P", OK, '"parts"'), ("-o D/blocks.json P", NO, "torch has set up no GPU in it")],
    "llm-addr": [("0x10 -on P", ANY, "")],
    "llm-kernels": [("-on P", ANY, "")],
    "llm-gpucore": [("-setup", OK, "CUDA_ENABLE"), ("G", OK, '"devices"')],
    "llm-snapshot": [
        ("P -o D/x.core -with counts", OK, '"snapshots"'),
        ("P -max-bytes 0 -o D/y.core", OK, '"snapshots"'),
        ("P -all -o D/z.core", OK, '"left_out_bytes"'),
        ("P -heap -o D/h.core", OK, '"left_out_bytes"'),
        ("P -max-bytes 0 -carry", OK, '"image"'),
    ],
    "llm-stacks": [
        ("P -html D/s.html -folded D/s.txt", OK, "spins"),
        ("P -samples 3", OK, "spins"),
        ("P -unstopped", OK, "spins"),
        ("C", OK, "spins"),
    ],
    "llm-locks": [("P", OK, '"edges"')],
    "llm-hang": [("P", OK, '"verdict"'), ("C", OK, '"verdict"')],
    "llm-watch": [("P -after 0.3 -for 2 -o D", ANY, '"looks"')],
    "llm-report": [("D/r.html P", OK, '"verdict"')],
    "llm-record": [
        ("P -for 0.5 -o D/a.record -o D/a.html -o D/a.json", OK, '"functions"'),
        ("P -for 0.3 -native -o D/b.record", OK, '"functions"'),
        ("-read D/a.record", OK, '"functions"'),
        ("-read D/a.record -with D/a.json -o D/w.json", OK, '"beside"'),
        ("-diff D/a.record D/b.record -o D/d.html", OK, '"differences"'),
    ],
    "llm-top": [("P -once", OK, '"ranks"')],
    "doctor": [("", ANY, '"checks"')],
    "install": [("--gdbinit D/gdbinit --no-wheels", OK, '"install/1"')],
    "uninstall": [("--gdbinit D/gdbinit --no-wheels", OK, '"uninstall/1"')],
    "cache": [("clear", OK, '"files"')],
    "completion": [("bash", OK, "complete -o default")],
    "gdb": [("", OK, "init.py")],
    "skill": [("D/skill", OK, "SKILL.md")],
    "vscode": [("-pick", OK, '"launch"')],
    "mcp": [("--limit 5", ANY, "")],  # its package needs a newer Python; where it is not there, one line says so
}


def words_of(line, place):
    """The words of a line of `LINES`. `place`: {letter: what it stands for}."""
    return [re.sub(r"^[PDGCE](?=$|/)", lambda m: place[m[0]], word) for word in line.split()]
