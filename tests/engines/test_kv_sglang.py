"""SGLang's own pools of pages, sliding windows, Mamba states and host memory, with its Python tree: read as they say of
themselves, broken by hand, and stopped in the middle of an update (sglang_objects.py)."""

import contextlib
import json
import os
import signal
import subprocess

import pytest
from harness import renames
from harness.looks import listed
from tools.engines import _environ
from tools.environments import existing

from gdbext.access.proc import ProcTarget
from gdbext.cpython.expressions import evaluate
from gdbext.cpython.runtime import open_runtime
from gdbext.engines import kv_view
from gdbext.engines.sglang import kv as sglang_kv
from gdbext.errors import ContradictionError
from gdbext.kvcache import invariants

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture(scope="module")
def maker(request):
    """The process that has SGLang imported and makes others of itself. Where other tests ask for the engine, it starts
    meanwhile."""
    python = existing("sglang")
    if not python:
        pytest.skip("no environment for sglang: run scripts/test engines, which makes it")
    if any("sglang" in item.fixturenames for item in request.session.items):
        request.getfixturevalue("running").begin("sglang")
    environ = _environ(SGLANG_USE_CPU_ENGINE="1", TORCHDYNAMO_DISABLE="1", OMP_NUM_THREADS="1")
    child = subprocess.Popen(
        [python, os.path.join(HERE, "sglang_objects.py")], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield child
    child.kill()
    child.communicate()


@contextlib.contextmanager
def objects(maker, wanted):
    """-> (the Runtime of a process with those objects, what it says)"""
    maker.stdin.write(wanted + "\n")
    maker.stdin.flush()
    said = next((json.loads(line) for line in maker.stdout if line.startswith("{")), {"error": "it ended"})
    assert "error" not in said, said["error"]
    target = ProcTarget(said["pid"])
    try:
        yield open_runtime(target), said
    finally:
        target.close()
        os.kill(said["pid"], signal.SIGKILL)


@pytest.mark.parametrize("variant", ["paged", "window", "window-pages", "mamba", "host"])
def test_sglang_variants_read_as_they_say_and_faults_are_named(maker, variant):
    with objects(maker, variant) as (rt, said):
        cache = sglang_kv.read(rt)
        assert cache.mid_update == "" and [p.name for p in cache.pools] == list(said["pools"])
        for pool, true in zip(cache.pools, said["pools"].values()):
            assert (pool.size, sorted(pool.free_ids), pool.cached_ids) == (true["size"], true["free"], true["cached"]), pool.name
            assert (pool.counters["available"], len(pool.tree.nodes)) == (true["available"], true["nodes"])
            assert true["sizes"] in (None, [pool.tree.evictable, pool.tree.protected])
        filled = sglang_kv.fill(rt, sglang_kv.find_scheduler(rt), listed(rt, "sglang"))
        for read in (cache.requests, filled.requests):
            held = {r.request_id: {str(g): b for g, b in r.blocks.items()} for r in read if r.queue == "running"}
            assert held == said["tables"] and [r.request_id for r in read if r.queue == "waiting"] == ["req-d"]
        frame = next(f for f in rt.frames(rt.threads()[0]) if f.function == "whole_and_broken")
        for name, expected in said["expected"].items():
            report = invariants.check(sglang_kv.read(rt, evaluate(rt, f"schedulers[{name!r}]", frame)))
            first = [[v.rule, v.block, v.pool] for v in report.violations[:1]]
            assert first == ([expected] if expected else []), (
                f"{name}: {[(v.rule, v.block, v.pool, v.detail) for v in report.violations[:4]]}"
            )
            assert report.transient == []


STOPS = [
    "paged alloc_extend:12",
    "paged free_segment:3",
    "paged insert:4",
    "paged _evict:4",
    "window alloc:7",
    "window free:4",
    "window _free_swa_pages:6",
    "window-pages alloc_extend:14",
    "mamba _do_alloc:4",
    "mamba inc_lock_ref:2",
    "window _evict:4",
]


@pytest.mark.parametrize("stop", STOPS)
def test_sglang_stopped_in_the_middle_of_an_update_is_no_fault(maker, stop):
    with objects(maker, stop) as (rt, _):
        cache = sglang_kv.read(rt)
        report = invariants.check(cache)
        assert stop.split()[1].partition(":")[0] in cache.mid_update and report.violations == [], [
            (v.rule, v.detail) for v in report.violations
        ]


def test_sglang_at_work_is_not_said_to_have_lost_slots(maker):
    with objects(maker, "mamba moves") as (rt, _):

        def again():
            rt.target.invalidate()
            view = kv_view.View(rt.target)
            view.unstopped(rt.target)
            return view

        moved = 0
        for _ in range(20):
            try:
                moved += bool(again().cache().mid_update)
                report = kv_view.check(again(), again, False)[0]
            except ContradictionError:  # starved of CPU between two reads each time: said, and no fault of it
                moved += 1
            else:
                assert "slots-lost" not in {v.rule for v in report.violations}, [v.detail for v in report.violations]
        assert moved


def test_sglang_at_work_is_read_while_nodes_of_its_tree_go(maker):
    with objects(maker, "paged grows") as (rt, said):

        def again():
            rt.target.invalidate()
            view = kv_view.View(rt.target)
            view.unstopped(rt.target)
            return view

        for _ in range(3):
            cache = again().cache(as_read=True)
            assert cache.mid_update and len(cache.pools[0].tree.nodes) > said["nodes"] // 2
        report = kv_view.check(again(), again, False)[0]
        assert not report.violations, [(v.rule, v.detail) for v in report.violations[:4]]


@pytest.mark.parametrize("variant,slot", [("paged", 1), ("window", 0), ("window-pages", 1)])
def test_sglang_values_of_a_block_by_part_and_where_they_lie(maker, variant, slot):
    numpy = pytest.importorskip("numpy")
    from gdbext.torch import arrays, stats

    with objects(maker, variant) as (rt, said):
        layers = {layer.index: layer for layer in sglang_kv.read_worker(rt, "it").layers}
        assert len(layers) == len(said["layers"]) // 2
        for index, group, part, address, true in said["layers"]:
            layer, block = layers[index], 9 if slot == 0 else 2
            assert layer.group == group and layer.find(address) == (part, {"block": block, "slot": slot, "head": 1, "element": 4})
            found, sampled = stats.statistics(arrays.of_tensor(kv_view.block_values(layer, layer.part(part), block)))
            assert {k: found[k] for k in true} == true and not sampled and numpy.isfinite(found["mean"])


@pytest.mark.parametrize("variant", ["paged", "window"])
def test_a_renamed_attribute_gives_no_false_number(maker, variant):
    with objects(maker, f"{variant} renamed {','.join(['-', *renames.drawn(renames.names('sglang'))])}") as (_, said):
        assert renames.faults(said["names"], [name for name in said["names"] if name != "-"]) == []
