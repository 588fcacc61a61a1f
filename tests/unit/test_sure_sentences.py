"""Sentences that say that nothing, nobody or none could do a thing: each has its row in docs/verdicts.md, is said where it is
proven, and is not said where it is false."""

import ast
import os
import re
import struct
from types import SimpleNamespace

import pytest
from harness.facts import SLEEP, add, inside, node, process, python

from gdbext.access.fake import FakeTarget
from gdbext.access.model import Mapping
from gdbext.answers.locks import untold_lines
from gdbext.observe.system_calls import Call, Source
from gdbext.render.text import Style
from gdbext.requests.model import Counter
from gdbext.stacks import native_waits
from gdbext.stacks.native_waits import CUR_WRITER, RW_FLAGS, WRITERS_FIRST
from gdbext.stacks.threads import ThreadView
from gdbext.stacks.waits import Edge, cycles, root
from gdbext.torch.collectives import Count
from gdbext.verdict import exchange, jobs
from gdbext.verdict.facts import Facts
from gdbext.verdict.judge import judge as judge_all
from gdbext.verdict.judge import judge_group as judge
from gdbext.verdict.rules import absent
from gdbext.verdict.walk import chain_of, outlook

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FUTEX = Call("futex")
NATIVE = {"python": False, "frames": (), "call": Call("nanosleep", seconds=50.0), "native": SLEEP, "idle": True}
SURE = re.compile(
    r"\b(nobody|nothing (can|else|here)|none of (them|these|its)|never (come|end)|it never ends|lost\b|cause is not|"
    r"not asked|in turn|no (process|thread|worker|task|rank|frame)\b|this process alone|every (rank|process|worker) )"
)
ROOMS = ("verdict", "stacks/shared_memory.py", "stacks/locks.py", "stacks/waits.py", "stacks/native_waits.py", "requests")
SAID_OF_WHAT_WAS_SEEN = re.compile(
    r"(could|was|were) (be )?read|was not asked|not read|is seen|are asleep|no Python frame|%s|^no thread$"
)


def waits(kind="Event", pid=1, **edge):
    one = process("a", python("main"), role="", edge=Edge(node("a"), f"the {kind} e", kind, address=7, **edge), call=FUTEX)
    one.pid = pid
    return one


def end_of(*processes, at="a"):
    return chain_of(Facts(processes), node(at)).end


# ---- nobody ----------------------------------------------------------------------------------------------------------
def test_nobody_is_said_where_every_thread_waits_for_what_only_these_give():
    assert end_of(waits()).state == "nobody"
    helped = add(waits(), 8, "pool", **{**NATIVE, "call": FUTEX})  # it waits for work
    assert end_of(helped).state == "nobody"


@pytest.mark.parametrize(
    "more, said",
    [
        (NATIVE, "1 native thread may"),
        ({**NATIVE, "call": Call("futex", limited=True)}, "1 native thread may"),
        ({**NATIVE, "call": Call("poll", [Source("event", "anon_inode:[timerfd]")])}, "1 native thread may"),
        ({**NATIVE, "call": Call("sigwait")}, "1 native thread may"),
        (
            {"native": SLEEP, "call": Call("nanosleep", seconds=50.0)},
            "thread 8 (other) may, by a way that its frames do not show",
        ),
        ({"call": Call("accept", [Source("listener", "port 1")])}, "thread 8 (other) may"),
    ],
)
def test_nobody_is_not_said_where_a_thread_may_act_by_itself(more, said):
    end = end_of(add(waits(), 8, "other", **more))
    assert end.state == "unknown" and end.why.startswith("no Python frame that was read names it") and said in end.why


def test_nobody_is_not_said_where_a_handler_or_unsent_thread_may_act():
    handled = waits()
    handled.signals = ["SIGUSR1"]
    assert end_of(handled).state == "unknown" and "handler of SIGUSR1" in end_of(handled).why
    there = add(waits(), 8, "naps", **NATIVE)
    sent = exchange.machine_of("ssh:n0", 1, exchange.facts_data([there], [], "n0", "1"), [])
    assert [t.node for t in sent.processes[0].threads] == [node("a")], "a helper is not sent"
    assert (sent.processes[0].left_out, sent.processes[0].unsent) == (1, 1)
    assert end_of(*sent.processes).state == "unknown" and judge(sent.processes).kind == "unknown"
    rests = exchange.facts_data([add(waits(), 8, "rests", **{**NATIVE, "call": FUTEX})], [], "n0", "1")
    assert end_of(*exchange.machine_of("ssh:n0", 1, rests, []).processes).state == "nobody"


