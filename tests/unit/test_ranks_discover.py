"""Engine processes in a FAKE /proc: decoys, orphans, containers, hostile trees, memory that wins, the command. No process is
looked at."""

import json
import os
import time

import pytest
from harness.fake_proc import MIB, PYTHON, SPAWN, TRACKER, vllm

from gdbext.access.proctable import Process, ProcTable
from gdbext.answers import ranks as shapes
from gdbext.commands.llm_ranks import LlmRanks, _summary
from gdbext.engines.discover import discover, survey
from gdbext.engines.group import Engine
from gdbext.engines.registry import ENGINES, SPECS
from gdbext.engines.spec import Memory
from gdbext.engines.what import resolve
from gdbext.errors import GdbextError, NotFoundError
from gdbext.render import jsonline
from gdbext.render.text import PLAIN


# ---- one engine, every era ------------------------------------------------------------------------------------------
# ---- custom prefixes, decoys ------------------------------------------------------------------------------------------
def test_a_custom_title_prefix_counts_with_a_relative_as_witness(proc):
    vllm(proc, prefix="prod-7")
    assert [r.label for r in proc.ranks()] == ["frontend", "EngineCore", "TP0", "TP1"]


def test_a_custom_prefix_without_a_witness_is_not_an_engine(proc):
    proc.add(title="ray::Worker", ppid=proc.add(["/usr/bin/python3", "x.py"]))
    proc.add(title="acme::Worker_TP0", ppid=1)
    assert proc.ranks() == []


def test_decoys_are_not_listed(proc):
    vllm(proc)
    real = len(proc.ranks())
    for argv, exe in (
        (["grep", "VLLM::Worker"], "/usr/bin/grep"),
        (["vim", "VLLM::Worker_TP0"], "/usr/bin/vim"),
        (["/usr/bin/python3", "watch.py", "VLLM::Worker_TP0"], PYTHON),
        (["bash", "-c", "vllm serve m"], "/bin/bash"),
        (["VLLM::Worker_TP0"], "/usr/bin/sleep"),
        (["VLLM::Worker_TP0", "100"], PYTHON),
        (["tail", "-f", "sglang::scheduler"], "/usr/bin/tail"),
        (["/usr/bin/python3", "-c", "print('VLLM::EngineCore')"], PYTHON),
        (["gdb", "-p", "1"], "/usr/bin/gdb"),
        (["timeout", "9", "vllm", "serve"], "/usr/bin/timeout"),
        (["/usr/bin/python3", "-m", "gdbext", "llm-ranks", "-engine", "vllm"], PYTHON),
        (["/usr/bin/python3", "-m", "pytest", "vllm.entrypoints.openai.api_server"], PYTHON),
        (TRACKER, PYTHON),
        (SPAWN, PYTHON),
        ([], ""),
    ):
        proc.add(argv, exe=exe)
    assert len(proc.ranks()) == real


def test_a_workers_forked_child_is_marked_and_its_label_stays_unique(proc):
    _, _, workers = vllm(proc)
    fork = proc.add(title="VLLM::Worker_TP0", ppid=workers[0])
    ranks = proc.ranks()
    assert resolve("TP0", ranks)[0].pid == workers[0]
    assert [r.label for r in ranks if r.pid == fork] == ["TP0.fork"]


def test_untitled_children_of_an_engine_that_trackers_are_not(proc):
    core = proc.add(title="VLLM::EngineCore", ppid=proc.add(["/usr/bin/python3", "run.py"]))
    proc.add(TRACKER, ppid=core)
    starting = proc.add(SPAWN, ppid=core)
    assert [(r.role, r.pid, r.ranks) for r in proc.ranks() if r.ppid == core] == [("worker", starting, {})]


# ---- what is wrong with a process ----------------------------------------------------------------------------------------
def test_workers_whose_engine_core_died_are_orphans_of_one_engine(proc):
    for t in range(2):
        proc.add(title=f"VLLM::Worker_TP{t}", ppid=1)
    ranks = proc.ranks()
    assert [(r.label, r.orphan) for r in ranks] == [("TP0", True), ("TP1", True)] and len({r.family for r in ranks}) == 1


