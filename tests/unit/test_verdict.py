"""The verdict's rules on facts made up here: who is a victim is never the culprit, what cannot be told is "unknown"."""

from types import SimpleNamespace

import pytest
from harness.facts import C10D, EPOLL, READ, SLEEP, add, inside, node, process, python

from gdbext.answers import hang
from gdbext.engines.shm_rings import Ring
from gdbext.observe.system_calls import Call, Source
from gdbext.stacks.async_waits import LoopState, TaskState
from gdbext.stacks.threads import Frame
from gdbext.stacks.waits import Edge
from gdbext.torch.collectives import Count
from gdbext.verdict.facts import Facts, ProcessState
from gdbext.verdict.judge import judge_group as judge
from gdbext.verdict.words import describe


def test_who_waits_for_its_turn_with_the_gil_accuses_nobody_who_runs():
    works = {"load": 0.5, "wanted": 1.0, "state": "R", "frames": python("add")}
    # the machine is full: few looks see the main thread wait, and nothing says that the GIL is not given back
    asking = process("a", python("main"), edge=Edge(node("a"), "the GIL", "GIL", ("a", 7)), load=0.01)
    assert judge([add(asking, 7, "adder", **works)]).kind == "unknown"
    # its lock is with one that asks for its turn: neither who has the GIL, nor that it moves, says what becomes of the lock
    for moves in (False, True):
        waiting = process("b", python("main"), edge=Edge(node("b"), "the Lock x", "Lock", ("b", 7)))
        add(waiting, 7, "owner", Edge(("b", 7), "the GIL", "GIL", ("b", 8)), load=0.01, woke=90)
        add(waiting, 8, "decoy", moved=moves, advanced=moves, **works)
        assert judge([waiting]).kind == "unknown"


def test_only_an_engines_own_function_says_that_it_starts_or_waits():
    """As seen on a program whose `rendezvous` accepts connections: "startup", while the wait for another process had no end."""
    c10d = "torch/distributed"
    starts = {"load_model": "vllm", "wait_for_ready": "vllm", "rendezvous": c10d, "init_process_group": c10d}
    for name, folder in {**starts, "collective_rpc": "vllm", "acquire_read": "vllm"}.items():
        own, another = (process("a", python(name, file=f"{at}/x.py")) for at in (f"/x/{folder}", "/home/u/app"))
        assert another.main.does == "other" and judge([another]).kind == "unknown"
        assert judge([own]).kind == "startup" if name in starts else own.main.does == "ring"


def test_a_thread_that_tries_again_is_told_with_the_error_that_it_handles():
    """As seen on a worker that asked a port where nobody listens, over and over, and slept in the handler of the refusal."""
    retries = process("a", python("connect"), SLEEP, moved=True, handles="ConnectionRefusedError")
    assert "in connect (engine.py:1), in the handler of ConnectionRefusedError, 0 % CPU" in describe(retries.main)
    assert "handler" not in describe(process("a", python("connect"), SLEEP).main)


def test_the_rank_that_is_not_there_is_the_culprit():
    said = judge([process("TP0", inside()), process("TP1", python("sleep", "forward", "loop"), SLEEP), process("TP2", inside())])
    assert (said.kind, said.culprits, said.victims) == ("collective", [node("TP1")], ["TP0", "TP2"])


def test_a_rank_in_another_collective_is_the_culprit_at_a_tie_all_are():
    said = judge([process("TP0", inside()), process("TP1", inside("broadcast")), process("TP2", inside())])
    assert (said.kind, said.culprits) == ("collective", [node("TP1")])
    said = judge([process("TP0", inside()), process("TP1", inside("broadcast"))])
    assert said.kind == "collective" and len(said.culprits) == 2


def test_who_does_something_else_inside_a_collective_does_not_wait_in_it():
    """As seen on vLLM: a signal handler of the worker's, run while it was in all_gather, does not return."""
    stuck = python("tell", file="sitecustomize.py") + inside("all_gather")[1:]
    said = judge([process("TP0", inside(), load=0.9), process("TP1", stuck, ("open64",))])
    assert (said.kind, said.culprits) == ("collective", [node("TP1")])


