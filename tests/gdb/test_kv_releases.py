"""Older vLLM releases: each one's own scheduler and KV-cache classes at work in a process, read through /proc and from
a core.

The sources come from scripts/get-releases; what a release imports besides its V1 core is a stub (subjects/older_engine.py).
"""

import os
import sys

import pytest
from harness.gdb_run import run_gdb
from harness.looks import listed
from harness.releases import release, vllm_of
from harness.subjects import spawned

from gdbext.access.proc import ProcTarget
from gdbext.cpython.expressions import evaluate
from gdbext.cpython.runtime import open_runtime
from gdbext.engines.sglang import kv as sglang_kv
from gdbext.engines.vllm import kv as vllm_kv
from gdbext.engines.vllm import kv_hashes
from gdbext.errors import NotFoundError
from gdbext.kvcache import invariants, model

SUBJECTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subjects")
V1 = ["0.6.6.post1", "0.7.3", "0.8.5", "0.9.2", "0.10.2", "0.11.2", "0.16.0", "0.20.2", "0.24.0"]

# allocate_slots of 0.6.6 counts a reference to each block of the prefix before it finds that the rest does not fit, and never
# takes it back: each step in which a request waits for blocks leaks two references. A fault of that release, mended in 0.7.
LEAKS = {"0.6.6.post1": [("ref-above-owners", 0), ("ref-above-owners", 1)]}


def compare(cache, said, faults=()):
    """A `Cache` against what a vLLM V1 subject says of itself. `faults`: [(rule, block)] that are to be found."""
    assert len(cache.pools) == len(said["pools"])
    for number, (pool, true) in enumerate(zip(cache.pools, said["pools"])):
        assert (
            (pool.size, pool.count) == (true["size"], true["size"])
            and pool.walk().order == true["free"]
            and pool.walk().fault is None
        )
        assert pool.ref_cnt == true["ref_cnt"] and pool.cached() == true["hashed"]
        counts = model.summary(cache, number)
        assert counts["free"] == len(true["free"]) and counts["used"] + counts["free"] + counts["reserved"] == true["size"]
    requests = {r.request_id: r for r in cache.requests}
    for group, tables in enumerate(said["tables"]):
        assert {name: r.blocks[group] for name, r in requests.items() if group in r.blocks} == tables
    assert [r.request_id for r in cache.requests if r.queue == "running"] == said["running"]
    assert [r.request_id for r in cache.requests if r.queue == "waiting"] == said["waiting"]
    for name, true in said["requests"].items():
        assert {k: getattr(requests[name], k) for k in true} == true, name
    report = invariants.check(cache)
    assert [(v.rule, v.block) for v in report.violations] == list(faults) and report.transient == [], [
        v.detail for v in report.violations
    ]


def read(pid, again=False):
    """`again`: the requests were read before, and only what they hold is read."""
    target = ProcTarget(pid)
    try:
        rt = open_runtime(target)
        return vllm_kv.fill(rt, vllm_kv.find_scheduler(rt), listed(rt, "vllm")) if again else vllm_kv.read(rt)
    finally:
        target.close()


@pytest.mark.drawn(5)
@pytest.mark.parametrize("version", V1)
def test_a_release_reads_as_it_says_of_itself(forked, version):
    with forked("vllm_release.py", release("vllm", version), version) as said:
        cache = read(said["pid"])
        assert cache.version == version
        assert any(r["status"] == "PREEMPTED" for r in said["requests"].values()) and any(
            n > 1 for n in said["pools"][0]["ref_cnt"]
        )
        assert cache.pools[0].block_size == cache.groups[0].block_size == 16
        compare(cache, said, LEAKS.get(version, ()))
        compare(read(said["pid"], again=True), said, LEAKS.get(version, ()))
        waiting = [r for r in cache.requests if r.queue == "waiting"]
        assert (
            waiting[0].blocked_by.startswith("blocks: needs")
            and waiting[1].blocked_by == f"queue: behind {waiting[0].request_id}"
        )


@pytest.mark.drawn(4)
@pytest.mark.parametrize("version", ["0.10.2", "0.11.2", "0.24.0", "installed"])
@pytest.mark.parametrize("kind", ["keys", "stale"])
def test_hashes_of_requests_with_a_salt_or_an_adapter(forked, installed, version, kind):
    folder, version = installed if version == "installed" else (release("vllm", version), version)
    with forked("vllm_release.py", folder, version, kind) as said:
        target = ProcTarget(said["pid"])
        rt = open_runtime(target)
        found = kv_hashes.check(rt, vllm_kv.read(rt))
        target.close()
    assert (found.function, found.left_out, found.unread, found.why) == ("sha256", 0, 0, "") and found.checked > 10
    assert {name for name, _, _ in found.wrong} == ({"req-d"} if kind == "stale" else set()), found.wrong


