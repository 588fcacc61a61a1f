"""The library (docs/library.md): its page and examples run on a server whose two threads hold each other's lock, on a snapshot of
it, and on the toy engine; inside gdb it gives the same objects."""

import ast
import contextlib
import http.server
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace

import pytest
from harness.gdb_run import ROOT
from harness.subjects import SUBJECTS, spawned
from harness.toy import pack_with_toy, toy

import gdbext
from gdbext.api import opening
from gdbext.engines.processes import ProcessRef

EXAMPLES = os.path.join(ROOT, "docs", "examples")


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    return pack_with_toy(tmp_path_factory.mktemp("pack"))


@pytest.fixture(scope="module")
def server():
    """-> (pid, what it says of itself) of the server that hangs"""
    with spawned([sys.executable, os.path.join(SUBJECTS, "two_locks.py")], ready="{") as process:
        yield process.pid, json.loads(process.said)


@pytest.fixture(scope="module")
def file(server, tmp_path_factory):
    """A snapshot of it."""
    path = str(tmp_path_factory.mktemp("snapshot") / "server.core")
    subprocess.run([sys.executable, "-m", "gdbext", "llm-snapshot", str(server[0]), "-o", path], cwd=ROOT, check=True)
    return path


def outside(code, *words, path=ROOT, **environ):
    """What a program says that has the pack of `path`."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, words)],
        cwd=path,
        env={**os.environ, "PYTHONPATH": str(path), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_examples_of_its_page_are_true(pack, server, file):
    with toy(0) as (engine, _):
        said = outside(
            """
            import doctest, sys
            page, pid, engine, file = sys.argv[1:]
            names = {"pid": int(pid), "engine": int(engine), "file": file}
            found = doctest.testfile(page, False, globs=names, optionflags=doctest.ELLIPSIS)
            print(f"{found.attempted} examples")
            sys.exit(found.failed)
            """,
            *(os.path.join(ROOT, "docs", "library.md"), server[0], engine, file),
            path=pack,
        )
    assert int(re.search(r"(\d+) examples", said).group(1)) > 40


def test_one_moment_stays_and_live_moves():
    """What is read of a moment does not change while the process does; `live` sees the change."""
    code = "import time\nn = [0]\ndef count():\n while True:\n  n[0] += 1\n  time.sleep(0.001)\nprint('{', flush=True)\ncount()"
    with spawned([sys.executable, "-c", code], ready="{") as process, gdbext.attach(process.pid) as moment:
        live = gdbext.attach(process.pid, live=True)
        before = [int(moment.evaluate("__main__:n[0]")), int(live.evaluate("__main__:n[0]"))]
        while int(live.evaluate("__main__:n[0]")) == before[1]:
            pass
        assert int(moment.evaluate("__main__:n[0]")) == before[0] <= before[1]
        assert live.threads[0].frames[0].function == "count" == moment.threads[0].frames[0].function


def test_what_threads_wait_for_is_what_the_server_says(server, file):
    pid, said = server
    for p in (gdbext.attach(pid), gdbext.open(file)):
        main, evictor = p.thread(pid), p.thread(said["evictor"])
        assert (main.wait.owner, evictor.wait.owner) == (evictor, main)
        assert main.wait.givers == [evictor] and main.wait.end().state == "ring"
        assert [str(r.request_id) for r in main.frames[0]["self"].scheduler.running] == said["running"]
        with pytest.raises(KeyError):
            main.frames[0]["nothing"]
        with pytest.raises(gdbext.NotFoundError):
            p.thread(1)
    twice = gdbext.ranks(file, os.path.join(os.path.dirname(file), ".", "server.core"))
    assert [p.thread(pid).wait.owner.process for p in twice] == list(twice) and len({p.name for p in twice}) == 2


def test_every_failure_is_of_one_family(server, tmp_path):
    no_core = tmp_path / "no.core"
    no_core.write_text("no core")
    p = gdbext.attach(server[0])
    core = p.threads[0].frames[0]["self"]
    for ask in (
        lambda: gdbext.attach("nothing is called so"),
        lambda: gdbext.attach(1 << 22),
        lambda: gdbext.open(no_core),
        lambda: gdbext.ranks("none"),
        lambda: gdbext.selected(),
        lambda: core.nothing,
        lambda: core.scheduler.running[9],
        lambda: core.scheduler.tensor(),
        lambda: core.plain(),
        lambda: core.step(),
        lambda: p.evaluate("core +"),
        lambda: p.object_at(0x1000),
        lambda: len(core),
        lambda: int(core.scheduler),
    ):
        with pytest.raises((gdbext.GdbextError, TypeError)) as e:
            ask()
        assert isinstance(e.value, gdbext.GdbextError) or "callable" in str(e.value)


def test_values_are_the_process_own(server):
    core = gdbext.attach(server[0]).threads[0].frames[0]["self"]
    limits = core.scheduler.limits
    assert limits.plain() == {"max_seqs": 256, "names": ("a", "b")} and dict(limits["names"].fields()) == {}
    assert list(limits) == ["max_seqs", "names"] and "names" in limits and limits["max_seqs"] > 255
    assert "running" in dir(core.scheduler) and not hasattr(core, "_repr_png_")
    for shown in (core, core.scheduler, core.cache_lock):
        assert shown.type_name in shown._repr_html_()


def test_inside_gdb_the_same_objects_are_given(gdb, server, file):
    ask = (
        "python import gdbext; p = gdbext.selected(); print('SAID', p.thread().tid, p.thread().wait.owner.tid, "
        "str(p.evaluate('__main__:core').scheduler.running[0].request_id), p.hang().kind, gdbext.attach({}).target is p.target)"
    )
    pid, said = server
    choose = f"python [t.switch() for t in gdb.selected_inferior().threads() if t.ptid[1] == {said['evictor']}]"
    of_process = gdb([f"attach {pid}", choose, ask.format(pid)]).text
    assert f"SAID {said['evictor']} {pid} req-7 lock-cycle True" in of_process
    of_core = gdb([f"core-file {file}", ask.replace(", gdbext.attach({}).target is p.target", "")]).text
    assert f"SAID {pid} {said['evictor']} req-7 lock-cycle" in of_core


def test_a_process_of_another_machine_is_read_from_what_it_sends(server, tmp_path):
    """A stand-in of ssh runs what it is given here; the pack goes there and the snapshot comes back."""
    (tmp_path / "ssh").write_text('#!/bin/sh\nwhile [ "$1" != "--" ]; do shift; done\nexec sh -c "$3"\n')
    (tmp_path / "ssh").chmod(0o755)
    os.symlink(sys.executable, tmp_path / "python3")
    said = outside(
        """
        import sys, gdbext
        with gdbext.attach(f"ssh:gpu17:{sys.argv[1]}") as p:
            frame = p.threads[0].frames[0]
            print(p.node, p.pid, frame.function, frame["self"].scheduler.running[1].request_id, p.threads[0].wait.owner.name)
            verdict = p.hang()
            print(verdict.kind, verdict.culprits[1]["node"])
        try:
            gdbext.attach(f"{sys.argv[1]}@ssh:gpu17", live=True)
        except gdbext.GdbextError as e:
            print(e)
        """,
        server[0],
        PATH=f"{tmp_path}:{os.environ['PATH']}",
    ).splitlines()
    assert said == [
        f"ssh:gpu17 {server[0]} EngineCore.step req-8 evictor",
        "lock-cycle gpu17",
        "ssh:gpu17: a process of another machine is read from a copy: without live=True",
    ]


# ---- the examples ----------------------------------------------------------------------------------------------------------
def test_the_plugin_of_pytest_prints_what_a_test_waits_for(tmp_path):
    test = """
        import signal
        import threading
        lock = threading.Lock()
        signal.signal(signal.SIGUSR1, lambda *_: lock.release())
        def test_quick():
            pass
        def test_hangs():
            with lock:
                lock.acquire(timeout=300)
    """
    (tmp_path / "test_it.py").write_text(textwrap.dedent(test))
    line = [sys.executable, "-m", "pytest", "-p", "pytest_hang", "--hang-after", "2", "-p", "no:cacheprovider", "test_it.py"]
    more = {"env": {**os.environ, "PYTHONPATH": os.pathsep.join((EXAMPLES, ROOT))}, "stderr": subprocess.STDOUT}
    with spawned(line, ready="test_it.py::test_hangs has run for 2 s", cwd=tmp_path, **more) as process:
        said = list(itertools.takewhile(lambda line: not line.startswith("paused"), process.stdout))
        process.send_signal(signal.SIGUSR1)
        said += process.stdout.readlines()
    text = "".join(said)
    assert "2 passed" in said[-1] and "test_quick has run" not in text, text
    assert (
        "it waits for what it has itself" in text
        and "waits for the Lock lock in" in text
        and "test_hangs (test_it.py:10)" in text
    ), text


def test_the_watch_posts_a_hang_once_and_that_it_is_gone(tmp_path):
    posted, ready = [], threading.Semaphore(0)

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            ready.release()

        def log_message(self, *words):
            pass

    hook = http.server.HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=hook.serve_forever, daemon=True).start()
    with contextlib.ExitStack() as stack:
        stack.callback(hook.shutdown)
        hung = stack.enter_context(spawned([sys.executable, os.path.join(SUBJECTS, "two_locks.py")], ready="{"))
        line = [sys.executable, os.path.join(EXAMPLES, "watch_webhook.py"), f"http://127.0.0.1:{hook.server_port}/"]
        more = {"env": {**os.environ, "PYTHONPATH": ROOT}}
        watch = stack.enter_context(spawned([*line, str(hung.pid), "--every", "0.2"], **more))
        assert ready.acquire(timeout=120)
        hung.kill()
        hung.wait()
        assert ready.acquire(timeout=120) and watch.wait(60) == 0
    assert [one["verdict"] for one in posted] == ["lock-cycle", "gone"]
    assert posted[0]["culprits"][0]["pid"] == hung.pid and "evictor" in posted[0]["text"]


NOTEBOOK = """
import ast, json, sys
cells = json.load(open(sys.argv[1]))["cells"]
scope = {}
for cell in cells:
    if cell["cell_type"] == "code":
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), scope)
        shown = eval(compile(ast.Expression(last.value), "cell", "eval"), scope) if last else None
        print("SHOWN", shown._repr_html_() if hasattr(shown, "_repr_html_") else repr(shown))
