"""Requests whose KV is on its way between instances, on STAND-INS of vLLM's cores: what each scenario is by construction is what
is said of it."""

import contextlib
import json
import os
import random
import socket
import sys
import time

import pytest
from harness.subjects import running

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.engines.listeners import who_listens
from gdbext.engines.registry import SPECS
from gdbext.requests.instances import Side, hear, relate
from gdbext.requests.join import join
from gdbext.requests.ways import way


class Role:
    def __init__(self, label, pid):
        self.label, self.pid, self.role = label, pid, "engine-core"


def kept(name, lease=None, **params):
    return {"id": name, "status": "FINISHED_LENGTH_CAPPED", "params": {"do_remote_decode": True, **params}, "lease": lease}


def parked(name, engine, other, port, stage="", **params):
    way = {"remote_engine_id": engine, "remote_request_id": other, "remote_host": "127.0.0.1", "remote_port": port}
    return {
        "id": name,
        "status": "WAITING_FOR_REMOTE_KVS",
        "params": {**way, "do_remote_prefill": True, **params},
        "stage": stage,
    }


def said(connector="nixl", prefill=(), decode=(), ask=("prefill", "decode"), stands=(), workers=1):
    """{instance: {request id: Tracked}} of two instances, of which `ask` are looked at."""
    sides, roles = (
        [],
        {"prefill": ("prefill-1", 5600, "kv_producer", prefill), "decode": ("decode-1", 5601, "kv_consumer", decode)},
    )
    with contextlib.ExitStack() as stack:
        for name, (engine, port, role, requests) in roles.items():
            scenario = {"engine": engine, "port": port, "role": role, "connector": connector, "requests": list(requests)}
            scenario.update(stands=name in stands, workers=workers)
            subject, _ = stack.enter_context(running(sys.executable, "transfers_vllm.py", json.dumps(scenario)))
            looks = []
            for number in range(2):
                time.sleep(0.3 * number)  # long enough for a thread that goes round to have been elsewhere
                target = stack.enter_context(contextlib.closing(ProcTarget(subject.pid)))
                looks.append(SPECS["vllm"].requests.look(open_runtime(target), Role(f"{name}:EngineCore", target.pid)))
                assert looks[-1].notes == []
            sides.append(Side(name, looks[1:], join(looks[1:], looks[:1]), looks[:1]))
        asked = [side for side in sides if side.name in ask]
        relate(asked)
    return {side.name: {t.request_id: t for t in side.requests} for side in asked}


@pytest.mark.parametrize("connector", ["nixl", "mooncake", "multi"])
def test_the_two_ends_of_a_transfer_are_one_way(connector):
    found = said(
        connector,
        [kept("p1", 300.0, **named("t1", connector)), kept("p2", 250.0, **named("t2", connector)), kept("nobody", 900.0)],
        [
            parked("d1", "prefill-1", "p1", 5600, "transfer", **named("t1", connector)),
            parked("gone", "prefill-1", "p9", 5600, "handshake", **named("t9", connector)),
            parked("come", "prefill-1", "p2", 5600, "completion", **named("t2", connector)),
            parked("far", "prefill-7", "p1", 5999, "handshake", **named("t7", connector)),
        ],
    )
    decode, prefill = found["decode"], found["prefill"]
    assert {name: t.transfer.state for name, t in decode.items()} == {
        "d1": "transfer",
        "gone": "never",
        "come": "completion",
        "far": "handshake",
    }
    assert {name: t.partner for name, t in decode.items()} == {
        "d1": ("prefill", "p1"),
        "come": ("prefill", "p2"),
        "gone": None,
        "far": None,
    }
    assert decode["come"].holder.label == "decode:EngineCore" and not any(decode[n].holder for n in ("d1", "gone", "far"))
    assert "prefill-7 at 127.0.0.1:5999, was not asked" in decode["far"].evidence[-1]
    assert {name: (t.verdict, t.partner) for name, t in prefill.items()} == {
        "p1": ("kept", ("decode", "d1")),
        "p2": ("kept", ("decode", "come")),
        "nobody": ("kept", None),
    }
    assert 0 < prefill["nobody"].transfer.until <= 900 and "no instance" in prefill["nobody"].evidence[-1]


def named(transfer, connector):
    return {"transfer_id": transfer} if connector == "mooncake" else {}


@pytest.mark.parametrize("name", ["t1", "t2"])
def test_a_prompt_that_is_computed_for_a_reader_is_its_other_end(name):
    computes = {"id": "p1", "status": "RUNNING", "params": {"do_remote_decode": True, "transfer_id": "t1"}}
    found = said("mooncake", [computes], [parked("d1", "prefill-1", "p1", 5600, "handshake", transfer_id=name)])["decode"]["d1"]
    joined = (("prefill", "p1"), "handshake")
    assert (found.partner, found.transfer.state) == (joined if name == "t1" else (None, "never")), found