def test_a_rank_with_one_more_collective_begun_waits_for_the_others():
    """As seen on DistributedDataParallel: the backward pass averages gradients, and no frame names a collective."""
    backward = python("_engine_run_backward", file="/x/torch/autograd/graph.py") + python("train")

    def of(name, frames, begun, **more):
        return process(name, frames, role="", counts=[Count("gloo group 0", 0, 2, {"": begun})], **more)

    said = judge([of("R0", backward, 9), of("R1", python("nap", "train"), 8, native=SLEEP)])
    assert (said.kind, said.culprits, said.victims) == ("collective", [node("R1")], ["R0"])
    for well in (
        [of("R0", backward, 9), of("R1", python("nap", "train"), 9, native=SLEEP)],
        [of("R0", python("nap", "train"), 9, native=SLEEP), of("R1", python("nap", "train"), 8, native=SLEEP)],
        [of("R0", backward, 9, moved=True, advanced=True), of("R1", python("nap", "train"), 8, native=SLEEP)],
        [of("R0", backward, 9), of("R1", python("train"), 8, moved=True, advanced=True, load=0.9)],
    ):
        assert judge(well).kind not in ("collective", "starved", "livelock")


def test_a_lock_holder_that_is_denied_a_cpu_is_not_accused():
    for state, more, kind in (("S", {}, "lock-held"), ("R", {}, "unknown"), ("S", {"wanted": 0.9}, "unknown")):
        one = process("7", python("take"), role="", edge=Edge(node("7"), "the Lock x", "Lock", ("7", 8)))
        add(one, 8, "keeper", state=state, **more)
        assert judge([one]).kind == kind, state


def test_when_all_are_there_nobody_is_blamed():
    said = judge([process("TP0", inside()), process("TP1", inside())])
    assert (said.kind, said.culprits) == ("unknown", []) and "every rank" in " ".join(said.evidence)


def test_ranks_that_come_and_go_are_at_work():
    said = judge(
        [
            process("TP0", inside(), moved=True, advanced=True, load=0.6),
            process("TP1", python("forward", "loop"), moved=True, advanced=True, load=0.5),
        ]
    )
    assert said.kind == "busy"


def test_a_lock_of_the_absent_rank_goes_before_the_collective():
    edge = Edge(node("TP1"), "the Lock self.lock", "Lock", ("TP1", 7), "with", where="step (engine.py:3)")
    late = add(process("TP1", python("step", "loop"), edge=edge), 7, "loader", frames=python("sleep", "load"), native=SLEEP)
    said = judge([process("TP0", inside()), late, process("TP2", inside())])
    assert (said.kind, said.culprits) == ("lock-held", [("TP1", 7)]) and {"TP0", "TP2"} <= set(said.victims)


def test_a_lock_that_a_victim_holds_is_not_what_is_wrong():
    """TP0's helper waits for a lock of its main thread, which waits in a collective for TP1."""
    edge = Edge(("TP0", 7), "the Lock self.lock", "Lock", node("TP0"), "with", where="log (engine.py:3)")
    said = judge([add(process("TP0", inside()), 7, "helper", edge), process("TP1", python("sleep", "loop"), SLEEP)])
    assert (said.kind, said.culprits) == ("collective", [node("TP1")])


def test_a_gil_that_a_victim_keeps_is_not_what_is_wrong():
    tp0 = add(
        process("TP0", inside(), load=0.9, gil_hog=(node("TP0"), [("TP0", 7)])),
        7,
        "helper",
        Edge(("TP0", 7), "the GIL", "GIL", node("TP0")),
    )
    said = judge([tp0, process("TP1", python("sleep", "loop"), SLEEP)])
    assert (said.kind, said.culprits) == ("collective", [node("TP1")])


def test_who_keeps_the_gil_is_the_culprit_with_and_without_waiters():
    gil_hog = add(
        process("a", python("call"), SLEEP, role="", gil_hog=(node("a"), [("a", 7)])),
        7,
        "other",
        Edge(("a", 7), "the GIL", "GIL", node("a")),
    )
    assert (judge([gil_hog]).kind, judge([gil_hog]).culprits) == ("gil", [node("a")])
    gil_hog.threads[0].native = ("_PyEval_EvalFrameDefault", "main")  # bytecode gives it back: who asks had no processor
    assert judge([gil_hog]).kind == "unknown"
    both = [
        process("EngineCore", python("call"), READ, role="engine-core", holds=True),
        process("TP0", python("acquire_read"), SLEEP),
    ]
    assert (judge(both).kind, judge(both).culprits) == ("gil", [node("EngineCore")])
    holder = both[0].threads[0]
    holder.state = "R"  # it wants a processor, which a machine at full load or a quota does not give it
    assert judge(both).kind != "gil"
    holder.state, holder.frames = "S", [Frame("native", "gc_collect_main", "libpython"), *python("collect")]
    assert judge(both).kind != "gil"


