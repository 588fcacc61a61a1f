"""Routers that are Python programs, on a STAND-IN: the instances that its objects name, each kept in another way, and nothing
that only looks like one."""

import sys

from harness.subjects import running

from gdbext.cpython.runtime import open_runtime
from gdbext.engines.python_routers import known_to
from gdbext.engines.routers import candidates, lines


def test_each_instance_that_an_object_names_is_found_with_the_way_to_it():
    ports = [31001, 31002, 31003, 31004, 31005]
    with running(sys.executable, "toy_router.py", *map(str, ports)) as (target, kept):
        served = {port: f"instance{port}" for port in ports[:-1]} | {8100: "another", 80: "none"}
        found = {one["address"]: one for one in known_to(open_runtime(target), served)}
    assert {int(address.rpartition(":")[2]): one["instance"] for address, one in found.items()} == {
        **{port: f"instance{port}" for port in ports[:-1]},
        ports[-1]: None,  # it names it, and nobody serves there
        8100: None,  # of another machine
    }, kept
    assert found["127.0.0.1:31001"]["where"] == "prefill_urls[0]" and found["127.0.0.1:31003"]["where"] == "lb"
    assert found["localhost:31002"]["where"] == "state['prefill_clients'][0]"
    assert found["[::1]:31004"]["where"] == "options.decode"


def test_a_program_is_a_router_only_if_given_an_instances_address():
    served = {31001: "prefill", 31002: "decode"}
    assert candidates(["proxy.py", "31150", "31001", "31002"], served) == ["decode", "prefill"]
    assert candidates(["proxy.py", "--prefill=http://127.0.0.1:31001"], served) == ["prefill"]
    for words in (["x.py", "131001"], ["x.py", "--seed", "310011"], ["x.py", "http://a:31001x"], []):
        assert candidates(words, served) == []
    row = {"router": "python", "pid": 7, "ports": [31150], "connections": {}}
    told = [{"address": "127.0.0.1:31001", "instance": "prefill", "where": "urls[0]"}]
    assert lines([{**row, "knows": told}]) == ["router python (pid 7): port 31150, knows prefill (urls[0])"]