def test_who_stands_must_act_and_who_polls_need_not():
    ways = [kept("p1", 300.0)], [parked("d1", "prefill-1", "p1", 5600, "transfer")]
    assert said("nixl", *ways)["decode"]["d1"].holder is None
    found = said("nixl", *ways, stands=("prefill",))["decode"]["d1"]
    assert found.verdict == "parked" and found.holder is not None and found.holder.label == "prefill:EngineCore", found
    alone = said("nixl", *ways, ask=("decode",), stands=("prefill",))["decode"]["d1"]
    assert alone.holder is None and "127.0.0.1:5600, was not asked" in alone.evidence[-1]


@pytest.mark.parametrize("connector", ["nixl", "mooncake"])
def test_blocks_read_for_a_client_that_left_are_kept_until_then(connector):
    away = {**parked("d1", "prefill-1", "p1", 5600, "transfer", **named("t1", connector)), "status": "FINISHED_ABORTED"}
    over = {**parked("d2", "prefill-1", "p2", 5600, "", **named("t2", connector)), "status": "FINISHED_ABORTED"}
    found = said(connector, [kept("p1", 300.0, **named("t1", connector))], [away, over], stands=("prefill",))
    reader, sender = found["decode"]["d1"], found["prefill"]["p1"]
    assert (reader.verdict, reader.partner, reader.transfer.state) == ("kept", ("prefill", "p1"), "transfer")
    assert reader.holder is not None and reader.holder.label == "prefill:EngineCore", reader
    assert sender.partner == ("decode", "d1") and "FINISHED_ABORTED" in sender.evidence[-1]
    assert "d2" not in found["decode"]  # its read has ended


def test_the_way_of_a_request_has_a_stop_for_each_part_of_it():
    router = {"router": "vllm-router", "pid": 7, "connections": {"prefill": 2, "elsewhere": 1}}
    ways = (
        [kept("p1", 300.0), kept("forgotten", 200.0)],
        [
            parked("d1", "prefill-1", "p1", 5600, "transfer"),
            parked("gone", "prefill-1", "p9", 5600, "handshake"),
            parked("far", "prefill-7", "p1", 5999, "handshake"),
        ],
    )
    both, one = said("nixl", *ways), said("nixl", *ways, ask=("decode",))

    def stops(found, side, name):
        sides = [Side(each, [], list(held.values())) for each, held in found.items()]
        own = next(each for each in sides if each.name == side)
        return [(w.part, w.instance, w.request_id, w.state) for w in way(found[side][name], own, sides, [router])]

    read = stops(both, "decode", "d1")
    assert read == stops(both, "prefill", "p1")  # one row, whichever end is asked
    assert [part for part, *_ in read] == ["router", "prefill", "transfer", "decode"]
    assert read[0][1:] == ("vllm-router (pid 7)", "", "2 connections to prefill")
    assert read[1] == ("prefill", "prefill", "p1", "FINISHED_LENGTH_CAPPED") and read[3][:3] == ("decode", "decode", "d1")
    assert read[2][3].startswith("transfer (posted, not done), blocks kept for ")
    assert stops(both, "decode", "gone")[1:3] == [
        ("prefill", "prefill-1 at 127.0.0.1:5600", "", "it has no such request"),
        ("transfer", "", "", "never"),
    ]
    assert stops(one, "decode", "far")[1][1:] == ("prefill-7 at 127.0.0.1:5999", "", "not asked")
    assert stops(both, "prefill", "forgotten")[3][3] == "no request here reads them"
    assert "not known" in stops(both, "decode", "far")[0][3]


@pytest.mark.parametrize("seed", range(4))
def test_each_of_many_requests_is_what_it_was_made(seed):
    draw, prefill, decode, truth = random.Random(seed), [], [], {}
    for n in range(12):
        kind = draw.choice(["transfer", "handshake", "never", "kept", "completion", "late"])
        truth[f"d{n}"] = kind
        if kind != "never":
            prefill.append(kept(f"p{n}", -5.0 if kind == "late" else draw.uniform(300, 500)))
        if kind != "kept":
            stage = {"never": "handshake", "late": "transfer"}.get(kind, kind)
            decode.append(parked(f"d{n}", "prefill-1", f"p{n}", 5600, stage))
    draw.shuffle(prefill)
    draw.shuffle(decode)
    found = said("nixl", prefill, decode)
    assert {name: t.transfer.state for name, t in found["decode"].items()} == {n: k for n, k in truth.items() if k != "kept"}
    readers = {t.request_id: t.partner for t in found["prefill"].values()}
    assert readers == {f"p{n[1:]}": None if k == "kept" else ("decode", n) for n, k in truth.items() if k != "never"}


