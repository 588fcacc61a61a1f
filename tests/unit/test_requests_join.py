"""Looks at the processes of an engine, brought together by request: each state by construction, with its decoys. No process is
looked at."""

import pytest
from harness.facts import sample

from gdbext.engines.sightings import (
    DETOKENIZER,
    FRONTEND,
    INPUT,
    OUTPUT,
    QUEUE,
    RUNNING,
    WORKER,
    Keeper,
    Look,
    Sighting,
    Transfer,
)
from gdbext.kvcache import waiting
from gdbext.kvcache.model import Request
from gdbext.observe.stack_keys import FrameKey
from gdbext.requests.instances import Side, relate
from gdbext.requests.join import join, progress
from gdbext.requests.model import BEHIND, LOST, MOVING, NEVER_FITS, PARKED, QUEUED, THRASH, ZOMBIE

MAIN, READER = 101, 102


def front(*sightings, label="frontend", pid=1, notes=()):
    return Look(label, pid, "frontend", ("frontend",), list(sightings), notes=list(notes))


def core(*sightings, steps=0, stands="", alive=True, pid=2, notes=()):
    keepers = {
        QUEUE: Keeper("main", MAIN),
        RUNNING: Keeper("main", MAIN),
        INPUT: Keeper("process_input_sockets", READER if alive else None, stands),
    }
    return Look(
        "EngineCore", pid, "engine-core", ("scheduler",), list(sightings), keepers, {"scheduler steps": steps}, notes=list(notes)
    )


def awaited(name, tokens=0, **more):
    return Sighting(name, FRONTEND, "awaited", progress=(tokens,), **more)


def runs(name, tokens=0, **more):
    return Sighting(name, RUNNING, "RUNNING", progress=(32 + tokens, tokens), request=Request(name), **more)


def waits(name, **more):
    return Sighting(name, QUEUE, "WAITING", progress=(0, 0), request=Request(name), **more)


def verdicts(now, before):
    return {t.request_id: t.verdict for t in join(now, before)}


def test_requests_that_get_on_move_and_those_behind_them_are_queued():
    before = [front(awaited("a"), awaited("b"), awaited("c")), core(runs("a", 3), waits("b"), waits("c"))]
    now = [front(awaited("a", 1), awaited("b"), awaited("c")), core(runs("a", 5), waits("b"), waits("c"), steps=2)]
    assert verdicts(now, before) == {"a": MOVING, "b": QUEUED, "c": QUEUED}
    a, b, _ = join(now, before)
    assert (
        a.moved
        and not b.moved
        and b.holder is None
        and b.at.data() == {"label": "EngineCore", "pid": 2, "tid": MAIN, "thread": "main"}
    )
    assert [(c.what, c.before, c.after) for c in progress(now, before)] == [("scheduler steps", 0, 2)]


def test_nothing_moves_and_the_scheduler_must_act():
    look = [front(awaited("a"), awaited("b")), core(runs("a", 3), waits("b"))]
    found = join(look, look)
    assert [t.verdict for t in found] == [BEHIND, BEHIND] and found[0].holder.tid == MAIN and not found[0].moved
    assert "nothing that it schedules moves" in found[0].evidence[0]


def test_a_thread_that_the_last_look_did_not_find_goes_on_all_the_same():
    """As seen on a vLLM at a load of 13: its evidence asked where that thread stands."""
    looks = [[core(runs("a", 3), waits("b"))] for _ in range(3)]
    for number, (one,) in enumerate(looks):
        for stage in (QUEUE, RUNNING):
            one.keepers[stage] = Keeper("main", MAIN, "step", turns=number)
    for stage in (QUEUE, RUNNING):
        del looks[2][0].keepers[stage]
    for found in join(looks[2], looks[0], [looks[1]]):
        assert found.verdict == "" and "a place that was not read" in found.evidence[0], found


