"""Words that name machines, and whose answer a line is."""

import sys

import pytest

from gdbext.access.files import Budget
from gdbext.commands.llm_memory import LlmMemory
from gdbext.errors import GdbextError
from gdbext.session import nodes, transports
from gdbext.session.ray_carrier import names


@pytest.mark.parametrize("word", ["slurm:4711", "ray:", "ssh:me@gpu1", "pod/prod/vllm-0/engine"])
def test_a_word_for_one_place_stays_as_it_is(word):
    assert transports.nodes_of(word) == [word]


def test_two_raylets_of_one_machine_have_names_of_their_own():
    def node(host, address, number):
        return {"NodeManagerHostname": host, "NodeManagerAddress": address, "NodeID": number * 8}

    found = names(
        [node("a", "192.0.2.1", "1"), node("b", "192.0.2.2", "2"), node("b", "192.0.2.2", "3"), node("c", "192.0.2.4", "4")]
    )
    assert found == ["a", "192.0.2.2-222222", "192.0.2.2-333333", "c"]
    assert names([node("h", "192.0.2.1", "1"), node("h", "192.0.2.2", "2")]) == ["192.0.2.1", "192.0.2.2"]


@pytest.mark.parametrize("node, label, name", [("ray:", "good| ", "ray:good"), ("slurm:7", "1: ", "slurm:7 task 1")])
def test_a_line_is_the_answer_of_who_printed_it(monkeypatch, node, label, name):
    """Whatever ends a line elsewhere begins none here, so nobody puts words into another's mouth."""
    text = f"a carrier's own words\n{label}{{1}}" + "".join(f"{end}2: x{end}liar| x" for end in "\r\x0b\x0c\x1c\x85\u2028") + "\n"
    words = ["-c", f"import sys; sys.stdout.buffer.write({text.encode()!r})"]
    monkeypatch.setattr(nodes, "command_line", lambda *_: [sys.executable, *words])
    ((found, said),) = nodes.ask(node, [], nodes.Pack())
    assert found == name and said.startswith("{1}") and "liar" in said


def test_what_a_carrier_says_is_the_reason_where_nobody_answers(monkeypatch):
    monkeypatch.setattr(nodes, "command_line", lambda *_: [sys.executable, "-c", "print('no such job')"])
    with pytest.raises(GdbextError, match="^no such job$"):
        nodes.ask("slurm:7", [], nodes.Pack())


def test_a_node_of_a_set_is_asked_once_and_not_for_two_things(monkeypatch):
    monkeypatch.setattr(nodes, "nodes_of", lambda node: {"ssh:n[1-2]": ["ssh:n1", "ssh:n2"]}.get(node, [node]))
    assert nodes.single([("ssh:n[1-2]", ["x"]), ("ssh:n2", ["x"])], []) == [("ssh:n1", ["x"]), ("ssh:n2", ["x"])]
    with pytest.raises(GdbextError, match="ssh:n1 is among ssh:n.1-2., and named for something else"):
        nodes.single([("ssh:n1", ["3"]), ("ssh:n[1-2]", [])], [])


@pytest.mark.parametrize(
    "words, left",
    [
        ("check -ranks ssh:a ssh:b", "check -ranks"),
        ("check -on 7@ssh:a -on TP0@pod/n/b -deep", "check -deep"),
        ("-wait 2 slurm:7 -json", "-wait 2 -json"),
        ("cmpl-7 ssh:a", "cmpl-7"),
    ],
)
def test_words_that_name_nodes_are_no_part_of_what_is_asked(words, left):
    assert nodes.without_nodes(words.split()) == left.split()


def test_an_error_of_a_node_that_has_the_pack_is_its_own_words(monkeypatch):
    words = ["-c", "print('has-pack'); print('{\"error\": \"no scheduler\"}'); raise SystemExit(1)"]
    monkeypatch.setattr(nodes, "command_line", lambda *_: [sys.executable, *words])
    assert nodes.ask("ssh:a", [], nodes.Pack()) == [("ssh:a", '{"error": "no scheduler"}')]


def test_a_job_has_begun_when_its_last_task_has():
    start = nodes.Start(1)
    talk = nodes.Talk("slurm:7", nodes.Pack(), start)
    said, seen = b"", []
    for task in b"0", b"1", b"2":
        said += task + b": begun\n"
        talk.heard(said)
        seen.append(start.heard["slurm:7"])
        talk.heard(said)
        assert start.heard["slurm:7"] == seen[-1]  # what was said before is not heard again
    assert seen == sorted(set(seen))


JSON = '{"schema": "llm-memory/1", "ranks": []}'


def answered(monkeypatch, program, command=LlmMemory, **more):
    """What a node's answer is read as, where its program is this text of Python."""
    monkeypatch.setattr(nodes, "command_line", lambda *_: [sys.executable, "-c", program])
    ((_, said),) = nodes.ask("ssh:x", [], nodes.Pack(), **more)
    return nodes._answer(command.name + "/", said, Budget("the answers"))


def test_what_a_login_shell_says_beside_the_answer_does_not_count(monkeypatch):
    assert answered(monkeypatch, f"print('Welcome {{ to x'); print({JSON!r}); print('Last login: never')")["ranks"] == []


def test_what_has_ended_is_not_waited_for_where_another_has_its_ends(monkeypatch):
    """As ssh of earlier releases, whose shared connection keeps its standard error; the one here says something all the time."""
    chatty = "import os, time; end = time.time() + 20\nwhile time.time() < end: os.write(2, b'still here'); time.sleep(.05)"
    for out in ("subprocess.DEVNULL", "None"):
        start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {chatty!r}], stdout={out})"
        assert answered(monkeypatch, f"print({JSON!r}, flush=True)\n{start}", limit=15.0)


@pytest.mark.parametrize(
    "said, why",
    [
        ("print('{}')".format(JSON.replace("/1", "/99")), "it answered as llm-memory/99, this gdbext reads llm-memory/1"),
        ("print('{}')".format(JSON.replace("[]", "1e999")), "a number that is not finite: 1e999"),
        ("print('{}')".format(JSON.replace("[]", "1" + 320 * "0")), "a number of 321 digits"),
        ("print('{}')".format(JSON.replace("[]", "-Infinity")), "a number that is not finite: -Infinity"),
        ("print('\\n' * 400000)", "262,144 lines are read of a node"),
        ("print('ready\\n' * 400000)", "262,144 lines are read of a node"),
    ],
)
def test_an_answer_that_is_none_is_told(monkeypatch, said, why):
    with pytest.raises(GdbextError, match=why):
        answered(monkeypatch, said)
