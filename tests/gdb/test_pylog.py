"""pylog, pytrace and llm-save: what is said, how often, for how long, and what is written."""

import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import sys

import pytest
from harness.breakpoints import FILE, OFF, started
from harness.gdb_run import run_gdb
from harness.subjects import PYTHONS, SUBJECTS, spawned

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")

LINE = r"^(\d\d:\d\d:\d\d\.\d{3}) \d+ breakpoints\.py:\d+  (.*)$"
TENSORS = """
import sys, time, torch
def step(number):
    hidden = torch.full((2, 3), float(number))
    whole = torch.arange(number + 1)
    return hidden.sum() + whole.sum()  # LINE
print("ready", flush=True)
sys.stdin.readline()
for number in range(10):
    step(number)
"""


def test_every_nth_pass_with_a_clock(session):
    said, _ = session(['pylog -every 100 work "{number}"', "pybreak finished", "@run", "continue", "pylog"])
    lines = re.findall(LINE, said.outputs[3], re.M)
    assert [text for _, text in lines] == ["0", "100", "200"] and [at for at, _ in lines] == sorted(at for at, _ in lines)
    assert re.findall(LINE, said.outputs[4], re.M) == lines


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_result_is_what_was_returned_whatever_computed_it(python, gdb_path):
    """It is in a register still, for some instructions, where the next one is loaded."""
    with spawned([python, f"{SUBJECTS}/results.py"], ready="[") as process:
        pid, truth = json.loads(process.said)
        rounds = [
            [f"pytrace __main__:{name}", f"pybreak {end}", "continue", "delete"]
            for name, end in zip(truth, itertools.cycle(("first_end", "second_end")))
        ]
        said = run_gdb(gdb_path, [line for one in rounds for line in one], ["-p", str(pid)], timeout=100, before=OFF)
    found = {
        name: re.findall(rf"<- {name} = (.*)  \([\d.]+ \w+\)$", said.outputs[4 * i + 2], re.M) for i, name in enumerate(truth)
    }
    told = {name: text for name, texts in found.items() for text in texts if not text.startswith("<")}
    assert {name: text for name, text in told.items() if text != truth[name]} == {}
    assert len(told) > 0.7 * len(truth), found


def test_every_nth_call_with_the_time_it_took(session):
    said, _ = session(["pytrace -every 100 Machine.two", "pybreak finished", "@run", "continue"])
    texts = [text for _, text in re.findall(LINE, said.outputs[3], re.M)]
    assert len(texts) == 6 and all(re.search(r"\([\d.]+ (us|ms|s)\)$", text) for text in texts[1::2]), texts


@pytest.mark.parametrize(
    "function, word, other, depths",
    [("Machine.two", "run", "catches", [0] * 4), ("recursive", "call", "Machine.two", [0, 2, 4, 6])],
)
def test_calls_without_results_stand_where_the_stack_has_them(session, function, word, other, depths):
    """No debug register is left for the returns: a call is inside another if that one's frame is on the stack."""
    taken = ["pybreak finished", *(f'pylog -every 100000 {name} "x"' for name in ("work", other))]
    said, _ = session([*taken, f"pytrace -limit 4 {function}", f"@{word}", "continue"])
    assert "calls are shown without results" in said.outputs[3], said.text
    told = re.findall(rf"breakpoints\.py:\d+  ( *)-> {function}\(", said.outputs[5])
    assert [len(space) for space in told] == depths, said.text
    assert "over after 4 lines" in said.outputs[5], "it does not wait for returns that nothing shows"


def test_the_time_of_a_call_is_without_reading_its_arguments(session):
    slow = (
        "python import time, gdbext.control.pylog as p; real, now = p.arguments_text, [0.0]; time.monotonic = lambda: now[0]; "
        "p.arguments_text = lambda *given: (now.append(now.pop() + 1000.0), real(*given))[1]"
    )
    said, _ = session([slow, "pytrace -every 100 Machine.two", "pybreak finished", "@run", "continue", "pytrace -json"])
    assert [e["seconds"] for e in said.json(5)["events"] if "seconds" in e] == [0.0] * 3


def test_a_method_without_its_class_and_a_typo_do_not_wait_for_ever(session):
    said, _ = session(
        ["pytrace two", "pybreak towo", "llm-break paged-atention", "llm-break stepp", "info breakpoints"], tally=False
    )
    assert "near it: Machine.two" in said.outputs[0] and "near it: Machine.two" in said.outputs[1], said.outputs[:2]
    assert "is paged-attention meant?" in said.outputs[2] and "is step meant?" in said.outputs[3]
    assert "No breakpoints" in said.outputs[4]


