"""Lines of the product's rooms against their budget: what grows says why, what shrinks gives back.

`python3 tests/unit/test_budget.py` prints today's numbers.
"""

import collections
import os

import pytest

PACK = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "gdbext")
# Lines of a room's .py files on 28 November 2026. A room that has become smaller by more than SLACK gets its new number here.
BUDGET = {
    "__init__": 22,
    "__main__": 233,
    "access": 11778,
    "agents": 439,
    "answers": 5475,
    "archive": 48,
    "commands": 5800,
    "control": 7517,
    "cpython": 13169,
    "dap": 721,
    "engines": 11148,
    "errors": 58,
    "frame_filters": 217,
    "functions": 116,
    "heap": 2880,
    "init": 33,
    "kernels": 3075,
    "kvcache": 2477,
    "layouts": 0,
    "log": 107,
    "observe": 2395,
    "package": 117,
    "printers": 478,
    "render": 1172,
    "requests": 1832,
    "session": 2604,
    "setup": 1209,
    "stacks": 5079,
    "timeline": 3128,
    "torch": 5724,
    "verdict": 5900,
    "wheels": 171,
}
# What rooms have grown by since: (room, lines, why these lines are worth it). A room that shrinks takes its lines out first.
GROWN = [
    ("cpython", 85, "tasks of Twisted, which was idle while its coroutines held one another up"),
    ("watch", 80, "each engine's own verdict under one watch; which of several deaths was first; crash loops are told"),
    ("watch", 135, "each engine's own verdict under one watch; which of several deaths was first; crash loops; orderly restarts"),
    ("access", 10, "a process that has ended is not read again and again"),
    ("commands", 15, "the verdict on each group of processes for the watch"),
    ("watch", 70, "two readers' faults of the watch: what it must not lose, leak or be ended by"),
    ("compiled", 54, "a command of gdbext.pyz compiled 158 modules at each start: 0.7 s of CPU where 0.3 do"),
    ("access", 45, "what a moving process's readers miss at last is copied; whether it ran is asked during the stop"),
    ("access", 160, "what may be read without permission; what a quota denied; a bundle's working set is copied by itself"),
    ("api", 40, "a bundle or box is judged by what was seen when it was made"),
    ("bundle", 125, "hostile archives are one line at every door; paths that lead into one"),
    ("commands", 340, "llm-bundle; the watch stays, with events, metrics, units; llm-hang -exit-status without permission"),
    ("cpython", 95, "which memory of users' a small snapshot must leave out"),
    ("render", 20, "help is filled at the width of the terminal"),
    ("commands", 90, "the words of py-spy, pystack and gdb; a program that is started under the recorder"),
    ("setup", 45, "shells complete processes; a pid may stand first"),
    ("timeline", 120, "profiles for pprof; only time with the GIL counts; a program that is started to be recorded"),
    ("__main__", 30, "a liveness probe ends in time and fails for nothing but a hang"),
    ("stacks", 40, "what a lock file says is read as any foreign file, and believed only where it is plain"),
    ("verdict", 50, "busy is held back where another thread, a signal or an open request speaks against it"),
    ("commands", 10, "pytasks lists the tasks of trio and of gevent too"),
    ("__init__", 52, "the library's names, loaded when they are asked for"),
    (
        "access",
        480,
        "a copy of what cannot be stopped, -unstopped; events of the kernel's; decoders of machine code, which left kernels",
    ),
    ("control", 200, "breakpoints that are events of the kernel: a gdb that is killed leaves nothing armed; children left alone"),
    ("agents", 19, "schemas of what the tools answer"),
    ("answers", 250, "fields of all commands are declared: 330 lines of cells that were kept by hand left docs/json.md"),
    ("answers", 640, "fields of ten commands are declared; llm-hang on one screen, its waits as a tree in text, JSON and SVG"),
    ("api", 1674, "the library: its nouns, and the one place that says which processes are meant, which left session"),
    ("cpython", 76, "one table of what differs between minors, one machine for bytecode"),
    ("observe", 10, "what a loop watches beside pipes and sockets: timers, signals, ends of processes"),
    ("observe", 60, "children that fail one after the other, counted while they are looked at"),
    ("observe", 20, "programs that compute, among those that were not sampled; what a thread alters beyond its frames"),
    ("observe", 35, "a base class of what takes samples; the guard against torn clocks"),
    ("primitives", 430, "the table of what threads wait on; its rows leave stacks, cpython, timeline and verdict"),
    ("commands", 40, "fields of the answers that a command makes itself are declared in it"),
    ("render", 80, "a field that an object lacks, shapes with a name that stand in themselves, objects of names of their own"),
    ("render", 188, "one declaration of a field: JSON, table, merge, schema, documentation"),
    ("engines", 60, "ranks of jobs by their environment: a folder of 50 lines and one look at environments"),
    ("render", 110, "facts of 2,048 ranks: what is equal is sent once, what is usual is not sent: 30 kB a node for 263"),
    (
        "verdict",
        70,
        "who has begun fewer collectives, indexed by group: linear in ranks, each hop of a mesh, crossed groups a ring",
    ),
    ("bundle", 330, "the file of a whole engine: written whole, bounded before it is read; the page for an issue"),
    ("render", 152, "the one codec of dataclasses between machines, which left verdict and kvcache"),
    ("stacks", 685, "loops that try again, and who a lock file names; who has locks and permits when no frame runs"),
    ("verdict", 200, "healthy programs: progress along waits, data that is given or taken, loops that go round at rest"),
    ("verdict", 190, "one graph of waits; what a program is for: parked main threads; native waits by both ends; closed futexes"),
    ("watch", 1700, "the watch that stays: follows processes, a ring by change, stalls by counters, deaths, boxes"),
    ("access", 310, "page faults, new mappings and calls of mmap as samples of the kernel's, with the stack of their moment"),
    ("heap", 700, "what keeps growing and who makes it grow, by those samples or by differences: nothing named it before"),
    ("commands", 60, "llm-memory -grow: its help says what may be sampled, and what it cannot see"),
    ("answers", 180, "the growth of memory as table, JSON and page"),
    ("commands", 45, "pyheap -watch says who makes it grow: its help, and the watch between its two walks"),
    ("access", 85, "writes to a word as samples of the kernel's: who makes a container longer"),
    ("heap", 480, "who makes it grow without samples: lines that are followed, writers of containers, counters for the watch"),
    ("observe", 12, "until when a thread sleeps"),
    ("commands", 65, "llm-watch stays: what it means by WHAT later, its events, its end by a signal"),
    ("commands", 110, "llm-watch stays: what it means by WHAT later, its events, its end, what its box holds"),
    ("observe", 30, "the sockets of a network, read once for all its processes; a sleep without its files"),
    ("observe", 265, "what /proc says of processes that may not be traced: who ran, and both ends of each wait"),
    ("verdict", 265, "who keeps others waiting, judged without permission to trace"),
    ("commands", 75, "answers of what may not be traced; the watch's options for machines"),
    ("watch", 850, "events, a program, OpenMetrics, units, alerts and a dashboard: the watch for machines"),
    (
        "watch",
        90,
        "nothing ends or deceives the watch: failures of searches, readings, listeners, disks; boxes of watches before",
    ),
    ("setup", 110, "gdbext allow: a few lines in an image where nobody may trace"),
    ("setup", 25, "doctor says the version of everything: a report begins with it"),
    ("__main__", 25, "arguments of set-up are a table; gdbext allow"),
    ("stacks", 40, "what callbacks of a loop's descriptors and signals tell; which tasks have a client to answer"),
    (
        "verdict",
        30,
        "other programs at a chain's end are read; sends, terminals and shared signals in the proof that nothing ends it",
    ),
    ("answers", 100, "llm-top: oldest requests, functions, ranks by lag, bars; the log of what may not be traced"),
    ("commands", 80, "llm-top: panels of requests, functions, the verdict; a bundle by a key"),
    ("verdict", 60, "without permission: what a log's end tells, a server that reads no request"),
    ("requests", 30, "the ages of open requests and who has each, for llm-top"),
    ("timeline", 25, "functions of a frame, self and total"),
    ("engines", 25, "bytes of a request that a server has not read"),
    ("observe", 160, "the engine's log: levels and tracebacks' frames, and nothing that a user wrote"),
    ("watch", 130, "what the last minutes have beside threads: log, collectives, memory of GPUs"),
    ("answers", 110, "where the memory of a rank is, which left commands: a bundle keeps it too"),
    ("api", 105, "several bundles are judged as their machines; where memory was when a bundle was made"),
    ("watch", 175, "watches of several machines ask one another for boxes of one moment, and one verdict is written"),
    ("timeline", 120, "recordings of what fails, and with the names of tasks; the functions of llm-top"),
    ("timeline", 190, "two moments of the same processes compared: threads, memory, objects, requests"),
    ("answers", 320, "llm-diff; source that only the process has; llm-top of programs; locks by place"),
    ("agents", 75, "titles, resources, prompts; the guide as agents can use it"),
    ("commands", 130, "llm-diff; one name for output files; recordings of tasks and failures"),
    ("heap", 15, "writes to a grown container are sampled a few at a time, and told apart"),
    ("access", 55, "how long each thread of a snapshot had run; what a process is called; overflows of stacks"),
    ("render", 35, "cells that are cut in their middle, so that a row stays a line"),
    ("session", 30, "what completes processes and operands, for shells and gdb alike"),
    ("api", 45, "a damaged file beside others costs its own part of the verdict"),
    ("api", 140, "tasks, arithmetic, indices as torch refuses them, the Pythons that are here: what newcomers missed"),
    ("cpython", 50, "objects of two moments are compared by value; module:name inside brackets"),
    ("watch", 60, "moments of this user alone, marks that killed watches left, clocks that are set back"),
    ("heap", 570, "without samples the library is told by calls on stacks; what allocators hold free says who need not keep it"),
    ("agents", 46, "what to do next, as a call of a tool"),
    ("cpython", 148, "numbers of ml_dtypes in arrays, of which torch has some (25 lines left it); where tasks were made"),
    ("heap", 20, "arrays of objects as owners"),
    ("render", 416, "names of Rust's compiler: the grammar of its version 0, which no library of C++ reads"),
    ("verdict", 60, "children that a process polls are read; a descriptor closed behind a loop; who rests may owe an answer"),
    ("cpython", 60, "who has a lock that a user's own class takes in one method and gives back in another"),
    ("stacks", 50, "locks, queues and events that are attributes of a class; who was the last at a System V semaphore"),
    ("cpython", 220, "loops without a way out: programs by the clock are idle or busy; signal handlers, of which 50 from heap"),
    ("verdict", 120, "healthy programs by rounds, new memory, a library's own threads, children: 30 of 54 to four of five"),
    ("watch", 70, "lines that wait for a pipe or a disk, whole; what is missed is told; places of /metrics that are handed on"),
    ("observe", 260, "logs are read by a helper, and only sources are opened for what a user wrote into one"),
    ("answers", 55, "lines to type that are whole where they are printed; what a box says is shown once as it is read"),
    ("observe", 50, "the log is read by a helper that may hang; each file of a traceback once"),
    ("stacks", 40, "what handlers of signals tell; roles of gunicorn, Celery, pytest and Jupyter"),
    ("access", 45, "events of threads that have ended make room; what a snapshot lacks; names that others wrote"),
]
FEW = 25  # lines by which a room may be over: a sentence, a parameter
SLACK = 500