def test_a_lock_whose_owner_nobody_knows_blames_nobody():
    for candidates in ([], [("a", 7)]):
        edge = Edge(node("a"), "the Lock x", "Lock", None, candidates=candidates, note="a plain Lock keeps no owner")
        said = judge([add(process("a", python("f"), edge=edge, role=""), 7, "other", native=SLEEP)])
        assert (said.kind, said.culprits) == ("unknown", [])


def test_an_orphaned_lock_blames_the_process():
    edge = Edge(node("a"), "the RLock x", "RLock", None, orphan=True, note="its owner does not exist", address=5, where="f")
    assert judge([process("a", python("f"), edge=edge, role="")]).culprits == [("a", None)]


def test_a_waiter_that_moves_is_not_held_up():
    edge = Edge(node("a"), "the Lock x", "Lock", ("a", 7), "with", where="f")
    said = judge(
        [add(process("a", python("f"), edge=edge, role="", moved=True, advanced=True, load=0.4), 7, "other", native=SLEEP)]
    )
    assert said.kind == "busy"


def test_a_lock_that_was_waited_for_at_the_last_look_only_is_no_reason():
    """A helper without Python, which no look at Python stacks covers, woke during the while: it met a lock by chance."""

    def verdict(woke, load):
        edge = Edge(("a", 7), "the mutex at 0x10", "mutex", ("a", 8))
        main = process("a", python("f"), role="", moved=True, advanced=True, load=0.6)
        return judge([add(add(main, 7, "omp", edge, python=False, woke=woke), 8, "omp", python=False, load=load)]).kind

    assert verdict(40, 0.0) == "busy" and verdict(0, 0.0) == "lock-held"
    assert verdict(0, 0.5) == "busy"  # who has it is at work


@pytest.mark.parametrize("state,kind", [("Z", "crashed"), ("X", "crashed"), ("T", "stopped"), ("t", "stopped")])
def test_what_does_not_live_or_run_goes_before_all(state, kind):
    said = judge([process("TP0", inside()), process("TP1", state=state), process("TP2", inside())])
    assert (said.kind, said.culprits, said.victims) == (kind, [("TP1", None)], ["TP0", "TP2"])


def test_a_child_that_failed_counts_only_while_nothing_goes_on():
    dead = [(99, "VLLM::Worker_TP1, killed by SIGKILL")]
    assert judge([process("EngineCore", python("wait"), role="engine-core", zombies=dead)]).kind == "crashed"
    assert (
        judge([process("EngineCore", python("step"), role="engine-core", zombies=dead, moved=True, advanced=True, load=0.9)]).kind
        == "busy"
    )


def test_a_child_that_failed_is_named_with_its_pid():
    facts = [process("EngineCore", python("wait"), role="engine-core", zombies=[(99, "VLLM::Worker_TP1, killed by SIGKILL")])]
    found = SimpleNamespace(seen=facts, verdicts=[judge(facts)], requests=None, progress=[], untraced=[], chains=[])
    found.facts = Facts(facts)
    facts[0].state = "t"  # something could be read
    assert [(c["pid"], c["label"]) for c in hang.hang_data(found)["culprits"]] == [
        (99, "VLLM::Worker_TP1, killed by SIGKILL (99)")
    ]


def test_ranks_that_are_missing_are_named_by_rank():
    said = judge([process("R0", inside(), role="", world=(0, 3)), process("R2", inside(), role="", world=(2, 3))])
    assert (said.kind, said.culprits, said.not_asked) == ("unknown", [], ["R1"])
    assert any("rank 1 of 3 was not asked" in line for line in said.evidence)
    core = judge([process("R0", inside(), role="", world=(0, 2), load=None)])  # that of a rank at work is the same
    assert (core.kind, core.culprits) == ("unknown", []) and core.not_asked == ["R1"]
    starting = [Frame("python", "_create_c10d_store", "rendezvous.py", 1), *python("init_process_group", file=C10D)]
    said = judge([process("R0", starting, role="", world=(0, 2))])
    assert (said.kind, said.culprits, said.not_asked) == ("startup", [], ["R1"])


