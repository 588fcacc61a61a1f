"""The Python commands in a real gdb: live and on a core of the same process they say the same; bad input gives one clear line."""

import json
import os
import subprocess
import sys

import pytest
from harness.gdb_run import run_gdb
from harness.heartbeats import asleep
from harness.subjects import spawned

EVERY_GDB = True
SUBJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subjects", "commands.py")


@pytest.fixture(scope="module")
def subject():
    """-> (process, what it says of itself)"""
    with spawned([sys.executable, SUBJECT], ready="{") as child:
        yield child, json.loads(child.said)


@pytest.fixture(scope="module")
def core(subject, gdb_path, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("core") / "core")
    run_gdb(gdb_path, [f"gcore {path}"], arguments=["-p", str(subject[0].pid)], load=False, before=["set auto-solib-add off"])
    assert os.path.exists(path)
    return path


LOOK = [
    "pybt -json",
    "pybt -all -json",
    "pybt -all -locals -json",
    "llm-bt -json",
    "llm-bt -all -json",
    "llm-bt -raw -json",
    "pyframe 1 -json",
    "pylist -json",
    "pylocals -json",
    "pyup -json",
    "pydown -json",
    "pyprint -json items",
    "pyprint -json items[0].name",
    "pyprint -json -- -depth",
    "pyprint -json any(i.name == 'two' for i in items)",
    "pyprint -json -any marker",
    "pyprint -json threading:main_thread",
    "pyprint -json len(items) -full",
]


def same(answer):
    """What must be equal live and on the core: all but the states of threads, which a core does not keep."""
    data = json.loads(json.dumps(answer))
    for thread in data.get("threads", ()):
        for key in ("state", "pid", "name"):
            thread.pop(key, None)
        for frame in thread["frames"]:
            if frame["kind"] == "native" and frame["library"] in ("[vdso]", ""):
                frame["library"] = ""
    return data


def test_live_and_core_say_the_same(subject, core, gdb):
    child, truth = subject
    live = gdb(LOOK, ["-p", str(child.pid)], before=["set auto-solib-add off"])
    dead = gdb(LOOK, ["-c", core], before=["set auto-solib-add off"])
    for index, command in enumerate(LOOK):
        assert same(live.json(index)) == same(dead.json(index)), command
    main = next(th for th in live.json(1)["threads"] if th["tid"] == child.pid)
    assert [[f["function"], f["line"]] for f in main["frames"]] == truth["main"]
    assert live.json(11)["repr"] == truth["items"]
    assert live.json(12)["repr"] == "'one'" and live.json(14)["repr"] == "True"


def test_frames_move_and_stay_until_the_process_goes_on(subject, gdb):
    said = gdb(
        ["pyframe", "pyup", "pyup", "pyframe", "pydown 2", "pydown", "pyup 99", "pyprint depth"], ["-p", str(subject[0].pid)]
    )
    assert said.outputs[0].startswith("#0") and said.outputs[1].startswith("#1") and said.outputs[2] == said.outputs[3]
    assert (
        said.outputs[4].startswith("#0") and "innermost Python frame is 0" in said.outputs[5] and "outermost" in said.outputs[6]
    )


BAD = {
    "pybt -on 999999999": "llm-ranks",
    "pybt -on 1x": "",
    "pyprint zork": "no name zork",
    "pyprint items[": "cannot parse",
    "pyprint items[99]": "outside",
    "pyprint 0x10000000": "cannot read",
    "pyprint items.append(1)": "would run code",
    "pyframe 99": "no frame 99",
    "pybt -nope": "unknown",
    "pybt extra": "no engine process is named extra",
    "pybt extra words": "takes one process",
    "pyprint": "give an expression",
    "pytensor items": "",
    "pyprint -on": "needs a value",
    "pylist 99999": "no line 99999",
}


def test_bad_input_gives_one_clear_line(subject, gdb):
    said = gdb([*BAD, "pyprint 1 + 1"], ["-p", str(subject[0].pid)], before=["set auto-solib-add off"])
    for (command, wanted), output in zip(BAD.items(), said.outputs):
        assert wanted in output and output.count("\n") == 0 and output, f"{command}: {output}"
        assert "Python Exception" not in output and "Traceback" not in output
    assert said.outputs[-1] == "2"
    assert os.path.exists(f"/proc/{subject[0].pid}")


