"""Answers of many machines put together: 64 made-up nodes, nodes that failed, answers that are damaged."""

import json
import subprocess
import sys

import pytest

from gdbext.commands import table
from gdbext.errors import GdbextError, NotFoundError
from gdbext.session.session import Session


def frame(level, function, kind="python"):
    return {
        "level": level,
        "kind": kind,
        "function": function,
        "file": f"{function}.py" if kind == "python" else None,
        "line": 7 if kind == "python" else None,
        "pc": None,
        "sp": None,
        "library": None if kind == "python" else "libc.so.6",
        "reliable": True,
        "locals": [],
    }


def node(number, ranks=8, threads=50, late=()):
    """The answer of one machine with `ranks` ranks; those in `late` have not come to the collective."""
    groups = {}
    for r in range(number * ranks, (number + 1) * ranks):
        for n in range(threads):
            if n == 0:
                names = ["main", "worker_main", "busy_loop", "execute"] + (["sleep"] if r in late else ["all_reduce", "wait"])
            elif n < 10:
                names = ["bootstrap", "run", f"helper{n}", "get", "wait"]
            else:
                names = ["clone", "start_thread", "loop", "futex"]
            kind = "python" if n < 10 else "native"
            group = groups.setdefault(
                tuple(names),
                {"frames": [frame(i, f, kind) for i, f in enumerate(reversed(names))], "members": [], "idle": n >= 10},
            )
            group["members"].append(
                {
                    "host": f"node{number}",
                    "label": f"TP{r}",
                    "pid": 1000 + r,
                    "tid": 1000 + r if n == 0 else 10**6 + r * 100 + n,
                    "name": "MainThread" if n == 0 else "pt_gloo_runloop",
                    "role": "worker",
                }
            )
    return {
        "schema": "llm-stacks/1",
        "partial": [],
        "groups": list(groups.values()),
        "common": [],
        "ranks_read": ranks,
        "ranks_total": ranks,
        "failed": [],
        "pauses": [{"pid": 1000 + number, "seconds": 0.001}],
    }


def merge(folder, *words):
    command = table.load("llm-stacks")
    return command().answer(Session(), command.parse(f"-merge {folder} {' '.join(words)}"))


def test_64_nodes_become_one_tree(tmp_path):
    for n in range(64):
        (tmp_path / f"node{n}.json").write_text(json.dumps(node(n, threads=12, late=(77,))))
    answer = merge(tmp_path)
    said, text = answer.data, answer.to_text()
    assert said["ranks_read"] == said["ranks_total"] == 512 and said["hosts"] == 64 and said["failed"] == []
    assert sum(len(g["members"]) for g in said["groups"]) == 512 * 12
    assert said["common"][0]["not_reached"] == ["TP77"] and len(said["common"][0]["reached"]["ranks"]) == 511
    assert "TP0-511" in text and "reached all_reduce: TP0-76,78-511; not reached: TP77" in text
    assert "idle: 1024 × pt_gloo_runloop" in text


def test_equal_labels_of_two_machines_are_told_apart(tmp_path):
    for n in (0, 1):
        answer = node(0, 2, 3)
        for group in answer["groups"]:
            for member in group["members"]:
                member["host"] = f"n{n}"
        answer["failed"], answer["ranks_total"] = [{"label": "TP2", "pid": 5, "reason": "process 5: no permission"}], 3
        (tmp_path / f"n{n}.json").write_text(json.dumps(answer))
    (tmp_path / "n2.json").write_text(
        json.dumps({"schema": "llm-stacks/1", "partial": [], "error": "no engine process is running here"})
    )
    (tmp_path / "n3.json").write_text("{broken")
    (tmp_path / "n4.json").write_text('{"schema": "llm-kv/1"}')
    (tmp_path / "n5.json").write_text('{"schema": "llm-stacks/1", "groups": [{"frames": [{}]}]}')
    answer = merge(tmp_path)
    assert {m["label"] for g in answer.data["groups"] for m in g["members"]} == {"n0:TP0", "n0:TP1", "n1:TP0", "n1:TP1"}
    assert {f["label"] for f in answer.data["failed"]} == {"n0: TP2", "n1: TP2", "n2", "n3", "n4", "n5"} and answer.data[
        "ranks_total"
    ] == 6
    assert "4 of 6 processes" in answer.partial and "no permission" in answer.to_text()


def test_a_page_and_folded_lines_of_many_machines(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(node(0)))
    merge(tmp_path, "-html", str(tmp_path / "p.html"), "-folded", str(tmp_path / "p.folded"))
    assert "all_reduce" in (tmp_path / "p.html").read_text()
    assert sum(int(line.rpartition(" ")[2]) for line in (tmp_path / "p.folded").read_text().splitlines()) == 400


def test_folders_without_answers_give_one_clear_line(tmp_path):
    with pytest.raises(NotFoundError, match="no \\*.json"):
        merge(tmp_path)
    with pytest.raises(GdbextError, match="name the folder"):
        merge(tmp_path / "nowhere")
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(GdbextError, match="no process could be read"):
        merge(tmp_path)


def test_without_ray_one_line_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "ray.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    command = table.load("llm-stacks")
    with pytest.raises(GdbextError, match="engine's own Python") as e:
        command().answer(Session(), command.parse("-ray"))
    assert "\n" not in str(e.value)


def test_a_file_counts_under_its_own_name_whatever_host_it_claims(tmp_path):
    for name, claims in (("good", "good"), ("liar", "good"), ("several", "good")):
        said = json.loads(json.dumps(node(0, 1, 1)).replace("node0", claims))
        if name == "several":
            said["groups"][0]["members"].append({**said["groups"][0]["members"][0], "host": "liar", "tid": 7})
        (tmp_path / f"{name}.json").write_text(json.dumps(said))
    found = merge(tmp_path).data
    hosts = {m["host"] for group in found["groups"] for m in group["members"]}
    assert hosts == {"good", "liar", "several/good", "several/liar"} and found["hosts"] == 4
    labels = [m["label"] for group in found["groups"] for m in group["members"]]
    assert sorted(labels) == ["good:TP0", "liar:TP0", "several/good:TP0", "several/liar:TP0"]


def test_the_command_line_that_a_launcher_carries(tmp_path, root):
    (tmp_path / "a.json").write_text(json.dumps(node(3, 2, 2)))
    done = subprocess.run(
        [sys.executable, "-m", "gdbext", "stacks", "--merge", str(tmp_path), "--json"],
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["schema"] == "llm-stacks/1" and json.loads(done.stdout)["ranks_read"] == 2


def test_a_node_with_a_strange_answer_is_named_and_the_others_stand():
    command = table.load("llm-stacks")
    answer = command().merge(
        command.parse("ssh:a ssh:b"), [("ssh:a", node(0)), ("ssh:b", {"schema": "llm-kv/1"}), ("ssh:c", [])], []
    )
    assert answer.data["ranks_read"] == node(0)["ranks_read"]
    assert {f["label"]: f["reason"] for f in answer.data["failed"]} == {
        name: f"{name}: no answer of llm-stacks -json" for name in ("ssh:b", "ssh:c")
    }
