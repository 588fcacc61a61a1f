"""A vLLM at work while gdb comes and goes: attached and detached, killed with SIGKILL and interrupted at random moments, with
breakpoints of native code and watchpoints of Python's armed. Nothing is left stopped or armed, nothing dies, every request is
answered in full.

GDBEXT_TEST_KILLS says how many kills and interrupts (default 3), GDBEXT_TEST_ATTACHES how many attaches (default 12)."""

import os
import random
import signal
import subprocess
import time

import pytest
from harness.answers import answer
from harness.gdb_run import INIT
from harness.heartbeats import ROUNDS, eventually, within

from gdbext.access import debug_registers, ptrace, recovery
from gdbext.access.proc import ProcTarget
from gdbext.cpython.expressions import evaluate
from gdbext.cpython.runtime import open_runtime

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="debug registers of x86-64")
ATTACHES = int(os.environ.get("GDBEXT_TEST_ATTACHES", "12"))
REQUESTS = 4  # in flight at any time: serve_vllm.py
WORKERS, CORE = ("VLLM::Worker_TP0", "VLLM::Worker_TP1"), "VLLM::EngineCore"
STOP = "vllm.v1.executor.multiproc_executor:WorkerProc.shutdown"
STEP, HOT = (
    "vllm.v1.executor.multiproc_executor:WorkerProc._execute_worker_rpc",
    "vllm.distributed.parallel_state:GroupCoordinator.all_reduce",
)

# The search of a worker's memory for code takes seconds, in which nothing happens that a kill could disturb: it is told what it
# would find.
BEGIN = """
import gdb, random
gdb.execute("source {init}")
from gdbext.cpython import codes
codes.every = lambda rt: known[rt.target.pid]
known = {{}}
for pid, files in {codes}.items():
    known[pid] = codes.Found()
    known[pid].by_file = files
def do(line):
    gdb.execute(line, to_string=True)
for setting in ("debuginfod enabled off", "auto-load off", "pagination off", "confirm off"):
    do("set " + setting)
random.seed({seed})
print("begin", flush=True)
"""
ARM = """
for pid in {pids}:
    do("llm-attach -libraries %s %d" % (random.choice(["none", "main"]), pid))
if {pids} == [pid]:  # gdb sets a breakpoint at an address in every process that it holds
    do("break *%s if 1 == 2" % {place})
do("pybreak {python} if self is None")
print("armed", flush=True)
do("llm-continue all")
"""
CYCLES = """
done = dict.fromkeys("plain armed python native".split(), 0)
for number in range({count}):
    kind = list(done)[number % 4]
    pid = random.choice({pids} if kind == "plain" else {workers})
    do("llm-attach -libraries %s %d" % (random.choice(["none", "none", "main"]), pid))
    if kind == "armed":
        do("break *%s" % {at}[pid])
        do("pybreak {step} if self is None")
    elif kind == "python":
        do("pybreak " + random.choice(["{step}", "{hot}"]))
    elif kind == "native":
        do("break *%s" % {at}[pid])
    if kind in ("python", "native"):
        do("llm-continue")  # until it is reached
    if number % 8 < 4:
        do("delete")
    do("llm-detach")
    do("delete")
    done[kind] += 1
print("done", done, flush=True)
"""


class Watched:
    """A vLLM and what is asked of it."""

    def __init__(self, engine):
        self.engine = engine
        self.pids = {title: pid for pid, title in engine.titles().items()}
        self.all = [self.pids[t] for t in (*WORKERS, CORE)]
        self.began = {pid: ptrace.start_time(pid) for pid in engine.pids()}
        self.codes = {pid: self._codes(pid) for pid in self.all}
        self.attention = {pid: self._attention(pid) for pid in self.all[:2]}
        self.never = {pid: self._getpgid(pid) for pid in self.all[:2]}

    def _codes(self, pid):
        """{file: [(address, address of its name)]} of the code objects that breakpoints are set in."""
        rt, found = open_runtime(ProcTarget(pid)), {}
        for name in (STEP, HOT, STOP):
            if rt.module(name.partition(":")[0]) is not None:
                code = rt.code(rt.target.u64(evaluate(rt, name).address + rt.layout["func.func_code"]))
                found.setdefault(code.file, []).append((code.address, rt.target.u64(code.address + rt.layout["code.co_name"])))
        return found

    @staticmethod
    def _getpgid(pid):
        """Where a function begins that no worker calls."""
        target = ProcTarget(pid)
        return hex(target.symbol("getpgid", [m for m in target.modules() if os.path.basename(m.path).startswith("libc.so")]))

    @staticmethod
    def _attention(pid):
        """Where a worker's attention begins."""
        return next(
            at["address"]
            for k in answer(f"llm-kernels cpu_attention_with_kv_cache -on {pid} -json")["kernels"]
            for at in k["locations"]
        )

    def answered(self):
        """Numbers of the requests that were answered, in the order in which they were."""
        with open(self.engine.ready_file + ".finished") as f:
            return [int(line.rpartition("-")[2]) for line in f if line.endswith("\n")]

    def runs(self):
        """Every process is there, nobody traces or has stopped one of its threads."""
        for pid, start in self.began.items():
            if ptrace.start_time(pid) != start:
                return False
            states = [ptrace.status(pid, t) for t in ptrace.tids(pid)]
            if not states or not all(s is None or s["state"] in "RSDI" and not s["tracer"] for s in states):
                return False
        return True

    def unarmed(self):
        return not any(recovery.planted_breakpoints(pid) for pid in self.all)

    def check(self, what, said=b""):
        dead = [pid for pid, start in self.began.items() if ptrace.start_time(pid) != start]
        assert not dead, f"{what}: {dead} of {self.pids} died; gdb said: {said[-3000:].decode()}"
        eventually(self.runs, f"every process to run on after {what}", 120)
        eventually(self.unarmed, f"breakpoints to go after {what}", 120)

    def none_lost(self):
        """Every request that was asked until now is answered, once. -> how many"""
        asked = len(self.answered()) + REQUESTS  # a new one is asked when one is answered
        eventually(lambda: set(range(asked)) <= set(self.answered()), f"requests 0 to {asked} to be answered", 300)
        numbers = self.answered()
        assert len(numbers) == len(set(numbers))
        for pid in self.all:
            with ptrace.Stopped(pid) as stopped:
                assert stopped.threads and not any(debug_registers.clear_debug_registers(t) for t in stopped.threads)
        assert within(self.runs, 60)
        return len(numbers)


