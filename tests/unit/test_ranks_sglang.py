"""SGLang's processes of every era in a FAKE /proc, and what is found of them."""

from harness.fake_proc import SPAWN, TRACKER

from gdbext.engines.what import resolve


def test_sglang_with_its_server_scheduler_and_detokenizer(proc):
    main = proc.add(["/usr/bin/python3", "-m", "sglang.launch_server", "--tp", "2"])
    proc.add(TRACKER, ppid=main)
    pids = [proc.add(title=f"sglang::scheduler_TP{t}", ppid=main) for t in range(2)]
    detok = proc.add(title="sglang::detokenizer", ppid=main)
    assert proc.table() == [
        ("server", "api-server", main, {}),
        ("TP0", "scheduler", pids[0], {"tp": 0, "world": 0}),
        ("TP1", "scheduler", pids[1], {"tp": 1, "world": 1}),
        ("detokenizer", "detokenizer", detok, {}),
    ]


def test_a_single_sglang_scheduler_answers_to_its_name_and_to_tp0(proc):
    pid = proc.add(title="sglang::scheduler", ppid=proc.add(["/usr/bin/python3", "-m", "sglang.launch_server"]))
    ranks = proc.ranks()
    assert resolve("scheduler", ranks)[0].pid == resolve("TP0", ranks)[0].pid == pid


def test_sglang_titles_with_dp_say_that_they_may_be_display_ranks(proc):
    main = proc.add(["/usr/bin/python3", "-m", "sglang.launch_server"])
    proc.add(title="sglang::data_parallel_controller", ppid=main)
    proc.add(title="sglang::scheduler_DP1_TP3_EP3", ppid=main)
    rank = [r for r in proc.ranks() if r.role == "scheduler"][0]
    assert rank.label == "DP1.TP3" and "world" not in rank.ranks and "display" in rank.notes[0]


def test_tokenizer_workers_that_start_are_no_schedulers(proc):
    """As many as old releases have schedulers and detokenizers: the titles beside them, or the command line, tell."""
    main = proc.add(["/usr/bin/python3", "-m", "sglang.launch_server", "--tokenizer-worker-num", "2"])
    starting = [proc.add(SPAWN, ppid=main) for _ in range(2)]
    assert [(r.label, r.pid) for r in proc.ranks() if r.role in ("scheduler", "detokenizer")] == []
    other = proc.add(["/usr/bin/python3", "-m", "sglang.launch_server"])
    titled = [proc.add(title=f"sglang::{what}", ppid=other) for what in ("scheduler", "detokenizer")]
    starting += [proc.add(SPAWN, ppid=other) for _ in range(2)]
    found = {r.pid: r.role for r in proc.ranks()}
    assert [pid for pid, role in found.items() if role in ("scheduler", "detokenizer")] == titled
    assert not any(found.get(pid) in ("scheduler", "detokenizer") for pid in starting)


def test_old_sglang_without_titles_by_order_of_start(proc):
    main = proc.add(["/usr/bin/python3", "-m", "sglang.launch_server", "--tp-size", "2"])
    pids = [proc.add(SPAWN, ppid=main) for _ in range(3)]
    assert [(r.label, r.pid) for r in proc.ranks()] == [
        ("server", main),
        ("TP0", pids[0]),
        ("TP1", pids[1]),
        ("detokenizer", pids[2]),
    ]