def test_a_scheduler_that_one_look_could_not_read_moves_nothing():
    """As seen on SGLang at a load of 13: a prompt that never fits was called moving."""
    whole, unread = core(waits("a"), runs("b", 3)), Look("EngineCore", 2, "engine-core", notes=["EngineCore: ask again"])
    for before, now in ((whole, unread), (unread, whole), (unread, unread)):
        looks = [[front(awaited("a"), awaited("b", n)), one] for n, one in enumerate((before, now))]
        found = {t.request_id: t for t in join(looks[1], looks[0])}
        assert not found["a"].moved and found["a"].verdict not in (MOVING, LOST, ZOMBIE), found
        assert found["b"].moved and found["b"].verdict == MOVING  # its front end has another token


def test_a_request_that_never_fits_and_those_behind_it():
    big = waits("big", never_fits=True, waits_for="9 blocks for its 270 tokens, where there are 7 in all")
    look = [front(awaited("a"), awaited("big"), awaited("z")), core(runs("a"), big, waits("z"))]
    moved = [front(awaited("a", 1), awaited("big"), awaited("z")), core(runs("a", 1), big, waits("z"))]
    assert verdicts(moved, look) == {"a": MOVING, "big": NEVER_FITS, "z": BEHIND}
    found = {t.request_id: t for t in join(moved, look)}
    assert found["z"].behind == ["big"] and "9 blocks" in found["big"].evidence[0]
    assert verdicts(look, None)["big"] == NEVER_FITS  # one look is enough


def test_a_count_of_one_sample_alone_makes_no_request_never_fit():
    torn = {"never_fits": True, "waits_for": "1091595404270 blocks for its 139724211746464 tokens, where there are 4095 in all"}
    fits = [front(awaited("a")), core(waits("a"))]
    for first, last in ((fits, torn), ([front(), core()], torn), (fits, {})):  # it fitted before; it is new; its healthy twin
        assert verdicts([front(awaited("a")), core(waits("a", **torn if last else {}))], first)["a"] != NEVER_FITS
    always = [front(awaited("a")), core(waits("a", **torn))]
    assert verdicts(always, always)["a"] == NEVER_FITS


def test_a_transfer_that_does_not_come_parks_its_request_alone():
    parked = waits("p", parked=True, waits_for="transfer: KV blocks from another process")
    before = [front(awaited("a"), awaited("p"), awaited("q")), core(runs("a"), parked, waits("q"))]
    now = [front(awaited("a", 1), awaited("p"), awaited("q")), core(runs("a", 1), parked, waits("q"))]
    assert verdicts(now, before) == {"a": MOVING, "p": PARKED, "q": QUEUED}


def test_requests_behind_blocks_that_parked_requests_hold_are_behind_these():
    """As seen on vLLM 0.32 with a connector that never delivers: its steps go round, and nothing is computed."""

    def look(holder, steps):
        lacks = waits("b", waits_for="blocks: needs 7 of group 0, 3 free")
        return [front(awaited("p"), awaited("b"), awaited("c")), core(holder, lacks, waits("c"), steps=steps)]

    def parked(blocks):
        holder = waits("p", parked=True, waits_for="transfer: KV blocks from another process")
        holder.holds = len(blocks)  # in the look; its table is read later
        return holder

    found = {t.request_id: t for t in join(look(parked([1, 2]), 9), look(parked([1, 2]), 3))}
    assert [found[n].verdict for n in "pbc"] == [PARKED, BEHIND, BEHIND]
    assert found["b"].behind == found["c"].behind == ["p"] and found["b"].holder is None
    assert "p" in found["b"].evidence[0]
    none = {t.request_id: t.verdict for t in join(look(parked([]), 9), look(parked([]), 3))}
    assert none["b"] != BEHIND or none["p"] == PARKED  # who holds no block is not what is lacking
    moving = runs("p", 4)
    moving.request.blocks = {0: [1, 2]}
    assert verdicts(look(moving, 9), look(runs("p", 2), 3)) == {"p": MOVING, "b": QUEUED, "c": QUEUED}