def test_engine_processes_rest_in_one_place_only():
    rest = [
        process(
            "EngineCore",
            python("_process_input_queue", "run_busy_loop"),
            role="engine-core",
            edge=Edge(node("EngineCore"), "an item of the Queue q", "Queue", None, how="get"),
        ),
        process("TP0", python("acquire_read", "dequeue", "worker_busy_loop"), SLEEP, woke=5),
        process("frontend", python("wait"), EPOLL, role="frontend", call=Call("epoll", [Source("listener", "port 8000")])),
    ]
    assert judge(rest).kind == "idle"
    stuck = judge([process("EngineCore", python("read", "schedule"), READ, role="engine-core"), *rest[1:]])
    assert (stuck.kind, stuck.culprits) == ("starved", [node("EngineCore")])
    assert judge([process("scheduler", python("read", "schedule"), READ, role="scheduler")]).kind == "unknown"


@pytest.mark.parametrize("name", ["pause", "sigwait"])
def test_who_waits_for_a_signal_rests_unless_a_child_may_owe_it(name):
    front = process("api", python("serve"), role="frontend", call=Call(name))
    assert judge([front]).kind == "idle"
    front.children = {7: 0.0}
    assert judge([front]).kind == "unknown"
    front.requests = []  # of the engine, all are known: none is open
    assert judge([front]).kind == "idle"
    front.requests = [
        SimpleNamespace(
            verdict="parked", paused=False, sure=False, holder=None, request_id="a", at=None, waits_for="", age=1, evidence=[]
        )
    ]
    assert judge([front]).kind == "stuck-requests"


def test_a_server_that_reads_the_time_rests_if_no_request_is_open():
    server = process("api", python("run"), role="api-server", call=Call("epoll", [Source("event", "eventfd")]))
    server.loops = [LoopState(1, node("api")[1], main=("api", "t1"))]
    edge = Edge(("api", "t1"), "the end of task t2", "task", candidates=[("api", "t2")])
    server.tasks = [
        TaskState(("api", "t1"), "t1", "waiting", 1, edge=edge),
        TaskState(("api", "t2"), "t2", "waiting", 1, kind="sleep"),
    ]
    assert judge([server]).kind == "unknown"
    server.requests = []
    assert judge([server]).kind == "idle"
    server.moved_tasks = {("api", "t2")}  # its timer came by between the looks
    assert judge([server]).kind == "idle"
    server.loops[0].main = None
    server.threads[0].call = Call("nanosleep", seconds=3600)  # a program of its own, which asks for nothing
    assert judge([server]).kind == "idle"
    server.threads[0].call, server.threads[0].woke = Call("nanosleep"), 9  # a thread that sleeps over and over is no timer's task
    assert judge([server]).kind == "unknown"


@pytest.mark.parametrize("how", [{"clients": 1}, {"unread": 1}])
def test_a_loop_that_one_callback_keeps_while_clients_wait(how):
    def server(call, load=0.0, **more):
        found = process("api", python("handle", "run"), role="api-server", call=Call(call), load=load)
        found.loops = [LoopState(1, node("api")[1])]
        for name, value in more.items():
            setattr(found, name, value)
        return found

    said = judge([server("nanosleep", **how)])
    assert (said.kind, said.culprits) == ("loop-blocked", [node("api")])
    assert judge([server("nanosleep")]).kind == "unknown" == judge([server("epoll", **how)]).kind
    assert (judge([server("read", load=0.9, wanted=0.9, **how)]).kind == "loop-blocked") is ("unread" in how)
    turning = server("nanosleep", **how)
    turning.loops[0].turned = True  # it took other callbacks between the looks
    assert judge([turning]).kind == "unknown"


@pytest.mark.parametrize("loops", [[LoopState(1, node("api")[1], turned=True)], []], ids=["read", "not read"])
def test_a_task_that_only_asks_is_no_work_though_its_loop_turns(loops):
    """Nor where the loop could not be read while it turned: nobody is said to be at work, and nobody to hang."""
    turns = python("_run_once", file="/usr/lib/python3/asyncio/base_events.py") + python("main")
    server = process("api", turns, role="", moved=True, advanced=True, load=0.3, wanted=1.0, state="R")
    server.loops, server.tasks = loops, [TaskState(("api", "t1"), "t1", "ready", 1)]
    assert judge([server]).kind == "unknown"
    server.moved_tasks = {("api", "t1")}  # its well twin
    assert judge([server]).kind == "busy"