def test_without_a_process_and_on_what_is_no_python(gdb, tmp_path):
    with spawned(["sleep", "300"]) as sleeper:
        asleep(sleeper.pid)
        said = gdb(["pybt", f"pybt -on {sleeper.pid}", f"llm-bt -on {sleeper.pid}", "pyprint 1"])
        assert (
            "no process is selected" in said.outputs[0]
            and "runs no CPython" in said.outputs[1]
            and "runs no CPython" in said.outputs[2]
        )
        attached = gdb(["pybt", "llm-bt -json"], ["-p", str(sleeper.pid)])
        assert "runs no CPython" in attached.outputs[0]
        frames = attached.json(1)["threads"][0]["frames"]
        assert any("nanosleep" in f["function"] for f in frames)


def test_a_truncated_core_is_said_to_be_cut(subject, core, gdb, tmp_path):
    cut = tmp_path / "cut"
    with open(core, "rb") as f:
        whole = f.read()
    for part in (0.9, 0.5, 0.1, 0.01):
        cut.write_bytes(whole[: int(len(whole) * part)])
        said = gdb(
            ["pybt -all", "llm-bt -all", "pyprint items", "echo alive"], ["-c", str(cut)], before=["set auto-solib-add off"]
        )
        assert said.outputs[-1] == "alive"
        assert "Python Exception" not in said.text and "Traceback" not in said.text, said.text
        for output in said.outputs[:3]:
            assert output.strip(), f"{part}: an empty answer"


def test_settings_do_not_change_and_calls_stay_off(subject, gdb):
    shown = [
        "show auto-solib-add",
        "show pagination",
        "show confirm",
        "show height",
        "show print elements",
        "show python print-stack",
    ]
    said = gdb(
        shown + ["set may-call-functions off", "pybt -all -locals", "llm-bt -all", "pyprint items"] + shown,
        ["-p", str(subject[0].pid)],
    )
    before, after = said.outputs[: len(shown)], said.outputs[-len(shown) :]
    assert before == after and "may-call" not in "".join(said.outputs)


def test_help_apropos_completion_and_pipes(gdb):
    said = gdb(["apropos llm-", "help pybt", "complete pybt", "complete pybt -l", "pipe llm all | cat", "llm -json"])
    assert "llm-ranks" in said.outputs[0] and "(gdb) pybt" in said.outputs[1] and said.outputs[2] == "pybt"
    assert "pybt -locals" in said.outputs[3] and "pybt" in said.outputs[4] and "\x1b" not in said.outputs[4]
    assert {"pybt", "llm-ranks", "pytensor"} <= {c["name"] for c in said.json(5)["commands"]}


def test_loading_prints_at_most_one_line_and_may_be_repeated(gdb_path, root):
    init = os.path.join(root, "gdbext", "init.py")
    line = [gdb_path, "-nx", "-q", "-batch", "-ex", f"source {init}", "-ex", f"source {init}", "-ex", "llm"]
    text = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True).stdout
    assert text.startswith("The first hour") or text.split("\n")[1].startswith("The first hour")


def test_loading_from_a_python_script_of_the_user(gdb_path, root, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(f"gdb.execute('source {os.path.join(root, 'gdbext', 'init.py')}')\n")
    text = subprocess.run(
        [gdb_path, "-nx", "-q", "-batch", "-x", str(script), "-ex", "llm"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    ).stdout
    assert "The first hour" in text and "Traceback" not in text


def test_all_of_it_loads_and_speaks_where_no_locale_is_set(subject, gdb_path):
    """As in most containers: gdb takes the C locale, and ASCII alone."""
    child, _ = subject
    before = ["set auto-solib-add off", "set python print-stack full"]
    clean = {name: "" for name in os.environ if name == "LANG" or name.startswith("LC_")}
    said = run_gdb(
        gdb_path,
        ["show host-charset", "llm all", "help pyprint", "llm-bt -all"],
        ["-p", str(child.pid)],
        before=before,
        env={**clean, "LANG": "C"},
    )
    assert "ANSI" in said.outputs[0] and "llm-report" in said.outputs[1] and "..." in said.outputs[2]
    assert "main" in said.outputs[3] and "Traceback" not in said.text
