"""A script runs inside a process that was running already: by remote execution on 3.14 and later, by a guarded call before."""

import contextlib
import glob
import json
import os
import platform
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
from harness.breakpoints import FILE, LINES, OFF, started
from harness.dap import Dap
from harness.gdb_run import run_gdb
from harness.heartbeats import eventually
from harness.subjects import PYTHONS, minor, spawned
from tools.environments import existing

from gdbext.access import ptrace

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")


def is_new(python):
    return minor(python) >= 14


# One that gdb calls into, one with remote execution.
TWO_WAYS = [p for p in PYTHONS if not is_new(p) and minor(p) >= 10][-1:] + [p for p in PYTHONS if is_new(p)][:1]


def injected(gdb_path, subject, python, command):
    """The answer of an `llm-inject -json` into a subject, which is not held by gdb any more."""
    attach = [] if is_new(python) else [f"attach {subject.pid}"]
    return run_gdb(gdb_path, [*attach, f"llm-inject -unsafe -timeout 60 {command}"], timeout=100, before=OFF)


def left_by(pid, before):
    """New folders with the answer of a process in them."""
    found = []
    for folder in folders() - before:
        try:
            with open(os.path.join(folder, "result")) as f:
                found += [folder] * (json.load(f)["pid"] == pid)
        except OSError:
            continue  # somebody else's, on its way
    return found


@contextlib.contextmanager
def nothing_is_left():
    """After the block no folder of an exchange is there that came in it: other tests remove theirs."""
    before = folders()
    yield
    late = folders() - before
    eventually(lambda: not late & folders(), "the folders of the exchange to be removed")


def folders():
    return set(glob.glob("/tmp/gdbext-inject-*"))


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_file_runs_in_the_process_which_goes_on(python, gdb_path, tmp_path):
    new = is_new(python)
    out = tmp_path / "told"
    body = tmp_path / "body.py"
    body.write_text(
        (
            f"import json, os, sys\nwith open({str(out)!r}, 'w') as f:\n    "
            f"json.dump([os.getpid(), 'breakpoints.py' in sys.argv[0]], f)\n"
        )
    )
    before = folders()
    with started(python, tmp_path) as subject:
        pid = subject.pid
        attach = [] if new else [f"attach {pid}"]
        said = run_gdb(
            gdb_path, [*attach, f"llm-inject {body} {pid}", f"llm-inject -unsafe -json {body} {pid}"], timeout=300, before=OFF
        )
        at = len(attach)
        assert "add -unsafe" in said.outputs[at]
        assert said.json(at + 1)["started"][0]["ok"] is True, said.outputs[at + 1]
        assert json.loads(out.read_text()) == [pid, True]
        assert not left_by(pid, before)
        subject.go_on("run")
        assert subject.tally()["run"] == 300


@pytest.mark.parametrize("python", TWO_WAYS, ids=os.path.basename)
def test_a_debugpy_client_stops_at_a_line_by_the_printed_configuration(python, gdb_path, tmp_path, monkeypatch):
    """As VS Code does it: attach, setBreakpoints, configurationDone, stopped, stackTrace, scopes, variables, disconnect."""
    if not existing("debugpy"):
        pytest.skip("no environment with debugpy: run scripts/test gdb, which makes one")
    monkeypatch.setenv("DEBUGPY_PROCESS_SPAWN_TIMEOUT", "120")
    (packages,) = glob.glob(
        os.path.join(os.path.dirname(os.path.dirname(existing("debugpy"))), "lib", "python*", "site-packages")
    )
    with started(python, tmp_path) as subject:
        said = injected(gdb_path, subject, python, f"-path {packages} debugpy {subject.pid}")
        (line,) = [text for text in said.outputs[-1].splitlines() if text.startswith("{")]
        configuration = json.loads(line)
        assert (configuration["type"], configuration["request"]) == ("debugpy", "attach")
        client = Dap.connect(**configuration["connect"])
        assert client.ask("initialize", adapterID="debugpy", pathFormat="path")["supportsConditionalBreakpoints"]
        attached = client.send("attach", **configuration)
        client.event("initialized")
        wanted = {"line": LINES["kind"], "condition": "number == 7"}
        (made,) = client.ask("setBreakpoints", source={"path": FILE}, breakpoints=[wanted])["breakpoints"]
        assert made["verified"]
        client.ask("configurationDone")
        client.answer(attached)
        subject.go_on("run")
        stopped = client.event("stopped")
        assert stopped["reason"] == "breakpoint"
        frames = client.ask("stackTrace", threadId=stopped["threadId"])["stackFrames"]
        assert [f["name"] for f in frames] == ["run", "run", "main", "<module>"] and frames[0]["line"] == LINES["kind"]
        scope = client.ask("scopes", frameId=frames[0]["id"])["scopes"][0]
        values = {
            v["name"]: v["value"] for v in client.ask("variables", variablesReference=scope["variablesReference"])["variables"]
        }
        assert (values["number"], values["kind"], values["total"]) == ("7", "'odd'", "3")
        assert client.ask("evaluate", expression="number * 6", frameId=frames[0]["id"])["result"] == "42"
        client.ask("disconnect", terminateDebuggee=False)
        client.close()
        assert subject.tally()["run"] == 300