@pytest.mark.parametrize("title", ["sglang::tokenizer_worker:4242", "VLLM::APIServer_1"])
def test_a_server_whose_parent_is_gone_is_an_orphan_a_shells_is_none(proc, title):
    proc.add(title=title, ppid=1)
    proc.add(["/usr/bin/python3", "-m", "sglang.launch_server", "--port", "1"], ppid=1)
    assert sorted((r.role, r.orphan) for r in proc.ranks()) == [("api-server", False), ("api-server", True)]


def test_an_orphan_adopted_by_a_reaper_that_is_a_python_of_another_session(proc):
    reaper = proc.add(["/usr/bin/python3", "supervisord"], session=7, pgrp=7)
    proc.add(title="VLLM::EngineCore", ppid=reaper)
    assert [(r.role, r.orphan) for r in proc.ranks()] == [("engine-core", True)]


@pytest.mark.parametrize(
    "how, orphan", [({"state": "Z", "threads": 1}, True), ({"exits": True, "threads": 1}, True), ({}, False)]
)
def test_a_core_whose_server_is_on_its_way_out_is_an_orphan(proc, how, orphan):
    """A process that ends has no memory and no words any more, and its children have not another parent yet."""
    server = proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m"], session=7, pgrp=7, **how)
    core = proc.add(title="VLLM::EngineCore", ppid=server, session=7, pgrp=7)
    worker = proc.add(title="VLLM::Worker_TP0", ppid=core, session=7, pgrp=7)
    assert [(r.pid, r.is_left) for r in proc.ranks() if r.pid in (core, worker)] == [(core, orphan), (worker, orphan)]


@pytest.mark.parametrize(
    "argv, exe, rss",
    [
        (["/usr/bin/python3", "launch.py"], PYTHON, 12),
        (["/usr/bin/python3", "-c", "from multiprocessing.forkserver import main; main(3, 4)"], PYTHON, 14),
        (["bash", "start.sh"], "/bin/bash", 4),
        (["launcher"], "/opt/launcher", 300),
    ],
)
@pytest.mark.parametrize("own_session", [False, True])
def test_a_core_whose_living_parent_is_no_engines_is_no_orphan(proc, argv, exe, rss, own_session):
    parent = proc.add(argv, exe=exe, rss=rss * MIB)
    core = proc.add(title="VLLM::EngineCore", pid=900, ppid=parent, rss=600 * MIB, session=900 if own_session else 50)
    worker = proc.add(title="VLLM::Worker_TP0", ppid=core, rss=600 * MIB, session=900 if own_session else 50)
    assert [(r.pid, r.orphan, r.is_left) for r in proc.ranks() if r.pid in (core, worker)] == [
        (core, False, False),
        (worker, False, False),
    ]


def test_the_server_as_pid_1_of_a_container_leaves_no_orphans(proc):
    proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m"], pid=1, ppid=0)
    proc.add(title="VLLM::EngineCore", ppid=1)
    assert [(r.label, r.orphan) for r in proc.ranks()] == [("server", False), ("EngineCore", False)]


def test_a_script_as_pid_1_is_the_front_end_of_what_it_started(proc):
    proc.add(["/usr/bin/python3", "/app/serve.py"], pid=1, ppid=0)
    proc.add(title="VLLM::EngineCore", ppid=1)
    assert [(r.label, r.orphan) for r in proc.ranks()] == [("frontend", False), ("EngineCore", False)]


def test_what_a_small_python_as_pid_1_has_adopted_is_an_orphan(proc):
    proc.add(["/usr/bin/python3", "/app/supervise.py"], pid=1, ppid=0, rss=12 * MIB)
    proc.add(title="VLLM::EngineCore", ppid=1, rss=600 * MIB)
    assert [(r.label, r.orphan) for r in proc.ranks()] == [("EngineCore", True)]


def test_stopped_and_traced_are_marked(proc):
    core = proc.add(title="VLLM::EngineCore", ppid=proc.add(["/usr/bin/python3", "run.py"]))
    proc.add(title="VLLM::Worker_TP0", ppid=core, state="T")
    proc.add(title="VLLM::Worker_TP1", ppid=core, state="t")
    assert [(r.state, r.stopped) for r in proc.ranks() if r.role == "worker"] == [("T", True), ("t", True)]