"""


def test_the_notebook_draws_a_cache_and_the_lives_of_requests(pack):
    path = os.path.join(EXAMPLES, "kv_notebook.ipynb")
    with toy(0) as (pid, said):
        shown = outside(NOTEBOOK, path, path=pack, WHAT=str(pid), SECONDS="0.5").split("SHOWN ")
    assert all(name in shown[2] for name in said["ids"])  # the engine's requests
    assert shown[3].count("<td title=") == 8 and "A toy-a" in shown[3]
    assert shown[4].startswith("(True, [])")
    assert [shown[n].count("<polyline") for n in (6, 7)] == [3, 3] and "up to 4 in" in shown[7]
    with contextlib.suppress(ImportError):
        import nbformat

        nbformat.validate(nbformat.read(path, 4))


@pytest.mark.sources
def test_the_examples_use_nothing_of_gdbext_but_the_library():
    names = {name for name in os.listdir(EXAMPLES) if name.endswith((".py", ".ipynb"))}
    assert len(names) == 3
    for name in names:
        with open(os.path.join(EXAMPLES, name)) as f:
            text = f.read()
        if name.endswith(".ipynb"):
            text = "\n".join("".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "code")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom):
                assert not node.module.startswith("gdbext")
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "gdbext":
                assert hasattr(gdbext, node.attr), node.attr


MOVES = """
import asyncio, dataclasses, json, threading
import numpy

