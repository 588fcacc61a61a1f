"""A session ties labels, indices and pids to processes, not to numbers that the kernel gives out again."""

import json
import os
import sys

import pytest
from harness.subjects import ready_line, spawned

from gdbext.access import proctable
from gdbext.engines.processes import ProcessRef, ranks_of
from gdbext.engines.rank import Rank
from gdbext.engines.spec import Match
from gdbext.engines.targets import Targets
from gdbext.errors import NotFoundError
from gdbext.session.command import UNPROVEN, Answer
from gdbext.session.session import Session


@pytest.fixture
def engine():
    """A process that stands for an engine's. -> its Popen"""
    with spawned([sys.executable, "-c", "input()"]) as process:
        yield process


def listed(pid):
    """A session that has listed the process as TP0, and its rank."""
    session, process = Session(), next(p for p in proctable.ProcTable() if p.pid == pid)
    rank = Rank(process, "vllm", Match("worker", {"tp": 0}), "title")
    rank.label, rank.index = "TP0", 0
    session.ranks = [rank]
    return session, rank


def test_a_label_whose_process_has_ended_is_refused_by_name(engine):
    session, rank = listed(engine.pid)
    assert ranks_of(session.resolve(str(rank.index))) == [rank]
    engine.kill()
    engine.wait()
    for what in (rank.label, str(rank.index)):
        with pytest.raises(NotFoundError, match=rf"{rank.label} \(pid {engine.pid}\).* has ended; llm-ranks"):
            session.resolve(what)
    with pytest.raises(NotFoundError, match="has ended"):
        session.open(ProcessRef.of_rank(rank))


def test_a_pid_that_another_process_has_now_is_refused_by_name(engine):
    session, rank = listed(engine.pid)
    rank.process.started -= 1  # as the kernel tells of a process that began at another time
    with pytest.raises(NotFoundError, match="its pid belongs to another process now"):
        session.resolve(rank.label)


def test_a_process_is_opened_anew_when_its_pid_is_given_out_again(engine, monkeypatch):
    session = Session()
    first = session.open(ProcessRef(engine.pid))
    assert session.open(ProcessRef(engine.pid)) is first
    monkeypatch.setattr("gdbext.access.ptrace.start_time", lambda pid: 1)
    assert session.open(ProcessRef(engine.pid)) is not first


def test_a_process_that_execs_is_read_as_what_it_is_now():
    again = "print(1, flush=True); input()"
    code = f"import os, sys; print(0, flush=True); input(); os.execv(sys.executable, [sys.executable, '-c', '{again}'])"
    with spawned([sys.executable, "-c", code], ready="0") as process:
        session = Session()
        before = session.open(ProcessRef(process.pid))
        assert before.read(before.modules()[0].base, 4) == b"\x7fELF"
        process.stdin.write("\n")
        process.stdin.flush()
        ready_line(process, "1", 60)
        after = session.open(ProcessRef(process.pid))
        assert after.read(after.modules()[0].base, 4) == b"\x7fELF"


def test_what_the_debugger_has_attached_is_read_through_the_debugger(engine):
    attached = object()
    targets = Targets(lambda pid: attached if pid == engine.pid else None)
    rank, here = ProcessRef.of_rank(listed(engine.pid)[1]), ProcessRef(os.getpid())
    assert targets.of(ProcessRef(engine.pid)) is targets.of(rank) is targets.attached(rank) is attached
    assert targets.attached(here) is None and targets.attached(ProcessRef(core="a.core")) is None
    assert targets.of(here).pid == os.getpid()


def test_two_names_of_a_process_are_one(engine):
    session, rank = listed(engine.pid)
    listing = [*session.resolve("TP0"), *session.resolve("0"), *session.resolve(str(engine.pid)), ProcessRef(engine.pid)]
    assert len(set(listing)) == 1 and len({ProcessRef(1), ProcessRef(1, node="b"), ProcessRef(core="./1")}) == 3
    assert (listing[0].name, listing[0].exact, listing[0].rank) == ("TP0", str(engine.pid), rank)
    assert session.process(engine.pid).label == "TP0" and session.process(os.getpid()).rank is None
    assert ProcessRef(7, "TP0", node="b").name == "b/TP0" and ProcessRef(core="./a.core").exact == "./a.core"


def test_a_process_tells_what_has_become_of_it(engine):
    process = next(p for p in proctable.ProcTable() if p.pid == os.getpid())
    assert process.fate() == ""


def test_a_name_with_several_places_shows_all_and_unstopped_in_words():
    from gdbext.answers.breakpoints import set_text
    from gdbext.render.text import PLAIN

    data = {"command": "pybreak", "number": 1, "file": "/a/llama.py", "line": 3, "function": "Layer.forward", "condition": ""}
    said = set_text({**data, "count": 1, "pending": False, "places": 2, "also": ["/b/eagle.py:7"]}, PLAIN)
    assert said == "pybreak 1: /a/llama.py:3  Layer.forward  and /b/eagle.py:7  (2 debug registers)"
    assert Answer({}, "text", ["unstopped"]).to_text() == "text\n(read while it ran)"
    assert '"partial": ["unstopped"]' in Answer({}, "text", ["unstopped"]).json("pybt")
    held = "TP0: process 9 (gdb), which traces it, holds it: it was read as it is, without being stopped"
    stopped = "TP1 (pid 7) is stopped by SIGSTOP: nothing moves there meanwhile"
    assert (
        not Answer({}, "", ["unstopped", "ssh:a: unstopped", stopped, "ssh:a: " + stopped, held]).lacks
        and Answer({}, "", ["ssh:a: gone"]).lacks
    )


def test_the_machine_is_searched_once_for_several_pids(engine, monkeypatch):
    asked = []
    monkeypatch.setattr("gdbext.engines.discover.discover", lambda about=None: (asked.append(about), ([], []))[1])
    both = [str(engine.pid), str(os.getpid())]
    assert [one.pid for one in Session().resolve_each(both)] == [engine.pid, os.getpid()] and asked == [[engine.pid, os.getpid()]]
    for words, searches in ((["TP0", both[0]], 1), ([both[0], "TP0"], 2)):  # a label is looked for among all
        asked.clear()
        with pytest.raises(NotFoundError):
            Session().resolve_each(words)
        assert len(asked) == searches and asked[-1] is None


@pytest.mark.parametrize(
    "line",
    ["-force F.html 7 8", "F.html -force 7 8", "F.html 7 -force 8", "F.html 7 8 -force", "F.html --wait=3 7 -force 8 -json"],
)
def test_options_stand_anywhere_among_the_names_of_processes(line):
    from gdbext.commands.llm_report import LlmReport

    args = LlmReport.parse(line)
    assert args.force and args.operand_text == "F.html 7 8" and args.json == ("-json" in line)


def test_an_answer_about_an_engine_that_was_never_run_says_so():
    answer = Answer({"ranks": [{"engine": "rtp-llm"}, {"engine": "vllm"}, {"engine": ""}]}, "two ranks")
    assert json.loads(answer.json("llm-ranks"))["unproven"] == ["RTP-LLM"]
    assert answer.to_text() == f"two ranks\n({UNPROVEN.format('RTP-LLM')})"
    known = Answer({"ranks": [{"engine": "vllm"}]}, "one rank")
    assert "unproven" not in json.loads(known.json("llm-ranks")) and known.to_text() == "one rank"
