"""llm-stacks on real processes: the tree says what each process says of itself, idle pools fold, who is missing is named, all run
on."""

import re
import subprocess
import sys

from harness.answers import answer, run
from harness.gdb_run import run_gdb
from harness.heartbeats import busy, eventually, heartbeats
from harness.pools import pools
from harness.subjects import PYTHONS, running

from gdbext.commands import llm_stacks


def functions(group):
    return [f["function"].rpartition(".")[2] for f in group["frames"] if f["kind"] == "python"]


def test_the_groups_are_what_the_processes_say_and_pools_fold():
    for python in PYTHONS[:1] + PYTHONS[-1:]:
        with pools("a", "b", python=python) as truths:
            pids = [t["pid"] for t in truths]
            said = answer(f"llm-stacks {pids[0]},{pids[1]} -json")
            assert (said["ranks_read"], said["ranks_total"], said["failed"]) == (2, 2, []) and {
                p["pid"] for p in said["pauses"]
            } == set(pids)
            main = next(g for g in said["groups"] if functions(g) == truths[0]["stack"])
            assert sorted(m["pid"] for m in main["members"]) == sorted(pids) and all(
                m["tid"] == m["pid"] for m in main["members"]
            )
            assert main["frames"][0]["kind"] == "native" and any(
                re.search("nanosleep|select", f["function"]) for f in main["frames"]
            ), main["frames"][:4]
            idle = [g for g in said["groups"] if g["idle"]]
            assert sum(len(g["members"]) for g in idle if "_worker" in functions(g)) == 6, [functions(g) for g in said["groups"]]
            assert not any(g["idle"] for g in said["groups"] if "other" in functions(g) or "inner" in functions(g))
            assert all(g["frames"][-1]["reliable"] for g in said["groups"])


def test_a_pool_is_idle_on_a_busy_machine_too():
    """What a stop wakes is runnable until it gets a processor."""
    with busy(4), pools("a", "b", python=PYTHONS[-1]) as truths:
        for _ in range(3):
            groups = answer(f"llm-stacks {truths[0]['pid']} {truths[1]['pid']} -json")["groups"]
            assert sum(len(g["members"]) for g in groups if g["idle"] and "_worker" in functions(g)) == 6


def test_text_page_and_folded_lines_show_the_same_and_escape_names(tmp_path):
    with pools("a", "b") as truths:
        html, folded = tmp_path / "page.html", tmp_path / "lines"
        text = run(f"llm-stacks {truths[0]['pid']} {truths[1]['pid']} -html {html} -folded {folded}").to_text()
        assert f"{truths[0]['pid']}, {truths[1]['pid']}" in text or f"{truths[1]['pid']}, {truths[0]['pid']}" in text
        assert re.search(r"idle: 6 × ThreadPoolExecutor-0 in ", text) and "paused" in text and "\x1b" not in text
        page = html.read_text()
        assert "<b>evil" not in page and "\x1b" not in page and "inner" in page and "<script" not in page and "src=" not in page
        lines = folded.read_text().splitlines()
        assert sum(int(line.rpartition(" ")[2]) for line in lines) == 10 and any(
            ";inner (" in line and ";wait (" in line for line in lines
        )


def test_who_is_missing_is_named_and_the_rest_is_read(tmp_path):
    with pools("a") as truths, heartbeats(tmp_path, 1) as (beat,):
        zombie = subprocess.Popen([sys.executable, "-c", ""])
        eventually(lambda: open(f"/proc/{zombie.pid}/stat").read().split()[2] == "Z", "the zombie")
        said = answer(f"llm-stacks {truths[0]['pid']} {zombie.pid} {beat.pid} -json")
        assert (said["ranks_read"], said["ranks_total"]) == (2, 3) and [f["pid"] for f in said["failed"]] == [zombie.pid]
        assert "2 of 3 processes" in said["partial"] and "zombie" in said["failed"][0]["reason"] and beat.runs()
        zombie.wait()


