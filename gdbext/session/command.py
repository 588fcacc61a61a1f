"""A command: its name, options and help as data, and one function from a session and arguments to an `Answer`.

There is no gdb here: the same commands run under gdb (`gdb_session.py`) and outside (`python -m gdbext`).
"""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable

from .. import log
from ..access.retry import Budget, retry
from ..errors import ContradictionError, FaultError, GdbextError, LayoutError, NotFoundError
from ..render import jsonline
from ..render.text import PLAIN, Style, escape_output, one_line, seconds, shorten
from .system_errors import meaning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..render.fields import Fields
    from .session import Session


UNPROVEN = "unproven: what reads {} was tried on stand-ins alone, never on the engine itself"
NODE_MARKS = ("pod/", "pods/", "ssh:", "slurm:", "ray:")  # a line without them names no other machine (transports.py)


def clean(doc: str) -> str:
    """A docstring without its indentation (gdb before 13 shows it unchanged; `inspect` costs 40 ms to load)."""
    lines = doc.expandtabs().splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    return "\n".join([lines[0].strip()] + [line[margin:].rstrip() for line in lines[1:]]).strip()


class UsageError(GdbextError):
    """A command line that cannot be parsed."""


def error_line(command: str, error: Exception) -> str:
    """The one line of an error: the command's name and the error's words, escaped."""
    text = one_line(str(error))
    return text if text.startswith(command) else f"{command}: {text}"


MAX_DIGITS = 64  # of a number that a user types: to parse more costs their square


def finite(word: str, kind: type = float) -> Any:
    """The number in a word, an `int` (0x too) or a `float`. `ValueError` for no number, NaN, infinities and more digits than any
    number needs."""
    number = float("nan") if len(word) > MAX_DIGITS or not word.isascii() else int(word, 0) if kind is int else float(word)
    if not abs(number) < float("inf"):
        raise ValueError(word[:MAX_DIGITS])
    return number


class Option:
    """`-name VALUE`.

    `kind`: "flag", "int", "float", "str", or a list of allowed words. Repeatable ones collect a list. `for_agents`: not for
    options that name or write files, start a program elsewhere, or show users' data. `was`: its name in earlier releases, which
    still works."""

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
        self.for_agents, self.was = for_agents, was
        self.name, self.kind, self.help, self.repeat = name, kind, help, repeat
        self.default = False if kind == "flag" and default is None else ([] if repeat else default)
        self.metavar = metavar or (kind[0].upper() if isinstance(kind, str) else "|".join(kind))

    @property
    def told(self) -> str:
        """Its text in the help, with its default."""
        if self.default in (None, False, "", []) or "default" in self.help:
            return self.help
        return (
            f"{self.help} (default {self.default:g})"
            if self.kind in ("int", "float")
            else f"{self.help} (default {self.default})"
        )

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")

    def convert(self, word: str) -> Any:
        try:
            if self.kind in ("int", "float"):
                return finite(word, int if self.kind == "int" else float)
        except ValueError:
            raise UsageError(f"-{self.name} needs a number, not {shorten(word, MAX_DIGITS)!r}") from None
        if isinstance(self.kind, (list, tuple)):
            found = [k for k in self.kind if k.startswith(word)]
            if word not in self.kind and len(found) != 1:
                raise UsageError(f"-{self.name} is one of {', '.join(self.kind)}, not {word!r}")
            return word if word in self.kind else found[0]
        return word


class Args:
    """Parsed options as attributes, `operand_text`: the text after the options, stripped."""

    def __init__(self, values: dict[str, Any], operand_text: str) -> None:
        self.__dict__.update(values)
        self.operand_text = operand_text

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this command has no option {name}")


IN_WORDS = {  # reasons that JSON has as one word
    "unstopped": "unstopped: read while the process runs",
    "changed": "changed: of different moments, for it changed while it was read; -still reads a copy of one moment",
}


def _in_words(reason: str) -> str:
    """A reason for people: "changed", "TP0: unstopped"."""
    before, mark, last = reason.rpartition(": ")
    return before + mark + IN_WORDS.get(last, last)


CIRCUMSTANCES = frozenset(  # how reasons end that leave nothing out
    (*IN_WORDS, "nothing moves there meanwhile", "it was read as it is, without being stopped")
)


