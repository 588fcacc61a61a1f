"""vLLM's model runner V2, release by release: its own RequestState, BlockTables and sampler states beside the release's own
scheduler, read through /proc; faults and their twins; the same with tables in memory that is a GPU's."""

import functools
import json

import pytest
from harness.gdb_run import run_gdb
from harness.releases import vllm_of
from harness.subjects import SUBJECTS

from gdbext.access.proc import ProcTarget
from gdbext.answers import kv as shapes
from gdbext.cpython.expressions import evaluate
from gdbext.cpython.runtime import open_runtime
from gdbext.engines.vllm import kv, kv_worker, kv_worker_v2
from gdbext.kvcache import invariants

RELEASES = [
    *[
        (version, "full")
        for version in ("0.12.0", "0.13.0", "0.14.0", "0.16.0", "0.18.0", "0.20.2", "0.22.0", "0.24.0", "0.26.0")
    ],
    *[(version, "hybrid") for version in ("0.20.2", "0.26.0")],
    *[(version, "draft") for version in ("0.13.0", "0.14.0", "0.18.0", "0.22.0", "0.26.0")],
    *[("installed", kind) for kind in ("full", "draft")],
]


@pytest.fixture(scope="module")
def folder_of(torch_python):
    """version -> (folder of the package, version)"""

    return functools.cache(lambda version: vllm_of(version, torch_python))


@pytest.mark.parametrize("version,kind", RELEASES)
@pytest.mark.drawn(6)
def test_every_row_is_as_it_says_of_itself_and_faults_are_found(forked, folder_of, version, kind):
    with forked("vllm_v2_worker.py", *folder_of(version), kind) as said:
        target = ProcTarget(said["pid"])
        rt = open_runtime(target)
        frame = next(f for f in rt.frames(rt.threads()[0]) if f.function == "main")
        cache = kv.read(rt)
        assert {r.request_id for r in cache.requests if r.queue == "running"} == set(said["running"]) == set(said["rows"])
        drafts = {r.request_id: r.draft_tokens for r in cache.requests}
        assert drafts == {name: one["draft_tokens"] for name, one in said["requests"].items()}
        assert not kind == "draft" or any(drafts[name] for name in said["rows"])
        for name, expected in said["expected"].items():
            runner = evaluate(rt, f"runners[{name!r}]", frame)
            worker = kv_worker.read_worker(rt, runner, "it", None)
            report = invariants.check(cache, [worker])
            first = [[v.rule, v.request_id] for v in report.violations[:1]]
            assert first == ([expected] if expected else []), f"{name}: {[v.detail for v in report.violations]}"
            if name == "sound":
                same_as_said(worker, report, said)
                for request, true in said["rows"].items():
                    row = kv_worker_v2.sampling_of(runner, request)
                    assert {k: row[k] for k in true["sampling"]} == true["sampling"] and row["row"] == true["row"]
            if name == "device":
                on_the_device(worker, report, said)
            else:
                assert report.ranks == ["it"], name
        target.close()


def same_as_said(worker, report, said):
    """Every row, count and block of a `Worker`, and that all of them were compared."""
    for name, true in said["rows"].items():
        row = worker.rows[name]
        counts = {k: getattr(row, k) for k in ("row", "prompt", "prefill", "computed", "total")}
        assert counts == {k: true[k] for k in counts} and {str(g): n for g, n in row.blocks.items()} == true["blocks"]
        assert [dict(table.rows)[name] for table in worker.tables] == true["tables"]
    assert set(worker.rows) == set(said["rows"]) and not worker.unread and shapes.is_sound(report, True) is True
    (compared,) = report.compared
    blocks = sum(len(t) for true in said["rows"].values() for t in true["tables"])
    groups = len(said["tables"])
    assert (compared.tables, compared.rows, compared.blocks) == (groups, groups * len(said["rows"]), blocks)
    assert compared.counts == len(said["rows"]) > 1


def on_the_device(worker, report, said):
    """Tables that nobody can read are named; what lies in host memory is compared all the same; and that is no "sound"."""
    assert not worker.tables and report.ranks == [] and shapes.is_sound(report, True) is None
    what = {one.what: one.why for one in report.not_compared}
    group = "block table of group 0" if len(worker.sizes) else "block tables"
    assert what[group] == "it is on the device (cuda:0): not compared", what
    for name, true in said["rows"].items():
        row = worker.rows[name]
        assert (row.row, row.prompt, row.prefill, row.total) == (true["row"], true["prompt"], true["prefill"], None)
        assert {str(g): n for g, n in row.blocks.items()} == (true["blocks"] if len(worker.sizes) else {})
    assert report.compared[0].counts == len(said["rows"])


def test_where_the_gpu_is_seen_its_tables_are_compared(forked, gdb_path, folder_of):
    """With a FAKE of cuda-gdb; and while a kernel runs that may still write them, they are not."""
    before = ["set auto-solib-add off", f"source {SUBJECTS}/fake_cuda_gdb.py"]
    with forked("vllm_v2_worker.py", *folder_of("0.26.0"), "full", "device") as said:
        at, device = ["-p", str(said["pid"])], {"FAKE_DEVICE": json.dumps(said["device"])}
        run = run_gdb(gdb_path, ["llm-kv check -ranks -json"], at, before=before, env=device)
        busy = run_gdb(gdb_path, ["llm-kv check -ranks -json"], at, before=before, env={**device, "FAKE_KERNEL": "post_update"})
    check = run.json(0)
    assert check["ok"] is True and check["ranks"] and not check["not_compared"] and not check["partial"], check
    rows, blocks = len(said["rows"]), sum(len(t) for true in said["rows"].values() for t in true["tables"])
    compared = [(row["rows"], row["blocks"], row["counts"]) for row in check["compared"] if row.get("tables")]
    assert compared == [(rows, blocks, rows)], check["compared"]
    check = busy.json(0)
    assert check["ok"] is None and not check["ranks"] and not check["violations"]
    assert any("1 kernel is on the device (post_update)" in one["why"] for one in check["not_compared"]), check


def test_on_a_gpu_the_command_says_what_it_compared(forked, gdb_path, folder_of):
    """As on a GPU with one rank: scheduler and worker in one process, block tables on the device."""
    with forked("vllm_v2_worker.py", *folder_of("0.26.0"), "full", "device") as said:
        commands = ["llm-kv check -ranks -json", "llm-kv check -ranks", "llm-kv check -json"]
        commands += ["pytensor -json runner.block_tables.num_blocks.gpu", "pytensor -repr runner.block_tables.num_blocks.gpu"]
        commands += ["pytensor -json runner.block_tables.block_tables[0].gpu"]
        run = run_gdb(gdb_path, commands, ["-p", str(said["pid"])], before=["set auto-solib-add off"])
    check, plain = run.json(0), run.json(2)
    assert check["ok"] is None and check["ranks"] == [] and not check["violations"], check
    assert [one["what"] for one in check["not_compared"]][0] == "total_len", check["not_compared"]
    assert any("block table of group 0: it is on the device" in reason for reason in check["partial"])
    assert check["compared"][1]["counts"] == len(said["rows"]) and check["compared"][1]["tables"] == 0
    assert "no rank's block tables were compared" in run.outputs[1] and "sound" not in run.outputs[1]
    assert plain["ok"] is True and not plain["partial"]
    host, device = run.json(3), run.json(5)
    assert host["device"] == "cuda:0" and host["in_host_memory"] and not host["unavailable"]
    assert all(str(true["blocks"]["0"]) in run.outputs[4] for true in said["rows"].values())
    assert not device["in_host_memory"] and "memory of cuda:0" in device["unavailable"]
