"""What agents get: tools that the commands declare, arguments that cannot reach what is not offered, pages, the skill folder."""

import json
import os
import re

import pytest

from gdbext.agents import pages, server, skill, tools
from gdbext.commands import table
from gdbext.commands.guide import topics
from gdbext.errors import GdbextError
from gdbext.session.command import UsageError


def test_the_tools_are_commands_that_read_and_their_schemas_are_small():
    found = tools.tools()
    assert {"guide", "ranks", "object", "tensor", "kv", "requests", "why"} < set(found)
    assert not any(c.gdb_only or c.resumes for c in found.values())
    schemas = [tools.schema(c) for c in found.values()]
    assert len(str(schemas)) + sum(len(tools.description(c)) for c in found.values()) < 12500
    for c, schema in zip(found.values(), schemas):
        own = {o.name for o in c.all_options() if o.for_agents} - ({"on"} if "what" in schema["properties"] else set())
        assert own < set(schema["properties"]) > set(schema["required"])
        assert not {"on", "what"} <= set(schema["properties"]), "one word for a process"
        assert 3 < len(tools.title(c)) < 60 and not re.search(r"[\[|]", str(schema["properties"].get("operand")))
    required = {c.tool: schema["required"] for c, schema in zip(found.values(), schemas) if schema["required"]}
    assert required == {"object": ["expr", "on"], "tensor": ["expr", "on"], "heap": ["on"], "request": ["id"]}
    for tool, needed in required.items():  # what is required is what a call without it is refused for
        for name in needed:
            with pytest.raises(UsageError, match=f"{tool} needs {name}"):
                tools.words_of(found[tool], {n: "1" for n in needed if n != name})


@pytest.mark.parametrize(
    "tool, given, words",
    [
        ("ranks", {"verify": True, "engine": "vllm"}, ["-verify", "-engine", "vllm"]),
        ("why", {}, []),
        ("why", {"what": "TP0 TP1"}, ["--", "TP0 TP1"]),
        ("object", {"expr": "-self.x", "on": "TP0", "any": False}, ["-on", "TP0", "--", "-self.x"]),
        ("heap", {"on": "12", "watch": 1.5, "deadline": 9}, ["-on", "12", "-watch", "1.5", "-deadline", "9"]),
        ("request", {"id": "req-7"}, ["--", "req-7"]),
        ("kv", {"operand": "block 7"}, ["--", "block 7"]),
    ],
)
def test_a_call_stands_for_a_command_line(tool, given, words):
    command = tools.command_of(tool)
    assert tools.words_of(command, given) == words
    from gdbext.setup.outside import line_of

    asked = command.parse(line_of(command, words))
    operands = ("what", "expr", "operand", "id")
    assert all(getattr(asked, key) == value for key, value in given.items() if key not in operands)
    assert asked.operand_text == next((given[key] for key in operands if key in given), "")


def test_a_call_waits_no_longer_than_its_time_limit_allows():
    heap, record, guide = map(tools.command_of, ("heap", "record", "guide"))
    assert tools.words_of(heap, {"on": "1"}) == ["-on", "1", "-deadline", "50"]  # its own would be 120
    assert tools.words_of(heap, {"on": "1"}, 8.0) == ["-on", "1", "-deadline", "4"]
    assert tools.words_of(heap, {"on": "1"}, 300.0) == ["-on", "1"]
    assert tools.words_of(record, {"for": 20}) == ["-for", "20"]
    with pytest.raises(UsageError, match="for is at most 50 seconds"):
        tools.words_of(record, {"for": 51})
    assert tools.words_of(guide, {"topic": "hang"}) == ["--", "guide hang"] and tools.words_of(guide, {}) == ["--", "guide"]


def test_an_answer_in_json_is_structured_too_where_it_is_whole():
    assert server.structured('{"schema": "llm-ranks/1", "ranks": []}') == {"schema": "llm-ranks/1", "ranks": []}
    assert server.structured('{"schema": "llm-ranks/1", "ranks": [\n(bytes 0 to 9 of 99)') is None
    assert server.structured("idle") is None and server.structured("") is None