@dataclasses.dataclass
class Pair:
    a: int
    b: list

class State: pass

state, n = State(), 0
state.stands = [1, "a", 2.5, (1, [2]), {"k": [1.5], 3: None}, {1, 2}, None, True, Pair(7, [8.5])]
state.array, state.zero = numpy.arange(6.0).reshape(2, 3), numpy.array(41)

async def waits(event): await event.wait()

async def main():
    global n
    event = asyncio.Event()
    kept = [asyncio.create_task(waits(event), name=f"waits-{i}") for i in range(3)]
    print(json.dumps([task.get_name() for task in kept]), flush=True)
    while True:
        n += 1
        state.step, state.moves = n, [[n], (1, [n]), {"names": [f"v{n}"]}, n + 0.5, {"k": {n}}, Pair(n, [2]), Pair(1, [n])]
        await asyncio.sleep(0.01)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def moves():
    with spawned([sys.executable, "-c", MOVES], ready="[") as process:
        yield process.pid, json.loads(process.said)


def test_two_moments_are_compared_by_value(moves):
    """Whatever lies where the other's lies: a program reuses its memory."""
    first, second = (gdbext.attach(moves[0]).evaluate("__main__:state") for _ in range(2))
    while second.step == first.step:
        second = gdbext.attach(moves[0]).evaluate("__main__:state")
    assert [one == other for one, other in zip(first.stands, second.stands)] == [True] * 9
    assert [one == other for one, other in zip(first.moves, second.moves)] == [False] * 7
    assert [one == one for one in first.moves] == [True] * 7 and first == first  # noqa: PLR0124
    with pytest.raises(gdbext.GdbextError, match="compared by identity"):
        print(first == second)
    assert second.step - first.step == second.step.plain() - first.step.plain() > 0 and f"{first.step:05d}" > "00000"


