"""How processes end: llm-stacks, llm-bt and llm-hang say which signal ended one and who sent it, or what keeps one alive."""

import contextlib
import os
import shutil
import signal
import subprocess

import pytest
from harness.answers import answer
from harness.heartbeats import asleep
from harness.subjects import PYTHONS, running, spawned, unlimited_core

NATIVE = """
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    printf("ready\\n"); fflush(stdout);
    if (words[1][0] == 's') *(volatile int *)0x75bcd15 = 1;
    if (words[1][0] == 'a') abort();
    for (;;) pause();
}
"""


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
@pytest.mark.parametrize("kind", ["joins", "atexit", "finalizing", "handlers", "alive"])
@pytest.mark.drawn(6)
def test_what_keeps_a_program_from_its_end(kind, python):
    with running(python, "endings.py", kind) as (target, truth):
        asleep(target.pid)
        stacks, hang = (answer(f"{name} {target.pid}") for name in ("llm-stacks", "llm-hang"))
    assert stacks["ends"] == hang["ends"]
    if kind == "alive":
        assert stacks["ends"] == []
        return
    (end,) = stacks["ends"]
    assert end["kind"] == {"handlers": "exit-handlers"}.get(kind, kind)
    assert end["tid"] == target.pid and sorted(th["tid"] for th in end["waits_for"]) == truth["keepers"]
    if kind == "joins":
        assert all("work" in th["at"] and th["name"].startswith("keeper") for th in end["waits_for"])
        assert "keeper0" in end["text"] and "helper" not in end["text"]


def core_of(folder, words, act=lambda process: None, **more):
    """-> the kernel's core of a program that has said `ready` and then dies, by what `act` does or by itself."""
    with open("/proc/sys/kernel/core_pattern") as f:
        if f.read().strip() != "core":
            pytest.skip("the kernel writes no cores into the folder here")
    with contextlib.suppress(AssertionError), spawned(words, "ready", cwd=folder, preexec_fn=unlimited_core, **more) as process:
        act(process)
        process.wait(60)
    return next(os.path.join(folder, name) for name in os.listdir(folder) if name.startswith("core"))


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    folder = tmp_path_factory.mktemp("native")
    (folder / "dies.c").write_text(NATIVE)
    subprocess.run(["gcc", "-O0", "-o", str(folder / "dies"), str(folder / "dies.c")], check=True)
    return str(folder / "dies")


DEATHS = {  # how it dies -> (what the program does, who sends what, what is true)
    "segv": ("segv", None, {"signal": "SIGSEGV", "address": "0x75bcd15", "sender": None}),
    "abort": ("abort", None, {"signal": "SIGABRT", "address": None, "sender": "itself"}),
    "killed": ("waits", signal.SIGABRT, {"signal": "SIGABRT", "address": None, "sender": "us"}),
    "quit": ("waits", signal.SIGQUIT, {"signal": "SIGQUIT", "address": None, "sender": "us"}),
}


@pytest.mark.parametrize("death", DEATHS)
def test_the_signal_of_a_core_without_python(death, native, tmp_path):
    what, sent, expected = DEATHS[death]
    pids = []

    def act(process):
        pids.append(process.pid)
        if sent:
            process.send_signal(sent)

    core = core_of(str(tmp_path), [native, what], act)
    check(core, pids[0], expected, os.getpid())
    hang = answer(f"llm-hang {core}")
    assert hang["verdict"] == ("unknown" if sent else "crashed"), hang["evidence"]


@pytest.mark.parametrize("python", [PYTHONS[0], PYTHONS[-1]], ids=os.path.basename)
@pytest.mark.parametrize("death", DEATHS)
def test_the_signal_of_a_core_with_python(death, python, tmp_path):
    what, sent, expected = DEATHS[death]
    die = {"segv": "ctypes.memset(0x75bcd15, 1, 1)", "abort": "os.abort()", "waits": "time.sleep(3600)"}[what]
    pids = []

    def act(process):
        pids.append(process.pid)
        if sent:
            asleep(process.pid)
            process.send_signal(sent)

    core = core_of(str(tmp_path), [python, "-c", f"import ctypes, os, time; print('ready', flush=True); {die}"], act)
    check(core, pids[0], expected, os.getpid())


def check(core, pid, expected, us):
    (end,) = answer(f"llm-stacks {core}")["ends"]
    told = {key: end[key] for key in expected}
    assert told == {**expected, "sender": {"us": us, "itself": pid}.get(expected["sender"])}
    assert end["kind"] == "signal" and end["tid"] == pid and end["user"] == (os.getuid() if told["sender"] else None)


def test_a_copy_of_a_process_that_lives_on_died_of_nothing(tmp_path):
    with spawned([PYTHONS[-1], "-c", "import time; print('ready', flush=True); time.sleep(3600)"], "ready") as process:
        core = str(tmp_path / "copy")
        answer(f"llm-snapshot {process.pid} -o {core}")
        assert answer(f"llm-stacks {core}")["ends"] == []