def test_the_other_end_is_with_nobody_where_no_thread_could_use_it():
    def reads(**more):
        one = process("a", python("main"), role="", call=Call("read", [Source("pipe", "pipe:[5]", 5)]))
        one.pid, one.peers = 1, {5: [(1, True), (1, False)]}
        return add(one, 8, "other", **more) if more else one

    assert end_of(reads()).state == "nobody"
    assert end_of(reads(**{**NATIVE, "call": FUTEX})).state == "nobody"
    end = end_of(reads(**NATIVE))
    assert end.state == "unknown" and end.why == "this process alone is seen to have the other end; 1 native thread may"


def test_a_native_thread_may_give_what_an_ended_one_could_have_given():
    def said(*more):
        one = waits("Queue", how="get", ended=["starter"])
        for number, other in enumerate(more, 8):
            add(one, number, "other", **other)
        return judge([one])

    assert said().kind == "dead-thread" == said({**NATIVE, "call": FUTEX}).kind
    assert "no thread that runs can end that wait" in said().evidence[-1]
    assert said(NATIVE).kind == "unknown"


def test_a_reader_of_its_own_socket_is_not_accused_if_native_code_writes():
    def said(**more):
        one = process("a", python("main"), role="", edge=Edge(node("a"), "the end of t", "Thread", ("a", 7)), call=FUTEX)
        add(one, 7, "t", call=Call("recv", [Source("unix", "a Unix socket", 5, [6])]))
        one.pid, one.peers = 1, {6: [(1, True)]}
        return outlook(Facts([add(one, 8, "other", **more)]), ("a", 7)).kind

    assert said(**{**NATIVE, "call": FUTEX}) == "sleeps" and said(**NATIVE) == "unknown"


# ---- ring ------------------------------------------------------------------------------------------------------------
def test_a_ring_of_owners_is_one_whatever_else_runs():
    one = process("a", python("main"), role="", edge=Edge(node("a"), "the Lock x", "Lock", ("a", 7), address=1), call=FUTEX)
    add(one, 7, "t", Edge(("a", 7), "the end of Main", "Thread", node("a")), call=FUTEX)
    assert end_of(add(one, 8, "naps", **NATIVE)).state == "ring"


def test_a_join_of_one_that_waits_for_what_the_joiner_can_reach_is_no_ring():
    def joined(**more):
        one = process("a", python("main"), role="", edge=Edge(node("a"), "the end of t", "Thread", ("a", 7)), call=FUTEX)
        add(one, 7, "t", Edge(("a", 7), "the Event e", "Event", candidates=[node("a")], address=1), call=FUTEX)
        return add(one, 8, "other", **more)

    assert end_of(joined(**{**NATIVE, "call": FUTEX})).state == "ring", "nothing else could set it"
    end = end_of(joined(**NATIVE))
    assert end.state == "unknown" and end.why.endswith("others could end the wait of a thread 7 (t): 1 native thread may")
    assert judge([joined(**NATIVE)]).kind == "unknown"


def test_one_of_several_permits_makes_no_ring():
    """A has one of two permits and wants B's lock, B wants a permit; C, which has the other one, gives it back."""
    first = Edge("A", "the Lock l", "Lock", "B", address=1)
    second = Edge("B", "the Semaphore s", "Semaphore", "A", address=2)
    assert len(cycles([first, second])) == 1 and root([first, second], "A")[1][-1].owner == "A"
    second.doubted = True
    assert not cycles([first, second])
    end, way = root([first, second], "A")
    assert end == "B" and [e.owner for e in way] == ["B", None]
    one = process("a", python("main"), role="", edge=Edge(node("a"), "the Lock l", "Lock", ("a", 7), address=1), call=FUTEX)
    add(one, 7, "b", Edge(("a", 7), "the Semaphore s", "Semaphore", node("a"), address=2, doubted=True), call=FUTEX)
    assert judge([one]).kind == "lock-cycle", "all others wait too"
    assert judge([add(one, 8, "c", native=SLEEP, call=Call("nanosleep", seconds=5.0))]).kind == "unknown"


# ---- ranks -----------------------------------------------------------------------------------------------------------
def ranks(frames, begun=((5,), (5,)), peers=(None, None), moved=False):
    found = []
    for number, count in enumerate(begun):
        one = process(f"R{number}", frames, role="", world=(number, 2), call=FUTEX)
        one.job, one.counts = "j", [Count("gloo group 0 (2 ranks)", number, 2, {"": n}, True) for n in count]
        one.threads[0].group, one.threads[0].peer = "gloo group 0 (2 ranks)" if count else "", peers[number]
        one.counters = [Counter(one.name, 1, "collectives begun in gloo group 0 (2 ranks)", 4, 5 if moved else 4)]
        found.append(one)
    return found