def test_nothing_is_said_after_its_time_and_the_register_is_free_again(session):
    said, _ = session(
        ['pylog -for 0.000001 work "{number}"', "pybreak finished", "@run", "continue", "pybreak -json"], tally=False
    )
    assert len(re.findall(r"breakpoints\.py:\d+  \d+$", said.outputs[3], re.M)) == 1
    over = re.findall("^pylog 1: over after .*", said.outputs[3], re.M)  # else it would run on in silence, with no prompt
    assert over == ["pylog 1: over after 1e-06 s: 1 of 1 passes shown; the process runs on (Ctrl-C stops it)"]
    assert said.json(4)["breakpoints"][0]["hits"] <= 2


@pytest.mark.parametrize("python", PYTHONS[:1] + PYTHONS[-1:], ids=os.path.basename)
def test_pyfinish_says_what_is_returned(python, gdb_path, tmp_path):
    with started(python, tmp_path) as subject:
        commands = ["pybreak Machine.two if number == 4", subject.tell("run"), "continue", "delete", "pyfinish", "pyfinish -json"]
        said = run_gdb(gdb_path, commands, ["-p", str(subject.pid)], timeout=300, before=OFF)
    assert said.outputs[4].splitlines()[-1] == f"returned {('a', 4)!r}", said.text


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_every_call_of_a_module_is_followed(python, gdb_path, tmp_path):
    """The lines against sys.setprofile's in a process of its own: each call, each return, as deep; and what was returned."""
    truth = json.loads(subprocess.check_output([python, FILE, "calls"]))
    with started(python, tmp_path) as subject:
        commands = ["pytrace -calls __main__ -limit 200", subject.tell("call"), "pybreak finished", "continue", "pytrace -json"]
        said = run_gdb(gdb_path, commands, ["-p", str(subject.pid)], timeout=100, before=OFF)
    events = [e["text"] for e in said.json(4)["events"]]
    told = []
    for text in events:
        found = re.match(r"( *)(->|<-) (?:[\w.<>]+\.)?(\w+)", text)
        told.append(["call" if found.group(2) == "->" else "return", found.group(3), len(found.group(1)) // 2])
    while told and told[0][1] != "called":  # those that read what it is told
        told.pop(0)
    depth = told[0][2]
    end = told.index(["return", "called", depth]) + 1
    assert [[event, name, deep - depth] for event, name, deep in told[:end]] == truth, events[: end + 40]
    text = "\n".join(events)
    for wanted in (
        r"-> called\(number=1\)",
        r"<- helper = 2  \([\d.]+ [a-z]+\)",
        r"-> (decorated|inner|wrapper.<locals>.inner)\(",
        r"<- recursive = 10 ",
        r"<- two_items is suspended",
        r"<- failing is left by an exception",
        r"<- adds = 6 ",
    ):
        assert re.search(wanted, text), (wanted, text)


BLIND = "c.codes.opcodes = lambda v, known=c.codes.opcodes: {**known(v), 'return_value': (), 'return_const': ()}"


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_return_whose_instruction_is_not_noted_yet_is_no_exception(python, gdb_path, tmp_path):
    """As a CPython of Ubuntu's leaves its frames; here no instruction is known to return."""
    with started(python, tmp_path) as subject:
        blind = f"python import gdbext.control.call_tracing as c; {BLIND}"
        commands = ["pytrace -calls __main__ -limit 200", subject.tell("call"), "pybreak finished", blind, "continue"]
        said = run_gdb(gdb_path, [*commands, "pytrace -json"], ["-p", str(subject.pid)], timeout=100, before=OFF)
    text = "\n".join(e["text"] for e in said.json(5)["events"])
    for wanted in (r"<- helper returns  \(", r"<- two_items is suspended", r"<- failing is left by an exception"):
        assert re.search(wanted, text), (wanted, text)


def test_the_budget_of_followed_calls_and_names_of_modules(session):
    said, tally = session(
        [
            "pytrace -calls __mian__",
            "pytrace -calls",
            "pytrace -calls __main__ -limit 6",
            "@run",
            "pybreak finished",
            "continue",
            "pytrace -json",
            "pybreak -json",
        ]
    )
    assert "no module of the process is called __mian__; near it: __main__" in said.outputs[0]
    assert "takes names of modules" in said.outputs[1]
    assert "every call of __main__ in thread" in said.outputs[2]
    calls = [e["text"] for e in said.json(6)["events"]]
    assert sum("->" in text for text in calls) == 6 and len(calls) <= 12
    assert tally["run"] == 300
    assert said.outputs[5].count("pytrace 1: over after 6 lines: 6 of 6 passes shown") == 1


def test_tensors_are_written_at_each_pass_and_torch_reads_them(gdb_path, torch_python, tmp_path):
    program = tmp_path / "steps.py"
    program.write_text(TENSORS)
    line = next(i for i, text in enumerate(TENSORS.splitlines(), 1) if "# LINE" in text)
    folder = tmp_path / "out"
    with spawned([torch_python, program], ready="ready") as one:
        command = f"llm-save h=hidden rows=whole bad=number -at steps.py:{line} -every 3 -limit 3 -o {folder}"
        said = run_gdb(
            gdb_path,
            [command, f"shell test ! -e {folder} && echo nothing is made; echo > /proc/{one.pid}/fd/0", "continue"],
            ["-p", str(one.pid)],
            timeout=100,
            before=OFF,
        )
    assert "(1 debug register)" in said.outputs[0] and "nothing is made" in said.outputs[1], said.text
    assert os.stat(folder).st_mode & 0o777 == 0o700
    assert sorted(os.listdir(folder)) == sorted(f"{name}-{one.pid}-00000{n}.pt" for name in ("h", "rows") for n in (1, 2, 3))
    assert said.text.count("it is no tensor") == 3 and "llm-save 1: over after 3 lines: 3 of 7 passes shown" in said.text
    code = (
        "import sys, torch\n"
        "for i, n in enumerate((0, 3, 6), 1):\n"
        "    h, rows = (torch.load(f'{sys.argv[1]}/{k}-{sys.argv[2]}-{i:06d}.pt') for k in ('h', 'rows'))\n"
        "    assert torch.equal(h, torch.full((2, 3), float(n))) and torch.equal(rows, torch.arange(n + 1))\n"
    )
    subprocess.run([torch_python, "-c", code, folder, str(one.pid)], check=True)


RETURNS = """
import sys, types
sys.modules["vllm"] = types.ModuleType("vllm")
def stopped(): return ([990017], False)
def cached(): return {"req-1": [990017]}
def drawn(): return {990017}
def counts(): return (4, 0)
def status(): return "RUNNING"
def all_of_them():
    return [stopped(), cached(), drawn(), counts(), status()]
print("ready", flush=True)
sys.stdin.readline()
all_of_them()
sys.stdin.readline()
"""


def test_tokens_that_a_function_returns_are_counted(gdb_path, tmp_path):
    """In an engine's process: vLLM's Scheduler._update_request_with_output returned ([817], False), a user's token."""
    program = tmp_path / "returns.py"
    program.write_text(RETURNS)
    said = []
    for more in ("", " -show-content"):
        with spawned([sys.executable, program], ready="ready") as one:
            commands = [
                f"pytrace -limit 12{more} -calls __main__",
                f"shell echo > /proc/{one.pid}/fd/0",
                "pybreak status",
                "continue",
            ]
            said.append(run_gdb(gdb_path, [*commands, "pyfinish"], ["-p", str(one.pid)], timeout=60, before=OFF))
    hidden, shown = (one.text for one in said)
    assert "990017" not in hidden and hidden.count("private: -show-content") == 3, hidden
    assert "counts = (4, 0)" in hidden and "returned 'RUNNING'" in hidden, hidden
    assert shown.count("990017") == 3, shown


def test_a_folder_of_somebody_elses_is_refused(gdb_path, tmp_path):
    if os.getuid() or not shutil.which("chown"):
        pytest.skip("only root can give a folder away")
    os.chown(tmp_path, 65534, 65534)
    said = run_gdb(
        gdb_path, [f"llm-save a=b -at f.py:1 -o {tmp_path}", "llm-save -at f.py:1 -o /tmp/x", "pylog -every 0 f.py:1 'x'"]
    )
    assert (
        "another user" in said.outputs[0]
        and "takes names and expressions" in said.outputs[1]
        and "-every is 1" in said.outputs[2]
    )
