"""Programs that hang, and healthy ones, put to gdbext and to the tools that people use today, and to any other.

The protocol, for anybody's tool and anybody's programs:

1. a program starts, does what it is for, and prints one line of JSON: `pid`, `pids` (of it too), `hung`, `right` (verdicts that
   are right), `culprits` (tids or pids of who must act), `drawn` (in words). It knows all this, since it made it so.
2. a tool is asked of `pid` and `pids`. It may watch for a second and a half, and leaves everything as it was.
3. it answers `hung`, `well` or `unknown`, and whom it blames: tids or pids.
4. right: hung, and it blames who must act and nobody else, where somebody that is there must; well of a healthy one. Wrong:
   well of a hung one, hung of a healthy one, anybody else blamed. Unknown is neither.
5. its seconds, and for how long the program's main thread stood still, are measured; a program that ended by it is harm.

A tool that asks from outside sees the same living of a program as the others. faulthandler and `asyncio ps` have one each of
their own: the one must be armed in the program, the other wants its Python, 3.14 or later.

A dump has no verdict. What is asked of two dumps, a second apart, is what people ask: does the main thread move? With three
processes or more the rule that ByteRobust publishes: those whose stack is not that of most are to blame."""

import collections
import contextlib
import glob
import importlib
import json
import os
import random
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

from .environments import environment
from .say import say

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
QUIET = ("busy", "idle")
BETWEEN = 1.0  # seconds between two dumps
TIMEOUT = 120
ARMED = "import faulthandler, signal\nfaulthandler.register(signal.SIGUSR2, file=open({path!r}, 'a'), all_threads=True)\n"


class Said:
    """The answer of a tool: `state` "hung", "well" or "unknown", the tids or pids that it blames, its chains of waits."""

    def __init__(self, state, blamed=(), chains=()):
        self.state, self.blamed, self.chains = state, set(blamed), chains


# ---- tools -----------------------------------------------------------------------------------------------------------
def run(words, env=None):
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT, check=False, env=env).stdout
    except subprocess.TimeoutExpired:
        return ""


def gdbext(pids):
    env = {**os.environ, "PYTHONPATH": ROOT}
    said = json.loads(
        run([sys.executable, "-m", "gdbext", "llm-hang", *map(str, pids), "-json"], env) or '{"verdict": "unknown"}'
    )
    kind = said["verdict"]
    state = "unknown" if kind == "unknown" else "well" if kind in QUIET else "hung"
    blamed = (c.get("tid") or ("task" if c.get("task") else c.get("pid")) for c in said.get("culprits", ()))
    return Said(state, blamed, said.get("chains", ()))


def by_two_dumps(dump, pids):
    """What people make of two dumps of each process. `dump(pid)` -> {tid: (functions, innermost first; whether it waits)}."""
    first = {pid: dump(pid) for pid in pids}
    time.sleep(BETWEEN)
    last = {pid: dump(pid) for pid in pids}
    mains = {pid: (first[pid].get(pid), last[pid].get(pid)) for pid in pids}
    seen = {pid: pair for pid, pair in mains.items() if pair[0] is not None and pair[1] is not None}
    if not seen:
        return Said("unknown")
    if any(before[0] != after[0] for before, after in seen.values()):
        return Said("well")
    stacks = collections.Counter(after[0] for _, after in seen.values())
    most, count = stacks.most_common(1)[0]
    if len(seen) >= 3 and count > len(seen) // 2:
        return Said("hung", (pid for pid, (_, after) in seen.items() if after[0] != most))
    return Said("hung" if all(after[1] for _, after in seen.values()) else "unknown")


def py_spy(pids):
    spy = os.path.join(os.path.dirname(environment("tests")), "py-spy")

    def dump(pid):
        threads = json.loads(run([spy, "dump", "--json", "--nonblocking", "--pid", str(pid)]) or "[]")
        return {
            t["os_thread_id"]: (tuple((f["name"], f["short_filename"], f["line"]) for f in t["frames"]), not t["active"])
            for t in threads
        }

    return by_two_dumps(dump, pids)