class Terminal:
    """What `nc` would be: `ask(line)` -> what pdb says up to its next prompt."""

    def __init__(self, port):
        self.talk = socket.create_connection(("127.0.0.1", port), 180)
        self.talk.settimeout(180)
        self.text = self.talk.makefile("rw")

    def answer(self):
        said = ""
        while not said.endswith("(Pdb) "):
            new = self.text.read(1)
            assert new, said
            said += new
        return said

    def tell(self, line):
        self.text.write(line + "\n")
        self.text.flush()

    def ask(self, line):
        self.tell(line)
        return self.answer()

    def close(self):
        self.text.close()
        self.talk.close()


@pytest.mark.parametrize("ends", ["quit", "hangs up"])
@pytest.mark.parametrize("python", TWO_WAYS, ids=os.path.basename)
def test_pdb_opens_in_the_main_thread_and_whoever_leaves_it_ends_nothing(python, ends, gdb_path, tmp_path):
    with started(python, tmp_path) as subject:
        said = injected(gdb_path, subject, python, f"-json pdb {subject.pid}")
        terminal = Terminal(said.json()["port"])
        assert "told()" in terminal.answer()
        assert "main()" in terminal.ask("where") and "Breakpoint 1 at" in terminal.ask(
            f"break {FILE}:{LINES['kind']}, number == 7"
        )
        subject.go_on("run")
        assert f"breakpoints.py({LINES['kind']})run()" in terminal.ask("continue")
        assert "(7, 'odd')" in terminal.ask("p number, kind")
        if ends == "quit":
            terminal.tell("quit")
        else:
            terminal.close()
        assert subject.tally()["run"] == 300


@pytest.mark.parametrize("python", TWO_WAYS[-1:], ids=os.path.basename)
def test_a_debugpy_that_is_not_there_is_told_with_the_way_to_get_it(python, gdb_path, tmp_path):
    with started(python, tmp_path) as subject:
        said = injected(gdb_path, subject, python, f"debugpy {subject.pid}")
        assert (
            "No module named 'debugpy'" in said.outputs[-1]
            and "-path FOLDER" in said.outputs[-1]
            and "\n" not in said.outputs[-1].strip()
        )