def test_lost_only_where_every_process_that_could_have_it_was_read():
    before, now = ([front(awaited("gone"), awaited("a", n)), core(runs("a", n))] for n in (1, 2))
    assert verdicts(now, before) == {"gone": LOST, "a": MOVING}
    unread = [*now, Look("EngineCore.DP1", 3, "engine-core", notes=["EngineCore.DP1: not readable"])]
    assert verdicts(unread, [*before, unread[-1]])["gone"] == ""
    assert verdicts(now, None)["gone"] == ""  # one look: it may be on its way


def test_a_request_on_its_way_into_the_scheduler_or_out_of_it_is_not_lost():
    started = [front(awaited("new")), core(runs("a"))]
    assert verdicts(started, [front(), core(runs("a"))])["new"] == MOVING
    arrived, gone = [front(awaited("b")), core(waits("b"))], [front(awaited("b")), core()]
    assert verdicts(gone, arrived)["b"] == MOVING and verdicts(arrived, gone)["b"] == MOVING


def test_a_dead_input_thread_is_named_and_a_busy_one_is_waited_for():
    dead = [front(awaited("a"), awaited("b")), core(alive=False)]
    found = join(dead, dead)
    assert [t.verdict for t in found] == [LOST, LOST]
    assert found[0].holder.thread == "process_input_sockets" and "has ended" in found[0].evidence[0]
    in_hands = Sighting("a", INPUT, "held by its input thread", tid=READER)
    loop = [front(awaited("a"), awaited("b")), core(in_hands, stands="LRU.touch (cache.py:7)")]
    found = {t.request_id: t for t in join(loop, loop)}
    assert found["a"].verdict == found["b"].verdict == BEHIND
    assert found["a"].holder.tid == found["b"].holder.tid == READER and "LRU.touch" in found["b"].evidence[0]
    once = [front(awaited("a"), awaited("b")), core()]
    assert not any("has ended" in str(t.evidence) for t in join(dead, once))  # one look may have missed the thread


def test_a_zombie_only_where_no_front_end_has_it_both_times():
    before, now = ([front(awaited("a", n)), core(runs("a", n), runs("z", n))] for n in (1, 2))
    assert verdicts(now, before) == {"a": MOVING, "z": ZOMBIE}
    assert join(now, before)[1].holder.pid == 2
    aborted = [front(awaited("a", 1), awaited("z")), core(runs("a", 1), runs("z", 1))]
    assert verdicts(now, aborted)["z"] == MOVING  # just aborted: the engine has not heard of it
    unread = [now[0], Look("APIServer.1", 4, "api-server", notes=["not readable"]), now[1]]
    assert verdicts(unread, [before[0], unread[1], before[1]])["z"] == MOVING
    assert verdicts([now[1]], [before[1]])["z"] == MOVING  # no front end was found at all


def test_a_request_of_several_front_ends_and_ranks_is_one():
    looks = [
        front(awaited("x"), label="APIServer.0", pid=1),
        front(awaited("y"), label="APIServer.1", pid=5),
        core(runs("x", 1), runs("y", 1)),
        Look("TP0", 7, "worker", ("worker",), [Sighting("x", WORKER, "in the batch"), Sighting("y", WORKER, "in the batch")]),
    ]
    found = join(looks, looks)
    assert [t.request_id for t in found] == ["x", "y"] and [s.stage for _, s in found[0].hops] == [FRONTEND, RUNNING, WORKER]


def test_what_is_done_and_only_handed_out_is_no_open_request():
    done = Sighting("a", FRONTEND, "answered, not read yet", ended=True)
    assert join([front(done), core()], [front(done), core()]) == []
    text = Look("detokenizer", 9, "detokenizer", ("detokenizer",), [Sighting("a", DETOKENIZER, "its text is made", ended=True)])
    kept = Sighting("a", OUTPUT, "FINISHED_LENGTH_CAPPED", ended=True)
    assert join([front(), core(kept), text], None) == []


@pytest.mark.parametrize("count", [10_000])
def test_ten_thousand_requests_are_joined(count):
    looks = [front(*(awaited(str(i)) for i in range(count))), core(*(waits(str(i)) for i in range(count)))]
    found = join(looks, looks)
    assert len(found) == count and {t.verdict for t in found} == {BEHIND}


