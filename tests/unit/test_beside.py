"""What runs beside something else (scripts/tools/beside.py), and which part of the tests does."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from tools import run_tests
from tools.beside import beside
from tools.say import Failed
from tools.share import NICE


def test_what_it_returns_comes_with_what_it_printed(capfd):
    def job():
        subprocess.run(["echo", "said by", "a child"], check=True)
        return os.getpid(), os.getsid(0), os.nice(0)

    with beside(job, "a job") as answer:
        print("the other one", flush=True)
        pid, session, priority = answer()
    assert pid == session != os.getsid(0) and priority >= NICE
    assert capfd.readouterr().out.splitlines() == ["the other one", "said by a child"]


def test_one_that_ends_without_an_answer_has_failed(capfd):
    with pytest.raises(Failed, match="a job ended before its end, with status 3"):
        with beside(lambda: os._exit(3), "a job") as answer:
            answer()
    with pytest.raises(Failed, match="a job ended"):
        with beside(lambda: 1 // 0, "a job") as answer:
            answer()
    assert "ZeroDivisionError" in capfd.readouterr().out


def test_it_ends_with_the_block_and_may_tidy_up(tmp_path):
    ready, tidy = tmp_path / "ready", tmp_path / "tidy"
    os.mkfifo(ready)

    def ended(number, frame):
        raise SystemExit(128 + number)

    def job():
        signal.signal(signal.SIGTERM, ended)
        try:
            ready.write_text("x")
            threading.Event().wait()
        finally:
            tidy.touch()

    with pytest.raises(KeyboardInterrupt):
        with beside(job, "a job"):
            assert ready.read_text() == "x"
            raise KeyboardInterrupt
    assert tidy.exists()


class Ready:
    """A `Prepared` that has all."""

    variables = {"GDBEXT_TEST_PYTHON": "python3"}
    others = ["oldest"]

    def need(self, part):
        pass


@pytest.mark.parametrize(
    "parts,arguments,beside_engines",
    [
        (["unit", "gdb", "engines"], [], True),
        (["unit", "gdb"], [], False),
        (["unit", "engines"], ["-x"], False),
        (["engines"], [], False),
    ],
)
def test_unit_runs_beside_engines_where_both_run_whole(parts, arguments, beside_engines, monkeypatch):
    def came(part, given, environ):
        return run_tests.Part(part, 0, 1.0, {"passed": os.getpid() * 1000 + len(environ.get("GDBEXT_TEST_AGAIN", ""))})

    monkeypatch.setattr(run_tests, "run_part", came)
    ran = run_tests.run_parts(parts, arguments, {}, Ready())
    expected = [name for part in parts for name in [part] * (1 + (part == "unit" and not arguments))]
    assert [part.name for part in ran] == expected
    assert {part.name for part in ran if part.passed // 1000 != os.getpid()} == ({"unit"} if beside_engines else set())
    assert [part.passed % 1000 for part in ran if part.name == "unit"] == [0, 1][: expected.count("unit")]


WEIGHED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from tools import share
folder, _ = share.quota(0.5)
if not folder:
    sys.exit("no control groups")
file = next(os.path.join(folder, n) for n in ("cpu.shares", "cpu.weight") if os.path.exists(os.path.join(folder, n)))
for part in (1.0, share.WEIGHT):
    print(share.weigh(os.getpid(), part), open(file).read().strip())
share.remove(folder)
print(share.weigh(os.getpid(), 1.0))
"""


def test_an_engine_that_starts_weighs_as_much_as_others_and_at_work_little(root):
    line = [sys.executable, "-c", WEIGHED, os.path.join(root, "scripts")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if "no control groups" in done.stderr:
        pytest.skip("this user may make no control group")
    assert done.stdout.splitlines() in (["True 1024", "True 110", "False"], ["True 100", "True 10", "False"]), done