def test_faulthandler_and_an_error_in_the_script(gdb_path, tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("raise RuntimeError('from inside')\n")
    with started(PYTHONS[-1], tmp_path) as subject:
        attach = [] if is_new(PYTHONS[-1]) else [f"attach {subject.pid}"]
        asked = [f"llm-inject -unsafe {word} {subject.pid}" for word in ("-json faulthandler", bad, "nosuch")]
        said = run_gdb(gdb_path, [*attach, *asked], timeout=300, before=OFF)
        log = said.json(len(attach))["started"][0]["file"]
        with open(log) as f:
            assert "most recent call first" in f.read()
        shutil.rmtree(os.path.dirname(log))  # llm-inject leaves it, as its answer
        assert (
            "RuntimeError: from inside" in said.outputs[len(attach) + 1]
            and "none of debugpy, pdb, faulthandler and no file" in said.outputs[len(attach) + 2]
        )


def sleeps_for_good(pid):
    """Waits until a process does not come back from its sleep a hundred times a second."""

    def switches():
        with open(f"/proc/{pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("voluntary_ctxt_switches"))

    before, deadline = -1, time.monotonic() + 60
    while before != switches():
        assert time.monotonic() < deadline, "it goes on waking up"
        before = switches()
        time.sleep(0.5)


@pytest.mark.every_gdb
@pytest.mark.parametrize("python", TWO_WAYS, ids=os.path.basename)
@pytest.mark.drawn(2)
def test_a_main_thread_that_is_stuck_in_c_is_said(python, gdb_path, tmp_path):
    with started(python, tmp_path) as subject:
        subject.go_on("stuck")
        sleeps_for_good(subject.pid)
        attach = [] if is_new(python) else [f"attach {subject.pid}"]
        said = run_gdb(gdb_path, [*attach, f"llm-inject -unsafe -timeout 1 faulthandler {subject.pid}"], timeout=300, before=OFF)
    answer = said.outputs[-1].strip()
    assert "main thread" in answer
    assert "\n" not in answer


def folder_named(text):
    """The folder of the exchange that an answer names."""
    return re.search("/tmp/gdbext-inject-[0-9a-f]+", text).group()


@pytest.mark.parametrize("tool", ["a script", "faulthandler"])
@pytest.mark.parametrize("python", TWO_WAYS, ids=os.path.basename)
def test_a_process_that_cannot_write_is_said_and_nothing_is_left(python, tool, gdb_path, tmp_path):
    """Its disk is full, as a limit on the size of its files makes it."""
    body = tmp_path / "body.py"
    body.write_text("pass\n")
    code = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.01)"
    with spawned([python, "-c", code], ready="up") as subject:
        _, most = resource.prlimit(subject.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(subject.pid, resource.RLIMIT_FSIZE, (0, most))
        said = injected(gdb_path, subject, python, f"{body if tool == 'a script' else tool} {subject.pid}")
        answer = said.outputs[-1].strip()
        assert "it ran, but cannot write to" in answer and "\n" not in answer
        assert not os.path.exists(folder_named(answer))
        assert subject.poll() is None and not ptrace.tracers(subject.pid)


@pytest.mark.parametrize("python", TWO_WAYS, ids=os.path.basename)
def test_a_script_that_takes_longer_than_its_time_goes_on_and_tells_later(python, gdb_path, tmp_path):
    body, go_on = tmp_path / "body.py", tmp_path / "go_on"
    body.write_text(f"import os, time\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.01)\n")
    with started(python, tmp_path) as subject:
        attach = [] if is_new(python) else [f"llm-attach {subject.pid}"]
        said = run_gdb(gdb_path, [*attach, f"llm-inject -unsafe -timeout 1 {body} {subject.pid}"], timeout=60, before=OFF)
        assert "has not ended yet" in said.outputs[-1], said.text
        folder = folder_named(said.outputs[-1])
        go_on.touch()
        eventually(lambda: os.path.exists(os.path.join(folder, "result")), "the script to end")
        with open(os.path.join(folder, "result")) as f:
            assert json.load(f)["ok"] is True
        shutil.rmtree(folder)
        subject.go_on("run")
        assert subject.tally()["run"] == 300


SLOW = """
import os, signal, time
signal.signal(signal.SIGUSR1, lambda *_: None)
open({at!r}, "w").close()
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    time.sleep(0.01)
open({at!r} + ".end", "w").close()
"""
INIT = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "gdbext", "init.py")
OLD = [p for p in PYTHONS if not is_new(p)][-1:]
ROUNDS = 12
LONG = bool(os.environ.get("GDBEXT_TEST_LONG"))


def interrupted(gdb_path, subject, tmp_path, seconds, signals, commands):
    """A gdb that injects a script of so many `seconds`, with `signals` sent to the process while it runs. -> GdbRun"""
    at = tmp_path / "at"
    body = tmp_path / "slow.py"
    body.write_text(SLOW.format(at=str(at), seconds=seconds))

    def send():
        eventually(at.exists, "the script to begin")
        for number in signals:
            os.kill(subject.pid, number)
            time.sleep(0.3)

    sender = threading.Thread(target=send)
    sender.start()
    said = run_gdb(
        gdb_path,
        [f"llm-attach {subject.pid}", *(c.format(body=body, pid=subject.pid) for c in commands)],
        timeout=60,
        before=OFF,
    )
    sender.join()
    return said


@pytest.mark.every_gdb
@pytest.mark.parametrize("python", OLD, ids=os.path.basename)
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGINT])
@pytest.mark.drawn(2)
def test_a_signal_in_the_middle_of_the_call_costs_no_rank(number, python, gdb_path, tmp_path):
    with started(python, tmp_path) as subject:
        said = interrupted(
            gdb_path,
            subject,
            tmp_path,
            1,
            [number],
            ["break clock_nanosleep", "llm-inject -unsafe -json {body} {pid}", "llm-detach"],
        )
        assert "was stopped for" in said.outputs[3], said.text
        subject.go_on("run")
        assert subject.tally()["run"] == 300  # it lives, and is as it was
    assert said.json(2)["started"][0]["ok"] is True
    assert "Program received" not in said.text or number == signal.SIGINT