def rooms():
    """{room: lines}; a module that is no folder is a room of its own."""
    found = collections.Counter()
    for folder, _, names in os.walk(PACK):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as f:
                    found[os.path.relpath(path, PACK).split(os.sep)[0].replace(".py", "")] += sum(1 for _ in f)
    return found


def allowed():
    found = collections.Counter(BUDGET)
    for room, lines, why in GROWN:
        assert lines > 0 and len(why) > 20, (room, "say what the lines are for")
        found[room] += lines
    return found


@pytest.mark.sources
def test_no_room_is_larger_than_its_budget():
    found, budget = rooms(), allowed()
    over = [
        f"{room}: {lines} lines, {budget[room]} allowed" for room, lines in sorted(found.items()) if lines > budget[room] + FEW
    ]
    assert not over, "delete, or add to GROWN of tests/unit/test_budget.py and say why:\n" + "\n".join(over)


@pytest.mark.sources
def test_what_was_given_back_is_not_budget_for_something_else():
    found, budget = rooms(), allowed()
    under = [f"{room}: {found[room]} lines, {budget[room]} allowed" for room in budget if found[room] < budget[room] - SLACK]
    assert not under, "lower BUDGET of tests/unit/test_budget.py:\n" + "\n".join(under)


if __name__ == "__main__":
    print("".join(f'    "{room}": {lines},\n' for room, lines in sorted(rooms().items())), end="")