def test_a_worker_that_the_core_waits_for():
    core = process("EngineCore", python("get_response", "collective_rpc", "step"), EPOLL, role="engine-core")
    said = judge(
        [core, process("TP0", python("acquire_read", "dequeue"), SLEEP), process("TP1", python("open", "load_lora"), READ)]
    )
    assert (said.kind, said.culprits) == ("starved", [node("TP1")])
    assert (
        judge([core, process("TP0", python("forward"), load=0.9, moved=True, advanced=True)]).kind == "unknown"
    )  # no count moved


def test_nothing_to_go_by_is_unknown():
    assert judge([]).kind == "unknown" and judge([ProcessState("1", why="no permission")]).kind == "unknown"
    assert judge([process("a", python("f"), SLEEP, role="")]).kind == "unknown"


# ---- what is counted in memory ---------------------------------------------------------------------------------------
WAITS = python("dequeue", "worker_busy_loop")


def ring(reader, flags, index=0):
    """One end of a ring: `flags`: "1:10" for a chunk that is written and that the first of two readers has read."""
    return Ring("psm_1", reader, index, "rpc_broadcast_mq", [(f[0] == "1", [c == "1" for c in f[2:]]) for f in flags.split()])


def test_a_full_ring_names_the_reader_that_its_writer_waits_for():
    flags = "1:10 1:10 1:10"
    core = process("EngineCore", python("acquire_write", "enqueue", "step"), role="engine-core", rings=[ring(None, flags)])
    said = judge(
        [
            core,
            process("TP0", python("acquire_read", "dequeue"), EPOLL, rings=[ring(0, flags)]),
            process("TP1", python("forward"), SLEEP, rings=[ring(1, flags)]),
        ]
    )
    assert (said.kind, said.culprits) == ("starved", [node("TP1")])
    assert (
        "EngineCore's ring psm_1: TP1 has 3 messages of it unread, TP0 all read, its writer cannot write before TP1 has read"
        in said.evidence
    )


def test_a_reader_that_is_not_looked_at_goes_by_its_number():
    flags = "1:10 0:00"
    said = judge(
        [
            process("EngineCore", python("acquire_write"), role="engine-core", rings=[ring(None, flags)]),
            process("TP0", python("acquire_read"), EPOLL, rings=[ring(0, flags)]),
        ]
    )
    assert (said.kind, said.culprits) == ("starved", [("reader 1", None)])


def test_an_empty_ring_says_so_and_blames_no_reader():
    flags = "1:11 0:00"
    core = process("EngineCore", python("compute", "step"), SLEEP, role="engine-core", rings=[ring(None, flags, 1)])
    said = judge(
        [core] + [process(f"TP{i}", python("acquire_read", *["dequeue"]), EPOLL, rings=[ring(i, flags, 1)]) for i in (0, 1)]
    )
    assert (said.kind, said.culprits) == ("starved", [node("EngineCore")])
    assert "EngineCore's ring psm_1: TP0-1 have read all that was written" in said.evidence


def counted(name, number, frames, native=(), **more):
    return process(name, frames, native, counts=[Count("NCCL communicator 0x1", 0, 3, {"AllReduce": number})], **more)


DEVICE = [Frame("native", "cudaStreamSynchronize", "libcudart.so.12"), *python("forward")]


def test_of_ranks_that_wait_for_devices_the_one_behind_is_the_culprit():
    ranks = [counted("TP0", 9, DEVICE), counted("TP1", 9, DEVICE), counted("TP2", 8, DEVICE)]
    said = judge(ranks)
    assert (said.kind, said.culprits, said.victims) == ("collective", [node("TP2")], ["TP0", "TP1"])
    assert (
        "NCCL communicator 0x1: collectives counted in memory (AllReduce): TP0-1 have begun 9, TP2 has begun 8" in said.evidence
    )


def test_where_as_many_are_behind_as_ahead_or_none_is_nobody_is_blamed():
    assert judge([counted("TP0", 9, DEVICE), counted("TP1", 8, DEVICE)]).kind == "kernel"
    said = judge([counted("TP0", 9, DEVICE), counted("TP1", 9, DEVICE)])
    assert said.kind == "kernel" and not any("counted" in e for e in said.evidence)