# ---- SGLang's way: one thread takes in and schedules, one makes the text, one task takes the answers in ------------------------
def key(place, *variables):
    """A stack's key: its loop, and the frame in which it stands, with their variables."""
    return FrameKey(7, place, repr(variables).encode(), ()), FrameKey(1, 10, b"loop", ())


def server(*sightings, stands="", task=True, woken=False, place=0):
    loop = Keeper("handle_loop", 11, stands, woken, sample(key(place)), kind="task")
    keepers = {FRONTEND: loop, OUTPUT: loop if task else Keeper("handle_loop", None, kind="task")}
    return Look("server", 1, "api-server", ("frontend",), list(sightings), keepers)


def scheduler(*sightings, stands="", passes=0, variables=(), woken=False):
    main = Keeper("main", 22, stands, woken, sample(key(1, *variables)), passes)
    return Look("scheduler", 2, "scheduler", ("scheduler",), list(sightings), dict.fromkeys((INPUT, QUEUE, RUNNING), main))


def detokenizer(*names, stands="", woken=False):
    text = [Sighting(name, DETOKENIZER, "its text is made", progress=(8,), ended=True) for name in names]
    return Look(
        "detokenizer", 3, "detokenizer", ("detokenizer",), text, {DETOKENIZER: Keeper("main", 33, stands, woken, sample(key(2)))}
    )


def test_lost_after_its_text_was_begun():
    look = [server(awaited("a")), scheduler(), detokenizer("a")]
    (found,) = join(look, look)
    assert found.verdict == LOST and found.holder is None and [s.stage for _, s in found.hops] == [FRONTEND, DETOKENIZER]


@pytest.mark.parametrize(
    "look,label,thread",
    [
        ([server(awaited("a")), scheduler(), detokenizer(stands="decode (d.py:3)")], "detokenizer", "main"),
        ([server(awaited("a"), stands="tokenize (t.py:3)"), scheduler(), detokenizer()], "server", "handle_loop"),
        ([server(awaited("a")), scheduler(stands="evict (tree.py:3)"), detokenizer()], "scheduler", "main"),
    ],
)
def test_whoever_stands_on_the_way_of_an_answer_is_waited_for(look, label, thread):
    (found,) = join(look, look)
    assert found.verdict == BEHIND and (found.holder.label, found.holder.thread) == (label, thread)
    assert join(look)[0].verdict == ""  # one look: it may get on


def test_nothing_is_accused_while_something_on_the_way_gets_on():
    first = [server(awaited("a")), scheduler(stands="forward (m.py:3)", variables=(1,)), detokenizer()]
    second = [server(awaited("a")), scheduler(stands="forward (m.py:3)", variables=(2,)), detokenizer()]
    assert verdicts(second, first)["a"] == ""  # a long step: it takes in what came when that is done
    waiting = [server(awaited("a")), scheduler(), detokenizer(woken=True)]
    assert verdicts(waiting, waiting)["a"] == ""  # its answer may lie in the socket of a thread that waits for a CPU
    passes = [[server(awaited("a")), scheduler(stands="forward (m.py:3)", passes=n), detokenizer()] for n in (3, 4, 5)]
    assert verdicts(passes[1], passes[0])["a"] == "" and verdicts(passes[2], passes[0])["a"] == LOST
    long = [[server(awaited("a")), scheduler(runs("a"), stands="forward (m.py:3)", variables=(n,))] for n in (1, 2)]
    assert verdicts(long[1], long[0])["a"] == "" and verdicts(long[0], long[0])["a"] == BEHIND


