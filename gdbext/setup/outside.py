"""Commands outside gdb: `python -m gdbext COMMAND ...`, in this process where possible, else in a gdb of its own.

A gdb started here gets the command in the environment and writes the result to a file. gdb -batch's own exit status is that of
the last command only, and its output may carry warnings."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence

from .. import log
from ..access import elf, kept_symbols, room
from ..commands import table
from ..errors import GdbextError
from ..render import jsonline, streams
from ..render.columns import wrapped
from ..render.text import one_line
from ..session.command import NODE_MARKS, Answer, Command, UsageError, error_line, matching
from ..session.session import Session

OK, ERROR, PARTIAL = 0, 1, 3


def line_of(command: type[Command], words: Sequence[str]) -> str:
    """The shell's `words` as one gdb-style command line. Values of options are quoted where needed, and a program that it starts;
    the operand is left as it is."""
    line, value_next = [], False
    if command.starts and "--" in words:
        at = list(words).index("--")
        return " ".join([line_of(command, words[:at]), "--", shlex.join(words[at + 1 :])])
    for word in words:
        if value_next and (not word or " " in word or word[0] in "'\""):
            quote = next((q for q in "\"'" if q not in word), None)
            if quote is None:
                raise UsageError(f"{command.name}: an option's value cannot hold both kinds of quotes: {word}")
            word = quote + word + quote
        was_value, value_next = value_next, False
        name = word.lstrip("-")
        if not was_value and word.startswith("-") and name:
            found = matching(word, command.all_options())
            value_next = len(found) == 1 and found[0].kind != "flag"
        line.append(word)
    return " ".join(line)


def with_process(command: type[Command], words: Sequence[str]) -> list[str]:
    """The words of a command, where a pid is the first word of its operand: with -on before it, if it reads one process, since
    outside gdb no process is selected whose lines, frames or names such a number could mean; and behind the word that the command
    wants first (`start|stop [WHAT]`)."""
    later = not command.takes_target and "WHAT" in command.operand and command.operand.lstrip("[")[:4] != "WHAT"
    try:
        named = not (later or command.takes_target and command.operand) or later and command.completion == "file"
        named = named or bool(getattr(command.parse(line_of(command, words)), "on", None))
    except GdbextError as e:
        log.passed_over(e)
        named = True
    value_next = False
    for i, word in enumerate([] if named else words):
        if not value_next and word.isascii() and word.isdecimal() and os.path.exists(f"/proc/{word}"):
            return [*words[:i], *words[i + 1 :], word] if later else [*words[:i], "-on", *words[i:]]
        if not value_next and not word.startswith("-"):
            break
        found = matching(word, command.all_options()) if not value_next and word.startswith("-") else []
        value_next = len(found) == 1 and found[0].kind != "flag"
    return list(words)


def wants_json(command: type[Command], line: str) -> bool:
    """Whether errors are to be JSON, also those about the line itself."""
    try:
        return bool(command.parse(line).json)
    except GdbextError as e:
        log.passed_over(e)
        return any(w in ("-json", "--json") for w in line.split())


def error_text(name: str, error: Exception, as_json: bool) -> str:
    """The one line of an error."""
    if as_json:
        return jsonline.dumps({"schema": name + "/1", "partial": [], "error": one_line(str(error))})
    return error_line(name, error)


def failure(name: str, error: Exception, as_json: bool) -> tuple[int, str, str]:
    """An expected failure in the form of `perform`: JSON goes to standard output like any answer."""
    text, status = error_text(name, error, as_json), getattr(error, "status", None) or ERROR
    return (status, text, "") if as_json else (status, "", text)


def _status(answer: Answer) -> int:
    if answer.status is not None:
        return answer.status
    return PARTIAL if answer.lacks else OK


def perform(command: type[Command], line: str, session: Session) -> tuple[int, str, str]:
    """Runs a `Command` class. -> (exit status, text for standard output, text for standard error)."""
    as_json = wants_json(command, line)
    try:
        args = command.parse(line)
        answer = command().answer(session, args)
        return _status(answer), session.written(command.name, args, answer), ""
    except GdbextError as e:
        return failure(command.name, e, as_json)


def needs_gdb(command: type[Command], line: str) -> bool:
    """Whether a command needs gdb. Commands that read run here, on processes that -on names or that they find themselves."""
    if command.standalone:
        return False
    try:
        args = command.parse(line)
        return not (command.takes_target and (args.on or command.finds_engines(args)))
    except GdbextError as e:
        log.passed_over(e)
        return False  # a wrong line needs no gdb to say so


def in_gdb(name: str, line: str, gdb: str | None = None, how: str = "") -> tuple[int, str, str]:
    """Runs the command in a gdb of its own. -> as `perform`."""
    import json
    import subprocess

    from . import gdbs, unpack

    program, style = gdbs.need(gdb), Session(how).style()
    with room.nameless_file() as file:
        result = f"/proc/self/fd/{file.fileno()}"
        asked = {"name": name, "line": line, "result": result, "colour": style.enabled, "width": style.width, "how": how}
        done = subprocess.run(
            [
                program.path,
                "-nx",
                "-q",
                "-batch",
                "-iex",
                "maintenance set internal-error corefile no",
                "-ex",
                f"source {unpack.init_script()}",
                "-ex",
                "python import gdbext.setup.inside; gdbext.setup.inside.main()",
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=gdbs.environment(GDBEXT_RUN=json.dumps(asked)),
            pass_fds=[file.fileno()],
        )
        errors = log.pass_on(done.stderr)
        try:
            file.seek(0)
            said = json.load(file)
            return said["status"], said["out"], said["err"]
        except (OSError, ValueError):
            words = (errors.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
            raise GdbextError(f"{program.path} did not run the command: {words[-1]}") from None


def run(name: str, words: Sequence[str], how: str = "") -> int:
    """One command of the table, printed, where people type `how` before it. -> exit status."""
    command = table.load(name)
    words = list(words)
    own = words[: words.index("--")] if command.starts and "--" in words else words  # without a program's that it starts
    try:
        if command.copies:
            room.need(command.copies * room.LOOK, name)
        if any(mark in word for word in own for mark in NODE_MARKS):
            from ..session import nodes

            planned = nodes.plan(own)
            if planned and own != words:
                raise UsageError(f"{name}: a COMMAND is started on this machine alone")
            if planned:
                return shown(*on_nodes(command, words, planned, how))
        line = line_of(command, with_process(command, words))
        status, out, err = in_gdb(name, line, how=how) if needs_gdb(command, line) else perform(command, line, Session(how))
    except GdbextError as e:
        status, out, err = failure(name, e, any(w in ("-json", "--json") for w in own))
    shown(status, out, re.sub(r"(?<=see: )(?=help )|(?<=see )(?=llm-)|(?<=(?:see|ith): )(?=llm-|py[a-z])", how, err))
    kept_symbols.keep(elf.opened())
    return status


def on_nodes(
    command: type[Command], words: Sequence[str], planned: Sequence[tuple[str, list[str]]], how: str
) -> tuple[int, str, str]:
    """Runs the command on other machines. -> as `perform`."""
    from ..session import nodes

    args = command.parse(line_of(command, nodes.without_nodes(words)))
    answer = nodes.run(command, args, planned)
    return _status(answer), Session(how).written(command.name, args, answer), ""


def shown(status: int, out: str, err: str) -> int:
    """Prints a command's result. -> exit status."""
    if out:
        print(out)
    if err:
        print(wrapped(err, streams.columns(sys.stderr)), file=sys.stderr)
    return status