def test_a_zombie_has_a_role_but_no_rank_and_says_what_killed_it(proc):
    core = proc.add(title="VLLM::EngineCore", ppid=proc.add(["/usr/bin/python3", "run.py"]))
    proc.add(title="VLLM::Worker_TP0", ppid=core)
    dead = proc.add(title="VLLM::Worker_TP1", ppid=core, state="Z", status=11)
    rank = [r for r in proc.ranks() if r.pid == dead][0]
    assert (rank.role, rank.ranks, rank.marks) == ("worker", {}, ["zombie", "crashed"])
    assert any("signal 11" in n for n in rank.notes)
    assert [r.ranks for r in proc.ranks() if r.label == "TP0"] == [{"tp": 0, "world": 0}]


def test_containers_show_both_pids(proc):
    _, _, workers = vllm(proc, ns=(99999999,))
    rank = [r for r in proc.ranks() if r.pid == workers[0]][0]
    assert rank.ns_pid == 99999999 and f"{workers[0]} (ns 99999999)" in shapes.table([shapes.RANK.data(rank)], PLAIN)
    with pytest.raises(GdbextError, match="in its container"):
        resolve("99999999", [rank])


def test_gpus_come_from_device_files_and_else_from_cuda_visible_devices(proc):
    core = proc.add(title="VLLM::EngineCore", ppid=proc.add(["/usr/bin/python3", "run.py"]))
    proc.add(
        title="VLLM::Worker_TP0",
        ppid=core,
        fds=["/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia3", "/dev/null"],
    )
    proc.add(title="VLLM::Worker_TP1", ppid=core, environ={"CUDA_VISIBLE_DEVICES": "5,6"})
    proc.add(title="VLLM::Worker_TP2", ppid=core, environ={"CUDA_VISIBLE_DEVICES": "GPU-8c5e"})
    assert [r.process.gpus for r in proc.ranks() if r.role == "worker"] == [[3], [5, 6], []]


# ---- two engines, labels, WHAT ------------------------------------------------------------------------------------------
# ---- hostile and awkward trees ------------------------------------------------------------------------------------------
def test_hostile_titles_neither_reach_the_terminal_nor_break_the_line(proc):
    main, core, _ = vllm(proc, prefix="a\x1b[31m\nb")
    proc.add(title="VLLM::Worker_TP0\x1b]0;owned\x07", ppid=core)
    proc.add(title="A" * (1 << 17) + "::Worker_TP0", ppid=core)
    proc.add(title="\udcff\udcfe::Worker_TP1", ppid=1)
    ranks = proc.ranks()
    assert [r.label for r in ranks] == ["frontend", "EngineCore", "TP0", "TP1"]
    for rank in ranks:
        assert not any(c in text for text in shapes.RANK.grid([shapes.RANK.data(rank)], PLAIN)[1][0] for c in "\x1b\n\x07")
        line = jsonline.dumps(shapes.RANK.data(rank))
        assert "\x1b" not in line and json.loads(line)["pid"] == rank.pid


def test_a_comm_with_brackets_and_blanks_does_not_shift_the_fields(proc):
    pid = proc.add(["/usr/bin/python3", "x.py"], comm=") S 1 (", ppid=77)
    process = ProcTable(proc.root).get(pid)
    assert (process.ppid, process.comm, process.threads) == (77, ") S 1 (", 9)


def test_processes_that_vanish_or_are_nonsense_are_skipped(proc):
    vllm(proc)
    os.makedirs(os.path.join(proc.root, "555"))  # gone between listing and reading
    os.makedirs(os.path.join(proc.root, "556"))
    for name, data in (("stat", b"556 (x"), ("cmdline", b"")):
        with open(os.path.join(proc.root, "556", name), "wb") as f:
            f.write(data)
    assert len(proc.ranks()) == 4


def test_parents_in_a_circle_end(proc):
    proc.add(title="VLLM::Worker_TP0", pid=900, ppid=901)
    proc.add(title="VLLM::EngineCore", pid=901, ppid=900)
    assert {r.pid for r in proc.ranks()} == {900, 901}


