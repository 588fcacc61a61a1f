"""gdb's own `bt` with the frame filter gdbext-python: the Python frames that Python itself tells, and never less than gdb had."""

import os
import re
import sys

import pytest
from harness.dap import ON, dap, gdbs_that_speak_dap
from harness.subjects import PYTHONS, running, spawned

ENTRY = re.compile(r"^(?:#\d+ +| +)(.+) \(\) at (.*):(\d+)$")  # a Python frame: no address, no arguments


def stacks(text):
    """{tid: [(function, file, line)]} of the Python frames in what `thread apply all bt` said."""
    found, own = {}, None
    for line in text.splitlines():
        head = re.match(r"Thread \d+ \(.*LWP (\d+)", line)
        if head:
            own = found.setdefault(int(head.group(1)), [])
        entry = ENTRY.match(line)
        if entry and not entry.group(2).endswith((".c", ".h", ".S")):
            own.append((entry.group(1), entry.group(2), int(entry.group(3))))
    return found


def levels(text):
    return [int(n) for n in re.findall(r"^#(\d+)", text, re.M)]


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_bt_shows_the_frames_that_python_tells(gdb, python):
    with running(python, "py_stacks.py") as (target, truth):
        ran = gdb(["thread apply all bt", ON, "thread apply all bt"], ["-p", str(target.pid)])
    assert not any(stacks(ran.outputs[0]).values())
    found, wrong = stacks(ran.outputs[2]), []
    for tid, frames in {**truth["threads"], str(target.pid): None}.items():
        own = found[int(tid)]
        want = [tuple(f[:3]) for f in frames or truth["main"]]
        if frames is None:
            assert own.pop(0)[0] == "tell"
        if own != want:
            wrong.append(f"{truth['names'].get(tid)}: {own}\n    not {want}")
    assert not wrong, "\n".join(wrong)
    assert "_PyEval_EvalFrameDefault" not in ran.outputs[2]


def test_parts_of_a_stack_variables_and_a_front_ends_questions(gdb, tmp_path):
    core = str(tmp_path / "core")
    asked = [
        ON,
        "bt",
        "bt 3",
        "bt -2",
        "bt -no-filters",
        "bt -full",
        "interpreter-exec mi -enable-frame-filters",
        'interpreter-exec mi "-stack-list-frames"',
    ]
    with running(sys.executable, "py_stacks.py") as (target, truth):
        ran = gdb([*asked, f"gcore {core}"], ["-p", str(target.pid)])
    dead = gdb(asked, ["-c", core])
    whole, three, last, without, full, mi = ran.outputs[1:6] + [ran.outputs[7]]
    entries = re.split(r"\n(?=#)", whole)
    assert re.split(r"\n(?=#)", three)[:3] == entries[:3] and levels(three) == levels(whole)[:3]
    assert last.splitlines()[: len("\n".join(entries[-2:]).splitlines())] == "\n".join(entries[-2:]).splitlines()
    assert not stacks("Thread 1 (LWP 1)\n" + without)[1] and levels(without) == list(range(len(levels(without))))
    assert set(levels(whole)) < set(levels(without)) and sorted(levels(whole)) == levels(whole)
    assert re.search(r'^ +signum = "10"$', full, re.M) or re.search(r'^ +interrupted = "10"$', full, re.M)
    assert re.findall(r'func="(tell|in_signal_handler|main|<module>)"', mi) == ["tell", "in_signal_handler", "main", "<module>"]
    told = [f'line="{line}"' for _, _, line, _ in truth["main"]]
    assert all(line in mi for line in told)
    python = stacks("Thread 1 (LWP 1)\n" + whole)[1]
    assert python[1:] == [tuple(f[:3]) for f in truth["main"]] and stacks("Thread 1 (LWP 1)\n" + dead.outputs[1])[1] == python
    frame = levels(whole)[[i for i, e in enumerate(entries) if " main ()" in e][0]]
    inner = gdb(
        [ON, "interpreter-exec mi -enable-frame-filters", f"frame {frame}", 'interpreter-exec mi "-stack-list-locals 1"'],
        ["-c", core],
    )
    assert inner.outputs[3].startswith("^done") and "interrupted" not in inner.outputs[3]