class Answer:
    """The result of a command. `data`: the JSON fields; `text`: a function of `Style` that makes the text for people; `partial`:
    reasons why the answer is not the whole truth. `then`: in gdb, what is done once it is printed; -> a line about it, or ''.
    `status`: the exit status outside gdb, None for the usual one."""

    then: Callable[[], str] | None = None
    status: int | None = None

    def __init__(self, data: dict[str, Any], text: str | Callable[[Style], str], partial: Iterable[str] = ()) -> None:
        self.data, self.text, self.partial = data, text, list(dict.fromkeys(partial))

    def json(self, command: str) -> str:
        unproven = self.unproven()
        more = {"unproven": unproven} if unproven else {}
        return jsonline.dumps({"schema": command + "/1", "partial": self._reasons(), **self.data, **more})

    def unproven(self) -> list[str]:
        """The engines of the answer whose readers were never tried on the engine itself."""
        found: set[str] = set()
        left: list[Any] = [self.data]
        while left:
            one = left.pop()
            if isinstance(one, dict):
                found |= {one["engine"]} if isinstance(one.get("engine"), str) else set()
                left += one.values()
            elif isinstance(one, list):
                left += one
        if not found - {""}:
            return []
        from ..engines.registry import unproven

        return unproven(found)

    @property
    def lacks(self) -> bool:
        """Whether a requested part is missing. That a process ran, or stood still, while it was read leaves nothing out, also on
        another machine ("ssh:gpu17: unstopped")."""
        return any(reason.rpartition(": ")[2] not in CIRCUMSTANCES for reason in self._reasons())

    def _reasons(self) -> list[str]:
        return list(dict.fromkeys(one_line(reason) for reason in self.partial))

    def in_style(self, style: Style) -> str:
        """The text, not escaped yet and without `partial`."""
        return self.text(style) if callable(self.text) else self.text

    def and_line(self, line: str) -> Answer:
        """This answer, with one more line of text."""
        return Answer(self.data, lambda style: self.in_style(style) + "\n" + style.dim(line), self.partial) if line else self

    def to_text(self, style: Style = PLAIN) -> str:
        text = self.in_style(style)
        text = escape_output(text, style.enabled, style.links)
        if self.partial:
            reasons = "; ".join(map(_in_words, self._reasons()))
            text += ("\n" if text else "") + style.dim(f"(partial: {reasons})")
        unproven = self.unproven()
        if unproven:
            text += ("\n" if text else "") + style.dim(f"({UNPROVEN.format(' and '.join(unproven))})")
        return text


_FILES = ("save", "plot", "o", "diff")  # options that name files
SELDOM = 20_000, 50, 100  # Python's own thresholds are 700 or 2,000, 10 and 10


@contextlib.contextmanager
def seldom_collected() -> Iterator[None]:
    """A block in which the garbage collector runs seldom. An answer holds everything that it reads until its end. To walk that
    again after every few hundred new objects took a third of the time. The collector is not off: a command may run for an hour.
    """
    before = gc.get_threshold()
    if before[0]:  # 0: it has been turned off
        gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


MOMENTS = 3  # copies that are made until one is not in the middle of a change
SNAPSHOT_BYTES = 512 << 20  # of private memory in a copy that is to hold all of Python's objects
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
FULL_PATHS = Option("full-paths", help="source files with all of their path, in the text too", for_agents=False)
DEBUG = Option("debug", help="log on standard error why something is missing or unknown", for_agents=False)
STILL = Option("still", help="read a copy of one moment, made in milliseconds")
UNSTOPPED = Option(
    "unstopped", help="stop nothing, proved by a filter of system calls in this command (not in gdb)", for_agents=False
)
ON = Option("on", "str", "read this process or core instead of the selected one", metavar="WHAT")
ON_OPERAND = Option("on", "str", "the same as WHAT; several have commas between them", metavar="WHAT", for_agents=False)