def test_a_thread_that_fetches_results_waits_for_the_device():
    ring = python("acquire_read", "dequeue", "worker_busy_loop")

    def worker(name, number, *, fetches=True, **more):
        found = counted(name, number, ring, EPOLL, **more)
        return add(found, 7, "WorkerAsyncOutput", frames=DEVICE) if fetches else found

    alone = judge([worker("EngineCore", 9, role="engine-core")])
    assert (alone.kind, alone.culprits) == ("kernel", [("EngineCore", 7)])
    said = judge([worker("TP0", 9), worker("TP1", 8, fetches=False)])
    assert (said.kind, said.culprits, said.victims) == ("collective", [node("TP1")], ["TP0"])
    # as many begun: the kernel may be any rank's; and who is at work has not stopped to come
    said = judge([worker("TP0", 9), worker("TP1", 9, fetches=False)])
    assert (said.kind, said.culprits) == ("kernel", [])
    assert judge([worker("TP0", 9), worker("TP1", 8, fetches=False, load=0.9, moved=True)]).kind != "collective"
    # its main thread goes on, or it does itself: it waits for each step a moment
    for moves in ({"moved": True, "load": 0.9}, {}):
        busy = counted("TP0", 9, ring, EPOLL, **moves)
        assert judge([add(busy, 7, "WorkerAsyncOutput", frames=DEVICE, moved=not moves)]).kind not in ("kernel", "collective")


def test_an_engine_whose_server_is_gone_is_orphaned():
    core, worker = process("EngineCore", role="engine-core"), process("TP0")
    bare = {"paused": False, "sure": True, "holder": None, "at": None, "waits_for": "", "age": None}
    lost = SimpleNamespace(request_id="r1", verdict="lost", evidence=["it was lost"], **bare)
    for facts in (core, worker):
        facts.requests = [lost]
    assert judge([core, worker]).kind == "stuck-requests"
    for facts in (core, worker):
        facts.orphan = "its parent is gone; it holds 1.2 GiB of memory"
    said = judge([core, worker])
    assert said.kind == "orphaned" and [c[0] for c in said.culprits] == ["EngineCore", "TP0"]
    worker.orphan = ""  # somebody can still reach it
    assert judge([core, worker]).kind == "stuck-requests"


@pytest.mark.parametrize("way", ["to a worker", "to several", "nowhere"])
def test_who_has_requests_and_waits_for_a_rank_is_not_the_one_to_act(way):
    """The rank is, whatever it waits for outside; of several that may be meant, none."""
    holder = SimpleNamespace(pid=1, label="EngineCore", tid=node("EngineCore")[1])
    bare = {"paused": False, "sure": False, "at": None, "waits_for": "", "age": 9, "evidence": []}
    stands = SimpleNamespace(request_id="r1", verdict="behind", holder=holder, **bare)
    ranks = [node("TP0"), node("TP1")]
    there = {"to a worker": {"owner": ranks[1]}, "to several": {"candidates": ranks}, "nowhere": {}}[way]
    edge = Edge(node("EngineCore"), "a Unix socket", "socket", **there)
    core = process("EngineCore", python("step"), role="engine-core", edge=edge)
    core.pid, core.requests = 1, [stands]
    workers = [process(name, python("execute"), role="worker", call=Call("read")) for name in ("TP0", "TP1")]
    said = judge([core, *workers])
    assert said.kind == "stuck-requests" and said.culprits == [ranks[1] if way == "to a worker" else node("EngineCore")]


def test_who_runs_is_a_livelock_only_where_it_is_known_to_change_nothing():
    def joined(**more):
        main = process("a", python("main"), edge=Edge(node("a"), "the end of thread w", "Thread", ("a", 7)))
        return judge([add(main, 7, "w", load=1.0, state="R", **more)])

    assert joined().kind == "unknown"
    assert joined(futile=True, frames=[Frame("native", "sum", "libpython3.12.so"), *python("w")]).kind == "unknown"
    said = joined(futile=True)
    assert (said.kind, said.culprits) == ("livelock", [("a", 7)])


def test_who_got_a_lock_meanwhile_accuses_nobody_who_has_it_now():
    def wants(woke, **more):
        main = process("a", python("main"), edge=Edge(node("a"), "the Lock x", "Lock", ("a", 7)), woke=woke)
        return judge([add(main, 7, "owner", load=0.0, **more)]).kind

    assert wants(0) == "lock-held"
    assert wants(50) == "unknown"


