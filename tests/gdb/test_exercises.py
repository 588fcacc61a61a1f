"""The three exercises of docs/exercises.md: the commands of each solution are asked about the program, and their answers are
compared with what the program knows of itself."""

import glob
import os
import re
import subprocess
import sys
import time

import pytest
from harness.gdb_run import ROOT
from tools.screens import SCREENS, exercise, filled


def commands(title):
    """The commands of the section "Solution: TITLE"."""
    with open(os.path.join(ROOT, "docs", "exercises.md"), encoding="utf-8") as f:
        section = f.read().partition(f"\n### Solution: {title}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^    gdbext (.+)$", section, re.M)
    assert found, title
    return found


def ask(command, said, folder):
    words = ["sh", "-c", f'exec "$0" -m gdbext {filled(command, said, folder)}', sys.executable]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    return done.stdout


def lines_that_name(text, *names):
    return [line for line in text.splitlines() if all(name in line for name in names)]


def until(asked, seen, seconds=120):
    """What `asked()` says once `seen` finds what it looks for in it: the fault comes some time after the start."""
    end = time.monotonic() + seconds
    text = asked()
    while not seen(text) and time.monotonic() < end:
        time.sleep(1)
        text = asked()
    return text


def test_the_solution_of_the_hung_engine_names_both_threads_and_locks():
    hang, dump = commands("the hung engine")
    with exercise("hung_engine.py", "-truth", python=sys.executable) as (truth, folder):
        said = until(lambda: ask(hang, truth, folder), lambda text: text.startswith("lock-cycle"))
        assert said.startswith("lock-cycle") and str(truth["worker"]) in said.splitlines()[0], said
        for thread, (held, wanted) in truth["holds"].items():
            (line,) = lines_that_name(said, "culprit:", thread)
            assert f"holds the Lock self.{held}," in line and f"waits for the Lock self.{wanted} " in line, said
        stacks = ask(dump, truth, folder)
        assert all(lines_that_name(stacks, name) for name in ("Worker.run_step", "Worker.offload_blocks")), stacks


def test_the_solution_of_the_leak_names_what_grows_and_not_what_is_full():
    pytest.importorskip("numpy")  # the walk over a heap needs it
    watch, look = commands("the leak")
    with exercise("leak.py", "-truth", python=sys.executable) as (truth, folder):

        def full(text):
            return re.search(rf"^\S+ +1000 .*{re.escape(truth['full'])} ", text, re.M)

        large = until(lambda: ask(look, truth, folder), full)
        assert full(large) and all(lines_that_name(large, owner) for owner in truth["grows"]), large
        said = ask(watch, truth, folder)
        assert all(lines_that_name(said, owner) for owner in truth["grows"]) and truth["full"] not in said, said


def test_the_solution_of_the_wrong_token_finds_the_layer_and_the_row():
    pytest.importorskip("numpy")
    asked = commands("the wrong token")
    with exercise("wrong_token.py", "-truth", python=sys.executable) as (truth, folder):
        assert truth["answer"] != "blue"
        (form,) = {re.sub(r"\d", "N", command) for command in asked}
        for number, (count, first) in enumerate(truth["differ"]):
            said = ask(form.replace("N", str(number)), truth, folder)
            if count:
                assert f"in {count} of 4096 elements" in said and f"first at {first}" in said, said
            else:
                assert "in all 4096 elements" in said and "different" not in said, said


def test_each_picture_is_there_and_shown():
    text = "".join(open(page, encoding="utf-8").read() for page in glob.glob(os.path.join(ROOT, "docs", "*.md")))
    there = {name[:-4] for name in os.listdir(os.path.join(ROOT, "docs", "screens"))}
    assert there == set(SCREENS) and all(f"screens/{name}.svg" in text for name in there)
