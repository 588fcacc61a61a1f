"""Engine instances of a FAKE /proc: their roles, names and ports; labels that two of them have; what WHAT takes."""

import json

import pytest

from gdbext.answers import ranks as shapes
from gdbext.engines.routers import kind_of, lines
from gdbext.engines.what import resolve
from gdbext.errors import GdbextError

MODULE = ["/usr/bin/python3", "-m"]


def vllm(proc, *more, tp=1):
    main = proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m", *more])
    core = proc.add(title="VLLM::EngineCore", ppid=main)
    workers = [proc.add(title=f"VLLM::Worker_TP{t}", ppid=core) for t in range(tp)]
    return main, core, workers


def transfer(role, engine):
    return ["--kv-transfer-config", json.dumps({"kv_connector": "NixlConnector", "kv_role": role, "engine_id": engine})]


def test_prefill_and_decode_have_roles_ids_ports_and_unique_labels(proc):
    first = vllm(proc, "--port", "8100", *transfer("kv_producer", "p-1"), tp=2)
    second = vllm(proc, "--port=8200", "--kv-transfer-config.kv_role", "kv_consumer", "--kv-transfer-config.engine_id=d-1", tp=2)
    ranks = proc.ranks()
    found = {r.instance.name: r.instance for r in ranks}
    assert {n: (i.role, i.engine_id, i.ports["http"]) for n, i in found.items()} == {
        "prefill": ("prefill", "p-1", 8100),
        "decode": ("decode", "d-1", 8200),
    }
    assert len({r.label for r in ranks}) == len(ranks) and {"prefill:TP0", "decode:TP1"} <= {r.label for r in ranks}
    for what, pid in (("decode:TP0", second[2][0]), (":8100:tp1", first[2][1]), ("d-1:EngineCore", second[1])):
        assert [one.pid for one in resolve(what, ranks)] == [pid], what
    for what in ("decode", ":8200", "d-1", "DECODE"):
        assert {one.pid for one in resolve(what, ranks)} == {second[0], second[1], *second[2]}, what
    with pytest.raises(GdbextError, match="say prefill:TP0 or decode:TP0"):
        resolve("TP0", ranks)
    data = next(shapes.RANK.data(r) for r in ranks if r.label == "decode:TP0")
    assert data["instance"]["role"] == "decode" and data["instance"]["ports"] == {"http": 8200}


def test_two_of_a_kind_are_told_apart_by_port_one_has_short_labels(proc):
    alone = vllm(proc)
    assert [r.label for r in proc.ranks()] == ["server", "EngineCore", "TP0"]
    vllm(proc, "--port", "8001")
    assert {r.label for r in proc.ranks() if r.role == "engine-core"} == {":8000:EngineCore", ":8001:EngineCore"}
    assert resolve(":8000:TP0", proc.ranks())[0].pid == alone[2][0]


def test_an_engine_id_that_two_have_names_neither(proc):
    for port in ("8100", "8200"):
        vllm(proc, "--port", port, *transfer("kv_both", "same"))
    ranks = proc.ranks()
    assert {r.instance.name for r in ranks} == {":8100", ":8200"} and {r.instance.role for r in ranks} == {"both"}
    server = proc.add([*MODULE, "sglang.launch_server", "--disaggregation-mode", "prefill"])
    proc.add(title="sglang::scheduler_TP0", ppid=server)
    ranks = proc.ranks()
    (one,) = {r.instance.number: r.instance for r in ranks if r.engine == "sglang"}.values()
    assert (one.name, one.role, one.ports) == ("sglang", "prefill", {"http": 30000, "bootstrap": 8998})
    assert {r.label for r in ranks if r.role in ("worker", "scheduler")} == {":8100:TP0", ":8200:TP0", "sglang:TP0"}


def test_routers_are_known_by_their_processes():
    class Process:
        def __init__(self, *argv):
            self.argv, self.single, self.title = list(argv), len(argv) == 1, argv[0]

        def program(self):
            return ("module", self.argv[2], self.argv[3:]) if self.argv[1:2] == ["-m"] else None

    kinds = [
        (["python3", "-m", "vllm_router.launch_router"], "vllm-router"),
        (["/usr/local/bin/sglang-router", "--x"], "sglang-router"),
        (["vllm::router"], "vllm-router"),
        (["sglang::router"], "sglang-router"),
        (["python3", "-m", "dynamo.frontend"], "dynamo"),
        (["ray::ProxyActor.run"], "ray-serve"),
        (["python3", "-m", "http.server"], ""),
        (["vim", "vllm_router.py"], ""),
    ]
    assert [kind_of(Process(*argv)) for argv, _ in kinds] == [kind for _, kind in kinds]
    assert lines([{"router": "smg", "pid": 7, "ports": [80], "connections": {"decode": 2}}]) == [
        "router smg (pid 7): port 80, 2 connections to decode"
    ]
