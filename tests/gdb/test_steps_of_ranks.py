"""pynext and pyfinish of one rank while another is attached: a meeting of the two ends, as the rank that is not stepped runs
too."""

import json
import os
import platform
import re
import signal
import sys

import pytest
from harness.breakpoints import OFF
from harness.gdb_run import run_gdb
from harness.subjects import SUBJECTS, spawned

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")
FILE = os.path.join(SUBJECTS, "two_ranks_meet.py")
with open(FILE, encoding="utf-8") as f:
    LINE = next(number for number, text in enumerate(f, 1) if text.rstrip().endswith("# LINE before"))
BREAK = f"pybreak two_ranks_meet.py:{LINE} if name == 'one'"
STEPS, LIMIT = 8, 600  # a gdb that waits for its turn on a full machine takes minutes
# Ends what gdb waits for, once the process runs that it lets run: from without, for a thread of Python's in gdb may take the
# signals by which gdb hears of its processes.
ENDS = """
import os, signal, sys, time
process, gdb = sys.argv[1:]
def seen(pid):  # its state and the time that it has computed
    found = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return found[0], found[11:13]
def waits():
    before = seen(gdb)
    time.sleep(2)
    return before[0] == "S" and seen(gdb) == before and seen(process)[0] != "t"
while not waits():
    pass
os.kill(int(gdb), signal.SIGINT)
"""


@pytest.fixture
def pair():
    with spawned([sys.executable, FILE], ready="{") as process:
        pids = json.loads(process.said)["pids"]
        try:
            yield pids
        finally:
            os.kill(pids[1], signal.SIGKILL)


def lines(outputs):
    found = [re.search(r"two_ranks_meet\.py:(\d+), thread (\d+)", text) for text in outputs]
    return [(int(m.group(1)), int(m.group(2))) if m else text for m, text in zip(found, outputs)]


def test_a_rank_is_stepped_over_a_meeting_while_the_other_runs(gdb_path, pair):
    first, second = pair
    commands = [f"llm-attach {first}", f"llm-attach {second}", BREAK, "llm-continue"]
    commands += ["delete"] + ["pynext"] * STEPS + ["pybreak meet", "llm-continue", "delete", "pyfinish"]
    commands += ["show schedule-multiple", "llm-detach"]
    said = run_gdb(gdb_path, commands, timeout=LIMIT, before=OFF)
    seen = lines(said.outputs[5 : 5 + STEPS])
    assert all(isinstance(one, tuple) and one[1] == second for one in seen), said.text
    assert len({line for line, _ in seen}) >= 4, "it went round"
    assert "rounds at" in said.outputs[5 + STEPS + 3] and "returned b'.'" in said.outputs[5 + STEPS + 3], said.text
    assert "off" in said.outputs[-2]


def test_one_that_stands_at_its_own_breakpoint_stays_there_and_is_named(gdb_path, pair, tmp_path):
    first, second = pair
    commands = [f"llm-attach {first}", f"llm-attach {second}", BREAK, "llm-continue"]
    commands += ["delete", "python one = gdb.selected_inferior()"]
    commands += [f"python [gdb.execute(f'inferior {{i.num}}') for i in gdb.inferiors() if i.pid == {first}]"]
    (tmp_path / "ends.py").write_text(ENDS)
    commands += [
        f"shell {sys.executable} {tmp_path}/ends.py {first} $PPID > {tmp_path}/said 2>&1 &",
        "pyfinish",
        "python print('held', one.pid, one.threads()[0].is_running())",
    ]
    said = run_gdb(gdb_path, commands, timeout=LIMIT, before=OFF)
    assert re.search(rf"process {second} is stopped meanwhile.*llm-continue resumes all", said.text), said.text
    assert f"held {second} False" in said.text


def test_a_script_comes_back_after_its_time(gdb_path, pair):
    """The count of rounds goes up meanwhile, and both stand still afterwards."""
    first, second = pair
    commands = [f"llm-attach {first}", f"llm-attach {second}", "pyprint -any count", "llm-continue -for 1", "pyprint -any count"]
    commands += ["python print([t.is_running() for i in gdb.inferiors() for t in i.threads()])", "llm-continue -for 0"]
    said = run_gdb(gdb_path, commands, timeout=LIMIT, before=OFF)
    before, after = (int(said.outputs[i].split("\n")[0].split()[-1]) for i in (2, 4))
    assert after > before and "stopped again: " in said.outputs[3], said.text
    assert said.outputs[5] == "[False, False]" and "-for takes seconds" in said.outputs[6], said.text


def test_a_script_comes_back_when_its_logs_are_over(gdb_path, pair):
    """Of two logs the later one counts; what they print with -for is seen too."""
    first, second = pair
    commands = [f"llm-attach {first}", f"llm-attach {second}", "llm-continue -until-logs"]
    commands += ["pylog -limit 3 meet 'short'", "pylog -limit 9 meet 'long'", "llm-continue -until-logs -for 400"]
    commands += ["python print([t.is_running() for i in gdb.inferiors() for t in i.threads()])", "llm-continue -until-logs"]
    commands += ["pytrace -limit 2 meet", "llm-continue -until-logs", "delete", "pylog meet 'any'", "llm-continue -for 1"]
    said = run_gdb(gdb_path, commands, timeout=LIMIT, before=OFF)
    assert "would never end" in said.outputs[2] and "would never end" in said.outputs[7], said.text
    told = said.outputs[5]
    assert len(re.findall(r"  short$", told, re.M)) == 3 and len(re.findall(r"  long$", told, re.M)) == 9, said.text
    assert "stopped again: " in told and "the process runs on" not in told and said.outputs[6] == "[False, False]", said.text
    assert len(re.findall(r"  -> meet\(", said.outputs[9])) == 2 == len(re.findall(r"  <- meet = ", said.outputs[9])), said.text
    assert re.search(r"  any$", said.outputs[12], re.M) and "(the time is over: 1 s)" in said.outputs[12], said.text
    assert "SIGWINCH" not in said.outputs[12], said.text


def test_what_gdbs_own_dprintf_prints_meanwhile_is_seen(gdb_path, pair):
    """As `llm-break -trace`, which was run on a vLLM: with -for nothing of it was seen."""
    commands = [f"llm-attach {pair[0]}", f"llm-attach {pair[1]}", 'dprintf recv,"a byte comes\\n"', "break recv", "ignore 2 5"]
    said = run_gdb(gdb_path, [*commands, "llm-continue -for 400"], timeout=LIMIT, before=OFF)
    assert said.outputs[5].count("a byte comes\n") >= 5, said.text
