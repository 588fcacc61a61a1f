"""The tools for agents: commands that declare `tool`, with their own declarations of options and operands. There is no second
list."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..access.files import json_of
from ..commands import table
from ..errors import GdbextError
from ..render.fields import answer_schema
from ..session import nodes
from ..session.command import Command, Option, UsageError, clean
from ..setup.outside import line_of

CURSOR = "cursor"
SPARE = 10.0  # seconds of a call's time limit that its own waits leave for the rest of the answer
TYPES = {"flag": "boolean", "int": "integer", "float": "number", "str": "string"}
OPERANDS = {
    "what": "which processes: labels or indexes of ranks, pids of any Python, core or snapshot files; all engines without",
    "expr": "Python that reading can answer: names of the frame, self.a[0].b, package.module:NAME.a, len(x), x.isnan().any()",
    "id": "a request: the engine's id of it, the user's, or the beginning of one, as requests lists them",
    "topic": "one of the topics that the answer without it lists",
    "operand": "{}; without it a summary",
}
ON = "the process: a label or index of ranks, the pid of any Python, or a core file"


def tools() -> dict[str, type[Command]]:
    """{name of the tool: command}"""
    return {c.tool: c for c in table.load_all() if c.tool}


def offered(command: type[Command]) -> list[Option]:
    """The options that an agent may give: none that writes a file, names one, or shows users' data; and none that says again what
    the operand says."""
    twice = operand_name(command) == "what"
    return [option for option in command.all_options() if option.for_agents and not (twice and option.name == "on")]


def operand_name(command: type[Command]) -> str:
    """The operand's name in a call: "what" for `[WHAT...]`, "expr" for `EXPR`; "" where there is none."""
    word = re.match(r"\[?([A-Z]+)", _operand(command)[1])
    return word[1].lower() if word else "operand" if command.operand else ""


def _operand(command: type[Command]) -> tuple[str, str]:
    """-> (the fixed words before a tool's operand, the operand): ("guide", "[TOPIC]")."""
    fixed, _, rest = command.tool_operand.partition(" ")
    return (fixed, rest) if command.tool_operand else ("", command.operand)


def required(command: type[Command]) -> list[str]:
    """The arguments that a call cannot do without."""
    name = operand_name(command)
    asked = command.parse("")
    needed = [name] if name and not _operand(command)[1].startswith("[") else []
    return needed + ["on"] * (command.takes_target and not command.finds_engines(asked))


def description(command: type[Command]) -> str:
    """The first line of the command's help, or what it says of itself as a tool."""
    return command.tool_summary or clean(command.__doc__ or "").split("\n")[0]


def title(command: type[Command]) -> str:
    """A few words for a list of tools."""
    return re.split(r"[:;,(]| and | with | as ", description(command))[0].rstrip(". ")


def for_agents(guide: str) -> str:
    """A text of the guide with the tools' names, without the lines about what agents have not: commands in gdb, of a shell, and
    those that write files or set breakpoints."""
    kept, dropped, known = [], -1, {c.name: c for c in table.load_all()}
    for line in guide.split("\n"):
        indent = len(line) - len(line.lstrip())
        if dropped >= 0 and indent > dropped and line.strip():
            continue
        dropped = -1
        said = re.match(r"(?: +|[^:]*: +)?(\(gdb\) )?([a-z][\w-]*)", line)
        command = known.get(said[2]) if said else None
        if said and (said[1] or command is not None and not command.tool or said[2] in ("gdb", "gdbext", "python3")):
            dropped = max(indent, 2) if said[1] or indent else 0
            continue
        kept.append(line)
    if not any(line.strip() for line in kept[1:]):
        kept[1:] = ["Ask why, stacks, object and heap of the process or of its core file."]
    return in_tools("\n".join(kept))


def in_tools(text: str) -> str:
    """An error's text with the tools' names in place of their commands: agents know no others, and have no `help`."""
    text = re.sub(r"; see: (gdbext )?help [\w-]+", "", text).replace("llm guide", "guide")
    for tool, command in tools().items():
        text = re.sub(rf"(?<![\w-]){command.name}(?![\w-])", tool, text)
    return text


def as_call(step: str) -> str:
    """A command line to type next as the call of a tool; another as it is. `pybt` is a part of what the tool `stacks` gives."""
    words = re.sub(r"^pybt -on\b", "llm-stacks", step).split()
    tool, command = next(((tool, c) for tool, c in tools().items() if words and c.name == words[0]), ("", None))
    if command is None:
        return step
    known = {o.name: o for o in offered(command)}
    given: dict[str, Any] = {}
    rest = []
    while len(words) > 1:
        word = words.pop(1)
        option = known.get(word[1:]) if word.startswith("-") else None
        if word.startswith("-") and option is None:
            return step
        if option is None:
            rest.append(word)
        else:
            value = True if option.kind == "flag" else words.pop(1)
            given[option.name] = json_of(str(value).encode(), "a number") if option.kind in ("int", "float") else value
    if rest:
        given[operand_name(command)] = " ".join(rest)
    return f"{tool} {json.dumps(given)}"