def test_an_empty_machine_is_an_answer(proc):
    ranks, partial, looked = survey(proc.root)
    assert (ranks, partial, looked) == ([], [], 0)


def test_a_proc_that_is_not_there_is_said(tmp_path):
    ranks, partial = discover(str(tmp_path / "nowhere"))
    assert ranks == [] and "cannot be read" in partial[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_said(proc):
    _, _, workers = vllm(proc)
    os.chmod(os.path.join(proc.root, str(workers[0]), "fd"), 0)
    ranks, partial = discover(proc.root)
    assert partial == ["open files (GPUs): not readable for 1 of the 4 processes (run as root, or as their user)"]


def test_permissions_denied_by_the_kernel_are_recorded(proc, monkeypatch):
    """As for other users' processes: exe, environ and fd refuse, cmdline and stat do not."""
    main, core, workers = vllm(proc)
    readlink, listdir, opened = os.readlink, os.listdir, os.open

    def deny(real, names):
        def wrapped(path, *more, **rest):
            if str(path).rsplit("/", 1)[-1] in names and f"/{workers[0]}/" in str(path):
                raise PermissionError(13, "denied")
            return real(path, *more, **rest)

        return wrapped

    monkeypatch.setattr(os, "readlink", deny(readlink, ("exe",)))
    monkeypatch.setattr(os, "listdir", deny(listdir, ("fd",)))
    monkeypatch.setattr(os, "open", deny(opened, ("environ",)))
    ranks, partial = discover(proc.root)
    rank = [r for r in ranks if r.pid == workers[0]][0]
    assert (
        rank.label == "TP0" and rank.unreadable == ["environ", "exe", "fd"] and any("taken for a Python" in n for n in rank.notes)
    )
    assert any("executable: not readable for 1 of the 4" in p for p in partial) and any("GPUs" in p for p in partial)


# ---- memory wins ----------------------------------------------------------------------------------------------------------
def test_memory_wins_over_the_title_and_the_disagreement_is_noted(proc, monkeypatch):
    _, core, workers = vllm(proc)
    said = {
        workers[0]: Memory("worker", {"tp": 1, "world": 1}, {"tp": 2, "world": 2}),
        workers[1]: Memory("worker", {"tp": 0, "world": 0}, {"tp": 2, "world": 2}),
    }
    monkeypatch.setattr(
        SPECS["vllm"], "ranks_in_memory", lambda rt, rank: said.get(rank.pid, Memory("engine-core" if rank.pid == core else ""))
    )
    found = {r.pid: r for r in proc.ranks(verify=True, runtime_of=lambda pid: pid)}
    assert (found[workers[0]].label, found[workers[1]].label) == ("TP1", "TP0")
    assert found[workers[0]].rank_source == "memory" and "title says TP0, memory TP1" in found[workers[0]].notes


def test_memory_is_not_read_where_titles_are_clear(proc):
    vllm(proc)
    asked = []
    proc.ranks(runtime_of=asked.append)
    assert asked == []


def test_memory_is_asked_for_untitled_workers_unreadable_ones_are_named(proc):
    core = proc.add(title="VLLM::EngineCore", ppid=proc.add(["/usr/bin/python3", "run.py"]))
    pid = proc.add(SPAWN, ppid=core)

    def refuse(which):
        raise GdbextError(f"process {which}: no permission to read its memory")

    rank = [r for r in proc.ranks(runtime_of=refuse) if r.pid == pid][0]
    assert rank.ranks == {} and any("no permission" in n for n in rank.notes)


def test_of_a_process_of_no_engine_nobodys_memory_is_read(proc):
    """Unless it stands in the tree of what may be an engine, or its number may be an index."""
    front = proc.add(["/usr/bin/python3", "run.py"])
    core = proc.add(title="VLLM::EngineCore", ppid=front)
    untitled = proc.add(SPAWN, ppid=core)
    sibling = proc.add(["/usr/bin/python3", "helper.py"], ppid=front)
    lone = proc.add(["/usr/bin/python3", "train.py"])
    child = proc.add(["/usr/bin/python3", "loader.py"], ppid=lone)
    asked = []

    def refuse(which):
        asked.append(which)
        raise GdbextError(f"process {which}: no permission to read its memory")

    every = [(r.pid, r.label) for r in proc.ranks(runtime_of=refuse)]
    assert asked and untitled in [pid for pid, _ in every]
    for about in (front, core, untitled, sibling, 0, 2, 1 << 22):
        assert [(r.pid, r.label) for r in proc.ranks(runtime_of=refuse, about=[about])] == every, about
    asked.clear()
    for nobodys in ([lone], [child], [lone, child]):
        assert proc.ranks(runtime_of=refuse, about=nobodys) == [] == asked
    assert [(r.pid, r.label) for r in proc.ranks(runtime_of=refuse, about=[lone, core])] == every


def test_a_python_called_a_worker_is_dropped_when_memory_denies_it(proc, monkeypatch):
    proc.add(title="VLLM::Worker_TP0", comm="python3", ppid=1)  # exec -a VLLM::Worker_TP0 python3
    assert len(proc.ranks()) == 1
    monkeypatch.setattr(SPECS["vllm"], "ranks_in_memory", lambda rt, rank: None)
    assert proc.ranks(runtime_of=lambda pid: pid) == []


def test_a_lone_custom_prefix_is_believed_when_memory_confirms(proc, monkeypatch):
    proc.add(title="acme::Worker_TP0", ppid=1)
    monkeypatch.setattr(SPECS["vllm"], "ranks_in_memory", lambda rt, rank: Memory("worker", {"tp": 0, "world": 0}, {"tp": 2}))
    assert [(r.label, r.rank_source) for r in proc.ranks(runtime_of=lambda pid: pid)] == [("TP0", "memory")]


def test_a_client_with_the_engines_libraries_alone_is_dropped_by_memory(proc, monkeypatch):
    proc.add(["/usr/bin/python3", "bench.py"], maps="1-2 r-xp 0 0:0 1 /v/site-packages/vllm/_C.abi3.so\n")
    monkeypatch.setattr(SPECS["vllm"], "ranks_in_memory", lambda rt, rank: Memory())
    assert proc.ranks(runtime_of=lambda pid: pid) == []


# ---- the command and the size ------------------------------------------------------------------------------------------------
def big(proc):
    main = proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m"])
    for d in range(8):
        core = proc.add(title=f"VLLM::EngineCore_DP{d}", ppid=main)
        for t in range(8):
            proc.add(title=f"VLLM::Worker_DP{d}_TP{t}_EP{8 * d + t}", ppid=core, fds=["/dev/null"] * 20)
    for n in range(400):
        proc.add(["/usr/bin/python3" if n % 2 else "/bin/sh", "job.py", str(n)], exe=PYTHON if n % 2 else "/bin/sh", rss=10 * MIB)


def test_64_ranks_among_hundreds_of_processes_are_found_by_few_reads(proc, monkeypatch):
    big(proc)
    opened = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *a, **k: (opened.append(path), real(path, *a, **k))[1])
    before = time.process_time()
    ranks = proc.ranks()
    spent = time.process_time() - before
    workers = [r for r in ranks if r.role == "worker"]
    assert [r.ranks["world"] for r in workers] == list(range(64)) and workers[63].label == "DP7.TP7"
    assert not [p for p in opened if p.endswith("/maps")], "titles suffice"
    others = [p for p in opened if not p.endswith(("/stat", "/cmdline"))]
    assert len(others) <= 3 * len(ranks), "only stat and cmdline of processes that are no candidates"
    print(f"64 ranks of {len(ranks) + 400} processes: {spent:.3f} s CPU")