@pytest.fixture
def watched(vllm):
    found = Watched(vllm)
    eventually(found.answered, "the first answer", 300)
    return found


def start(gdb_path, folder, watched, text, more=(), **values):
    """A gdb in a session of its own that runs the script."""
    script, values = folder / "storm.py", {"at": watched.attention, "step": STEP, "hot": HOT, **values}
    script.write_text((BEGIN + text).format(init=INIT, seed=random.random(), codes=watched.codes, **values))
    return subprocess.Popen(
        [gdb_path, "-nx", "-q", "-batch", "-x", str(script), *more],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def armed(gdb_path, folder, watched, number, reached, more=()):
    """A gdb that attaches to some processes, arms a breakpoint and watchpoints in each, and lets them run. `reached`: they are,
    all the time, with conditions that do not hold."""
    pids = [watched.all[:1], watched.all[:2], watched.all][number % 3]
    place = watched.attention[pids[0]] if reached else watched.never[pids[0]]
    return start(
        gdb_path, folder, watched, ARM, more, pids=pids, place=place, python=(STEP, HOT)[number // 3 % 2] if reached else STOP
    )


def wait_for(gdb, word):
    """Until gdb says it, or ends; what it said."""
    said = b""
    while word not in said:
        data = os.read(gdb.stdout.fileno(), 65536)
        if not data:
            break
        said += data
    return said


def test_attached_and_detached(gdb_path, watched, tmp_path):
    gdb = start(gdb_path, tmp_path, watched, CYCLES, count=ATTACHES, pids=watched.all, workers=watched.all[:2])
    said = gdb.communicate(timeout=60 + 10 * ATTACHES)[0].decode()
    assert "done {" in said, said[-3000:]
    watched.check(f"{ATTACHES} attaches")
    print(said.splitlines()[-1], "answered", watched.none_lost())


def test_gdb_killed_at_random_moments(gdb_path, watched, tmp_path):
    """What is armed is not reached: the kernel delivers a trap that a dead gdb had not answered yet (see README, "What it cannot
    do")."""
    for number in range(ROUNDS):
        gdb = armed(gdb_path, tmp_path, watched, number, False)
        said = wait_for(gdb, b"armed" if number % 4 else b"begin")
        time.sleep(random.random() * 1.5)
        ended = gdb.poll()
        gdb.kill()
        said += gdb.communicate()[0]
        assert ended is None, said[-2000:].decode()
        watched.check(f"kill {number}", said)
    print(ROUNDS, "kills, answered", watched.none_lost())


def test_gdb_interrupted_at_random_moments(gdb_path, watched, tmp_path):
    sent = 0
    for number in range(ROUNDS):
        gdb = armed(gdb_path, tmp_path, watched, number, True, ["-ex", "llm-detach"])
        said = wait_for(gdb, b"armed" if number % 2 else b"begin")
        for _ in range(200):
            try:
                gdb.wait(random.random() * 1.5)
                break
            except subprocess.TimeoutExpired:
                gdb.send_signal(signal.SIGINT)
                sent += 1
        else:
            raise AssertionError(f"gdb {gdb.pid} does not end after 200 interrupts")
        said += gdb.communicate()[0]
        assert b"internal-error" not in said and b"Fatal" not in said, said[-2000:].decode()
        watched.check(f"the interrupts of round {number}", said)
    print(sent, "interrupts of", ROUNDS, "gdbs, answered", watched.none_lost())
