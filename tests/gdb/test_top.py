"""llm-top against processes that are known, in a terminal of its own: what it shows, its keys, and how it leaves the terminal."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from types import SimpleNamespace

import pytest
from harness.answers import answer, run
from harness.gdb_run import ROOT
from harness.heartbeats import eventually
from harness.releases import release
from harness.subjects import PYTHONS, running, spawned

from gdbext.access.proc import ProcTarget
from gdbext.answers import top as answers
from gdbext.api import choosing
from gdbext.engines.group import Engine
from gdbext.engines.targets import Targets
from gdbext.errors import GdbextError, NotFoundError
from gdbext.requests import meter
from gdbext.requests.meter import EngineMeter
from gdbext.timeline import live, sampler


@pytest.mark.parametrize("python", PYTHONS)
def test_a_frame_says_what_the_process_does(python):
    with running(python, "timeline.py", "60") as (target, _):
        found = answer(f"llm-top -once -interval 0.5 {target.pid}")
    (rank,) = found["ranks"]
    assert rank["pid"] == target.pid and rank["threads"] == 3 and rank["rss"] > 1 << 20 and 0 < rank["cpu"] < 2
    assert rank["function"].rpartition(".")[2] in ("run_long", "run_short", "helper", "<listcomp>", "generator", "rest")
    assert rank["state"] in ("running", "sleep", "waits for the GIL") and 0 < rank["part"] <= 1.01
    assert rank["gil_holder"] in ("MainThread", "asks", None) and found["engines"] == [] and found["partial"] == []


def engine_of(target):
    rank = SimpleNamespace(
        engine="vllm",
        label="EngineCore",
        pid=target.pid,
        role="engine-core",
        marks=[],
        zombie=False,
        ranks={},
        index=0,
        ppid=0,
        family=1,
        serves=True,
    )
    return Engine([rank], Targets().of)


def test_an_engine_that_works_is_metered():
    """A STAND-IN of vLLM's scheduler: one token and one step every 20 ms."""
    with running(sys.executable, "requests_vllm.py", "3", "work") as (target, said):
        own = EngineMeter(engine_of(target))
        own.read()
        time.sleep(1)
        found = own.read()
    assert found.running == 1 and found.waiting == said["waiting"] + 4
    assert 0.5 < found.tokens_per_second / found.step_rate < 2, "both are read in one look, not at one moment"
    assert found.steps == {target.pid: found.step_rate} and found.oldest is not None and found.oldest[1] > 0.5
    assert "r0" not in found.oldest[0]


def test_an_engine_is_read_beside_a_recording():
    with running(sys.executable, "requests_vllm.py", "3", "work") as (target, _), meter.Beside([engine_of(target)]) as beside:
        rec = sampler.record([(ProcTarget(target.pid), "EngineCore")], 50.0, 1.5, [])
    assert beside.notes == [] and beside.readings[0][2].running == 1
    assert {"requests running", "requests waiting"} <= set(meter.counters(beside.readings[-1][2]))
    counted = rec.processes[0].counters
    assert all(0 <= value < 4 for _, value in counted["processors used"]) and counted["resident bytes"][0][1] > 1 << 20


def test_the_blocks_of_a_release_are_counted(torch_python):
    with running(torch_python, "vllm_release.py", release("vllm", "0.24.0"), "0.24.0") as (target, truth):
        found = EngineMeter(engine_of(target)).read()
    pool = truth["pools"][0]
    assert (found.running, found.waiting) == (len(truth["running"]), len(truth["waiting"]))
    assert found.free == len(pool["free"]) and found.blocks == pool["size"], (found, pool)


def pause(seconds):
    time.sleep(seconds)


def test_a_process_that_is_no_python_yet_is_shown_as_soon_as_it_is():
    later = ["/bin/sh", "-c", 'read line; exec "$0" -c "input()"', PYTHONS[-1]]
    with running(PYTHONS[-1], "timeline.py", "60") as (target, _), spawned(later) as late:
        pair = live.Live([(ProcTarget(late.pid), "late"), (ProcTarget(target.pid), "at once")])
        assert [row.label for row in pair.frame(0.1, pause)] == ["at once"] and pair.failed[0]["label"] == "late"
        late.stdin.write("go\n")
        late.stdin.flush()
        eventually(lambda: [row.label for row in pair.frame(0.1, pause)] == ["late", "at once"], "its row")
        assert pair.failed == []
        pair.close()


