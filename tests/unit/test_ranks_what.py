"""What WHAT names among the processes of a FAKE /proc: indices, labels, pids, files, all; two engines beside each other."""

import contextlib
import os
import pwd
import subprocess
import threading

import pytest
from harness.fake_proc import SPAWN, vllm
from harness.heartbeats import eventually

from gdbext.answers import ranks as shapes
from gdbext.api.choosing import resolve_processes
from gdbext.engines.group import engines_of
from gdbext.engines.processes import ProcessRef
from gdbext.engines.what import resolve
from gdbext.errors import GdbextError, NotFoundError
from gdbext.render.text import PLAIN
from gdbext.session.session import Session


def test_two_engines_make_a_label_ambiguous_and_the_error_lists_both(proc):
    vllm(proc)
    vllm(proc)
    ranks = proc.ranks()
    with pytest.raises(GdbextError) as e:
        resolve("TP0", ranks)
    pids = [r.pid for r in ranks if r.short == "TP0"]
    assert len(pids) == 2 and all(str(p) in str(e.value) for p in pids) and "\n" not in str(e.value)
    assert len(engines_of(ranks, lambda rank: None)) == 2


def test_whose_a_process_is_is_said(proc):
    """Anybody may give a process the title of a rank."""
    _, _, workers = vllm(proc)
    main = proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m"], uid=4_200_123)
    core = proc.add(title="VLLM::EngineCore", ppid=main, uid=4_200_123)
    forged = proc.add(title="VLLM::Worker_TP1", ppid=core, uid=4_200_123)
    ranks = proc.ranks()
    said = {r.pid: (shapes.RANK.data(r)["uid"], shapes.RANK.data(r)["user"]) for r in ranks}
    assert said[forged] == (4_200_123, "4200123")
    assert said[workers[1]] == (os.geteuid(), pwd.getpwuid(os.geteuid()).pw_name)
    with pytest.raises(GdbextError, match=f"pid {workers[1]}\\).*pid {forged}, user 4200123\\)"):
        resolve("TP1", ranks)
    head, *rows = shapes.table([shapes.RANK.data(r) for r in ranks], PLAIN).splitlines()
    assert {row[head.index("user") :].strip() for row in rows} == {"", "4200123"}


def test_an_engine_name_before_the_label_tells_two_engines_apart(proc):
    _, _, workers = vllm(proc)
    proc.add(title="sglang::scheduler_TP0", ppid=proc.add(["/usr/bin/python3", "-m", "sglang.launch_server"]))
    ranks = proc.ranks()
    with pytest.raises(GdbextError, match="ambiguous"):
        resolve("TP0", ranks)
    assert resolve("vllm:tp0", ranks)[0].pid == workers[0]
    assert [r.engine for r in proc.ranks(engine="sglang")] == ["sglang", "sglang"]


def test_every_way_to_name_a_process(proc):
    main, core, workers = vllm(proc)
    ranks = proc.ranks()
    for what in ("3", "TP1", "tp1", str(workers[1]), "VLLM::Worker_TP1", "worker_tp1", "vllm:TP1", " TP1 "):
        assert [r.pid for r in resolve(what, ranks)] == [workers[1]], what
    assert resolve("enginecore", ranks)[0].pid == core
    assert len(resolve("all", ranks)) == 4
    assert resolve(str(os.getpid()), []) == [ProcessRef(os.getpid())]
    assert resolve(__file__, ranks) == [ProcessRef(core=__file__)]


