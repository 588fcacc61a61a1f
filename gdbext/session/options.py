"""Options of a command line, gdb's way: how they are declared, which of them a word means, and taking them from a line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..errors import GdbextError
from ..render.text import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .command import Command


class UsageError(GdbextError):
    """A command line that cannot be parsed."""


MAX_DIGITS = 64  # of a number that a user types: to parse more costs their square


def finite(word: str, kind: type = float) -> Any:
    """The number in a word, an `int` (0x too) or a `float`. `ValueError` for no number, NaN, infinities and more digits than any
    number needs."""
    number = float("nan") if len(word) > MAX_DIGITS or not word.isascii() else int(word, 0) if kind is int else float(word)
    if not abs(number) < float("inf"):
        raise ValueError(word[:MAX_DIGITS])
    return number


_TIME = re.compile(r"([\d.]+)(ms|s|m|min|h)$")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Option:
    """`-name VALUE`.

    `kind`: "flag", "int", "float", "str", or a list of allowed words. Repeatable ones collect a list. `for_agents`: not for
    options that name or write files, start a program elsewhere, or show users' data. `was`: its names in earlier releases and in
    other tools, with blanks between them, which work too."""

    def __init__(
        self,
        name: str,
        kind: str | Sequence[str] = "flag",
        help: str = "",
        default: Any = None,
        metavar: str | None = None,
        repeat: bool = False,
        *,
        for_agents: bool = True,
        was: str = "",
    ) -> None:
        self.for_agents, self.was = for_agents, was or ("output" if name == "o" else "")
        self.name, self.kind, self.help, self.repeat = name, kind, help, repeat
        self.default = False if kind == "flag" and default is None else ([] if repeat else default)
        self.metavar = metavar or (kind[0].upper() if isinstance(kind, str) else "|".join(kind))

    @property
    def told(self) -> str:
        """Its text in the help, with its default."""
        if self.default in (None, False, "", []) or "default" in self.help:
            return self.help
        return f"{self.help} (default {f'{self.default:g}' if self.kind == 'float' else self.default})"

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")

    def convert(self, word: str) -> Any:
        try:
            if self.kind in ("int", "float"):
                unit = _TIME.match(word) if self.metavar == "S" else None  # 500ms, 5s, 2m, 1h
                if unit:
                    return finite(unit[1]) * _SECONDS[unit[2]]
                return finite(word, int if self.kind == "int" else float)
        except ValueError:
            raise UsageError(f"-{self.name} needs a number, not {shorten(word, MAX_DIGITS)!r}") from None
        if isinstance(self.kind, (list, tuple)):
            found = [k for k in self.kind if k.startswith(word)]
            if word not in self.kind and len(found) != 1:
                raise UsageError(f"-{self.name} is one of {', '.join(self.kind)}, not {word!r}")
            return word if word in self.kind else found[0]
        return word


HEAP = Option("heap", help="all private memory: every Python object, malloc's heaps, tensors; -max-bytes bounds it")
MAX_BYTES = Option(
    "max-bytes",
    "int",
    "as -heap, but at most N bytes, big mappings left out first (0: stacks and interpreter only)",
    None,
    "N",
)
CONTENT = Option("show-content", help="also what users sent and got: prompts, texts, token ids", for_agents=False)
COLUMNS = Option("columns", help="the column of each Python frame (CPython 3.11 on)")
JSON = Option("json", help="one line of JSON instead of text")
FULL_PATHS = Option(
    "full-paths", help="source files with all of their path, in the text too", for_agents=False, was="full-filenames"
)
DEBUG = Option("debug", help="log on standard error why something is missing or unknown", for_agents=False)
STILL = Option("still", help="read a copy of one moment, made in milliseconds")
UNSTOPPED = Option(
    "unstopped",
    help="stop nothing, proved by a filter of system calls in this command (not in gdb)",
    for_agents=False,
    was="nonblocking no-block",
)
SUBPROCESSES = Option("subprocesses", help="with all Pythons among their children, of any depth", for_agents=False)
SUBPROCESSES_S = Option("subprocesses", help=SUBPROCESSES.help, for_agents=False, was="s")  # of what people type as py-spy's
ON = Option("on", "str", "read this process or core instead of the selected one", metavar="WHAT")
ON_OPERAND = Option("on", "str", "the same as WHAT; several have commas between them", metavar="WHAT", for_agents=False)


OPTION = re.compile(r"--?[A-Za-z][\w-]*$")
_PID = re.compile(r"-p\d+$")


EVERYWHERE = (FULL_PATHS, DEBUG, ON_OPERAND, STILL, UNSTOPPED, SUBPROCESSES, SUBPROCESSES_S)


def word_of(text: str) -> tuple[Any, ...]:
    """The first word of `text` (quotes respected) and the rest."""
    if text[:1] in "'\"":
        end = text.find(text[0], 1)
        if end > 0:
            return text[1:end], text[end + 1 :].lstrip()
    word, _, rest = text.partition(" ")
    return word, rest.lstrip()


def matching(word: str, options: list[Option]) -> list[Option]:
    """The options that a word like "-so" means. Options of nearly every command make no prefix of another one ambiguous. -p and
    -pid name a process, as in other tools."""
    name = word[2:] if word.startswith("--") else word[1:]
    on = [o for o in options if o in (ON, ON_OPERAND)]
    if on and name in ("p", "pid") and not any(o.name == name for o in options):
        return on
    found = [o for o in options if o.name == name] or [o for o in options if name in o.was.split()]
    if found or not name:
        return found
    long = len(name) > 2  # shorter, it begins none of several other names, and shows no users' content
    found = [o for o in options if any(own.startswith(name) for own in (o.name, *o.was.split() * (long or " " not in o.was)))]
    found = [o for o in found if long or o.name != CONTENT.name]
    return [o for o in found if o not in EVERYWHERE] or found


def _unknown(command: type[Command], word: str, rest: str, options: list[Option]) -> str:
    """Advice for an option that a command does not have."""
    name = word.lstrip("-")
    if name == "on":
        what = word_of(rest)[0] if rest else "TP0"
        return f"it acts on the process that gdb has selected: llm-attach {what}, then {command.name}" if command.gdb_only else ""
    import difflib  # only here: 10 ms that a start of gdb need not spend

    near = difflib.get_close_matches(name, [o.name for o in options], 3)
    return f"did you mean {' or '.join('-' + n for n in near)}?" if near else f"it has {', '.join('-' + o.name for o in options)}"


def unknown_option(command: type[Command], word: str, rest: str, options: list[Option]) -> Any:
    mend = "; ".join(filter(None, (_unknown(command, word, rest, options), f"see: help {command.name}")))
    return UsageError(f"{command.name}: option {word} is unknown; {mend}")


def _apart(word: str, rest: str) -> tuple[str, str]:
    """`--on=TP0` and `-p4123` as an option and its value."""
    if "=" in word and word.startswith("--"):
        word, _, value = word.partition("=")
        return word, f"{value} {rest}"
    return ("-p", f"{word[2:]} {rest}") if _PID.match(word) else (word, rest)


def take_options(command: type[Command], line: str, options: list[Option], values: dict[str, Any], operand: Any) -> Any:
    while line.startswith("-"):
        word, rest = word_of(line)
        if word == "--":
            return rest
        word, rest = _apart(word, rest)
        found = matching(word, options)
        if len(found) != 1:
            if operand and not found and not OPTION.match(word):
                return line  # an operand that starts with a minus sign
            if found:
                which = ", ".join("-" + o.name for o in found)
                raise UsageError(f"{command.name}: option {word} is ambiguous: {which}; see: help {command.name}")
            raise unknown_option(command, word, rest, options)
        option = found[0]
        if option.kind == "flag":
            values[option.key], line = True, rest
            continue
        if not rest:
            raise UsageError(f"{command.name}: option -{option.name} needs a value ({option.metavar}); see: help {command.name}")
        word, line = word_of(rest)
        value = option.convert(word)
        if option.repeat:
            values[option.key].append(value)
        else:
            values[option.key] = value
    return line


def without_options(command: type[Command], rest: str, options: list[Option], values: dict[str, Any]) -> str:
    """The words of an operand that names processes, without the options among them; no process is named like an option."""
    before: list[str] = []
    while rest:
        word, more = word_of(rest)
        if not (OPTION.match(word.partition("=")[0]) and matching(word.partition("=")[0], options)):
            before.append(rest[: len(rest) - len(more)].strip())
            rest = more
        else:
            rest = str(take_options(command, rest, options, values, True))
    return " ".join(before)


def trailing(text: str, options: list[Option]) -> Any:
    """Offsets in an operand where options may begin: outside brackets and strings, a word that names an option."""
    depth, quote, found, i = 0, "", [], 0
    while i < len(text):
        c = text[i]
        if quote:
            if c == "\\":
                i += 1
            elif c == quote:
                quote = ""
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "-" and depth == 0 and i and text[i - 1] == " " and matching(text[i:].split(" ", 1)[0], options):
            found.append(i)
        i += 1
    return found