def test_a_line_for_each_frame_until_nobody_reads():
    with running(PYTHONS[0], "timeline.py", "60") as (target, _):
        line = [sys.executable, "-m", "gdbext", "llm-top", "-json", "-interval", "0.1"]
        env = {**os.environ, "PYTHONPATH": ROOT}
        three = subprocess.run([*line, "-frames", "3", str(target.pid)], stdout=subprocess.PIPE, env=env, check=True, text=True)
        frames = [json.loads(text) for text in three.stdout.splitlines()]
        assert len(frames) == 3 and all(f["schema"] == "llm-top/1" and f["ranks"][0]["pid"] == target.pid for f in frames)
        with subprocess.Popen([*line, str(target.pid)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
            process.stdout.readline()
            process.stdout.close()
            assert process.wait(30) == 0 and process.stderr.read() == b""
        with pytest.raises(GdbextError, match="needs a terminal"):
            run(f"llm-top {target.pid}") if not sys.stdin.isatty() or not sys.stdout.isatty() else pytest.skip("a terminal")


class Terminal:
    """llm-top on a terminal of its own. `said`: all that it has shown."""

    def __init__(self, pids, folder=None, **env):
        self.ours, self.theirs = pty.openpty()
        self.said, self.before = b"", termios.tcgetattr(self.theirs)
        line = [sys.executable, "-m", "gdbext", "llm-top", "-interval", "0.2", *map(str, pids)]
        size = {"NO_COLOR": "1", "COLUMNS": "100", "LINES": "30", "TERM": "xterm"}
        # tests that a shell started in its background have SIGINT ignored, and so would have what they start
        wakes = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
        env = {**os.environ, "PYTHONPATH": ROOT, **size, **env}
        self.process = subprocess.Popen(
            line, stdin=self.theirs, stdout=self.theirs, stderr=self.theirs, env=env, cwd=folder, **wakes
        )

    def until(self, word, seconds=60):
        """Waits for a word that is shown from now on; -> what was shown with it."""
        start, deadline = len(self.said), time.monotonic() + seconds
        while word not in self.said[start:]:
            assert time.monotonic() < deadline and self.process.poll() is None, (word, self.said[start:])
            if select.select([self.ours], [], [], 0.05)[0]:
                self.said += os.read(self.ours, 65536)
        return self.said[start:]

    def press(self, keys, word):
        """Types, and waits for a word in a frame that is drawn after that."""
        while select.select([self.ours], [], [], 0)[0]:
            self.said += os.read(self.ours, 65536)
        os.write(self.ours, keys)
        return self.until(word)

    def ended(self):
        """The exit status, and whether the terminal is as before; all is read."""
        deadline = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self.ours], [], [], 0.05)[0]:
                self.said += os.read(self.ours, 65536)
        self.process.kill()
        while select.select([self.ours], [], [], 0.1)[0]:
            self.said += os.read(self.ours, 65536)
        same = termios.tcgetattr(self.theirs) == self.before
        os.close(self.ours)
        os.close(self.theirs)
        return self.process.wait(), same


@pytest.mark.parametrize("end", ["q", "Q", signal.SIGTERM, signal.SIGINT])
def test_the_terminal_is_as_before_however_it_ends(end):
    with running(PYTHONS[-1], "timeline.py", "60") as (target, _):
        top = Terminal([target.pid])
        top.until(b"label")
        if isinstance(end, str):
            os.write(top.ours, end.encode())
        else:
            top.process.send_signal(end)
        status, same = top.ended()
    assert status == (0 if end != signal.SIGTERM else 128 + signal.SIGTERM), top.said
    assert same and top.said.rstrip().endswith(b"\x1b[?25h\x1b[?1049l") and b"Traceback" not in top.said


def test_every_key_does_what_the_last_line_says(tmp_path):
    with running(PYTHONS[0], "timeline.py", "60") as (one, _), running(PYTHONS[0], "stalls.py", "one", "1", ".", "0") as (
        two,
        _,
    ):
        top = Terminal([one.pid, two.pid], str(tmp_path))
        assert b"q quit  s sort  up/down choose  enter stack  w snapshot" in top.until(b"sorted by order")
        for sort in (b"cpu", b"rss", b"gil", b"lag", b"order"):
            top.press(b"s", b"sorted by " + sort)
        first, second = (b"> timeline.py", b"> stalls.py")
        for key, shown in ((b"\x1b[B", second), (b"\x1b[A", first), (b"\x1bOB", second), (b"k", first), (b"j", second)):
            top.press(key, shown)
        shown = top.press(b"\r", b"% of the time here")
        assert b"%d %d: " % (two.pid, two.pid) in shown and b"stalls.py:" in shown, "the stack is that of the chosen rank"
        assert b"% of the time here" in top.press(b"s", b"sorted by cpu")  # the rows change their places, the rank does not
        assert second in top.until(b"sorted by cpu")
        assert b"%d %d: " % (one.pid, one.pid) not in top.until(b"sorted by cpu")
        top.press(b"w", b"snapshot: %d-" % two.pid)
        (core,) = tmp_path.iterdir()
        assert core.name.startswith(f"{two.pid}-") and core.read_bytes()[:4] == b"\x7fELF"
        top.press(b"o", b"sorted by cpu")  # closes the stack
        assert b"% of the time here" not in top.until(b"sorted by cpu")
        top.press(b"x\x1b", b"sorted by cpu")  # no keys of it
        os.write(top.ours, b"q")
        assert top.ended() == (0, True), top.said


