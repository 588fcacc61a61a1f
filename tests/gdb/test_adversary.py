"""root's debugger and a hostile process of another user: nothing runs, nothing waits, nothing raw is printed.

GDBEXT_ADVERSARY: how many rounds of the races (default 3). The seed is the round's number."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest
from harness.gdb_run import run_gdb
from harness.heartbeats import eventually
from harness.subjects import SUBJECTS, spawned

from gdbext.access import ptrace
from gdbext.commands import table
from gdbext.control.quirks.stuck_open import KICK, LOOK, OpensEnd
from gdbext.session.session import Session
from gdbext.setup import outside

NOBODY = 65534
ROUNDS = int(os.environ.get("GDBEXT_ADVERSARY", "3"))
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u202a-\u202e\u2066-\u2069]")
PAUSES = "#include <unistd.h>\nvoid hang(void) { for (;;) pause(); }\n"
READING = (
    "pybt -all -locals",
    "llm-bt -all",
    "pythreads",
    "pylist",
    "pylocals",
    "pyexc",
    "pyprint x",
    "llm-addr 0x10000",
    "pytensors",
)
LOOKING = ("llm-stacks {}", "llm-locks {}", "llm-hang -wait 0.1 {}", "llm-snapshot {} -o {}.core")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a process of another user, started by root")


@pytest.fixture
def folder():
    """A folder that another user may write to, with a copy of the subject."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    with tempfile.TemporaryDirectory(prefix="adversary-") as made:
        shutil.copy(os.path.join(SUBJECTS, "adversary.py"), made)
        for name in ("one.so", "two.so", "three.so"):
            path = os.path.join(made, name)
            subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=PAUSES, text=True, check=True)
        os.chown(made, NOBODY, NOBODY)
        yield made


def adversary(folder, kind, seed=0):
    python = sys.executable if kind not in ("execs",) else "/usr/bin/python3"
    if not os.path.exists(python):
        pytest.skip("no interpreter that another user may start")
    words = [python, os.path.join(folder, "adversary.py"), str(NOBODY), folder, kind, str(seed)]
    return spawned(words, ready="ready", stderr=subprocess.DEVNULL)


def assert_clean(what, text):
    found = RAW.search(text)
    assert not found, f"{what!r} printed {text[max(0, found.start() - 80) : found.end() + 20]!r}"
    assert not re.search(r"^FORGED|Traceback \(most recent|PWNED\x07", text, re.M), f"{what!r} printed {text[-2000:]!r}"


@pytest.mark.parametrize("kind", ["fifo", "device", "forged"])
def test_a_library_that_is_no_file_is_named_before_gdb_opens_it(kind, folder, gdb_path):
    with adversary(folder, kind) as one:
        run = run_gdb(gdb_path, [f"llm-attach {one.pid}", "info inferiors"], timeout=200)
        assert_clean("llm-attach", run.text)
        assert "gdb would open it" in run.outputs[0] and "\n" not in run.outputs[0]
        assert ("no regular file" if kind == "device" else "a FIFO") in run.outputs[0]
        assert "process" not in run.outputs[1] and not ptrace.tracers(one.pid) and not ptrace.is_stopped(one.pid)


@pytest.mark.every_gdb
def test_a_forced_attach_does_not_wait_for_a_fifo(folder, gdb_path):
    """As where the FIFO comes after the look at the files."""
    with adversary(folder, "every") as one:
        run = run_gdb(
            gdb_path,
            [f"llm-attach -force -libraries all {one.pid}", "llm-bt", "pybt", "llm-symbols so", "llm-detach -json"],
            timeout=120,
        )
        for text in run.outputs[1:]:
            assert_clean("gdb", text)
        assert "hang" in run.outputs[1] and "stand_in_a_library" in run.outputs[2], run.text
        assert run.json(4)["detached"][0]["pid"] == one.pid and one.poll() is None and not ptrace.is_stopped(one.pid)


