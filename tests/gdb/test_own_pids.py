"""scripts/tools/own_pids.py: what runs under it sees its own processes alone, and nothing of it outlives it."""

import os
import signal
import subprocess
import sys
import time

import pytest
from harness.heartbeats import eventually
from tools import own_pids

SEEN = "import os; print(sorted(int(n) for n in os.listdir('/proc') if n.isdigit()), os.getpid(), flush=True)"


def words(code, *more):
    return [sys.executable, own_pids.__file__, sys.executable, "-c", code, *more]


@pytest.fixture(scope="module", autouse=True)
def allowed():
    if own_pids.way() is None:
        pytest.skip("no pid namespace can be made here")


def test_a_program_sees_itself_and_the_first_process():
    said = subprocess.run(words(SEEN), stdout=subprocess.PIPE, text=True, check=True).stdout
    assert said == "[1, 2] 2\n"


def test_a_program_inside_another_one_sees_its_own():
    code = f"import subprocess; subprocess.run({words(SEEN)!r})"
    assert subprocess.run(words(code), stdout=subprocess.PIPE, text=True, check=True).stdout == "[1, 2] 2\n"


@pytest.mark.parametrize(
    "code, status", [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 128 + signal.SIGKILL), ("", 0)]
)
def test_its_exit_status_is_the_programs(code, status):
    assert subprocess.run(words(code), check=False).returncode == status


def test_a_program_that_is_not_there_is_named():
    done = subprocess.run([sys.executable, own_pids.__file__, "/nowhere"], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (127, "/nowhere: No such file or directory\n")


def test_orphans_are_reaped_while_the_program_runs():
    code = (
        "import os, time\n"
        "if not os.fork():\n"
        "    os._exit(0 if os.fork() else os.execvp('true', ['true']))\n"
        "os.wait()\n"
        "while len([n for n in os.listdir('/proc') if n.isdigit()]) > 2: time.sleep(0.01)\n"
        "print('reaped')"
    )
    assert subprocess.run(words(code), stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout == "reaped\n"


def alive(marker):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if marker.encode() in f.read().split(b"\0"):
                    return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize("end", ["it ends", "it is killed"])
def test_what_it_leaves_behind_ends_with_it(end, tmp_path):
    marker = f"left-behind-by-{os.getpid()}-{end.replace(' ', '-')}"
    leaves = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()', {marker!r}], stdin=subprocess.PIPE)\n"
    wait = "print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen(words(leaves + wait), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        eventually(lambda: alive(marker), "what it leaves behind")
        if end == "it is killed":
            process.kill()
    eventually(lambda: not alive(marker), "its end")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_a_process_sends_reaches_the_program_once(number):
    code = (
        "import signal, sys, time\n"
        f"got = []; signal.signal({int(number)}, lambda n, frame: got.append(n))\n"
        "print('up', flush=True)\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(0.1); print(got, flush=True)"
    )
    with subprocess.Popen(words(code), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.stdout.read() == f"[{int(number)}]\n"
        assert process.wait() == 0


def test_a_key_of_the_terminal_reaches_the_program_once(tmp_path):
    """Ctrl-C goes to each process of the foreground group: to the program too, by itself."""
    pexpect = pytest.importorskip("pexpect")
    code = (
        "import signal, time\n"
        "got = []; signal.signal(signal.SIGINT, lambda n, frame: got.append(n))\n"
        "print('up', flush=True)\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(0.3); print('got', len(got), flush=True)"
    )
    child = pexpect.spawn(sys.executable, words(code)[1:], timeout=60)
    child.expect("up")
    time.sleep(0.1)
    child.sendintr()
    child.expect(r"got (\d+)")
    assert child.match.group(1) == b"1"
    child.close()


def test_where_no_namespace_is_allowed_the_program_runs_as_it_is():
    code = (
        f"import sys; sys.path.insert(0, {os.path.dirname(os.path.dirname(own_pids.__file__))!r})\n"
        "from tools import own_pids\n"
        "own_pids.way = lambda: None\n"
        f"own_pids.main([sys.executable, '-c', {SEEN!r}])"
    )
    said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert str(os.getpid()) in said.replace("[", " ").replace("]", " ").replace(",", " ").split()