def test_each_panel_fits_a_screen_of_80_columns(tmp_path):
    """As a person sees it: what the escapes draw, not the bytes."""
    pyte = pytest.importorskip("pyte")
    screen = pyte.Screen(80, 24)
    stream = pyte.ByteStream(screen)
    with running(PYTHONS[-1], "timeline.py", "60") as (one, _):
        top = Terminal([one.pid], str(tmp_path))

        def press(key, *words):
            """What is on the screen once it has all the words."""
            os.write(top.ours, key)
            end, lines = time.monotonic() + 60, []
            while time.monotonic() < end and not all(any(re.search(word, line) for line in lines) for word in words):
                if select.select([top.ours], [], [], 0.1)[0]:
                    said = os.read(top.ours, 65536)
                    top.said += said
                    stream.feed(said)
                lines = [line.rstrip() for line in screen.display]
            assert all(any(re.search(word, line) for line in lines) for word in words), (words, lines)
            return lines

        press(b"", "q quit", r"\(sorted by order\)")
        press(b"f", "self  total  function")
        press(b"r", "no open request")
        press(b"\r", "% of the time here")
        lines = press(b"h", r"^(busy|idle|unknown): ", r"\(sorted by order\)")
        assert any(line.startswith("r requests") and line.endswith("(sorted by order)") for line in lines), lines
        press(b"b", "gdbext-")
        (bundle,) = tmp_path.glob("*.gdbext")
        assert bundle.read_bytes()[:2] == b"PK"
        os.write(top.ours, b"q")
        assert top.ended() == (0, True), top.said


def test_requests_ranks_and_bars_of_a_frame():
    ages = [meter.Aged("old", 9.5, 4.0, "EngineCore", "RUNNING"), meter.Aged("new", None, 0.0, "frontend", "awaited")]
    one = meter.Reading("vllm", ["EngineCore", "TP0", "TP1"], 1, 1, ages=ages)
    one.counted = {(1, "steps"): 40, (2, "steps"): 37, (3, "x"): 1}
    rows = [live.Row(f"TP{n}", n, True, 1, "runs", [], 1.0, 0.0, "", 0.0, 0.0, 0.5, 1 << 20) for n in (1, 2, 3)]
    data, _ = answers.frame_data(rows, [one], [], [("step (x.py)", 0.5, 0.75)], [{1, 2}])
    assert [rank["lag"] for rank in data["ranks"]] == [0, 3, None]
    assert [line.split() for line in answers.open_lines(data, 9)] == [
        ["request", "age", "no", "progress", "at", "state"],
        ["old", "9.50", "s", "4.00", "s", "EngineCore", "RUNNING"],
        ["new", "0.00", "ms", "frontend", "awaited"],
    ]
    assert answers.open_lines(data, 2)[-1].startswith("old")
    assert answers.function_lines(data, 9)[1].split() == ["50.0", "%", "75.0", "%", "step", "(x.py)"]
    assert (
        answers.spark([0, None, 5, 10], False) == "▁ ▅█"
        and answers.spark([0.5], True, 1.0) == "="
        and not answers.spark([], True)
    )
    frames = [{"tokens_per_second": n, "waiting": None, "kv_use": n / 100} for n in range(80)]
    line = answers.spark_line(frames, 80, False)
    assert len(line) <= 78 and line.startswith("tokens/s ") and "waiting" not in line and line.endswith("▇")


def test_a_terminal_without_a_cursor_gets_plain_lines():
    with running(PYTHONS[0], "timeline.py", "60") as (target, _):
        top = Terminal([target.pid], TERM="dumb", FORCE_COLOR="1")
        top.until(b"sorted by order")
        top.press(b"\r", b"% of the time here")
        os.write(top.ours, b"q")
        assert top.ended() == (0, True), top.said
    assert b"\x1b" not in top.said and b"\\x1b" not in top.said and top.said.count(b"label") >= 2


def test_a_plain_program_has_its_name_and_its_functions():
    """Of what is no engine: the program's name beside its pid, once, and where its threads ran."""
    with running(PYTHONS[0], "timeline.py", "60") as (one, _):
        said = run(f"llm-top -once -interval 1 {one.pid}")
        data, text = said.data, said.to_text()
    (row,) = data["ranks"]
    assert row["label"] == str(one.pid) and row["program"] == "timeline.py"
    assert text.splitlines()[1].split()[:2] == ["timeline.py", str(one.pid)], text
    assert data["functions"] and all(f["self"] <= f["total"] for f in data["functions"])
    assert any(f["function"].split(" ")[0] in text.partition("\n\n")[2] for f in data["functions"])


def test_without_a_word_and_without_an_engine_pythons_are_watched(monkeypatch):
    def nothing(session, text):
        raise NotFoundError("no engine process is running here")

    with running(PYTHONS[0], "timeline.py", "60") as (one, _):
        assert one.pid in [pid for pid, _ in choosing.pythons()] and os.getpid() not in [pid for pid, _ in choosing.pythons()]
        monkeypatch.setattr(choosing, "resolve_processes", nothing)
        monkeypatch.setattr(choosing, "pythons", lambda: [(one.pid, "timeline.py")])
        assert [row["pid"] for row in answer("llm-top -once -interval 0.2")["ranks"]] == [one.pid]
        with pytest.raises(NotFoundError):
            answer("llm-top -once nonsense")
