"""asyncio tasks and their await chains, as `cr_await` and `get_stack` in the process itself tell them; C, pure Python and
uvloop's; live and core."""

import json
import os
import random
import re
import subprocess
import sys

import pytest
from harness.heartbeats import asleep
from harness.subjects import PYTHONS, Damaged, running

from gdbext.commands.pytasks import PyTasks
from gdbext.cpython import tasks
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError
from gdbext.session.session import Session
from gdbext.stacks import async_waits

WAITS = {  # task -> (kind, what the text holds)
    "slow": ("sleep", "sleep(2000)"),
    "event": ("asyncio", "Event.wait"),
    "queue": ("asyncio", "Queue.get"),
    "lock": ("asyncio", "Lock.acquire"),
    "condition": ("asyncio", "Condition.wait"),
    "semaphore": ("asyncio", "Semaphore.acquire"),
    "future": ("future", "Future"),
    "sleep": ("sleep", "sleep(3600)"),
    "on task": ("task", "task slow"),
    "gather": ("gather", "3 pending: slow"),
    "wait": ("wait", "2 pending: "),
    "shield": ("task", "shielded task slow"),
    "executor": ("executor", "run_in_executor"),
    "reader": ("asyncio", "StreamReader.read"),
    "old": ("future", "Future"),
    "awaitable": ("future", "Future"),
    "async for": ("future", "Future"),
    "anext": ("future", "Future"),
    "in except": ("future", "Future"),
    "deep": ("future", "Future"),
    "Ünïcode ☃": ("future", "Future"),
}


def answer(pid, line=""):
    return PyTasks().answer(Session(), PyTasks.parse(f"-on {pid} {line}"))