def test_the_cause_is_in_no_stack_only_where_all_have_begun_as_many():
    cause = "the cause is not in these processes' stacks"
    assert cause in judge_all(ranks(inside()))[0].evidence[-1]
    for one in (ranks(inside(), begun=((), ())), ranks(inside(), begun=((5,), (4,))), ranks(inside(), moved=True)):
        said = judge_all(one)[0]
        assert said.kind in ("unknown", "collective", "busy") and cause not in " ".join(said.evidence), said.evidence


def test_two_ranks_that_receive_from_each_other_are_told_as_such():
    said = judge_all(ranks(inside("recv"), peers=(1, 0)))[0]
    assert said.kind == "unknown" and "the cause is not" not in " ".join(said.evidence)
    assert any("R0 waits for rank 1; R1 waits for rank 0" in line for line in said.evidence), said.evidence
    end = chain_of(Facts(ranks(inside("recv"), peers=(1, 0))), node("R0"))
    assert [at for at, _ in end.through] == [node("R1")]


@pytest.mark.parametrize("imported", [True, False])
def test_a_rank_that_was_read_is_never_one_that_was_not_asked(imported):
    """It stands before init_process_group: its environment says which it is."""
    init = python("_store_based_barrier", file="/x/torch/distributed/distributed_c10d.py")
    found = []
    for number in range(4):
        one = process(f"R{number}", python("load") if number == 3 else init, role="", world=(number, 4), call=FUTEX)
        one.job, one.per_node, one.stands_for, one.pid = "127.0.0.1:29500 in net", 1, (number, 4), 100 + number
        found.append(one)
    if not imported:
        found[3].world = None
    said = judge_all(found)
    lines = [line for verdict in said for line in verdict.evidence]
    assert not any("not asked" in line or "missing" in line for line in lines), lines
    assert said[0].culprits == [node("R3")] and not any(verdict.not_asked for verdict in said)
    found[3].world, found[3].stands_for = (3, 4), None  # what one of them has started is no rank
    child = process("c", python("helps"), role="", call=FUTEX)
    child.job, child.stands_for, child.pid, child.ancestors = found[0].job, (0, 4), 200, {100}
    absent.adopt(Facts([*found, child]))
    assert child.world is None


# ---- processes -------------------------------------------------------------------------------------------------------
def test_only_a_process_that_exists_is_to_be_named():
    one = waits("Process")
    one.threads[0].edge.pid = 9
    assert "process 9 was not asked: name that one too" in judge([one]).evidence
    one.programs = {9: "sleep, in hrtimer_nanosleep"}
    assert "process 9 (sleep, in hrtimer_nanosleep) was not asked: name that one too" in judge([one]).evidence
    assert "process 9 (sleep, in hrtimer_nanosleep) was not read" in end_of(one).why
    one.gone = [9]
    assert not any("name that one" in line for line in judge([one]).evidence) and end_of(one).state == "ended"


def test_a_pool_says_what_is_known_of_its_workers_and_threads():
    edge = Edge(node("a"), "a result of the Pool", "Job", pids=[2], address=7)
    assert "may have had it" in jobs.why_lost(edge) and "is lost" not in jobs.why_lost(edge)
    edge.ended = ["Thread-3 (_handle_results)"]
    assert jobs.why_lost(edge) == "Thread-3 (_handle_results), which takes the results of the pool in, has ended"
    edge.ended, edge.pids = [], []
    assert jobs.why_lost(edge) == jobs.GONE


def test_what_moves_is_not_said_to_be_blocked():
    moves = process("a", python("main"), role="", moved=True, load=0.01)
    assert judge([moves]).evidence[-1] == absent.NOT_BLOCKED
    stands = process("a", python("main"), role="", call=Call("flock", [Source("file", "/x")]))
    assert judge([stands]).evidence[-1] == "nothing that was read shows why it is blocked here"


# ---- native locks ----------------------------------------------------------------------------------------------------
BASE = 0x7000


def thread(tid, *functions, word=0):
    one = ThreadView(SimpleNamespace(tid=tid, ns_tid=tid, name=f"t{tid}", state="S", word=word))
    one.native = [SimpleNamespace(function=name, library="libc.so.6") for name in functions]
    one.frames = [SimpleNamespace(kind="native", function=name, file="/x/libx.so", line=None) for name in functions]
    return one


def lock(monkeypatch, readers, writer, flags, *threads):
    data = bytearray(64)
    struct.pack_into("<4I", data, 0, readers, 0, 3 if readers & 1 else 2, 1)
    struct.pack_into("<I", data, CUR_WRITER, writer)
    struct.pack_into("<I", data, RW_FLAGS, flags)
    target = FakeTarget({BASE: bytes(data)}, [Mapping(BASE, BASE + 64, "rw-p", 0, "")])
    monkeypatch.setattr(native_waits.gil, "futex_of", lambda target, thread: thread.word)
    return SimpleNamespace(name="a", target=target, threads=list(threads))