def pystack(pids):
    stack = os.path.join(os.path.dirname(environment("tests")), "pystack")

    def dump(pid):
        found, tid = {}, None
        for line in run([stack, "remote", str(pid)]).splitlines():
            head = re.match(r"Traceback for thread (\d+)", line)
            place = re.match(r'\s+\(Python\) File "(.*)", line (\d+), in (.*)', line)
            if head:
                tid = int(head[1])
                found[tid] = ((), "Has the GIL" not in line)
            elif place and tid is not None:
                found[tid] = ((place.groups(), *found[tid][0]), found[tid][1])
        return found

    return by_two_dumps(dump, pids)


def by_faulthandler(path):
    """A tool that has each process write its stacks into a file, as ARMED makes it do."""

    def dump(pid):
        size = os.path.getsize(path)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR2)
        time.sleep(0.2)
        with open(path, errors="replace") as f:
            f.seek(size)
            stacks = re.split(r"(?:Current t|T)hread 0x\w+.*\n", f.read())[1:]
        own = tuple(re.findall(r'File "(.*)", line (\d+) in (.*)', stacks[-1])) if stacks else ()  # the main thread stands last
        return {pid: (own, True)} if own else {}

    return lambda pids: by_two_dumps(dump, pids)


def asyncio_ps(python):
    def dump(pid):
        lines = run([python, "-m", "asyncio", "ps", str(pid)]).splitlines()
        tasks = tuple(line.strip() for line in lines if re.match(r"\d+ +0x", line))
        return {pid: (tasks, True)} if tasks else {}

    return lambda pids: by_two_dumps(dump, pids)


def other(command):
    """A tool of somebody else: a command that gets pids and prints {"state": "hung", "well" or "unknown", "blamed": []}."""

    def ask(pids):
        try:
            said = json.loads(run([*shlex.split(command), *map(str, pids)]))
            return Said(said["state"], said.get("blamed", ()))
        except (ValueError, KeyError, TypeError):
            return Said("unknown")

    return ask


@dataclass
class Living:
    """One way in which the programs are lived: by which Python, with what in the environment, and who is asked of them."""

    python: str
    tools: dict
    env: dict = field(default_factory=dict)


def livings(folder, others=()):
    """All `Living`s that can be had. `others`: NAME=COMMAND."""
    python, path = environment("tests"), os.path.join(folder, "dumps")
    with open(os.path.join(folder, "sitecustomize.py"), "w") as f, open(path, "w"):
        f.write(ARMED.format(path=path))
    outside = {"gdbext": gdbext, "py-spy dump": py_spy, "pystack": pystack}
    outside.update((name, other(command)) for name, _, command in (one.partition("=") for one in others))
    yield Living(python, outside)
    yield Living(python, {"faulthandler": by_faulthandler(path)}, {"PYTHONPATH": folder})
    for newest in sorted(glob.glob(os.path.expanduser("~/.cache/gdbext/pythons/3.14/bin/python3.14"))):
        yield Living(newest, {"asyncio ps": asyncio_ps(newest)})


# ---- the score -------------------------------------------------------------------------------------------------------
def score(truth, said):
    """ "right", "wrong", "unknown", "end named" (unknown, with a chain that ends where it truly does), or "hung, nobody blamed"
    where that is true and somebody must act."""
    if said.state == "unknown":
        situations = importlib.import_module("harness.situations") if said.chains else None
        return "end named" if situations and truth["hung"] and situations.end_named(truth, said.chains) else "unknown"
    if not truth["hung"]:
        return "right" if said.state == "well" else "wrong"
    if said.state == "well":
        return "right" if set(truth["right"]) & {"busy", "idle"} else "wrong"
    if not truth["culprits"] or "dead" in truth["culprits"]:  # who must act is no more, or nobody
        return "right"
    if set(said.blamed) - set(truth["culprits"]):
        return "wrong"
    return "right" if said.blamed else "hung, nobody blamed"


def rows(found):
    """Lines of a Markdown table, one a tool. `found`: [(tool, truth, how it was scored, seconds, seconds of stop, whether it was
    harmed)]"""
    lines = [
        "| | hung: right | nobody blamed | end named | unknown | wrong | well: right | unknown | accused | s | stop, ms | harm |"
    ]
    lines.append("|---" * 12 + "|")
    for tool in dict.fromkeys(one[0] for one in found):
        own = [one for one in found if one[0] == tool]
        hung, well = ([one[2] for one in own if one[1]["hung"] is state] for state in (True, False))
        cells = [hung.count("right"), hung.count("hung, nobody blamed"), hung.count("end named")]
        cells += [hung.count("unknown"), hung.count("wrong")]
        cells += [well.count("right"), well.count("unknown"), well.count("wrong")]
        cells = [f"{n} of {len(hung if i < 5 else well)}" if i in (0, 5) else n for i, n in enumerate(cells)]
        times = [statistics.median(one[i] for one in own) if own else 0 for i in (3, 4)]
        cells += [f"{times[0]:.1f}", f"{1000 * times[1]:.0f}", sum(one[5] for one in own)]
        lines.append(f"| {tool} | " + " | ".join(map(str, cells)) + " |")
    return lines