def uvloop_python():
    """An interpreter that has uvloop, or None."""
    for python in filter(None, [*PYTHONS, os.environ.get("GDBEXT_TEST_TORCH_PYTHON")]):
        if subprocess.run([python, "-c", "import uvloop"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return python
    return None


@pytest.fixture(
    scope="module",
    params=[*((p, "") for p in PYTHONS), *((p, "python") for p in PYTHONS), (None, "uvloop")],
    ids=lambda p: f"{os.path.basename(p[0] or '')} {p[1]}".strip(),
)
def subject(request):
    python, kind = request.param
    if python is None:
        python = uvloop_python()
        if python is None:
            pytest.skip("no interpreter here has uvloop")
    with running(python, "tasks.py", *filter(None, [kind])) as (target, truth):
        found, reasons = tasks.tasks(open_runtime(target))
        assert not reasons
        yield target, truth, {task.name: task for task in found}, kind


def test_every_task_is_there_once_with_its_name(subject):
    target, truth, found, _ = subject
    listed, _ = tasks.tasks(open_runtime(target))
    assert sorted(t.name for t in listed) == sorted([*truth["tasks"], next(t.name for t in listed if t.state == "running")])
    assert truth["unnamed"] in found and truth["done"] not in found
    assert {name: task.address for name, task in found.items() if name in truth["tasks"]} == {
        n: t["address"] for n, t in truth["tasks"].items()
    }


def test_await_chains_are_as_the_process_says(subject):
    _, truth, found, _ = subject
    wrong = []
    for name, told in truth["tasks"].items():
        ours = [[f.code.name, f.file, f.line] for f in reversed(found[name].frames)]
        if ours != told["chain"]:
            wrong.append(f"{name}: {ours}\n    not {told['chain']}")
    assert not wrong, "\n".join(wrong)
    assert len(found["deep"].frames) >= 62


def test_what_each_waits_for(subject):
    _, truth, found, _ = subject
    wrong = []
    for name, (kind, text) in WAITS.items():
        task = found[name]
        if task.state != "waiting" or task.waits.kind != kind or text not in task.waits.text:
            wrong.append(f"{name}: {task.state} {task.waits and (task.waits.kind, task.waits.text)}, not {kind} {text}")
    assert not wrong, "\n".join(wrong)
    for name, key in {
        "event": "event",
        "queue": "queue",
        "lock": "lock",
        "semaphore": "semaphore",
        "reader": "reader",
        "on task": "slow",
    }.items():
        assert found[name].waits.object.address == truth["objects"][key], name
    told = truth["tasks"]["future"]["waiter"]
    if told:
        assert found["future"].waits.object.address == told[0]
    assert found["fresh"].state == "ready" and found["fresh"].waits is None
    assert all(task.loop == truth["loop"] and task.tid == truth["pid"] for task in found.values())


def test_the_running_task_is_the_one_on_the_stack(subject):
    target, truth, found, _ = subject
    (task,) = [t for t in found.values() if t.state == "running"]
    stack = open_runtime(target).frames(open_runtime(target).thread(target.pid))
    assert [(f.code.name, f.line) for f in task.frames] == [(f.code.name, f.line) for f in stack[: len(task.frames)]]
    assert task.frames[-1].code.name == "main"


def test_locals_of_a_suspended_coroutine(subject):
    data = json.loads(answer(subject[0].pid, "-locals deep").json("pytasks"))
    (task,) = data["tasks"]
    assert [v["text"] for f in task["frames"][1:-1] for v in f["locals"] if v["name"] == "depth"] == [str(n) for n in range(60)]


def test_finished_ones_only_if_asked_for(subject):
    target, truth, _, _ = subject
    assert truth["done"] not in {t["name"] for t in json.loads(answer(target.pid).json("pytasks"))["tasks"]}
    held = {t["name"]: t for t in json.loads(answer(target.pid, "-all").json("pytasks"))["tasks"]}
    if open_runtime(target).version < (3, 14):  # from then on asyncio forgets a task when it is done
        assert held[truth["done"]]["state"] == "done" and held[truth["done"]]["waits_for"] is None


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_task_deep_in_calls_shows_its_whole_stack_and_a_ring_is_named(python):
    with running(python, "tasks.py", "running", "ring") as (target, _):
        data = json.loads(answer(target.pid).json("pytasks"))
        text = answer(target.pid).to_text()
    assert data["cycles"], (data["partial"], data["tasks"])
    (task,) = [t for t in data["tasks"] if t["state"] == "running"]
    assert [f["function"].rpartition(".")[2] for f in task["frames"]] == ["stuck"] + ["layered"] * 4 and task["tid"] == target.pid
    assert sorted(data["cycles"][0]) == ["ring a", "ring b", "ring c"] and len(data["cycles"]) == 1
    assert "wait for each other" in text


@pytest.mark.parametrize("kind", ["", "python"])
@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_where_tasks_were_made_is_as_asyncio_keeps_it(python, kind):
    with running(python, "made_tasks.py", *filter(None, [kind])) as (target, truth):
        data = json.loads(answer(target.pid).json("pytasks"))
        text = answer(target.pid, "-v").to_text()
    found = {int(t["address"], 16): [[at["function"], at["file"], at["line"]] for at in t["created"]] for t in data["tasks"]}
    assert {name: found[address] for name, address in truth["at"].items()} == truth["made"]
    assert re.search(r"(in|by) by_a_helper \(.*made_tasks.py:\d+\)", text)


def test_live_and_core_say_the_same(gdb, tmp_path):
    path = str(tmp_path / "core")
    with running(sys.executable, "tasks.py") as (target, truth):
        live = gdb(
            ["pytasks -locals -json", "pytasks", f"gcore {path}"], ["-p", str(target.pid)], before=["set auto-solib-add off"]
        )
    dead = gdb(["pytasks -locals -json", "pytasks"], ["-c", path], before=["set auto-solib-add off"])
    assert live.json(0) == dead.json(0) and live.outputs[1] == dead.outputs[1]
    assert {t["name"] for t in dead.json(0)["tasks"]} >= set(truth["tasks"])
    assert "waiting for Queue.get" in dead.outputs[1] and "tasks alike" in dead.outputs[1]


def test_a_process_without_asyncio_is_told_in_one_line():
    with running(sys.executable, "exceptions.py") as (target, _):
        with pytest.raises(GdbextError, match="has not imported asyncio"):
            answer(target.pid)


def test_garbage_in_a_task_costs_no_traceback(subject):
    """Words of tasks, of their coroutines and of what they await replaced: an answer or a reason, never anything else."""
    target, truth, found, kind = subject
    if kind:
        pytest.skip("once per interpreter is enough")
    rt = open_runtime(target)
    L, places = rt.layout, []
    for name in ("future", "deep", "gather", "anext"):
        address = truth["tasks"][name]["address"]
        coroutine = target.u64(address + L["task.task_coro"])
        ranges = ((address, L["task.__size"]), (coroutine, 200), (found[name].waits.object.address, 96))
        places += [(place, address) for start, size in ranges for place in range(start, start + size, 8)]
    dice, damaged = random.Random(3), Damaged(target.pid)
    for place, address in dice.sample(places, 60):
        damaged.bad = {place: dice.choice((0, (1 << 64) - 1, address, dice.getrandbits(64), target.u64(place) + 8))}
        damaged.invalidate()
        try:
            listed, _ = tasks.tasks(open_runtime(damaged))
            assert len(listed) < 1000
        except GdbextError as e:
            assert "\n" not in str(e)
    damaged.close()


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_who_awaits_whom(python):
    with running(python, "awaiters.py") as (target, truth):
        asleep(target.pid)  # it awaits the race once it has said so
        found = json.loads(answer(target.pid).json("pytasks"))["tasks"]
        rt = open_runtime(target)
        edges = {t.name: t.edge for t in async_waits.read("it", rt, []).tasks}
    assert edges["takes"] is None or [edges["takes"].kind, len(edges["takes"].candidates)] == ["task", 2]  # not its own queue's
    names = {task["address"]: task["name"] for task in found}
    main = next(task["name"] for task in found if task["coroutine"] == "main")
    edges = {task["name"]: sorted(names[a] for a in task["awaited_by"]) for task in found}
    assert edges == {**{name: [] for name in edges}, **{k: sorted(v) for k, v in truth["edges"].items()}, "race": [main]}
    waits = {task["name"]: task["waits"] for task in found}
    assert waits["takes"]["kind"] == "as_completed" and waits["alone"]["kind"] == "future" and len(truth["racers"]) == 2
    for name in {"plain", "none", "nested", "inner"} & waits.keys():
        assert waits[name]["kind"] == "group", name