@pytest.mark.drawn(3)
@pytest.mark.parametrize("version", ["0.16.0", "0.24.0", "installed"])
@pytest.mark.parametrize("kind", ["cut", "cut-unsaid"])
def test_the_hash_of_what_a_connector_cut_is_no_fault(forked, installed, version, kind):
    folder, version = installed if version == "installed" else (release("vllm", version), version)
    with forked("vllm_release.py", folder, version, kind) as said:
        target = ProcTarget(said["pid"])
        found = kv_hashes.check(open_runtime(target), vllm_kv.read(open_runtime(target)))
        target.close()
    assert {name for name, _, _ in found.wrong} == ({said["cut"]} if kind == "cut-unsaid" else set()), found.wrong
    assert found.checked > 10


@pytest.mark.parametrize("kind", ["lent", "lent-unsaid"])
def test_a_page_that_hisparse_lends_is_no_fault(forked, installed, kind):
    with forked("vllm_release.py", *installed, kind) as said:
        report = invariants.check(read(said["pid"]))
    found = [(v.rule, v.block) for v in report.violations]
    assert found == ([("free-owned", said["cut"])] if kind == "lent-unsaid" else [])
    assert "free-owned" in report.rules


@pytest.fixture(scope="module")
def installed(torch_python):
    """(folder of the vLLM that the environment has, its version)"""
    return vllm_of("installed", torch_python)


KINDS = {"none": ["full"], "hybrid": ["full", "sliding-window"], "mamba": ["full", "mamba"], "pools": ["full", "full"]}


@pytest.mark.parametrize(
    "version,kind",
    [
        ("0.10.2", "none"),
        ("0.10.2", "hybrid"),
        ("0.16.0", "mamba"),
        ("0.24.0", "hybrid"),
        ("", "full"),
        ("", "none"),
        ("", "hybrid"),
        ("", "mamba"),
        ("", "pools"),
    ],
)
@pytest.mark.drawn(4)
def test_groups_pools_and_no_prefix_cache(forked, installed, version, kind):
    folder, version = (release("vllm", version), version) if version else installed
    with forked("vllm_release.py", folder, version, kind) as said:
        cache = read(said["pid"])
        assert [g.kind for g in cache.groups] == KINDS.get(kind, ["full"])
        assert len(cache.pools) == (2 if kind == "pools" else 1)
        if kind in ("hybrid", "mamba"):  # blocks outside the window are the null block in the table, and nobody's
            assert any(0 in table for tables in said["tables"] for table in tables.values()) and 0 not in cache.owners(0)
        if kind == "none":
            assert cache.pools[0].cached() == []
        compare(cache, said)


@pytest.mark.parametrize("version,kind", [("0.8.5", "full"), ("0.10.2", "hybrid")])
def test_a_core_says_the_same(forked, gdb_path, tmp_path, version, kind):
    commands = [
        "llm-kv -json",
        "llm-kv check -json",
        "llm-requests -json",
        "llm-kv free -json",
        "llm-kv map -json",
        "llm-kv request req-a -json",
    ]
    core = str(tmp_path / "core")
    with forked("vllm_release.py", release("vllm", version), version, kind) as said:
        live = run_gdb(
            gdb_path, commands + [f"gcore {core}"], ["-p", str(said["pid"])], before=["set auto-solib-add off"], timeout=200
        )
    dead = run_gdb(gdb_path, commands, ["-c", core], before=["set auto-solib-add off"], timeout=200)
    for index, command in enumerate(commands):
        one, other = live.json(index), dead.json(index)
        for answer in (one, other):
            answer.pop("partial")
            for request in answer.get("requests", ()):
                request.pop("age", None)
        assert one == other, command
    assert dead.json(0)["version"] == version and dead.json(1)["ok"] and dead.json(3)["order"] == said["pools"][0]["free"]
    assert dead.json(5)["request"]["tables"] == {str(g): tables["req-a"] for g, tables in enumerate(said["tables"])}


V0 = """
import os, sys, threading, types
sys.modules["vllm"] = types.ModuleType("vllm")
class Scheduler:
    block_manager = types.SimpleNamespace(block_tables={})
    def schedule(self):
        print("{}", flush=True)
        threading.Event().wait()
Scheduler().schedule()
"""


def test_a_scheduler_of_v0_is_refused_by_name():
    with spawned([sys.executable, "-c", V0], ready="{") as process:
        target = ProcTarget(process.pid)
        with pytest.raises(NotFoundError, match="V0"):
            vllm_kv.read(open_runtime(target))
        target.close()


@pytest.mark.parametrize("version", ["0.10.2", ""])
def test_faults_of_managers_and_requests_are_found(forked, installed, version):
    folder, version = (release("vllm", version), version) if version else installed
    with forked("kv_faults.py", folder, version) as said:
        target = ProcTarget(said["pid"])
        rt = open_runtime(target)
        frame = next(f for f in rt.frames(rt.threads()[0]) if f.function == "main")  # it may be on its way out of what says so
        assert {True, False} == {bool(expected) for expected in said["expected"].values()}
        for name, expected in said["expected"].items():
            report = invariants.check(vllm_kv.read(rt, evaluate(rt, f"schedulers[{name!r}]", frame)))
            first = [[v.rule, v.block, v.request_id] for v in report.violations[:1]]
            assert first == ([expected] if expected else []), (
                f"{name}: {[(v.rule, v.block, v.request_id, v.detail) for v in report.violations[:4]]}"
            )
        target.close()


