"""llm-watch captures what hangs and lets alone what idles or works; llm-report is one page without anybody's words in it."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from harness.answers import answer, run
from harness.gdb_run import ROOT
from harness.hangs import fault
from harness.heartbeats import asleep
from harness.subjects import spawned

from gdbext.bundle import format
from gdbext.engines.processes import ProcessRef
from gdbext.errors import GdbextError
from gdbext.watch import box, rank

SECRET = "my-secret-prompt-text"


def test_a_hang_is_captured_with_a_report_and_snapshots(tmp_path):
    with fault("abba_locks") as (pid, culprits):
        said = answer(f"llm-watch {pid} -after 0.5 -poll 0.1 -for 60 -o {tmp_path} -json")
        assert said["captured"] and said["verdict"] == "lock-cycle" and {c["tid"] for c in said["culprits"]} == set(culprits)
        text = run(f"llm-watch {pid} -after 0.5 -poll 0.1 -for 60 -max-bytes 0 -o {tmp_path / 'again'}").to_text()
        assert re.search(rf"^lock-cycle: .*\({pid}\), thread {pid} \(MainThread\), thread \d+ \(one\)$", text, re.M), text
        assert "same place" in said["why"] and said["file"].startswith(str(tmp_path)) and said["pauses"][0]["pid"] == pid
        assert "lock-cycle" in open(said["file"]).read()
        (shot,) = said["snapshots"]
        assert shot["pid"] == pid and shot["file"].startswith(said["box"] + "/")
        assert any(
            f["function"] == "abba_locks" for t in answer(f"pybt -all -on {shot['file']} -json")["threads"] for f in t["frames"]
        )
        assert os.stat(said["file"]).st_mode & 0o077 == os.stat(said["box"]).st_mode & 0o077 == 0
        assert open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "S"


@pytest.mark.parametrize("scenario", ["idle_queue", "slow_but_moving"])
def test_what_idles_or_works_is_let_alone(scenario, tmp_path):
    with fault(scenario) as (pid, _):
        said = answer(f"llm-watch {pid} -after 2 -poll 0.2 -for 7 -o {tmp_path} -json")
        assert not said["captured"] and said["file"] is None and os.listdir(tmp_path) == []
        assert all(look["verdict"] in ("idle", "busy") for look in said["looks"])
        assert bool(said["looks"]) == (scenario == "idle_queue") and len(said["looks"]) < 4


def test_the_time_in_which_it_waits_for_a_cpu_is_no_standstill(monkeypatch):
    with fault("sleeps_for_good") as (pid, _):
        asleep(pid)
        one, queued = rank.Rank(ProcessRef(pid), rank.Shared(), 1.0, 1 << 20), [0.0]
        monkeypatch.setattr(one, "_main_queued", lambda: queued[0])
        for second in range(3):
            assert one.look(float(second), float(second), True).place and not one.moved or not second
        queued[0] = 1000.0
        one.look(3.0, 3.0, True)
        assert one.held == 1000.0 and one.standing.look(1.0, True, False, one.held) == ""
        assert one.standing.look(1.0, True, False) == "stalled"
        one.close()


def test_a_process_that_ends_is_noticed_at_once(tmp_path):
    with fault("sleeps_for_good") as (pid, _), fault("at_work") as (other, _):
        threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()
        said = answer(f"llm-watch {pid} {other} -after 100 -poll 0.1 -for 60 -o {tmp_path} -json")
        assert said["captured"] and said["verdict"] == "crashed" and [s["pid"] for s in said["snapshots"]] == [other]
        assert [f["pid"] for f in said["failed"]] == [pid]


def test_a_counter_that_changes_is_progress(tmp_path):
    code = (
        "import time\ndef loop():\n    n = 0\n    m = 0\n    while True:\n        "
        "time.sleep(0.02); n += 1\nprint('up', flush=True)\nloop()"
    )
    with spawned([sys.executable, "-c", code], ready="") as child:
        time.sleep(0.2)
        moving = answer(f"llm-watch {child.pid} -counter n -after 0.5 -poll 0.1 -for 2 -o {tmp_path} -json")
        still = answer(f"llm-watch {child.pid} -counter m -after 0.5 -poll 0.1 -for 2 -o {tmp_path} -json")
        assert moving["looks"] == [] and still["looks"]


def test_the_page_holds_no_values_and_escapes_what_it_shows(tmp_path):
    code = (
        f"import threading, time, queue\nlocks = {{'{SECRET} {SECRET}': threading.Lock()}}\n"
        f"def wait(prompt):\n    lock = locks[prompt]\n    with lock:\n        pass\n"
        f"held = threading.Event()\ndef hold(prompt):\n    with locks[prompt]:\n        "
        f"held.set(); print('up', flush=True); time.sleep(1000)\n"
        f"p = '{SECRET} {SECRET}'\nthreading.Thread(target=hold, args=(p,), name='<img src=x "
        f"onerror=alert(1)>').start(); held.wait()\nwait(p)"
    )
    with spawned(
        [sys.executable, "-c", code, "--api-key=hidden-key"], ready="", env={**os.environ, "TOKEN": "hidden-token"}
    ) as child:
        asleep(child.pid)
        page = tmp_path / "page.html"
        said = answer(f"llm-report {page} {child.pid} -wait 0.3 -json")
        text = page.read_text()
        assert said["verdict"] == "lock-held" and said["file"] == str(page) and said["bytes"] == page.stat().st_size
        for word in (SECRET, "hidden-key", "hidden-token", "<img", "<script"):
            assert word not in text, word
        assert "&lt;img" in text and "Verdict" in text and "lock-held" in text and "CPython" in text and str(child.pid) in text
        memory = text.partition("<h2>Memory</h2>")[2].partition("<h2>")[0]
        assert "resident" in memory and "pymalloc: used" in memory and "libraries" in memory
        assert not re.search(r"<[^>]*(src|href)=|https?://", text)
        assert json.dumps(said).count(SECRET) == 0
        assert "verdict: lock-held" in run(f"llm-report {page} {child.pid} -wait 0 -force").to_text()


def test_bad_words_give_one_clear_line(tmp_path):
    for line, wanted in (
        (f"llm-report /nowhere/x.html {os.getpid()} -wait 0", "name another file"),
        (f"llm-watch {os.getpid()} -after 0", "-after"),
        (f"llm-watch {os.getpid()} -o {__file__}", "Not a directory"),  # now, not when there is something to capture
        (f"llm-watch {os.getpid()} -o {__file__}/sub", "Not a directory"),
        (f"llm-watch {__file__}", "core"),
        ("llm-hang 999999999", "no process"),
    ):
        with pytest.raises(GdbextError, match=wanted) as e:
            answer(line)
        assert "\n" not in str(e.value)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_watch_that_is_ended_leaves_no_half_file(tmp_path, number):
    """While it waits, looks, and writes what it has captured: each box and each page is whole."""
    with fault("abba_locks") as (pid, _):
        words = [sys.executable, "-m", "gdbext", "llm-watch", str(pid), "-once"]
        words += ["-after", "0.2", "-poll", "0.05"]
        began = time.monotonic()
        subprocess.run([*words, "-o", str(tmp_path / "whole")], cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
        took = time.monotonic() - began
        assert list((tmp_path / "whole").glob("*.html")), "nothing was captured: the test shows nothing"
        for moment in (0.3 * took, 0.7 * took, 0.8 * took, 0.9 * took, 0.97 * took):
            place = tmp_path / str(moment)
            with spawned([*words, "-o", str(place)], cwd=ROOT, stderr=subprocess.DEVNULL) as watch:
                time.sleep(moment)
                watch.send_signal(number)
                watch.wait(30)
            for path in place.iterdir() if place.exists() else ():
                if path.suffix == ".html":
                    assert path.read_text().rstrip().endswith("</html>"), path
                else:
                    assert path.suffix == format.SUFFIX and format.Bundle(str(path)).json(box.RING)["ranks"], path
            assert open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "S"