def test_a_rwlock_names_its_writer_and_counts_its_readers(monkeypatch):
    reads = thread(1, "futex_wait", "__pthread_rwlock_rdlock", "work")
    writes = thread(2, "futex_wait", "pthread_rwlock_wrlock", "work", word=BASE + 8)
    view = lock(monkeypatch, 3, 2, 0, reads, writes)  # locked for writing
    edge = native_waits.other(view, reads, BASE + 8)
    assert (edge.kind, edge.owner, edge.address) == ("rwlock", ("a", 2), BASE)
    view = lock(monkeypatch, 2 | 4 | 1 << 3, 0, WRITERS_FIRST, reads, writes)  # a reader has it, a writer waits and goes first
    behind = native_waits.other(view, reads, BASE)
    assert (behind.candidates, behind.every, behind.owner, behind.address) == ([("a", 2)], True, None, BASE)
    waits = native_waits.other(view, writes, BASE + 8)
    assert waits.owner is None and waits.note == "it counts 1 reader, and keeps no note of it" and waits.address == BASE
    gone = native_waits.other(lock(monkeypatch, 3, 99, 0, reads), reads, BASE + 8)
    assert gone.orphan and "thread 99, does not exist" in gone.note


@pytest.mark.parametrize(
    "function", ["pthread_barrier_wait", "__pthread_once_slow", "__cxa_guard_acquire", "pthread_rwlock_rdlock"]
)
def test_no_thread_rests_in_a_lock_and_each_such_wait_is_named(monkeypatch, function):
    one = thread(1, "__futex_abstimed_wait_common", function, "work")
    assert not one.idle and thread(1, "__futex_abstimed_wait_common", "pthread_cond_wait", "worker").idle
    assert native_waits.other(lock(monkeypatch, 3, 0, 0, one), one, BASE + 8) is not None


def test_waits_of_native_code_that_are_not_known_are_counted_and_named():
    spins, locks, rests = thread(1, "pthread_spin_lock", "work"), thread(2, "syscall", "lock_contended"), thread(3, "futex_wait")
    found, asleep = native_waits.untold(SimpleNamespace(threads=[spins, locks, rests]), {3})
    assert [(th.tid, what) for th, what in found] == [(1, "pthread_spin_lock")] and asleep == 1
    told = [{"label": "TP0", "tid": tid, "name": "t", "function": "pthread_spin_lock"} for tid in range(8)]
    (line,) = untold_lines(told, Style(False))
    assert line.startswith("8 threads wait in native code for what cannot be told: pthread_spin_lock: TP0 thread 0 (t)")
    assert line.endswith("…")


# ---- the table -------------------------------------------------------------------------------------------------------
def literals():
    """(place, text) of each sentence of these rooms that claims what `SURE` matches."""
    for room in ROOMS:
        top = os.path.join(ROOT, "gdbext", room)
        files = (
            [top] if top.endswith(".py") else [os.path.join(at, f) for at, _, fs in os.walk(top) for f in fs if f.endswith(".py")]
        )
        for path in sorted(files):
            with open(path) as f:
                tree = ast.parse(f.read())
            docs = {
                id(n.body[0].value)
                for n in ast.walk(tree)
                if getattr(n, "body", None) and isinstance(n.body, list) and isinstance(n.body[0], ast.Expr)
            }
            parts = {id(part) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for part in n.values}
            for n in ast.walk(tree):
                if isinstance(n, ast.JoinedStr):
                    text = "".join(part.value if isinstance(part, ast.Constant) else "…" for part in n.values)
                elif isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in docs | parts:
                    text = n.value
                else:
                    continue
                seen = SAID_OF_WHAT_WAS_SEEN.search(text) and "the cause is not" not in text
                if SURE.search(text) and " " in text and not seen:
                    yield f"{os.path.relpath(path, ROOT)}:{n.lineno}", text


def test_each_sure_sentence_has_its_proof_in_the_docs():
    with open(os.path.join(ROOT, "docs", "verdicts.md")) as f:
        table = f.read().partition("## Sentences that are sure")[2].partition("\n## ")[0]
    rows, seen = table.partition("The following say")[::2]
    known = [cell for row in rows.splitlines() if row.startswith("| ") for cell in re.findall(r"`([^`]+)`", row.split("|")[1])]
    known = [cell for cell in known if " " in cell] + re.findall(r"`([^`]+)`", " ".join(seen.split()))
    said = list(literals())
    assert len(known) > 20 and not [one for one in said if not any(cell in one[1] for cell in known)]
    assert not [cell for cell in known if not any(cell in text for _, text in said)], "no sentence says that any more"