def test_an_open_that_waits_for_a_writer_gets_one(tmp_path):
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    late = threading.Timer(30, lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)))
    late.start()
    with OpensEnd() as opens, open(path, "rb") as f:
        assert f.read() == b""
    late.cancel()
    assert opens.freed == [path]


def test_a_pipe_that_was_opened_by_name_is_not_read_for_ever():
    """One that this process made itself, as to read what a child says, is waited for."""
    ends = os.pipe()
    later = threading.Timer(3 * LOOK, os.write, (ends[1], b"said"))
    later.start()
    with OpensEnd() as opens:
        assert os.read(ends[0], 9) == b"said" and not opens.freed
        found = os.open(f"/proc/self/fd/{ends[0]}", os.O_RDONLY)
        late = threading.Timer(30, os.write, (ends[1], b"late"))
        late.start()
        taken = []
        signal.signal(KICK, lambda *_: taken.append(1) or os.dup2(ends[1], found))  # Python itself would read once more
        with pytest.raises(OSError):
            os.read(found, 9)
        late.cancel()
    later.join()
    assert taken and opens.freed[0].startswith("pipe:")
    for descriptor in (*ends, found):
        os.close(descriptor)


@pytest.mark.every_gdb
def test_libraries_that_come_after_the_attach_hold_no_gdb(folder, gdb_path):
    """gdb asks nobody before it opens what the loader names."""
    with adversary(folder, "late") as one:
        commands = [f"llm-attach {one.pid}", "continue", "info sharedlibrary", "pybt", "llm-detach -json"]
        run = run_gdb(gdb_path, commands, timeout=120)
        for at in (0, 3, 4):
            assert_clean(commands[at], run.outputs[at])
        assert "SIGUSR1" in run.outputs[1] and "/proc/self/fd/5" in run.outputs[2] and "load_late" in run.outputs[3], run.text
        assert run.json(4)["detached"][0]["pid"] == one.pid and run.status == 0


def test_a_source_that_is_a_fifo_holds_no_gdb(folder, gdb_path):
    with adversary(folder, "source") as one:
        commands = ["pylist", "pyframe 0", "pylocals", "llm-bt", "pybt -locals"]
        run = run_gdb(gdb_path, [f"llm-attach {one.pid}", *commands, "llm-detach"], timeout=200)
        assert_clean("gdb", run.text)
        assert "wait" in run.outputs[5] and one.poll() is None


@pytest.mark.parametrize("kind", ["execs", "ends"])
def test_whatever_becomes_of_a_process_while_it_is_read(kind, folder):
    """It execs, or its children end, at every moment: an answer, or one line, soon."""
    answers = refusals = 0
    with adversary(folder, kind, seed=11) as one:
        for number in range(ROUNDS):
            chance = random.Random(number)
            lines = [f"{line} -on {{}}" for line in READING] + list(LOOKING)
            for line in chance.sample(lines, 6):
                pid = one.pid
                if kind == "ends":
                    with open(f"/proc/{one.pid}/task/{one.pid}/children") as f:
                        pid = int((f.read().split() or [one.pid])[0])
                name, _, rest = line.replace("{}.core", f"{folder}/{{}}.core").replace("{}", str(pid)).partition(" ")
                begin = time.process_time()
                status, out, err = outside.perform(table.load(name), rest + chance.choice(["", " -json"]), Session())
                assert_clean((number, line), out + "\n" + err)
                assert time.process_time() - begin < 20, (number, line)
                said = (err or out).strip()
                assert status in (0, 3) or said and "\n" not in said, (number, line, said)
                answers, refusals = answers + (status in (0, 3)), refusals + (status == 1)
        assert one.poll() is None and not ptrace.is_stopped(one.pid)
    assert answers, refusals


@pytest.mark.every_gdb
def test_gdb_attaches_to_what_execs_all_the_time(folder, gdb_path):
    with adversary(folder, "execs", seed=5) as one:
        for _ in range(2):
            run = run_gdb(gdb_path, [f"llm-attach {one.pid}", "llm-bt", "pybt -locals", "llm-detach"], timeout=200)
            for text in run.outputs:
                assert_clean("gdb", text)
            assert one.poll() is None and not ptrace.tracers(one.pid)


