"""No text of a process, a file or a node begins a line of its own: each door that prints several lines of it indents them."""

import pytest

from gdbext.answers.exceptions import exception_lines
from gdbext.answers.places import named
from gdbext.answers.stack_tree import stacks_data, text_lines
from gdbext.commands.llm_stacks import ANSWER
from gdbext.cpython import privacy
from gdbext.cpython.expression_calls import HelpText
from gdbext.cpython.reprs import Repr
from gdbext.render.text import PLAIN, beneath
from gdbext.session import nodes
from gdbext.stacks import cluster

EVIL = "x\nFORGED\r\x1b[2J\u2028FORGED"


def of_exception():
    raised = {"type": EVIL, "message": EVIL, "args": "()", "again": False, "notes": [EVIL, "FORGED"], "members": [], "frames": []}
    raised.update(cause=None, context=None, suppress_context=False, truncated=False)
    raised["type"] = "ValueError"
    return exception_lines(raised, PLAIN, None, False)


def of_nodes():
    return nodes.beside([("ssh:a", EVIL)], []).to_text().split("\n")


def of_merged_answers():
    merged = cluster.MergedAnswers(ANSWER.answer_shape)
    for host, function in (("a", "f" + EVIL), ("b", "g" + EVIL)):
        frames = [
            {"kind": "python", "function": function, "file": EVIL, "line": 3},
            {"kind": "python", "function": EVIL, "file": EVIL},
        ]
        member = {"host": host, "label": EVIL, "pid": 7, "tid": 7, "name": EVIL}
        failed = [{"label": EVIL, "pid": None, "reason": EVIL}]
        groups = [{"frames": frames, "members": [member], "engine": EVIL}]
        answer = {"schema": "llm-stacks/1", "failed": failed, "pauses": [], "ranks_total": 1, "groups": groups}
        merged.add(answer, host)
    views = merged.finish().processes
    data = {**stacks_data(views), "failed": merged.failed, "pauses": []}
    assert data["common"], "the main threads do not part: the test shows less than it should"
    return text_lines(views, data, {v.pid: named(v) for v in views}, PLAIN)


def of_help():
    return HelpText(["f", *("    " + line for line in EVIL.splitlines())]).text(Repr(), 0).split("\n")


@pytest.mark.parametrize("door", [of_exception, of_nodes, of_merged_answers, of_help])
def test_no_line_is_the_process_s_own(door):
    text = "\n".join(door())
    assert "FORGED" in text and not any(line.startswith("FORGED") for line in text.split("\n"))


def test_beneath_indents_and_escapes():
    assert beneath("a\nb\r\x1b[2J\tc") == "  a\n  b\\r\\x1b[2J\tc"


@pytest.mark.parametrize(
    "name",
    ["Thread-1 (worker)", "MainThread", "ThreadPoolExecutor-0_0", "AnyIO worker thread", "Task-12", "VLLM::EngineCore", ""],
)
def test_names_that_programs_give(name):
    assert privacy.is_program_name(name)


@pytest.mark.parametrize(
    "name", ["answer: what is the capital of France", "Tell me a story", "secret plan", "Thread (my own words)", "a\nb"]
)
def test_names_with_free_text(name):
    assert not privacy.is_program_name(name)
