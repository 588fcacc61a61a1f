"""LMDeploy's processes in a FAKE /proc, and what is found of them."""

from harness.fake_proc import SPAWN


def test_lmdeploy_server_and_executors(proc):
    main = proc.add(["/usr/bin/python3", "/usr/bin/lmdeploy", "serve", "api_server", "m"])
    proc.add(SPAWN, ppid=main, environ={"RANK": "1"})
    assert [(r.engine, r.label, r.ranks) for r in proc.ranks()] == [
        ("lmdeploy", "server", {}),
        ("lmdeploy", "rank-1", {"world": 1}),
    ]