def test_links_that_another_user_has_laid_are_not_written_through(folder):
    """In a folder of theirs, and under names that can be guessed."""
    kept = os.path.join(folder, "kept")
    with spawned([sys.executable, "-c", "import time\nprint('up', flush=True)\ntime.sleep(600)"], ready="up") as one:
        for name in ("one.core", "page.html"):
            with open(kept, "w") as f:
                f.write("root's")
            path = os.path.join(folder, name)
            os.symlink(kept, path)
            os.lchown(path, NOBODY, NOBODY)
        for line in (f"llm-snapshot {one.pid} -o {folder}/one.core", f"llm-report {folder}/page.html {one.pid} -wait 0"):
            name, _, rest = line.partition(" ")
            status, _, err = outside.perform(table.load(name), rest, Session())
            assert status == 1 and "there is a symbolic link, which is not followed" in err, err
        with open(kept) as f:
            assert f.read() == "root's"
        assert os.path.islink(f"{folder}/one.core") and os.path.islink(f"{folder}/page.html")
        assert one.poll() is None


REUSED = """
import os, sys
pid, words = int(sys.argv[1]), sys.argv[2:]
while True:
    with open("/proc/sys/kernel/ns_last_pid", "w") as f:
        f.write(str(pid - 1))
    child = os.fork()
    if not child:
        os._exit(0) if os.getpid() != pid else os.execv(words[0], words)
    if child == pid:
        break
    os.waitpid(child, 0)  # somebody else was before us
print("ready", flush=True)
os.waitpid(pid, 0)
"""


def test_a_pid_that_is_given_out_again_is_no_rank_of_that_name(folder, gdb_path):
    """Between llm-ranks and the use of what it listed the rank ends, and another process has its pid: no command takes it."""
    if not os.access("/proc/sys/kernel/ns_last_pid", os.W_OK):
        pytest.skip("the next pid cannot be chosen here")
    asked, given = os.path.join(folder, "asked"), os.path.join(folder, "given")
    script = os.path.join(folder, "titled.py")
    with open(script, "w") as f:
        f.write(
            "import ctypes, time\nctypes.CDLL(None).prctl(15, b'VLLM::Worker_TP')\nprint('ready', flush=True)\ntime.sleep(600)\n"
        )
    with open(script) as f, spawned(["VLLM::Worker_TP77"], ready="ready", executable=sys.executable, stdin=f) as rank:
        late = threading.Thread(target=_give_again, args=(rank, asked, given))
        late.start()
        uses = ["llm-attach TP77", "llm-snapshot TP77", "llm-inject -unsafe faulthandler TP77", "pybt -on TP77", "llm-hang TP77"]
        wait = f"shell touch {asked}; while [ ! -e {given} ]; do sleep 0.05; done"
        run = run_gdb(gdb_path, ["llm-ranks", wait, *uses, "info inferiors"], timeout=120)
        os.unlink(asked)
        late.join()
    assert "TP77" in run.outputs[0], run.text
    for use, said in zip(uses, run.outputs[2:]):
        assert f"(pid {rank.pid})" in said and "belongs to another process now" in said, (use, said)
    assert "process" not in run.outputs[-1], run.outputs[-1]


def _give_again(rank, asked, given):
    """Once `asked` is there: ends a process and starts another one with its pid; then makes `given`."""
    eventually(lambda: os.path.exists(asked), "gdb to have listed the ranks")
    rank.kill()
    rank.wait()
    with spawned([sys.executable, "-c", REUSED, str(rank.pid), "/bin/sleep", "60"], ready="ready"):
        open(given, "w").close()
        eventually(lambda: not os.path.exists(asked), "gdb to be done")
        os.kill(rank.pid, signal.SIGKILL)