def test_a_tool_with_an_output_schema_gives_an_object_for_text_too():
    for text in ("idle", '{"schema": "llm-ranks/1", "ranks": [\n(bytes 0 to 9 of 99)'):
        assert server.structured(text, True) == {"text": text}
    told = {name: tools.output_schema(c) for name, c in tools.tools().items()}
    for schema in told.values():
        assert {"schema", "partial", "text"} < set(schema["properties"]) and "required" not in schema
        assert set(re.findall(r'"#/\$defs/([^"]+)"', json.dumps(schema))) == set(schema.get("$defs", ()))


@pytest.mark.parametrize("value", [["all"], {"a": 1}, []])
def test_an_argument_is_one_value(value):
    with pytest.raises(UsageError, match="what is one text"):
        tools.words_of(tools.command_of("why"), {"what": value})


@pytest.mark.parametrize("given", [{"on": "ssh:host"}, {"on": "TP0@pod/ns/name"}, {"on": "slurm:12"}])
def test_other_machines_are_not_reached(given):
    with pytest.raises(GdbextError, match="this machine"):
        tools.words_of(tools.command_of("object"), {"expr": "self", **given})
    with pytest.raises(GdbextError, match="this machine"):
        tools.words_of(tools.command_of("why"), {"what": "ssh:host"})


@pytest.mark.parametrize(
    "tool, given",
    [
        ("tensor", {"expr": "x", "on": "1", "save": "/tmp/x"}),
        ("tensor", {"expr": "x -save /tmp/x", "on": "1"}),
        ("object", {"expr": "x --show-content", "on": "1"}),
        ("object", {"expr": "x", "on": "1", "show-content": True}),
        ("object", {"expr": "x", "on": "1 -show-content"}),
        ("stacks", {"what": "all -html /tmp/x"}),
        ("stacks", {"what": "all\n-html /tmp/x"}),
        ("heap", {"on": "1", "type": "dict -save /tmp/x", "save": "/tmp/x"}),
        ("object", {"expr": "x"}),
        ("object", {"on": "1"}),
        ("why", {"json": True, "wat": "all"}),
    ],
)
def test_what_is_not_offered_cannot_be_had(tool, given):
    command = tools.command_of(tool)
    try:
        words = tools.words_of(command, given)
    except UsageError:
        return
    from gdbext.setup.outside import line_of

    asked = command.parse(line_of(command, words))  # a value stays a value
    assert all(getattr(asked, o.key) == o.default for o in command.all_options() if not o.for_agents)
    assert given["on"] == asked.on


@pytest.mark.parametrize("what", ["-- touch /tmp/x", "1 -- touch /tmp/x", "--  touch", "1 -o /tmp/x.html", "-- 1"])
def test_no_program_is_started_for_an_agent_and_no_file_written(what):
    with pytest.raises(UsageError):
        tools.words_of(tools.command_of("record"), {"what": what})
    assert tools.words_of(tools.command_of("record"), {"what": "TP0 TP1", "for": 2})[-1] == "TP0 TP1"


def test_errors_name_the_tools_not_their_commands():
    said = tools.in_tools("llm-hang: no engine process is running here: name pids, labels of llm-ranks, or snapshot files")
    assert said == "why: no engine process is running here: name pids, labels of ranks, or snapshot files"
    assert (
        tools.in_tools("llm-kv: option -x is unknown; it has -json; see: help llm-kv") == "kv: option -x is unknown; it has -json"
    )
    assert tools.in_tools("pytensors and llm-kv-x are none of pytensor") == "pytensors and llm-kv-x are none of tensor"


@pytest.mark.parametrize(
    "step, call",
    [
        ("pybt -on TP0", 'stacks {"what": "TP0"}'),
        ("llm-stacks 4711 4712", 'stacks {"what": "4711 4712"}'),
        ("llm-hang all ssh:gpu1", 'why {"what": "all ssh:gpu1"}'),
        ("llm-locks", "locks {}"),
        ("kill -CONT 4711", "kill -CONT 4711"),
        ("llm-attach TP0", "llm-attach TP0"),
        ("pyheap -watch 10 -on 4711", 'heap {"watch": 10, "on": "4711"}'),
        ("", ""),
    ],
)
def test_a_step_to_type_is_a_call_for_agents(step, call):
    assert tools.as_call(step) == call