class Command:
    """Subclass, fill the data in, write `run`. The class's docstring is the help: a one-line summary, then the rest with a
    worked example; options are listed from `options`."""

    name = ""
    group = ""  # "ranks", "python", "tensors", …: how `llm` lists it
    options: Sequence[Option] = ()
    operand = ""  # the operand's name in the help
    completion = ""  # "what", "expression", "file" or "": the completions of the operand
    takes_target = True  # takes -on WHAT
    resumes = False  # it resumes processes
    repeats = False  # Enter repeats it although it resumes
    watches = False  # it takes several samples: one moment of a running process is no use to it
    copies = 0  # how often `room.LOOK` bytes of memory it needs at least, for copies of processes
    standalone = False  # also runs outside gdb in `python -m gdbext`, without starting gdb
    tool = ""  # the name under which agents get it (`python -m gdbext mcp`); "": they do not
    tool_operand = ""  # of a tool, instead of `operand`: words in small letters before it are fixed
    gdb_only = False  # acts on gdb's own inferiors: `python -m gdbext` has no use for it
    fields: Fields | None = None  # of its JSON answer, where they are declared (render/fields.py)

    def run(self, session: Session, args: Args) -> Answer:
        """-> `Answer`. Raises `GdbextError` for every expected failure."""
        raise NotImplementedError

    def answer(self, session: Session, args: Args) -> Answer:
        """The answer of `run`. It is called again where a process that runs changed during the read."""

        def run() -> Answer:
            session.moving = False
            for target in session.targets.running():
                target.unsettled = False
            answer = self.run(session, args)
            if any(target.unsettled for target in session.targets.running()):
                answer.partial.append("changed")
            return answer

        try:
            if getattr(args, UNSTOPPED.key, False):
                session.stop_nothing(self)
            with log.during(getattr(args, "debug", False)), seldom_collected():
                if getattr(args, STILL.key, False):
                    return session.still(self, args, run)
                try:
                    return retry(run, lambda: session.moving, Budget(), errors=(FaultError, LayoutError, NotFoundError))
                except ContradictionError as e:
                    return self._of_one_moment(session, args, run, e)
        except (FaultError, LayoutError) as e:
            if session.moving and not e.final:  # each time something else
                mend = (
                    f"-{STILL.name} reads a copy of one moment" if STILL in self.all_options() else "ask again, or llm-attach it"
                )
                raise GdbextError(f"{e}; the process runs and changes while it is read: {mend}") from None
            raise
        except (OSError, RuntimeError) as e:
            meant = meaning(e)
            if meant is None:
                raise
            raise meant from None

    def _of_one_moment(self, session: Session, args: Args, run: Callable[[], Answer], why: ContradictionError) -> Answer:
        """The answer from a copy, where what was read from the running process contradicts itself: what the copy says is so."""
        if STILL not in self.all_options():
            raise why
        log.note("a copy of one moment is read: %s", why)
        try:
            before: list[dict[str, Any]] = []
            for left in reversed(range(MOMENTS)):
                answer = session.still(self, args, run, (FaultError, LayoutError, NotFoundError))
                if not left or not answer.data.get("mid_update"):  # what it says in two ways may be half of a change
                    break
                before += answer.data.get("pauses", [])
            answer.data["pauses"] = before + answer.data.get("pauses", [])
            return answer.and_line(f"paused {seconds(sum(one['seconds'] for one in before))} before that" if before else "")
        except GdbextError as e:
            if isinstance(why.rest, Answer):
                log.passed_over(e)
                return why.rest
            if isinstance(e, NotFoundError):
                raise
            raise GdbextError(f"{why}; a copy of one moment could not be read: {e}") from None

    def rehearsed(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values of its options for a run that reads the same memory and writes nothing."""
        return {key: None if key in _FILES else value for key, value in values.items()}

    @classmethod
    def finds_engines(cls, args: Args) -> bool:
        """Whether the command finds its processes itself with these arguments, and needs neither -on nor a selected one."""
        return cls.standalone

    def complete(self, session: Session, text: str) -> list[str]:
        """Further words for the operand."""
        return []

    # ---- the rest is for the doors -------------------------------------------------------------------------------
    @classmethod
    def all_options(cls) -> list[Option]:
        on = [ON] if cls.takes_target else [ON_OPERAND] if "WHAT" in cls.operand else []
        acts = cls.resumes or cls.gdb_only or cls.watches or cls.copies
        still = [STILL] if cls.takes_target and not acts else []
        reads = on and not (cls.resumes or cls.gdb_only) and all(o.name != UNSTOPPED.name for o in cls.options)
        return [*cls.options, *on, *still, *[UNSTOPPED] * bool(reads), JSON, FULL_PATHS, DEBUG]

    @classmethod
    def help(cls) -> str:
        """The text that gdb's `help` shows."""
        doc = clean(cls.__doc__ or "")
        operand = cls.operand or ("[WHAT]" if cls.takes_target else "")
        usage = f"Usage: {cls.name} [OPTION]... {operand}".rstrip()
        lines = []
        for o in cls.all_options():
            head = f"  -{o.name}" + ("" if o.kind == "flag" else f" {o.metavar}")
            lines.append(f"{head:<22}{o.told}")
        summary, _, body = doc.partition("\n")
        return summary + "\n\n" + usage + "\n" + "\n".join(lines) + ("\n\n" + body.strip("\n").rstrip() if body.strip() else "")

    @classmethod
    def parse(cls, line: str) -> Args:
        """gdb-style arguments: options first, or after the operand where no bracket or string is open; `--` ends them."""
        options = cls.all_options()
        values = {o.key: (list(o.default) if isinstance(o.default, list) else o.default) for o in options}
        rest = _take_options(cls, line.strip(), options, values, bool(cls.operand))
        for cut in _trailing(rest, options):
            trial = {k: (list(v) if isinstance(v, list) else v) for k, v in values.items()}
            try:
                if _take_options(cls, rest[cut:].strip(), options, trial, False) == "":
                    values, rest = trial, rest[:cut].rstrip()
                    break
            except UsageError as e:
                log.passed_over(e)
                continue
        if rest and cls.takes_target and not values["on"] and " " not in rest and cls.is_process(rest):
            values["on"], rest = rest, ""
        if rest and not cls.operand:
            mend = "one process, or -on WHAT" if cls.takes_target else "no operand"
            raise UsageError(f"{cls.name}: takes {mend}, got {rest!r}; see: help {cls.name}")
        if "WHAT" in cls.operand and "COMMAND" not in cls.operand and " -- " not in f" {line} ":
            words = rest.split()
            for i, word in enumerate(words):  # no process is named like an option
                if _OPTION.match(word) and not matching(word, options):
                    raise _unknown_option(cls, word, " ".join(words[i + 1 :]), options)
            rest = _without_options(cls, rest, options, values)
        return Args(values, cls.with_process(rest, values))

    @classmethod
    def is_process(cls, word: str) -> bool:
        """Whether a word that is the whole operand names the process, as -on does."""
        return not cls.operand

    @classmethod
    def with_process(cls, rest: str, values: dict[str, Any]) -> str:
        """The operand with the process of -on in place of its WHAT; `UsageError` where the operand names one already."""
        if cls.takes_target or "WHAT" not in cls.operand or not values.get(ON_OPERAND.key):
            return rest
        before, _, behind = cls.operand.partition("WHAT")
        count = len(before.replace("[", " ").split())
        words = rest.split(None, count)
        more = words[count] if len(words) > count else ""
        if len(words) < count or more and "COMMAND" not in behind and more not in behind:
            given = f"{rest!r} and -on {values['on']}"
            raise UsageError(f"{cls.name}: takes {cls.operand}, with WHAT there or as -on WHAT; got {given}")
        return " ".join(filter(None, [*words[:count], values[ON_OPERAND.key], more]))


_OPTION = re.compile(r"--?[A-Za-z][\w-]*$")


def _word(text: str) -> tuple[Any, ...]:
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
    if name in ("p", "pid") and not any(o.name == name for o in options):
        return [o for o in options if o in (ON, ON_OPERAND)]
    found = [o for o in options if o.name == name] or [o for o in options if name and name == o.was]
    found = found or [o for o in options if name and (o.name.startswith(name) or o.was.startswith(name))]
    return [o for o in found if o not in (FULL_PATHS, DEBUG, ON_OPERAND, STILL)] or found


def _unknown(command: type[Command], word: str, rest: str, options: list[Option]) -> str:
    """Advice for an option that a command does not have."""
    name = word.lstrip("-")
    if name == "on":
        what = _word(rest)[0] if rest else "TP0"
        return f"it acts on the process that gdb has selected: llm-attach {what}, then {command.name}" if command.gdb_only else ""
    import difflib  # only here: 10 ms that a start of gdb need not spend

    near = difflib.get_close_matches(name, [o.name for o in options], 3)
    return f"did you mean {' or '.join('-' + n for n in near)}?" if near else f"it has {', '.join('-' + o.name for o in options)}"


def _unknown_option(command: type[Command], word: str, rest: str, options: list[Option]) -> Any:
    mend = "; ".join(filter(None, (_unknown(command, word, rest, options), f"see: help {command.name}")))
    return UsageError(f"{command.name}: option {word} is unknown; {mend}")


def _take_options(command: type[Command], line: str, options: list[Option], values: dict[str, Any], operand: Any) -> Any:
    while line.startswith("-"):
        word, rest = _word(line)
        if word == "--":
            return rest
        if "=" in word and word.startswith("--"):
            word, _, value = word.partition("=")
            rest = value + " " + rest
        found = matching(word, options)
        if len(found) != 1:
            if operand and not found and not _OPTION.match(word):
                return line  # an operand that starts with a minus sign
            if found:
                which = ", ".join("-" + o.name for o in found)
                raise UsageError(f"{command.name}: option {word} is ambiguous: {which}; see: help {command.name}")
            raise _unknown_option(command, word, rest, options)
        option = found[0]
        if option.kind == "flag":
            values[option.key], line = True, rest
            continue
        if not rest:
            raise UsageError(f"{command.name}: option -{option.name} needs a value ({option.metavar}); see: help {command.name}")
        word, line = _word(rest)
        value = option.convert(word)
        if option.repeat:
            values[option.key].append(value)
        else:
            values[option.key] = value
    return line


def _without_options(command: type[Command], rest: str, options: list[Option], values: dict[str, Any]) -> str:
    """The words of an operand that names processes, without the options among them; no process is named like an option."""
    before: list[str] = []
    while rest:
        word, more = _word(rest)
        if not (_OPTION.match(word.partition("=")[0]) and matching(word.partition("=")[0], options)):
            before.append(rest[: len(rest) - len(more)].strip())
            rest = more
        else:
            rest = str(_take_options(command, rest, options, values, True))
    return " ".join(before)


def _trailing(text: str, options: list[Option]) -> Any:
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