def test_tasks_and_arrays_are_the_process_own(moves):
    process = gdbext.attach(moves[0])
    found = {task.name: task for task in process.tasks}
    assert set(moves[1]) < set(found) and len(found) == len(moves[1]) + 1
    assert all(found[name].state == "waiting" and "waits" in found[name].coroutine for name in moves[1])
    assert all([frame.function for frame in found[name].frames][-1] == "waits" for name in moves[1])
    state = process.evaluate("__main__:state")
    assert [row.tolist() for row in state.array.tensor()] == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert int(state.zero) == 41 and float(state.zero) + 1 == 42.0
    for index in (True, None, [0, 1], "a", 9):
        with pytest.raises(gdbext.GdbextError):
            print(state.array.tensor()[index])
    assert process.evaluate("[task for task in __main__:state.stands][0]").plain() == 1


def test_an_int_is_a_pid_and_who_is_gone_is_said(moves):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with gdbext.ranks(moves[0], gone.pid) as both:
        assert both[moves[0]].pid == moves[0] == both[0].pid and [one["pid"] for one in both.failed] == [gone.pid]
        with pytest.raises(gdbext.MissingItem):
            print(both[gone.pid])
    assert moves[0] in dict(gdbext.pythons())
    session = SimpleNamespace(resolve_one=lambda _: ProcessRef(9), process=ProcessRef)  # as where the pid is an index, too
    opened = opening.Opened(session, False, False, 0)
    assert opened.meant(moves[0]).pid == moves[0] and opened.meant(str(moves[0])).pid == 9


def test_a_snapshot_says_what_it_lacks(moves, tmp_path):
    path = str(tmp_path / "x.core")
    line = [sys.executable, "-m", "gdbext", "llm-snapshot", str(moves[0]), "-o", path, "--json"]
    done = json.loads(subprocess.run(line, cwd=ROOT, capture_output=True, check=True).stdout)
    (told,) = done["snapshots"]
    assert bool(gdbext.open(path).partial) == bool(told["left_out_bytes"] or told["partial"])


def test_a_program_that_ends_well_has_not_crashed():
    """Its parent reaps it only after the verdict, or at once."""
    for status, hung in ((0, False), (3, True)):
        code = f"import sys\nprint(1, flush=True)\nsys.stdin.read()\nsys.exit({status})"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", code], **pipes) as child:
            child.stdout.readline()
            process = gdbext.attach(child.pid, live=True)
            threading.Timer(0.5, child.stdin.close).start()
            assert process.hang(wait=6.0).hung is hung