# functions that change pool and tables, and after how many of their lines to stop
STOPS = [
    "block_pool.py:get_new_blocks:9",
    "block_pool.py:touch:4",
    "block_pool.py:free_blocks:4",
    "kv_cache_utils.py:popleft_n:9",
    "kv_cache_utils.py:append_n:5",
    "kv_cache_utils.py:remove:6",
    "single_type_kv_cache_manager.py:allocate_new_blocks:5",
]


@pytest.mark.drawn(6)
@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_in_the_middle_of_an_update_is_said_and_is_no_fault(forked, installed, stop):
    with forked("kv_faults.py", *installed, stop) as said:
        cache = read(said["pid"])
        report = invariants.check(cache)
        assert stop.split(":")[1] in cache.mid_update and report.violations == [], [(v.rule, v.detail) for v in report.violations]


SGLANG = ["0.4.3.post4", "0.4.9", "0.5.3", "0.5.9", "0.5.16"]


@pytest.mark.drawn(3)
@pytest.mark.parametrize("version", SGLANG)
def test_sglang_pools_and_radix_caches_whole_and_broken(forked, version):
    with forked("sglang_release.py", release("sglang", version), version) as said:
        target = ProcTarget(said["pid"])
        rt = open_runtime(target)
        frame = next(f for f in rt.frames(rt.threads()[0]) if f.function == "main")  # it may be on its way out of what says so
        cache = sglang_kv.read(rt)
        pool = cache.pools[0]
        assert (
            cache.version == version
            and pool.free_ids == said["free"]
            and pool.cached_ids == said["cached"]
            and cache.rows["free"] == said["free_rows"]
        )
        filled = sglang_kv.fill(rt, sglang_kv.find_scheduler(rt), listed(rt, "sglang"))
        for read in (cache.requests, filled.requests):
            assert {r.request_id: r.slots for r in read if r.slots} == said["tables"]
            assert [r.request_id for r in read if r.queue == "waiting"] == said["waiting"]
        assert (pool.tree.evictable, pool.tree.protected, len(pool.tree.nodes)) == (
            said["evictable"],
            said["protected"],
            said["nodes"],
        )
        for name, expected in said["expected"].items():
            report = invariants.check(sglang_kv.read(rt, evaluate(rt, f"schedulers[{name!r}]", frame)))
            first = [[v.rule, v.block] for v in report.violations[:1]]
            assert first == ([expected] if expected else []), (
                f"{name}: {[(v.rule, v.block, v.detail) for v in report.violations[:4]]}"
            )
        target.close()


def test_content_only_when_asked_for_and_a_picture(forked, gdb_path, tmp_path):
    picture = str(tmp_path / "map.png")
    commands = [
        "llm-requests -json",
        "llm-requests -show-content -json",
        "llm-kv request req-a -json",
        "llm-kv request req-a -show-content -json",
        "llm-kv map -json",
        f"llm-kv map -plot {picture}",
        "llm-kv block 1",
        "llm-kv zork",
    ]
    with forked("vllm_release.py", release("vllm", "0.24.0"), "0.24.0") as said:
        got = run_gdb(gdb_path, commands, ["-p", str(said["pid"])], before=["set auto-solib-add off"])
    assert (
        "content" not in got.outputs[0] and "content" not in got.outputs[2] and "101, 102" not in got.outputs[0] + got.outputs[2]
    )
    tokens = list(range(100, 132)) + [ord("a")] * 20
    output = [7] * said["requests"]["req-a"]["output_tokens"]
    for content in (
        next(r for r in got.json(1)["requests"] if r["request_id"] == "req-a")["content"],
        got.json(3)["request"]["content"],
    ):
        assert content == {"prompt_token_ids": tokens, "output_token_ids": output}
    cells = got.json(4)["maps"][0]["cells"]
    assert [i for i, c in enumerate(cells) if c in ".o"] == sorted(said["pools"][0]["free"])
    assert [i for i, c in enumerate(cells) if c == "*"] == [i for i, n in enumerate(said["pools"][0]["ref_cnt"]) if n > 1]
    if os.path.exists(picture):
        with open(picture, "rb") as f:
            assert f.read(8) == b"\x89PNG\r\n\x1a\n"
    else:  # gdb's Python has no matplotlib here
        assert "-plot needs matplotlib" in got.outputs[5] and got.outputs[5].count("\n") == 0
    assert "req-a: group 0, place 0 (tokens 0-15)" in got.outputs[6]