def load(name, job, stage="", **more):
    return {"id": name, "status": "WAITING_FOR_REMOTE_KVS", "job": job, "keys": [name], "stage": stage, **more}


def put_off(name, key):
    return {"id": name, "status": "WAITING", "keys": [key], "put_off": 40.0}


@pytest.mark.parametrize("seed", range(3))
def test_a_load_from_a_tier_is_at_a_worker_or_lost_and_sharers_wait(seed):
    draw, made, truth = random.Random(seed), [], {}
    for n in range(12):
        name, kind = f"r{n}", draw.choice(["load", "lost", "stored", "shares", "lookup", "plain"])
        parked = [one["id"] for one in made if one["status"] == "WAITING_FOR_REMOTE_KVS"]
        if kind == "shares" and not parked:
            kind = "lookup"
        truth[name] = kind, ""
        if kind in ("load", "lost"):
            made.append(load(name, n, "load" if kind == "load" else ""))
        elif kind == "stored":  # its blocks are written for a request that has ended
            made.append({"id": f"s{n}", "status": "FINISHED_LENGTH_CAPPED", "job": 100 + n, "keys": [name], "stores": True})
            made.append(put_off(name, name))
            truth[name] = kind, f"s{n}"
        elif kind == "shares":
            truth[name] = kind, draw.choice(parked)
            made.append(put_off(name, truth[name][1]))
        else:
            made.append(put_off(name, "x") if kind == "lookup" else {"id": name, "status": "WAITING"})
    draw.shuffle(made)
    found = said("offloading", made, (), ask=["prefill"])["prefill"]
    for name, (kind, after) in truth.items():
        one = found[name]
        job = one.hops[0][1].offload
        want = {"lost": ("lost",), "plain": ("", "queued", "behind")}.get(kind, ("parked",))
        assert one.verdict in want, (name, kind, one)
        assert (job.state if job else "") == {"load": "load", "lost": "load", "plain": ""}.get(kind, "lookup")
        assert list(one.behind) == ([after] if after else []) and (
            kind == "plain" or (one.holder is not None) == (kind == "load")
        ), (kind, one)
        assert kind not in ("stored", "shares", "lookup") or "put off for 4" in one.evidence[-1]


def test_a_load_is_not_lost_while_a_worker_was_not_read():
    found = said("offloading", [load("r1", 7, pending=1)], (), ask=["prefill"], workers=2)["prefill"]["r1"]
    assert found.verdict == "parked" and found.holder is None and "1 of 2 workers" in found.waits_for


ROOM = 1 << 61  # as the router draws them


def sglang_said(prefill, decode, ask=("prefill", "decode"), listens=None):
    """As `said`, of two SGLang schedulers."""
    sides = []
    with contextlib.ExitStack() as stack:
        for mode, requests in (("prefill", prefill), ("decode", decode)):
            scenario = {"mode": mode, "port": 8998, "requests": requests}
            subject, _ = stack.enter_context(running(sys.executable, "transfers_sglang.py", json.dumps(scenario)))
            role = Role(f"{mode}:scheduler", subject.pid)
            role.role = "scheduler"
            looks = []
            for _ in range(2):
                target = stack.enter_context(contextlib.closing(ProcTarget(subject.pid)))
                looks.append(SPECS["sglang"].requests.look(open_runtime(target), role))
                assert looks[-1].notes == [] and looks[-1].serves.role == mode
            sides.append(Side(mode, looks[1:], join(looks[1:], looks[:1]), looks[:1]))
        asked = [side for side in sides if side.name in ask]
        if listens:
            hear(asked, listens)
        relate(asked)
    return {side.name: {t.request_id: t for t in side.requests} for side in asked}


def test_sglangs_two_ends_meet_in_their_room_and_one_alone_never_ends():
    here = {"host": "127.0.0.1", "port": 8998}
    prefill = [
        {"id": "p1", "room": ROOM + 1, "queue": "inflight", "status": 3},
        {"id": "p2", "room": ROOM + 2, "queue": "bootstrap", "status": 1},
        {"id": "unpaired", "room": ROOM + 3, "queue": "bootstrap", "status": 1},
    ]
    decode = [
        {"id": "d1", "room": ROOM + 1, "queue": "transfer", "status": 3, **here},
        {"id": "d2", "room": ROOM + 2, "queue": "prealloc", "status": 1, **here},
        {"id": "lone", "room": ROOM + 4, "queue": "transfer", "status": 2, **here},
        {"id": "elsewhere", "room": ROOM + 5, "queue": "prealloc", "host": "10.9.8.7", "port": 8998},
    ]
    found = sglang_said(prefill, decode)
    states = {name: (t.transfer.state, t.partner) for name, t in {**found["prefill"], **found["decode"]}.items()}
    assert states == {
        "p1": ("transfer", ("decode", "d1")),
        "p2": ("pairing", ("decode", "d2")),
        "unpaired": ("pairing", None),
        "d1": ("transfer", ("prefill", "p1")),
        "d2": ("pairing", ("prefill", "p2")),
        "lone": ("never", None),
        "elsewhere": ("pairing", None),
    }
    assert "10.9.8.7:8998, was not asked" in found["decode"]["elsewhere"].evidence[-1]
    assert "no instance that was asked has its other end" in found["prefill"]["unpaired"].evidence[-1]
    assert "127.0.0.1:8998, was not asked" in sglang_said(prefill, decode, ["decode"])["decode"]["lone"].evidence[-1]