@pytest.mark.parametrize("same", [True, False])
def test_threads_that_might_end_each_others_waits_are_followed_once(same):
    """Their ways are more than can be counted."""
    nodes = [node("a"), *(("a", n) for n in range(60))]
    edges = [Edge(n, "the Lock x", "Lock", candidates=[c for c in nodes if c != n]) for n in nodes]
    for edge in edges:
        edge.address = 1 if same else 1 + edge.waiter[1]
    facts = process("a", python("main"), edge=edges[0])
    for edge in edges[1:-1]:
        add(facts, edge.waiter[1], "waits", edge)
    add(facts, 59, "sleeps", native=SLEEP, call=Call("nanosleep", seconds=1000), for_good=True)
    said = judge([facts])
    assert (said.kind, said.culprits) == ("starved", [("a", 59)])


def test_a_thread_that_the_kernel_keeps_is_named_with_its_place():
    def main(**more):
        one = process("7", python("start"), role="", kernel="kernel_clone", **more)
        one.main.state = "D"
        return one

    said = judge([main()])
    assert (said.kind, said.culprits) == ("uninterruptible", [node("7")])
    assert "kernel_clone" in " ".join(said.evidence) and "vfork" in " ".join(said.evidence)
    waits = process("7", python("main"), role="", edge=Edge(node("7"), "the thread 9", "Thread", ("7", 9)))
    said = judge([add(waits, 9, "writer", state="D", kernel="folio_wait_bit_common")])
    assert (said.kind, said.culprits) == ("uninterruptible", [("7", 9)]) and said.victims
    assert "folio_wait_bit_common" in " ".join(said.evidence)
    for well in ({"woke": 3}, {"load": 0.2}, {"moved": True}, {"moved": True, "advanced": True}, {"load": None}):
        assert judge([main(**well)]).kind != "uninterruptible", well
    # one that keeps a lock is that lock's holder, with its place; one of which nobody waits is nobody's culprit
    waits = process("7", python("take"), role="", edge=Edge(node("7"), "the Lock x", "Lock", ("7", 9)))
    said = judge([add(waits, 9, "keeper", state="D", kernel="rpc_wait_bit_killable")])
    assert (said.kind, said.culprits) == ("lock-held", [("7", 9)])
    assert judge([add(process("7", python("f"), role="", moved=True, advanced=True, load=0.9), 9, "x", state="D")]).kind == "busy"


@pytest.mark.parametrize("lasts", [True, False])
def test_what_only_lasting_proves_is_no_verdict_on_one_look(lasts):
    """A core shows one moment: a healthy lock has a holder too, a step waits for its kernels, and a rank may be about to come."""
    load = 0.0 if lasts else None  # None: the thread was looked at once
    held = process("a", python("main"), edge=Edge(node("a"), "the Lock x", "Lock", ("a", 7)), load=load)
    add(held, 7, "owner", native=SLEEP, frames=python("work"), load=load)
    ranks = [process("TP0", inside(), load=load), process("TP1", python("sleep"), SLEEP, load=load)]
    kernel = process("b", DEVICE, load=load)
    hung = ([held], "lock-held", ("a", 7)), (ranks, "collective", node("TP1")), ([kernel], "kernel", node("b"))
    for them, kind, culprit in hung:
        said = judge(them)
        sure = said if lasts else said.if_it_lasts
        assert said.kind == (kind if lasts else "unknown") and bool(said.culprits) == lasts, said.evidence
        assert (sure.kind, sure.culprits) == (kind, [culprit])
    ring = process("c", python("main"), edge=Edge(node("c"), "the Lock x", "Lock", ("c", 7)), load=load)
    add(ring, 7, "owner", Edge(("c", 7), "the Lock y", "Lock", node("c")), load=load)
    assert judge([ring]).kind == "lock-cycle"  # nothing that either does next opens it


@pytest.mark.parametrize("role", ["", "worker"])
@pytest.mark.parametrize(
    "state, ended, kind",
    [
        ("Z", "exit status 0", "idle"),
        ("X", "", "unknown"),
        ("Z", "exit status 3", "crashed"),
        ("Z", "killed by SIGSEGV", "crashed"),
    ],
)
def test_who_ends_well_has_not_crashed(role, state, ended, kind):
    """A program of no engine, that no other one waits for."""
    gone = process("a", role=role, state=state)
    gone.ended = ended
    assert judge([gone]).kind == ("crashed" if role else kind)
    assert judge([gone, process("b", inside(), role=role)]).kind == "crashed"  # b waits