def test_answers_that_were_made_later_have_come_and_its_own_has_not():
    def look(come, made, passes, rest=()):
        other = Sighting("b", RUNNING, "running", progress=(made,), request=Request("b", output_tokens=made))
        known = [awaited("a"), Sighting("b", FRONTEND, "awaited", progress=(come,), tokens=come)]
        return [server(*known, woken=True), scheduler(other, passes=passes), *rest, detokenizer("b", woken=True)]

    first = look(6, 7, 3)
    assert verdicts(look(8, 10, 6), first)["a"] == LOST
    assert verdicts(look(7, 10, 6), first)["a"] == ""  # its own may be next
    gone = [server(awaited("a"), woken=True), scheduler(passes=9), detokenizer(woken=True)]  # the other one has ended by now
    assert join(gone, first, [look(8, 10, 6)])[0].verdict == LOST and verdicts(gone, first)["a"] == ""
    others = [Look("DP1", 4, "scheduler", ("scheduler",), [])]  # a scheduler of its own, whose answers come on another way
    assert verdicts(look(8, 10, 6, others), look(6, 7, 3, others))["a"] == ""


def test_a_front_end_sampled_before_the_scheduler_may_have_its_answer():
    before, now = ([server(awaited("a"), woken=woken), scheduler(), detokenizer()] for woken in (False, True))
    assert verdicts(now, before)["a"] == "" and verdicts(before, now)["a"] == LOST


def test_a_task_that_has_ended_takes_no_answer_in():
    look = [server(awaited("a"), task=False), scheduler(), detokenizer()]
    (found,) = join(look, look)
    assert found.verdict == LOST and found.holder.data() == {"label": "server", "pid": 1, "thread": "handle_loop"}
    (why,) = found.evidence
    assert "handle_loop" in why and "has ended" in why


def test_a_request_that_the_server_has_not_handed_on():
    kept = server(awaited("a", undelivered=True), stands="tokenize (t.py:3)")
    (found,) = join([kept, scheduler()], [kept, scheduler()])
    assert found.verdict == BEHIND and found.holder.label == "server" and "tokenize (t.py:3)" in found.evidence[0]


def test_a_request_at_a_lock_before_the_engine_accuses_no_resting_loop():
    kept = server(awaited("a", undelivered=True, waits_for="model_update_lock, which an update of the weights has"))
    (found,) = join([kept, scheduler()], [kept, scheduler()])
    assert (found.verdict, found.holder) == (PARKED, None) and "its event loop rests" in found.evidence[0]
    unknown = server(awaited("a", undelivered=True))
    (found,) = join([unknown, scheduler()], [unknown, scheduler()])
    assert (found.verdict, found.holder) == (BEHIND, None)


def test_a_paused_engine_parks_its_requests_and_a_stuck_one_is_accused():
    held, going = waits("a"), waits("a")
    held.pause("the engine, which is paused: /resume lets it go on")
    (found,) = join([front(awaited("a")), core(held)], [front(awaited("a")), core(held)])
    assert (found.verdict, found.holder, found.paused) == (PARKED, None, True) and "/resume" in found.waits_for
    (found,) = join([front(awaited("a")), core(going)], [front(awaited("a")), core(going)])
    assert (found.verdict, found.holder.label, found.paused) == (BEHIND, "EngineCore", False)


def test_a_stopped_process_takes_what_passes_it_alone():
    text = detokenizer()
    text.stopped = "SIGSTOP"
    for parked in (True, False):  # it stands at its scheduler: its text is not on the way yet
        own = waits("a", parked=parked, waits_for="transfer: the prefill server's answer" if parked else "")
        (found,) = join([server(awaited("a")), scheduler(own), text], [server(awaited("a")), scheduler(own), text])
        assert found.holder is None or found.holder.label != "detokenizer"
    looks = [server(awaited("a")), scheduler(), text]
    (found,) = join(looks, looks)
    assert (found.verdict, found.holder.label) == (BEHIND, "detokenizer")
    looks[1].bypassed = (DETOKENIZER,)
    (found,) = join(looks, looks)
    assert found.verdict == LOST and found.holder is None


def test_what_the_engine_asks_itself_is_no_zombie():
    before, now = ([server(), scheduler(runs("HEALTH_CHECK_1", n, unowned=True))] for n in (1, 2))
    assert verdicts(now, before) == {"HEALTH_CHECK_1": MOVING}