def test_what_to_do_next_is_in_calls_as_text_and_as_json():
    said = tools.in_calls("lock-cycle: a, b\nwaits: llm-stacks 5\nnext: pybt -on 5 (its Python stacks); kill -CONT 5\nnext to it")
    lines = said.split("\n")
    assert lines[1] == "waits: llm-stacks 5" and lines[2] == 'next: stacks {"what": "5"} (its Python stacks); kill -CONT 5'
    answer = {"schema": "llm-hang/1", "next": ["pybt -on 'a \"b\"'", "llm-locks 5"], "evidence": ['"next": ["x"]']}
    found = json.loads(tools.in_calls(json.dumps(answer)))
    assert found["next"][1] == 'locks {"what": "5"}' and found["evidence"] == answer["evidence"] and found.keys() == answer.keys()


def test_a_client_that_has_gone_is_told_from_other_errors():
    class Several(Exception):
        def __init__(self, *errors):
            self.exceptions = errors

    assert server._is_gone(Several(BrokenPipeError(), Several(ConnectionResetError())))
    assert not server._is_gone(Several(BrokenPipeError(), ValueError())) and not server._is_gone(KeyboardInterrupt())


def test_a_long_answer_comes_whole_in_bounded_pages():
    kept = pages.Pages()
    text = "\n".join(f"line {i} " + "ü" * (i % 90) for i in range(1000)) + "\n" + "x€" * 20000
    data, page, end, count = text.encode(), kept.first(text), 0, 0
    while True:
        count += 1
        assert len(page.encode()) <= pages.PAGE
        more = re.search(r'\(bytes (\d+) to (\d+) of (\d+); go on with \{"cursor": "(\d+:\d+)"\}\)$', page)
        begin, end = (int(more[1]), int(more[2])) if more else (end, len(data))
        assert page.startswith(data[begin:end].decode())
        if not more:
            break
        assert int(more[3]) == len(data) and more[4].endswith(f":{end}")
        page = kept.next(more[4])
    assert end == len(data) and count > len(data) // pages.PAGE
    assert kept.first("short") == "short"
    for wrong in (
        "",
        "7:0",
        "1:",
        "1:99999999",
        "a:b",
        "1:-1",
        "²:1",
        "1:²",
        "1:1:1",
        "1" * 5000 + ":0",
        "1:" + "9" * 5000,
        "1:nan",
        "1:1.0",
    ):
        with pytest.raises(GdbextError, match="ask again"):
            kept.next(wrong)


def test_the_skill_folder_has_all_guides_and_replaces_only_itself(tmp_path):
    folder = str(tmp_path / "skill")
    paths = skill.write(folder)
    assert skill.write(folder) == paths
    with open(os.path.join(folder, "SKILL.md"), encoding="utf-8") as f:
        text = f.read()
    assert text.startswith("---\nname: gdbext\ndescription: ")
    links = re.findall(r"\]\(([\w./-]+)\)", text)
    assert len(links) == len(topics()) + 1 and all(os.path.exists(os.path.join(folder, link)) for link in links)
    with open(os.path.join(folder, "commands.md"), encoding="utf-8") as f:
        listed = re.findall(r"^\| `([\w-]+)", f.read(), re.M)
    assert sorted(listed) == sorted(c.name for c in table.load_all() if not c.gdb_only)
    (tmp_path / "skill" / "commands.md").write_text("mine")
    with pytest.raises(GdbextError, match="not written by gdbext skill"):
        skill.write(folder)
    assert (tmp_path / "skill" / "commands.md").read_text() == "mine"


def test_the_guide_names_tools_that_agents_have():
    """And nothing that only people with a gdb or a shell can type."""
    commands = {c.name: c for c in table.load_all()}
    for name, text in topics().items():
        said = tools.for_agents(text)
        lacking = [c for c in commands if re.search(rf"^ *{c} ", said, re.M)]
        assert not lacking and "(gdb)" not in said, (name, lacking, said)
        assert text.split("\n")[0] in said or tools.in_tools(text.split("\n")[0]) in said
    assert "why all" in tools.for_agents(topics()["hang"]) and "stacks all" in tools.for_agents(topics()["hang"])


def test_what_names_processes_where_on_did():
    why = tools.command_of("why")
    assert tools.words_of(why, {"on": "TP0"}) == tools.words_of(why, {"what": "TP0"}) == ["--", "TP0"]