def test_a_prompt_at_the_prefill_server_has_room_and_is_not_never():
    here = {"host": "127.0.0.1", "port": 8998}
    computes = [{"id": "p", "room": ROOM, "queue": "waiting"}]
    waits = [{"id": "d", "room": ROOM, "queue": "transfer", "status": 2, **here}]
    found = sglang_said(computes, waits)["decode"]["d"]
    assert (found.partner, found.transfer.state) == (("prefill", "p"), "handshake"), found


def test_a_dead_prefill_instances_address_is_named_as_unanswered():
    with contextlib.ExitStack() as stack:
        live, gone = (stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2))
        ports = {"alive": live.getsockname()[1], "dead": gone.getsockname()[1]}
        gone.close()
        waits = [
            {"id": name, "room": ROOM + n, "queue": "prealloc", "host": "127.0.0.1", "port": port}
            for n, (name, port) in enumerate(ports.items())
        ]
        away = {"id": "elsewhere", "room": ROOM + 9, "queue": "prealloc", "host": "10.9.8.7", "port": 8998}
        both = sglang_said([], [*waits, away], listens=who_listens)["decode"]
    for name, port in ports.items():
        assert both[name].verdict == "parked" and both[name].holder is None, both[name]
        assert f"127.0.0.1:{port}, was not asked: it must act" in both[name].evidence[-1]
    assert both["dead"].evidence[-1].endswith(f"nothing listens at 127.0.0.1:{ports['dead']} any more")
    assert both["alive"].evidence[-1].endswith(f"process {os.getpid()} here listens at 127.0.0.1:{ports['alive']}")
    assert both["elsewhere"].evidence[-1].endswith("10.9.8.7:8998, was not asked: it must act")


@pytest.mark.parametrize("policy", ["wait_complete", "timeout", "best_effort"])
def test_a_prefetch_of_sglangs_is_at_a_thread_behind_another_or_nobodys(policy):
    requests = [
        {"id": "asked", "queue": "waiting", "prefetch": "prefetch_thread_func"},
        {"id": "read", "queue": "waiting", "prefetch": "prefetch_io_aux_func"},
        {"id": "next", "queue": "waiting", "prefetch": "queued"},
        {"id": "over", "queue": "waiting", "prefetch": "over"},
        {"id": "plain", "queue": "waiting"},
    ]
    found = hicache_said({"policy": policy, "requests": requests})
    if policy == "best_effort":  # the scheduler takes what has come
        assert not any(t.hops[0][1].offload for t in found.values())
        return
    for name, function in (("asked", "prefetch_thread_func"), ("read", "prefetch_io_aux_func")):
        one = found[name]
        assert (one.verdict, one.holder.thread) == ("parked", function) and "storage tier" in one.waits_for, one
        assert ("no time limit" in one.waits_for) == (policy == "wait_complete") and "in_storage" in one.evidence[-1]
    assert found["next"].verdict == "parked" and sorted(found["next"].behind) == ["asked", "read"], found["next"]
    assert found["over"].verdict == "parked" and not found["over"].behind  # its scheduler takes note of it at its next turn
    assert found["plain"].hops[0][1].offload is None
    gone = hicache_said({"policy": policy, "requests": requests[2:], "ended": True})
    assert gone["next"].verdict == "lost" and "no thread prefetch_thread_func" in gone["next"].evidence[-1], gone["next"]


def hicache_said(scenario):
    """{request id: Tracked} of a SGLang scheduler with a hierarchical cache."""
    with running(sys.executable, "transfers_sglang.py", json.dumps({"mode": "null", "port": 1, **scenario})) as (target, _):
        role = Role("scheduler", target.pid)
        role.role, looks = "scheduler", []
        for _ in range(2):
            target.invalidate()
            looks.append(SPECS["sglang"].requests.look(open_runtime(target), role))
            assert looks[-1].notes == []
    return {t.request_id: t for t in join(looks[1:], looks[:1])}
