"""No text that a process, a snapshot or a colleague's file holds reaches the terminal raw, by any reading command, answers and
errors alike."""

import json
import os
import re
import sys

import pytest
from harness.gdb_run import run_gdb
from harness.subjects import SUBJECTS, spawned
from tools.record_answers import BOTH, LIVE

from gdbext.commands import table
from gdbext.session.session import Session
from gdbext.setup import outside

EVIL = "\x1b]0;PWNED\x07\nFORGED"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u202a-\u202e\u2066-\u2069]")
ERRORS = (
    "pyprint nope -on {on}",
    "pyprint {value}.nope -on {on}",
    "pyprint {value} + 1 -on {on}",
    "pyprint '\x1b]0;X\x07' + -on {on}",
    "pytensor {value} -on {on}",
    "pytensors -on {on}",
    "pytensors -diff {folder}/evil.json -on {on}",
    "llm-stacks -merge {folder}/answers",
    "pyframe 99 -on {on}",
    "llm-kv -on {on}",
    "llm-requests -on {on}",
    "llm-stacks \x1b]0;X\x07",
    "llm-ranks",
    "llm-ranks -verify",
    "pyprint vars(x) -on {on}",
)


def assert_clean(line, text):
    found = RAW.search(text)
    assert not found, f"{line!r} printed {text[max(0, found.start() - 80) : found.end() + 20]!r}"
    assert not re.search(r"^FORGED", text, re.M), f"{line!r} printed a line of the process's own"


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    words = ["VLLM::Worker_TP0" + EVIL, os.path.join(SUBJECTS, "hostile.py"), str(folder)]
    with spawned(words, ready="{", executable=sys.executable) as process:
        yield _answers(process, folder)


def _answers(process, folder):
    """What the hostile process says of itself, and a snapshot and files that say the same beside it."""
    truth = json.loads(process.said)
    core = str(folder / "subject.core")
    status, _, said = outside.perform(table.load("llm-snapshot"), f"{process.pid} -heap -o {core}", Session())
    assert status in (0, 3), said
    (folder / "answers").mkdir()
    place = {"host": EVIL, "label": EVIL, "pid": 1, "role": EVIL, "tid": 2, "name": EVIL}
    frame = {"kind": "python", "function": EVIL, "file": EVIL, "line": 1, "library": EVIL, "level": 0}
    answer = {
        "schema": "llm-stacks/1",
        "partial": [EVIL],
        "groups": [{"frames": [frame], "members": [place], "idle": False}],
        "failed": [{"label": EVIL, "pid": 3, "reason": EVIL}],
        "pauses": [],
        "ranks_read": 1,
        "ranks_total": 2,
    }
    (folder / "answers" / "one.json").write_text(json.dumps(answer))
    tensor = {
        "address": "0x10",
        "shape": [1],
        "dtype": "torch." + EVIL,
        "device": EVIL,
        "bytes": 4,
        "storage": "0x20",
        "owner": EVIL,
    }
    (folder / "evil.json").write_text(json.dumps({"tensors": [tensor], "total_bytes": 4}))
    return {**truth, "request": truth["value"], "matrix": truth["value"], "data": truth["mapped"], "folder": folder, "core": core}


def test_every_reading_command_prints_escaped_text(subject):
    lines = [line.format(**subject) for line in LIVE]
    for on in (subject["pid"], subject["core"]):
        lines += [line.format(on=on, **subject) for line in BOTH + ERRORS]
    answered = 0
    for line in lines:
        name, _, rest = line.partition(" ")
        for option in ("", " -json"):
            status, out, err = outside.perform(table.load(name), rest + option, Session())
            assert_clean(line, out + "\n" + err)
            if option and out:
                json.loads(out)
            answered += status in (0, 3)
    assert answered > 80


def test_gdb_prints_escaped_text_and_errors(subject, gdb_path):
    value = subject["value"]
    commands = [
        "pybt -all -locals",
        "llm-bt -all",
        "pythreads",
        "pyexc",
        "pytasks",
        f"pyprint {value:#x}",
        f"pyprint {value:#x}.nope",
        "bt 3",
    ]
    commands += ["pylist", "pylocals", "pytensors", "pyprint nope", "pyframe 1", 'print $tensor("nope")', "pytrace nope"]
    commands += [f"complete {name} " for name in ("pybreak", "pyprint", "pytensor", "pytrace", "pylog", "llm-attach", "pyframe")]
    commands += ["pyframe 0", "llm-symbols", "llm-kernels", "pybreak nope", "pycatch Nope", f"llm-addr {subject['mapped']}"]
    done = run_gdb(gdb_path, commands, ["-p", str(subject["pid"])])
    for command, text in zip(commands, done.outputs):
        if command != "bt 3":
            assert_clean(command, text)


def test_colours_stay_and_nothing_else(monkeypatch):
    from gdbext.render.text import Style
    from gdbext.session.command import Answer

    style = Style(True, 80)
    answer = Answer({}, lambda style: style.bad("red") + EVIL + "\x1b[5m", [EVIL])
    text = answer.to_text(style)
    assert text.startswith("\x1b[31mred\x1b[m")
    assert re.sub("\x1b\\[(31|2)?m", "", text) == "red\\x1b]0;PWNED\\x07\nFORGED\\x1b[5m\n(partial: \\x1b]0;PWNED\\x07 FORGED)"