def test_the_table_and_its_summary(proc):
    main, core, workers = vllm(proc)
    ranks = proc.ranks()
    lines = shapes.table([shapes.RANK.data(r) for r in ranks], PLAIN).splitlines()
    assert lines[3].split()[1:6] == ["TP0", "vllm", "worker", str(workers[0]), str(core)]
    assert _summary(ranks, 7) == "vLLM: 4 processes, 2 ranks here (TP 2)\n7 processes read"
    assert "TP1" in lines[4]


class _Session:
    ranks = ()

    def inferior_of(self, pid):
        return 3


def test_the_command_gives_the_contracts_fields_and_remembers_the_ranks(proc, monkeypatch):
    vllm(proc, ns=(9,))
    monkeypatch.setattr("gdbext.engines.discover.survey", lambda engine, verify: survey(proc.root, engine, verify))
    session = _Session()
    answer = LlmRanks().run(session, LlmRanks.parse("-engine vllm"))
    data = json.loads(answer.json("llm-ranks"))
    assert data["schema"] == "llm-ranks/1" and data["partial"] == []
    fields = (
        "index engine role label ranks rank_source host pid ns_pid ppid title state threads rss cpu age gpus orphan inferior"
    ).split()
    assert all(f in rank for f in fields for rank in data["ranks"])
    worker = data["ranks"][2]
    assert (worker["ranks"], worker["title"], worker["state"], worker["inferior"]) == (
        {"tp": 0, "world": 0},
        "VLLM::Worker_TP0",
        "S",
        3,
    )
    assert (worker["rss"], worker["cpu"], worker["threads"]) == (300 * MIB, 2.0, 9) and 8000 < worker["age"] < 10000
    assert session.ranks[2].label == "TP0"
    assert "vLLM: 4 processes" in answer.to_text()