def ended(at):
    """Waits for the end of the script that began by making the file `at`."""
    eventually(lambda: os.path.exists(f"{at}.end"), "the script to end")


@pytest.mark.every_gdb
@pytest.mark.parametrize("python", OLD, ids=os.path.basename)
@pytest.mark.parametrize("way", ["llm-detach", "detach", "quit"])
@pytest.mark.drawn(2)
def test_whoever_leaves_in_the_middle_of_the_call_costs_no_rank(way, python, gdb_path, tmp_path):
    with nothing_is_left(), started(python, tmp_path) as subject:
        said = interrupted(gdb_path, subject, tmp_path, 3, [signal.SIGINT] * 2, ["llm-inject -unsafe {body} {pid}", way])
        assert "goes on whenever the process runs" in said.outputs[1], said.text
        ended(tmp_path / "at")
        subject.go_on("run")
        assert subject.tally()["run"] == 300  # it lives, and is as it was


@pytest.mark.every_gdb
@pytest.mark.parametrize("python", OLD, ids=os.path.basename)
def test_a_gdb_that_is_killed_in_the_middle_of_the_call_costs_no_rank(python, gdb_path, tmp_path):
    at, body = tmp_path / "at", tmp_path / "slow.py"
    body.write_text(SLOW.format(at=str(at), seconds=3))
    with nothing_is_left(), started(python, tmp_path) as subject:
        words = [gdb_path, "-nx", "-batch", "-iex", "set debuginfod enabled off", "-x", INIT]
        words += ["-ex", f"llm-attach {subject.pid}", "-ex", f"llm-inject -unsafe {body} {subject.pid}"]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
            eventually(at.exists, "the script to begin")
            killed.kill()
        ended(at)
        subject.go_on("run")
        assert subject.tally()["run"] == 300


@pytest.mark.parametrize("python", TWO_WAYS[-1:], ids=os.path.basename)
def test_whoever_waits_for_a_script_no_longer_lets_it_end(python, gdb_path, tmp_path):
    """By remote execution: Ctrl-C ends the wait, not the script."""
    at, body = tmp_path / "at", tmp_path / "slow.py"
    body.write_text(SLOW.format(at=str(at), seconds=2))
    with nothing_is_left(), started(python, tmp_path) as subject:
        words = [gdb_path, "-nx", "-batch", "-iex", "set debuginfod enabled off", "-x", INIT]
        words += ["-ex", f"llm-inject -unsafe {body} {subject.pid}"]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as asks:
            eventually(at.exists, "the script to begin")
            asks.send_signal(signal.SIGINT)
            said = asks.communicate(timeout=60)[0]
        assert "goes on whenever the process runs" in said and "waited for no longer" in said, said
        ended(at)
        subject.go_on("run")
        assert subject.tally()["run"] == 300