FAMILIES, REPORTS = ("", "f", "g", "h", "p"), "report "  # of drawn programs; of those re-created from public reports


@contextlib.contextmanager
def lived_report(living, words):
    """-> what a program of tests/gdb/subjects/reported.py says is true of itself, while it is lived."""
    subjects = importlib.import_module("harness.subjects")
    kind, mode = words[len(REPORTS) :].split()
    program = [living.python, os.path.join(subjects.SUBJECTS, "reported.py"), kind, mode]
    env = {**os.environ, **living.env}
    with subjects.spawned(program, ready="READY ", start_new_session=True, stderr=subprocess.DEVNULL, env=env) as process:
        said = json.loads(process.said.partition("READY ")[2])
        true = said["true"] if mode == "hung" else []
        truth = {"pid": said["pid"], "pids": [], "hung": mode == "hung", "right": [], "drawn": words}
        yield {**truth, "culprits": true, "ends": [*true, "ring", "nobody"]}


def draws(seed):
    """Yields words for programs, from each family in turn, for ever."""
    reports = importlib.import_module("gdb.test_reported")
    kinds = [kind for kind in reports.KINDS if kind not in reports.RANKS]  # those need torch
    draw = random.Random(seed)
    for number in range(seed * 100000, (seed + 1) * 100000):
        family = [*FAMILIES, REPORTS][number % (len(FAMILIES) + 1)]
        yield f"{REPORTS}{draw.choice(kinds)} {draw.choice(('hung', 'well'))}" if family == REPORTS else f"{family}{number}"


def main(meter, hung, well, seed, others=()):
    """Draws programs until there are so many of each, and asks every tool about each. `meter(pid)`: a thread that adds up for how
    long a process stands still; `others`: tools of somebody else, NAME=COMMAND."""
    sys.path[:0] = [ROOT, os.path.join(ROOT, "tests")]
    situations = importlib.import_module("harness.situations")
    found, left = [], {True: hung, False: well}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        ways = []
        for number, living in enumerate(livings(folder, others)):
            place = os.path.join(folder, str(number))
            os.mkdir(place)
            stage = situations.Stage(place, living.python, env=living.env)
            stack.enter_context(stage.server(""))
            ways.append((living, stage))
        tools = ", ".join(tool for living, _ in ways for tool in living.tools)
        say(f"seed {seed}: {hung} hung and {well} healthy programs, {tools}")
        for words in draws(seed):
            if not any(left.values()):
                break
            if words.startswith(REPORTS) or not ways[0][1].needs(words):
                found += lived(meter, ways, words, left)
    for line in rows(found):
        print(line)
    return int(any(tool == "gdbext" and how == "wrong" for tool, _, how, *_ in found))


def lived(meter, ways, words, left):
    """What all tools said of one program; [] where there are enough of its kind, which `left` counts."""
    found = []
    for living, stage in ways:
        with lived_report(living, words) if words.startswith(REPORTS) else stage.lived("", words) as truth:
            if not found and not left[truth["hung"]]:
                return []
            time.sleep(0.5)
            found += [asked(meter, name, tool, truth) for name, tool in living.tools.items()]
    left[truth["hung"]] -= 1
    say(f"{words} {truth['drawn']}: " + ", ".join(f"{one[0]} {one[2]}" for one in found))
    return found


def asked(meter, name, tool, truth):
    pids = [truth["pid"], *truth["pids"]]
    watch = meter(truth["pid"])
    watch.start()
    began = time.monotonic()
    said = tool(pids)
    took = time.monotonic() - began
    watch.over.set()
    watch.join()
    return name, truth, score(truth, said), took, watch.seconds, not all(os.path.exists(f"/proc/{pid}") for pid in pids)
