"""What routers say at /metrics, on a STAND-IN: counts of their own and of each instance; hostile and slow ones are bounded."""

import collections
import json
import os
import sys

import pytest
from harness.subjects import SUBJECTS, running, spawned

from gdbext.access.proctable import ProcTable
from gdbext.engines import router_metrics, routers

SERVED = {31001: "prefill", 31002: "decode"}


def true_of(samples):
    whole, workers = collections.Counter(), collections.defaultdict(collections.Counter)
    for name, worker, value in samples:
        whole[name] += value
        if worker:
            port = int(worker.rpartition(":")[2])
            workers[SERVED.get(port, worker.rpartition("/")[2])][name] += value
    return dict(whole), {name: dict(each) for name, each in workers.items()}


def test_its_counts_and_those_of_each_instance_are_what_it_says():
    with running(sys.executable, "metrics_router.py", "well") as (target, truth):
        said = router_metrics.ask(target.process.pid, [truth["port"]], SERVED)
    metrics, workers = true_of(truth["samples"])
    assert said == {"port": truth["port"], "metrics": metrics, "workers": workers}
    assert "prefill: vllm_router_requests_total 40, vllm_router_running_requests 7" in router_metrics.line(said)


def test_what_is_hostile_is_bounded_and_what_is_slow_ends():
    with running(sys.executable, "metrics_router.py", "hostile") as (target, truth):
        said = router_metrics.ask(target.process.pid, [truth["port"]], SERVED)
    assert true_of(truth["samples"])[0].items() <= said["metrics"].items() and len(said["metrics"]) == router_metrics.MOST
    assert len(said["workers"]) == router_metrics.MOST_WORKERS
    assert json.dumps(said).isprintable() and "\\u001b" not in json.dumps(said) and len(router_metrics.line(said)) < 4000


@pytest.mark.parametrize("how, reason", [("slow", "no answer in 2 s"), ("refuses", "HTTP status 403")])
def test_why_it_says_nothing_is_said(how, reason):
    with running(sys.executable, "metrics_router.py", how) as (target, truth):
        assert router_metrics.ask(target.process.pid, [truth["port"]], {}) == {"failed": f"port {truth['port']}: {reason}"}
        assert router_metrics.ask(target.process.pid, [1], {}) is None


def test_a_router_known_by_its_program_is_asked_a_web_server_is_not():
    words = [os.path.join(SUBJECTS, "metrics_router.py"), "well"]
    pids = {}
    with spawned(["vllm-router", *words], ready="{", executable=sys.executable) as known:
        with spawned(["webserver", *words], ready="{", executable=sys.executable) as other:
            found = {one["pid"]: one for one in routers.of_table(ProcTable(), [])}
            pids = known.pid, other.pid
    assert pids[1] not in found and found[pids[0]]["router"] == "vllm-router"
    assert found[pids[0]]["said"]["metrics"]["vllm_router_active_workers"] == 2
    assert "/metrics at port" in routers.lines([found[pids[0]]])[0]