# Counts the lines of Python that gdb runs of what injects, and kills gdb at one of them.
AT_A_LINE = """
import os, signal, sys
passed = 0

def on_line(frame, event, arg):
    global passed
    passed += event == "line"
    if passed == {number}:
        os.kill(os.getpid(), signal.SIGKILL)
    return on_line

FILES = tuple("/" + name + ".py" for name in "inject guarded_call shared_folder sweeper".split())

def on_call(frame, event, arg):
    code = frame.f_code  # expressions and what changes gdb's own settings write to nobody
    return on_line if code.co_filename.endswith(FILES) and code.co_name[0] != "<" and code.co_name != "_undisturbed" else None

sys.settrace(on_call)
"""


@contextlib.contextmanager
def killing(python, folder):
    """-> (a subject, `inject(line)`, which runs a gdb that injects a script into it and is killed at that line of its Python, the
    file that the script makes when it begins). The process gets on afterwards, nothing is left, and it has said nothing."""
    at, body, said, script = (folder / name for name in ("at", "slow.py", "stderr", "lines.py"))
    body.write_text(SLOW.format(at=str(at), seconds=0.1))
    with open(said, "wb") as stderr, nothing_is_left(), started(python, folder, stderr=stderr) as subject:
        attach = [] if is_new(python) else ["-ex", f"llm-attach {subject.pid}"]

        def words(gdb_path, line):
            script.write_text(AT_A_LINE.format(number=line))
            at.unlink(missing_ok=True)
            start = [
                gdb_path,
                "-nx",
                "-batch",
                "-iex",
                "set debuginfod enabled off",
                "-x",
                INIT,
                *attach,
                "-ex",
                "echo attached\\n",
            ]
            return [
                *start,
                "-x",
                str(script),
                "-ex",
                f"llm-inject -unsafe {body} {subject.pid}",
                "-ex",
                "python print('lines', passed)",
            ]

        def lives():
            eventually(lambda: not ptrace.tracers(subject.pid), "the guard to let go")
            if at.exists():
                ended(at)
                os.unlink(f"{at}.end")
            assert subject.process.poll() is None, f"the process ended with {subject.process.returncode}"

        yield words, lives, at
        subject.go_on("run")
        assert subject.tally()["run"] == 300  # it is as it was
    assert said.read_bytes() == b""


QUIET = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


@pytest.mark.drawn(1, group="killed while it injects")
@pytest.mark.parametrize("python", TWO_WAYS, ids=os.path.basename)
def test_a_gdb_that_is_killed_at_random_moments_of_injecting_costs_no_rank(python, gdb_path, tmp_path):
    """From the attach to after the call: before it, at the call's own breakpoint, in the script, on the way back."""
    begun = ended_early = 0
    with killing(python, tmp_path) as (words, lives, at):
        for _ in range(ROUNDS):
            with spawned(words(gdb_path, -1), ready="attached", **QUIET) as killed:
                time.sleep(random.random() * 0.8)
                ended_early += killed.poll() is not None
            begun += at.exists()
            lives()
    assert ended_early < ROUNDS, "no gdb was killed: the test shows nothing"
    print(f"{begun} of {ROUNDS} had begun the script, {ended_early} had ended")


@pytest.mark.drawn(1, group="killed while it injects")
@pytest.mark.parametrize("python", TWO_WAYS, ids=os.path.basename)
def test_a_gdb_that_is_killed_at_any_line_of_injecting_costs_no_rank(python, gdb_path, tmp_path):
    """At each of the lines that write to the process, and at some of the others."""
    with killing(python, tmp_path) as (words, lives, at):
        whole = subprocess.run(words(gdb_path, -1), stdout=subprocess.PIPE, text=True, timeout=120, **QUIET)
        lives()
        count = int(re.search(r"^lines (\d+)$", whole.stdout, re.M).group(1))
        for line in sorted(random.sample(range(1, count), ROUNDS if not LONG else count - 1)):
            killed = subprocess.run(words(gdb_path, line), stdout=subprocess.DEVNULL, timeout=120, **QUIET)
            assert killed.returncode == -signal.SIGKILL or line > count - 40, "how often it waits for the script differs"
            lives()