def in_calls(text: str) -> str:
    """An answer whose lines `next: …`, or whose field `next`, are calls of tools."""

    def of(steps: re.Match[str]) -> str:
        return '"next": ' + json.dumps([as_call(step) for step in json_of(steps[1].encode(), "an answer")])

    def line(said: re.Match[str]) -> str:
        return re.sub(r"(?<![\w-])(?:llm-|py)[a-z]+(?: [^\s;()]+)*", lambda step: as_call(step[0]), said[0])

    if text.startswith("{"):
        return re.sub(r'"next": (\[(?:"(?:[^"\\]|\\.)*"(?:, )?)*\])', of, text)
    return re.sub(r"^next: .*$", line, text, flags=re.M)


def schema(command: type[Command]) -> dict[str, Any]:
    """The JSON schema of a call. Values of options that are not given are in their descriptions."""
    properties: dict[str, Any] = {}
    name = operand_name(command)
    if name:
        words = [one.strip() for one in command.operand.strip("[]").split("|")]
        said = " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
        properties[name] = {"type": "string", "description": OPERANDS.get(name, "{}").format(said)}
    for option in offered(command):
        kind = option.kind
        one: dict[str, Any] = {"type": TYPES[kind]} if isinstance(kind, str) else {"type": "string", "enum": list(kind)}
        properties[option.name] = {**one, "description": ON if option.name == "on" else option.help}
    properties[CURSOR] = {
        "type": "string",
        "description": "the next page of an earlier answer; other arguments do not count then",
    }
    return {"type": "object", "properties": properties, "required": required(command), "additionalProperties": False}


def output_schema(command: type[Command]) -> dict[str, Any]:
    """The JSON schema of a call's structured content: the answer in JSON, or `text`, what is shown, where that was not asked
    for or is more than a page."""
    found = answer_schema(command.name, command.fields)
    del found["required"]
    return {**found, "properties": {**found["properties"], "text": {"type": "string"}}}


def words_of(command: type[Command], given: Mapping[str, Any], limit: float = 60.0) -> list[str]:
    """The words of the command line for a call, which may take `limit` seconds. `UsageError` for options that the tool does not
    offer, even inside an operand, and for a wait that is too long."""
    known, name, words = {o.name: o for o in offered(command)}, operand_name(command), []
    for key, value in given.items():
        option = known.get(key)
        if isinstance(value, (list, dict)):
            raise UsageError(f"{command.tool}: {key} is one text, number or truth value; several words go into one text")
        if key == name or key == "on" and name == "what":
            continue
        if option is None:
            raise UsageError(f"{command.tool} has no argument {key!r}; it takes {', '.join([name] * bool(name) + list(known))}")
        if option.kind == "flag":
            words += ["-" + key] if value else []
        elif value is not None:
            words += ["-" + key, str(value)]
    operand = str(given.get(name) or name == "what" and given.get("on") or "") if name else ""
    if any(ord(c) < 32 for word in [*words, operand] for c in word):
        raise UsageError(f"{command.tool}: an argument holds a control character")
    if nodes.plan([*words, operand]):
        raise UsageError(f"{command.tool} reads this machine only: run the server on the other one")
    if name in required(command) and not operand:
        raise UsageError(f"{command.tool} needs {name}: {command.operand}")
    words += _waits(command, given, max(limit - SPARE, limit / 2))
    operand = " ".join(filter(None, [_operand(command)[0], operand]))
    if operand:
        words += [operand] if command.starts else ["--", operand]
    asked = command.parse(line_of(command, words))
    if command.starts and asked.program:
        raise UsageError(f"{command.tool}: no program is started for an agent")
    for option in command.all_options():
        if not option.for_agents and getattr(asked, option.key) != option.default:
            raise UsageError(f"{command.tool}: -{option.name} is not for agents")
    if command.takes_target and not asked.on and not command.finds_engines(asked):
        raise UsageError(f"{command.tool} needs on: a label, index or pid of ranks, or a core file")
    return words


def _waits(command: type[Command], given: Mapping[str, Any], most: float) -> list[str]:
    """The words that limit the seconds of a command which would take more than `most` by default. `UsageError` where the call
    requests more."""
    words = []
    for option in offered(command):
        if (option.kind, option.metavar) != ("float", "S"):
            continue
        seconds = given.get(option.name, option.default)
        if seconds is None or not isinstance(seconds, (int, float)) or seconds <= most:
            continue
        if option.name in given:
            raise UsageError(f"{command.tool}: {option.name} is at most {most:g} seconds here")
        words += ["-" + option.name, f"{most:g}"]
    return words


def command_of(tool: str) -> type[Command]:
    """The command behind a tool; `GdbextError` where there is none."""
    found = tools()
    if tool not in found:
        raise GdbextError(f"there is no tool {tool!r}; there are {', '.join(found)}")
    return found[tool]