def test_samples_show_who_moves():
    with pools("a", "b moving") as (still, moving):
        said = answer(f"llm-stacks {still['pid']} {moving['pid']} -samples 6 -interval 0.07 -json")
        moved = {m["pid"] for m in said["samples"]["moved"]}
        assert moving["pid"] in moved and still["pid"] not in moved and said["samples"]["still"] >= 9


def test_a_machine_too_busy_for_so_many_looks_ends_them_in_time(monkeypatch):
    monkeypatch.setattr(llm_stacks, "PATIENCE", 0.0)
    monkeypatch.setattr(llm_stacks, "PER_LOOK", 0.0)
    with pools("b moving") as (moving,):
        said = answer(f"llm-stacks {moving['pid']} -samples 500 -interval 0 -json")
    assert any(reason.startswith("2 of 500 ") for reason in said["partial"])
    assert len(said["groups"]) and "moved" in said["samples"]


def test_where_the_main_threads_part_is_said():
    with pools("a", "b", "c elsewhere") as (one, two, three):
        (said,) = answer(f"llm-stacks {one['pid']} {two['pid']} {three['pid']} -json")["common"]
        assert said["function"] == "inner" and said["reached"]["function"] == "wait"
        assert said["reached"]["ranks"] == [str(one["pid"]), str(two["pid"])] and said["not_reached"] == [str(three["pid"])]


def test_the_same_in_gdb_and_on_what_gdb_holds_and_on_a_snapshot(gdb_path, tmp_path):
    with pools("a", "b") as (one, two):
        file = tmp_path / "shot"
        answer(f"llm-snapshot {two['pid']} -max-bytes 0 -o {file} -json")
        said = run_gdb(
            gdb_path,
            [
                f"llm-stacks -json {one['pid']} {two['pid']}",
                f"llm-attach {one['pid']}",
                "llm-stacks -json",
                f"llm-stacks -json {one['pid']} {file}",
                "llm-detach",
            ],
        )
        free, attached, both = said.json(0), said.json(2), said.json(3)
        assert free["ranks_read"] == both["ranks_read"] == 2 and attached["ranks_read"] == 1
        assert len(free["pauses"]) == 2 and attached["pauses"] == both["pauses"] == []

        def mine(answer, pid):
            return sorted(
                [functions(g), sorted(m["tid"] for m in g["members"] if m["pid"] == pid)]
                for g in answer["groups"]
                if any(m["pid"] == pid for m in g["members"])
            )

        assert mine(free, one["pid"]) == mine(attached, one["pid"]) == mine(both, one["pid"])
        assert mine(free, two["pid"]) == mine(both, two["pid"])
        eventually(lambda: open(f"/proc/{one['pid']}/stat").read().rpartition(")")[2].split()[0] == "S", "it to run on")


def test_processes_run_on_while_they_are_looked_at_again_and_again(tmp_path):
    with heartbeats(tmp_path, 2) as (one, two):
        said = answer(f"llm-stacks {one.pid} {two.pid} -samples 5 -interval 0 -json")
        assert said["ranks_read"] == 2 and {p["pid"] for p in said["pauses"]} == {one.pid, two.pid}
        assert one.runs() and two.runs()


def test_threads_at_rest_are_folded_one_that_cannot_write_is_not_at_rest():
    with running(sys.executable, "resting_threads.py") as (_, truth):
        text = run(f"llm-stacks {truth['pid']}").to_text()
        groups = answer(f"llm-stacks {truth['pid']} -json")["groups"]
    assert re.search(r"idle: 3 × \w+ in \S*(futex|sem)", text) and re.search(r"idle: 2 × \w+ in \S*nanosleep", text), text
    assert [g["idle"] for g in groups for m in g["members"] if m["tid"] == truth["feeder"]] == [False]
    assert "QueueFeederThread" not in "".join(line for line in text.splitlines() if line.startswith("idle"))