def test_an_empty_list_is_said_in_words(proc, monkeypatch):
    monkeypatch.setattr("gdbext.engines.discover.survey", lambda engine, verify: survey(proc.root, engine, verify))
    answer = LlmRanks().run(_Session(), LlmRanks.parse(""))
    assert (
        answer.to_text().startswith("no engine processes found")
        and "0 processes" in answer.to_text()
        and json.loads(answer.json("llm-ranks"))["ranks"] == []
    )


def test_an_engine_opens_its_processes_by_label_and_names_the_unstopped(proc):
    vllm(proc)
    opened = {}
    engine = Engine(proc.ranks(), lambda rank: opened.setdefault(rank.label, object()))
    assert engine.name == "vllm" and engine.spec is SPECS["vllm"]
    assert engine.target(engine.rank("tp0")) is opened["TP0"] and list(opened) == ["TP0"]
    assert [engine.target(r) for r in engine.shards()] == [opened["TP0"], opened["TP1"]]
    core = engine.rank("EngineCore")
    assert [r.label for r in engine.schedulers_for(engine.rank("TP1"))] == ["EngineCore"]
    assert [r.label for r in engine.shards_for(core)] == ["TP0", "TP1"]
    with pytest.raises(NotFoundError, match="TP0"):
        engine.rank("TP9")


# ---- command lines of a Python --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "argv, program",
    [
        (["python3", "-u", "-X", "dev", "-m", "a.b", "c"], ("module", "a.b", ["c"])),
        (["python3", "-ma.b"], ("module", "a.b", [])),
        (["python3", "-uBm", "a.b", "-c"], ("module", "a.b", ["-c"])),
        (["python3", "-Wignore", "x.py", "-m", "y"], ("script", "x.py", ["-m", "y"])),
        (["python3", "--", "x.py"], ("script", "x.py", [])),
        (["python3", "-c", "code", "arg"], ("code", "code", ["arg"])),
        (["python3", "-m"], None),
        (["python3"], None),
    ],
)
def test_what_a_python_runs(proc, argv, program):
    assert ProcTable(proc.root).get(1) is None
    pid = proc.add(argv)
    assert ProcTable(proc.root).get(pid).program() == program


def test_a_title_is_cut_at_the_first_nul_and_hides_no_arguments(proc):
    pid = proc.add(title="VLLM::Worker_TP0")
    process = ProcTable(proc.root).get(pid)
    assert (
        isinstance(process, Process)
        and process.single
        and process.title == "VLLM::Worker_TP0"
        and process.argv == ["VLLM::Worker_TP0"]
    )


def test_every_spec_has_a_display_name_and_roles_for_zombies():
    assert all(spec.name and spec.display for spec in ENGINES)
    assert all(len(start) <= 15 for spec in ENGINES for start, _ in spec.zombies)