def test_an_unasked_sender_of_a_transfer_must_act_not_a_polling_worker():
    for sender, stands, holder in (("10.0.0.7:5600", "", None), ("10.0.0.7:5600", "lock", "TP0"), ("", "", "TP0")):
        move = Transfer(("request", "prefill-1", "q"), False, "", "prefill-1", sender) if sender else None
        parked = waits("p", parked=True, waits_for="transfer: KV blocks from another process", transfer=move)
        worker = Look("TP0", 3, "worker", ("worker",), [], {WORKER: still(stands) if stands else Keeper("main", 301)})
        worker.transfers = {"p": "NixlConnector.connector_worker._recving_transfers"}
        look = [front(awaited("p")), core(parked), worker]
        (found,) = join(look, look)
        relate([Side("decode", look, [found])])
        assert (found.verdict, found.holder and found.holder.label) == (PARKED, holder)
        assert any("10.0.0.7:5600, was not asked" in line for line in found.evidence) is (holder is None)


def test_a_request_for_blocks_kept_for_readers_elsewhere_is_queued():
    done = Sighting("done", QUEUE, "FINISHED_STOPPED", request=Request("done"), ended=True)
    done.request.transfer = True
    short = waiting.shortage("7 of group 0", "3 free", {"done": 50})
    for kept, wait, verdict in (([done], short, QUEUED), ([], short, BEHIND), ([done], waiting.NEXT_STEP, BEHIND)):
        look = [front(awaited("a"), awaited("b")), core(waits("a", waits_for=wait), waits("b"), *kept)]
        found = join(look, look)
        assert [t.verdict for t in found] == [verdict, verdict], (wait, kept)
        assert any("for readers elsewhere" in line for line in found[0].evidence) is (verdict == QUEUED)


def test_a_worker_that_waits_for_a_step_does_not_block_its_transfers():
    for keeper, holder in (
        (Keeper("main", 301, "acquire_read (shm_broadcast.py:9)", ring="psm_1"), None),
        (still("lock"), "TP0"),
    ):
        move = Transfer(("request", "prefill-1", "q"), False, "", "prefill-1", "10.0.0.7:5600")
        parked = waits("p", parked=True, waits_for="transfer: KV blocks from another process", transfer=move)
        worker = Look("TP0", 3, "worker", ("worker",), [], {WORKER: keeper})
        worker.transfers, worker.receiving = {"p": "NixlConnector.connector_worker._recving_transfers"}, {"p": "transfer"}
        look = [front(awaited("p")), core(parked), worker]
        (found,) = join(look, look)
        assert (found.verdict, found.holder and found.holder.label, move.state) == (PARKED, holder, "transfer")


def still(where):
    """A thread that did nothing between two looks."""
    return Keeper("main", 301, where, sample=sample(None, ran=1.0, tid=301))


def preempted(name, computed, output, times):
    numbers = Request(name, computed_tokens=computed, output_tokens=output, preemptions=times)
    return Sighting(name, RUNNING, "RUNNING", progress=(computed, output, times), request=numbers)


def test_requests_preempted_over_and_over_without_a_token_thrash():
    def said(*pairs):
        now, before = ([runs_ for runs_ in side if runs_ is not None] for side in zip(*pairs))
        names = {one.request_id for one in now}
        fronts = [awaited(name) for name in sorted(names)]
        return {t.request_id: t.verdict for t in join([front(*fronts), core(*now)], [front(*fronts), core(*before)])}

    assert said((preempted("a", 64, 0, 400), preempted("a", 32, 0, 390))) == {"a": THRASH}
    assert said((preempted("a", 64, 0, 391), preempted("a", 32, 0, 390))) == {"a": MOVING}  # once or twice is nothing
    assert said((preempted("a", 64, 1, 400), preempted("a", 32, 0, 390))) == {"a": MOVING}
    others = (preempted("b", 9, 3, 0), preempted("b", 9, 2, 0))  # another one gets on
    assert said((preempted("a", 64, 0, 400), preempted("a", 32, 0, 390)), others)["a"] == MOVING