def test_a_file_is_meant_by_a_slash_alone(proc, tmp_path, monkeypatch):
    """Anybody may lay a file into /tmp: `all`, `TP0`, a number, an engine, a part of a label."""
    main, core, workers = vllm(proc)
    ranks = proc.ranks()
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    names = ["all", "1", "TP1", "tp1", "vllm", "enginecore", str(workers[1]), str(os.getpid()), "vllm:TP1", "2,3"]
    before = {name: resolve(name, ranks) for name in names if name != "2,3"}
    for name in [*names, "x.core", "99", "nobody", "a b"]:
        (here / name).write_text("")
    assert {name: resolve(name, ranks) for name in before} == before and all(before.values())
    for name in ("x.core", "nobody", "4194305"):
        (here / name).write_text("")
        for known in (ranks, []):
            with pytest.raises(NotFoundError, match=f"is the file of that name meant. ./{name}$"):
                resolve(name, known)
    for path in ("./all", "./x.core", str(here / "TP1"), "../here/1"):
        assert resolve(path, ranks) == [ProcessRef(core=path)]
    with pytest.raises(NotFoundError, match="there is no such file$"):
        resolve("./nowhere", ranks)
    session = Session()
    session.ranks = ranks
    assert [r.pid for r in resolve_processes(session, "2,3")] == workers
    assert [one.core for one in resolve_processes(session, "./a b")] == ["./a b"]
    assert [one.core for one in resolve_processes(session, "./all ./1")] == ["./all", "./1"]
    with pytest.raises(NotFoundError):
        resolve_processes(session, "a b")


def test_part_of_a_label_names_a_rank_or_lists_the_candidates(proc):
    main = proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m"])
    for d in range(2):
        core = proc.add(title=f"VLLM::EngineCore_DP{d}", ppid=main)
        for t in range(2):
            proc.add(title=f"VLLM::Worker_DP{d}_TP{t}_EP{2 * d + t}", ppid=core)
    ranks = proc.ranks()
    assert resolve("EP2", ranks)[0].label == "DP1.TP0" and resolve("dp1_tp0", ranks)[0].label == "DP1.TP0"
    with pytest.raises(GdbextError, match="ambiguous.*DP0.TP1.*DP1.TP1"):
        resolve("TP1", ranks)


def test_a_thread_is_not_taken_for_a_process():
    ready, end = threading.Event(), threading.Event()
    tids = []
    thread = threading.Thread(target=lambda: (tids.append(threading.get_native_id()), ready.set(), end.wait()))
    thread.start()
    ready.wait()
    try:
        with pytest.raises(GdbextError, match=f"thread of process {os.getpid()}"):
            resolve(str(tids[0]), [])
    finally:
        end.set()
        thread.join()


def test_helpers_of_the_users_own_process_are_not_listed(proc):
    main, core, workers = vllm(proc)
    proc.add(SPAWN, ppid=main)
    assert {r.pid for r in proc.ranks()} == {main, core, *workers}


def test_an_engine_that_is_starting_shows_its_untitled_children(proc):
    main = proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m"])
    child = proc.add(SPAWN, ppid=main)
    assert [(r.pid, r.notes) for r in proc.ranks()] == [(main, []), (child, ["no title"])]


@pytest.mark.parametrize("what", ["TP9", "nothing", "99999999", "", "all"])
def test_unknown_names_are_one_clear_line(what, proc):
    with pytest.raises(GdbextError) as e:
        resolve(what, [])
    assert "\n" not in str(e.value) and len(str(e.value)) > 20
    vllm(proc)
    if what == "TP9":
        with pytest.raises(NotFoundError, match="EngineCore, TP0, TP1"):
            resolve(what, proc.ranks())


def test_an_unknown_engine_is_refused_by_name(proc):
    with pytest.raises(GdbextError, match="no engine named 'tgi'"):
        proc.ranks(engine="tgi")


def test_processes_of_one_title_of_ray_are_named_together():
    name = f"ray::Rank{os.getpid()}"
    titles = (name, f"{name}.run", f"{name}:run", f"{name}x", f"other{name}")
    with contextlib.ExitStack() as stack:
        pids = []
        for title in titles:
            one = stack.enter_context(subprocess.Popen(["bash", "-c", 'exec -a "$0" cat', title], stdin=subprocess.PIPE))
            pids.append(one.pid)
            eventually(lambda pid=one.pid: open(f"/proc/{pid}/comm").read() == "cat\n", "the title")
        assert [one.pid for one in resolve(name, [])] == sorted(pids[:3])
        with pytest.raises(NotFoundError, match=f"no process has the title ray::Nobody; Ray's here are .*{name}"):
            resolve("ray::Nobody", [])
