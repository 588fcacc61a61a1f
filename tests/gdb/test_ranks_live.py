"""llm-ranks on real processes that title themselves, with decoys beside them (subjects/titled.py says what is true)."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from harness.answers import answer, run

from gdbext.access.proctable import ProcTable
from gdbext.engines.discover import discover
from gdbext.engines.what import resolve

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ.get("GDBEXT_TEST_PYTHON") or sys.executable


class Subject:
    def __init__(self, folder, tree):
        self.folder, self.pids = str(folder), {}
        open(os.path.join(self.folder, "run"), "w").close()
        argv = [PYTHON, os.path.join(HERE, "subjects", "titled.py"), self.folder, json.dumps(tree), " " * 200]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, start_new_session=True
        )  # zombies of other tests are not its kin
        self._wait(tree)

    def _wait(self, tree):
        path = os.path.join(self.folder, tree["name"] + ".json")
        end = time.monotonic() + 120
        while not os.path.exists(path):
            assert time.monotonic() < end, f"{tree['name']} did not start"
            time.sleep(0.02)
        with open(path) as f:
            truth = json.load(f)
        self.pids[tree["name"]] = truth["pid"]
        self.pids.update(truth["started"])
        for child in tree.get("children", ()):
            if "argv" not in child:
                self._wait(child)

    def ranks(self, **how):
        """The list, without what else runs on this machine."""
        mine = set(self.pids.values())
        return [r for r in discover(**how)[0] if r.pid in mine]

    def labels(self, **how):
        names = {pid: name for name, pid in self.pids.items()}
        return {names[r.pid]: r.label for r in self.ranks(**how)}

    def close(self):
        os.unlink(os.path.join(self.folder, "run"))
        for pid in self.pids.values():
            for number in (signal.SIGKILL, signal.SIGCONT):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
        self.process.wait()


@pytest.fixture
def subject(tmp_path):
    started = []

    def start(tree):
        started.append(Subject(tmp_path, tree))
        return started[-1]

    yield start
    for one in started:
        one.close()


def state(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(")")[2].split()[0]


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def engine(tp=2, decoys=()):
    workers = [{"name": f"w{t}", "title": f"VLLM::Worker_TP{t}"} for t in range(tp)]
    return {
        "name": "main",
        "title": None,
        "children": [{"name": "core", "title": "VLLM::EngineCore", "children": workers}, *decoys],
    }


def decoys():
    sleeper = shutil.which("sleep")
    return [
        {"name": "d1", "argv": ["VLLM::Worker_TP0", "150"], "executable": sleeper},
        {"name": "d2", "argv": ["bash", "-c", "sleep 150; : VLLM::Worker_TP0 vllm serve x"]},
        {"name": "d3", "argv": ["PYTHON", "-c", "import time; time.sleep(150)", "VLLM::Worker_TP0"]},
        {"name": "d4", "argv": ["tail", "-f", "/dev/null", "VLLM::EngineCore"]},
        {"name": "d5", "argv": ["VLLM::EngineCore", "-c", "import time; time.sleep(150)"], "executable": PYTHON},
    ]


def test_titled_processes_are_listed_and_decoys_are_not(subject):
    tree = subject(engine(decoys=decoys()))
    assert tree.labels() == {"main": "frontend", "core": "EngineCore", "w0": "TP0", "w1": "TP1"}
    ranks = tree.ranks()
    assert resolve("VLLM::Worker_TP1", ranks)[0].pid == tree.pids["w1"]
    assert [r.ppid for r in ranks] == [os.getpid(), tree.pids["main"], tree.pids["core"], tree.pids["core"]]
    assert all(not r.marks and r.process.rss > 1 << 20 and r.process.threads >= 1 and 0 <= r.process.age < 600 for r in ranks)


def test_workers_outlive_their_engine_core_as_orphans_of_one_family(subject):
    tree = subject(engine())
    os.kill(tree.pids["core"], signal.SIGKILL)
    until(lambda: state(tree.pids["core"]) == "Z" and ProcTable().get(tree.pids["w0"]).ppid != tree.pids["core"])
    found = {r.pid: r for r in tree.ranks()}
    assert [found[tree.pids[w]].orphan for w in ("w0", "w1")] == [True, True]
    dead = found[tree.pids["core"]]
    assert len({r.family for r in found.values()}) == 1
    assert (dead.label, dead.zombie, "crashed" in dead.marks) == ("EngineCore", True, True) and "killed by signal 9" in dead.notes


def test_a_stopped_rank_is_marked_until_it_goes_on(subject):
    tree = subject(engine())
    pid = tree.pids["w1"]
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state(pid) == "T")
    assert [r.stopped for r in tree.ranks() if r.pid == pid] == [True]
    os.kill(pid, signal.SIGCONT)
    until(lambda: state(pid) != "T")
    assert [r.stopped for r in tree.ranks() if r.pid == pid] == [False]


def test_a_zombie_worker_keeps_its_role_and_no_rank(subject):
    tree = subject(engine())
    os.kill(tree.pids["w0"], signal.SIGSEGV)
    until(lambda: state(tree.pids["w0"]) == "Z")
    rank = [r for r in tree.ranks() if r.pid == tree.pids["w0"]][0]
    assert (rank.role, rank.ranks, rank.zombie) == ("worker", {}, True)
    assert any(n.startswith("killed by signal 11") for n in rank.notes)


def test_processes_that_end_while_we_look_are_no_error(subject):
    tree = subject(engine())
    short = [subprocess.Popen(["sleep", "0.0" + str(n % 10)]) for n in range(40)]
    for _ in range(20):
        assert set(tree.labels().values()) == {"frontend", "EngineCore", "TP0", "TP1"}
    for process in short:
        process.wait()


def test_the_rank_in_memory_wins_over_a_title_that_lies(subject):
    tree = engine()
    for n, worker in enumerate(tree["children"][0]["children"]):
        worker["groups"] = {"_WORLD": [1 - n, 1 - n, 2], "_TP": [1 - n, 1 - n, 2], "_PP": [1 - n, 0, 1]}
    tree = subject(tree)
    assert tree.labels()["w0"] == "TP0"
    found = {r.pid: r for r in tree.ranks(verify=True)}
    one, other = found[tree.pids["w0"]], found[tree.pids["w1"]]
    assert (one.label, one.ranks, one.rank_source) == ("TP1", {"tp": 1, "world": 1, "pp": 0}, "memory")
    assert (other.label, other.ranks["tp"]) == ("TP0", 0) and "title says TP0, memory TP1" in one.notes
    assert found[tree.pids["core"]].rank_source == "title", "its Python holds no engine"


@pytest.mark.parametrize("numbers", [[0, 10**40, 2], [0, "x", 2], [0, -5, 2], [0, 3, 2], [0, None, 2]])
def test_nonsense_in_memory_leaves_the_title_and_is_said(subject, numbers):
    tree = engine(tp=1)
    tree["children"][0]["children"][0]["groups"] = {"_TP": numbers}
    tree = subject(tree)
    rank = [r for r in tree.ranks(verify=True) if r.pid == tree.pids["w0"]][0]
    assert (rank.label, rank.ranks["tp"], rank.rank_source) == ("TP0", 0, "title")
    assert any("not read from memory" in n and "\n" not in n for n in rank.notes)


def test_a_custom_prefix_is_believed_only_when_memory_knows_the_engine(subject):
    tree = subject(
        {
            "name": "main",
            "title": None,
            "children": [
                {"name": "real", "title": "acme::Worker_TP1", "groups": {"_WORLD": [1, 1, 2], "_TP": [1, 1, 2]}},
                {"name": "other", "title": "ray::Worker"},
            ],
        }
    )
    assert tree.labels() == {"main": "EngineCore", "real": "TP1"}, "a worker's untitled parent runs the engine core itself"
    assert [(r.rank_source, r.ranks["world"]) for r in tree.ranks() if r.role == "worker"] == [("memory", 1)]


def test_rtp_llm_world_rank_survives_its_title_in_memory(subject):
    tree = subject(
        {
            "name": "backend",
            "title": "rtp_llm_backend_server",
            "children": [
                {"name": f"r{n}", "title": f"rtp_llm_rank-{n}", "modules": ["rtp_llm"], "environ": {"WORLD_RANK": str(8 + n)}}
                for n in range(2)
            ],
        }
    )
    found = {r.pid: r for r in tree.ranks(verify=True)}
    for n in range(2):
        rank = found[tree.pids[f"r{n}"]]
        assert (rank.label, rank.ranks, rank.rank_source) == (f"rank-{n}", {"local": n, "world": 8 + n}, "memory")


def test_every_rank_of_many_is_found_by_its_title(subject):
    tree = subject(engine(tp=8))
    assert [r.label for r in tree.ranks()] == ["frontend", "EngineCore"] + [f"TP{t}" for t in range(8)]
    assert [r.ranks["world"] for r in tree.ranks()[2:]] == list(range(8))


def test_a_place_of_an_unattached_process_is_named_with_that_process(subject, gdb):
    tree = engine(tp=1)
    tree["children"][0]["children"][0]["defines"] = ["only_the_worker_has_this"]
    one = subject(tree)
    core, worker = one.pids["core"], one.pids["w0"]
    said = gdb(["llm-ranks", f"llm-attach -libraries none {core}", "pybreak only_the_worker_has_this", f"shell kill -9 {worker}"])
    assert f"only_the_worker_has_this is in TP0 (pid {worker}), which is not attached: llm-attach TP0 first" in said.outputs[2]


def test_a_process_that_has_ended_since_the_list_is_said_to_have_ended(subject, gdb):
    one = subject(engine(tp=2))
    worker = one.pids["w1"]
    code = "RANKS = json.loads(gdb.execute('llm-ranks -json', to_string=True))['ranks']"
    said = gdb(
        [
            f"python import json; {code}; I = next(r['index'] for r in RANKS if r['pid'] == {worker})",
            f"shell kill -9 {worker}; kill -9 {one.pids['core']}; sleep 0.5",
            "python gdb.execute('pybt -on %d' % I)",
            "python print(I)",
            f"pybt -on {worker}",
        ]
    )
    for text in (said.outputs[2], said.outputs[4]):  # in other words where its parent has not waited for it
        assert re.search(rf"\b{worker}\)?,? (which )?has ended", text), said.text


def test_two_engines_that_do_the_same_have_two_trees_of_stacks(tmp_path):
    titles = {"a": "VLLM::Worker_TP", "b": "sglang::scheduler_TP"}
    found = []
    try:
        for name, title in titles.items():
            folder = tmp_path / name
            folder.mkdir()
            ranks = [{"name": f"{name}{t}", "title": f"{title}{t}"} for t in range(2)]
            found.append(Subject(folder, {"name": name, "title": None, "children": ranks}))
        pids = [sorted(one.pids[f"{name}{t}"] for t in range(2)) for name, one in zip(titles, found)]
        where = " ".join(str(pid) for two in pids for pid in two)
        said = answer(f"llm-stacks {where} -json")
        mains = [(g["engine"], m["pid"]) for g in said["groups"] for m in g["members"] if m["tid"] == m["pid"]]
        assert sorted(mains) == sorted([("vllm", pid) for pid in pids[0]] + [("sglang", pid) for pid in pids[1]])
        assert all(len({m["pid"] in pids[0] for m in g["members"]}) == 1 for g in said["groups"])
        text = run(f"llm-stacks {where}").to_text().splitlines()
        assert "vllm:" in text and "sglang:" in text and sum("TP0-1" in line for line in text) >= 2
    finally:
        for one in found:
            one.close()