def as_gdb_says(lines):
    """With any frame filter gdb says `at` where it says `from` without one, before a library that has no symbols of its
    source."""
    return [re.sub(r" at (/\S+\.so\S*)$", r" from \1", line) for line in lines]


@pytest.mark.parametrize(
    "breaks",
    [
        "m._function = lambda frame: 1 // 0",
        "m._python_frames = lambda frame: [][1]",
        (
            "take = m._Native.__init__; count = []; m._Native.__init__ = lambda *a: "
            "(count.append(1), take(*a), 1 // (len(count) < 7))"
        ),
        "m.merge.merged = lambda *a: iter([m.merge.Merged(python=7)])",
        "m.session.runtime = lambda: m.session.nothing",
    ],
)
@pytest.mark.drawn(2)
def test_a_failure_costs_no_frame_of_gdbs(gdb, breaks):
    with running(sys.executable, "py_stacks.py") as (target, _):
        ran = gdb(["bt", "bt -no-filters"], ["-p", str(target.pid), "-ex", "python pass"])
        broken = gdb(
            [ON, f"python import gdbext.frame_filters.python as m; {breaks}", "bt", "bt 4", "bt -no-filters"],
            ["-p", str(target.pid)],
        )
    lines = broken.outputs[2].splitlines()
    assert len([line for line in lines if line.startswith("gdbext-python: ")]) == 1 and "Traceback" not in broken.text
    rest = "\n".join(line for line in lines if not line.startswith("gdbext-python: "))
    shown = [line for line in rest.splitlines() if line.startswith("#")]
    raw = [line for line in ran.outputs[1].splitlines() if line.startswith("#")]
    shown, raw = as_gdb_says(shown), as_gdb_says(raw)
    if "7" in breaks:  # half of it was fine
        assert levels("\n".join(shown))[-1] == levels("\n".join(raw))[-1]
    else:
        assert shown == raw
    assert as_gdb_says(line for line in broken.outputs[4].splitlines() if line.startswith("#")) == raw
    assert len(levels(broken.outputs[3])) == 4


def test_a_program_without_python_is_left_alone(gdb):
    with spawned(["sleep", "1000"]) as process:
        ran = gdb([ON, "bt", "bt -no-filters"], ["-p", str(process.pid)])
    assert as_gdb_says(ran.outputs[1].splitlines()) == as_gdb_says(ran.outputs[2].splitlines()) and ran.outputs[1].startswith(
        "#0"
    )


def test_it_is_listed_and_off_until_asked_for(gdb):
    ran = gdb(
        ["info frame-filter", ON, "info frame-filter", "python import sys; print('gdbext.frame_filters.python' in sys.modules)"]
    )
    assert re.search(r"No +gdbext-python", ran.outputs[0]) and re.search(r"Yes +gdbext-python", ran.outputs[2])
    assert ran.outputs[3] == "False"


def test_a_dap_front_end_gets_python_frames_and_their_variables():
    able = gdbs_that_speak_dap()
    with running(sys.executable, "py_stacks.py") as (target, truth):
        client = dap(able[0])
        try:
            client.ask("initialize", adapterID="test")
            attached = client.send("attach", pid=target.pid)
            client.ask("configurationDone")
            client.answer(attached)
            main = next(th["id"] for th in client.ask("threads")["threads"] if th["id"] == 1)
            frames = client.ask("stackTrace", threadId=main)["stackFrames"]
            python = [f for f in frames if f.get("source", {}).get("path", "").endswith(".py")]
            assert [[f["name"], f["source"]["path"], f["line"]] for f in python[1:]] == [f[:3] for f in truth["main"]]
            (scope,) = [s for s in client.ask("scopes", frameId=python[1]["id"])["scopes"] if s["name"] == "Locals"]
            held = {
                v["name"]: v["value"]
                for v in client.ask("variables", variablesReference=scope["variablesReference"])["variables"]
            }
            assert held["interrupted"] == "10" and held["signum"] == "10"
        finally:
            client.close()
