"""A real vLLM and a real SGLang whose prompts, stop words and outputs hold marked words: no command shows one of them without
-show-content, asked of each of their processes at work, of snapshots, and of a core. It asks for a quarter of an hour, so only
where GDBEXT_TEST_LONG is set."""

import contextlib
import http.client
import json
import os
import re
import threading

import pytest
from harness.answers import answer
from harness.engines import pid_of
from harness.gdb_run import run_gdb
from harness.heartbeats import eventually
from harness.probe import Probe

MARKED = (911, 923, 937, 953, 967, 983)  # token ids, and the words that the subjects' tokenizers make of them
TEXT = " ".join(f"w{n}" for n in MARKED)
ONE = "(?:" + "|".join(map(str, MARKED)) + ")"
WORD = re.compile(rf"\bw{ONE}\b")
TOKENS = re.compile(rf"(?<![\w.])({ONE})(?![\w.])[^\w.]{{1,12}}(?<![\w.])(?!\1)({ONE})(?![\w.])")
ALONE = re.compile(rf'"repr": ?"(?:tensor\()?{ONE}\)?"')

long = pytest.mark.skipif(not os.environ.get("GDBEXT_TEST_LONG"), reason="takes a quarter of an hour: GDBEXT_TEST_LONG=1")


def holds(text):
    """Marked words, two marked tokens beside each other, or one that is the whole answer."""
    found = WORD.search(text) or TOKENS.search(text) or ALONE.search(text)
    return text[max(0, found.start() - 60) : found.end() + 40] if found else ""


def test_the_marker_is_found_as_text_as_tokens_and_alone():
    assert holds(f"prompt='{TEXT}'") and holds("[911, 923]") and holds('"repr":"tensor(911)"') and holds('"repr": "983"')
    assert not holds("911 blocks of 923 are free") and not holds("[911, 911]") and not holds("0x911, 923.5")


def probed(probe, pids, folder, scheduler, cores=()):
    """Asks everything of the scheduler's process as it runs, of the snapshots of all, and of cores."""
    for pid in pids:
        probe.process(pid)
        report(probe)
    probe.memory(scheduler)
    report(probe)
    for pid in pids:
        (shot,) = answer(f"llm-snapshot {pid} -heap -o {folder}/{pid}.core -json")["snapshots"]
        probe.memory(shot["file"])
        report(probe)
    for core in cores:
        probe.memory(core)
        report(probe)


def report(probe):
    for line, found in dict(probe.leaks).items():
        print(f"LEAK {line}\n    {found!r}")
    print(f"{probe.asked} answers, {len(probe.leaks)} leaks", flush=True)


@contextlib.contextmanager
def asking(engine):
    """Requests to SGLang without end, one after the other."""
    over = threading.Event()
    how = {"max_new_tokens": 400, "ignore_eos": True, "stop": [TEXT]}
    body = json.dumps({"text": TEXT, "sampling_params": how, "stream": True})

    def ask():
        while not over.is_set():
            client = http.client.HTTPConnection("127.0.0.1", engine.said["port"], timeout=300)
            with contextlib.closing(client), contextlib.suppress(OSError, http.client.HTTPException):
                client.request("POST", "/generate", body, {"Content-Type": "application/json"})
                client.getresponse().read()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@long
def test_no_command_shows_what_vllm_was_asked(served, tmp_path):
    probe = Probe(holds, tmp_path / "written", ["Request"], 25)
    with served.traffic(prompt=TEXT, stop=[TEXT]):
        served.until(lambda found: any(r["status"] == "RUNNING" for r in found.values()))
        pids = served.pids()
        probed(probe, pids.values(), tmp_path, next(pid for label, pid in pids.items() if "Core" in label))
        assert probe.shown(f"llm-requests {served.engine.said['pid']}")
    assert not probe.leaks and probe.asked > 150


@long
def test_no_command_shows_what_sglang_was_asked(sglang_text, gdb_path, tmp_path):
    probe, core = Probe(holds, tmp_path / "written", ["Req"], 25), str(tmp_path / "scheduler.gcore")
    scheduler = pid_of(sglang_text, "sglang::scheduler")
    with asking(sglang_text):
        eventually(lambda: probe.shown(f"llm-requests {sglang_text.said['pid']}"), "a marked request at work", 240)
        run_gdb(gdb_path, [f"gcore {core}"], ["-p", str(scheduler)], before=["set auto-solib-add off"], load=False)
        own = [pid for pid, title in sglang_text.titles().items() if "::" in title or pid == sglang_text.said["pid"]]
        probed(probe, own, tmp_path, scheduler, [core])
    assert not probe.leaks and probe.asked > 150
