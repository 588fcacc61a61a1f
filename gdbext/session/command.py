"""A command: its name, options and help as data, and one function from a session and arguments to an `Answer`.

There is no gdb here: the same commands run under gdb (`gdb_session.py`) and outside (`python -m gdbext`).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable

from .. import log
from ..access import permission
from ..access.retry import Budget, retry
from ..errors import ContradictionError, FaultError, GdbextError, LayoutError, NotFoundError, UnstoppableError
from ..render import jsonline
from ..render.columns import fitted
from ..render.fields import Fields
from ..render.text import PLAIN, Style, escape_output, one_line, seconds
from .options import COLUMNS as COLUMNS
from .options import CONTENT as CONTENT
from .options import (
    DEBUG,
    FULL_PATHS,
    JSON,
    ON,
    ON_OPERAND,
    OPTION,
    STILL,
    SUBPROCESSES,
    SUBPROCESSES_S,
    take_options,
    trailing,
    unknown_option,
    without_options,
)
from .options import HEAP as HEAP
from .options import MAX_BYTES as MAX_BYTES
from .options import UNSTOPPED as UNSTOPPED
from .options import Option as Option
from .options import UsageError as UsageError
from .options import finite as finite
from .options import matching as matching
from .system_errors import meaning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .session import Session


UNPROVEN = "unproven: what reads {} was tried on stand-ins alone, never on the engine itself"
NODE_MARKS = ("pod/", "pods/", "ssh:", "slurm:", "ray:")  # a line without them names no other machine (transports.py)


def clean(doc: str) -> str:
    """A docstring without its indentation (gdb before 13 shows it unchanged; `inspect` costs 40 ms to load)."""
    lines = doc.expandtabs().splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    return "\n".join([lines[0].strip()] + [line[margin:].rstrip() for line in lines[1:]]).strip()


def error_line(command: str, error: Exception) -> str:
    """The one line of an error: the command's name and the error's words, escaped."""
    text = one_line(str(error))
    return text if text.startswith(command) else f"{command}: {text}"


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
    "unstopped": "read while it ran",
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
    `status`: the exit status outside gdb, None for the usual one. `no_permission`: the first line, where processes may not be
    read."""

    then: Callable[[], str] | None = None
    status: int | None = None
    no_permission: str = ""

    def __init__(self, data: dict[str, Any], text: str | Callable[[Style], str], partial: Iterable[str] = ()) -> None:
        self.data, self.text, self.partial = data, text, list(dict.fromkeys(partial))

    def json(self, command: str) -> str:
        unproven = self.unproven()
        more: dict[str, Any] = {"unproven": unproven} if unproven else {}
        more.update({"no_permission": self.no_permission} if self.no_permission else {})
        return jsonline.dumps({"schema": command + "/1", "partial": self._reasons(), **self.data, **more})

    def about(self, pids: Iterable[int | None]) -> Answer:
        """This answer, which is about the processes `pids`: where some may not be read, its first line says so."""
        self.no_permission = permission.first_line(pids)
        return self

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
        if self.no_permission:
            text = style.bad(self.no_permission) + ("\n" if text else "") + text
        if self.partial:
            reasons = "; ".join(map(_in_words, self._reasons()))
            text += ("\n" if text else "") + style.dim(f"({'partial: ' * self.lacks}{reasons})")
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
HELP_COLUMNS = 79  # of help in gdb


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
    whole = False  # reads a copy of one moment, as with -still, unless -unstopped is typed or the process cannot be stopped
    standalone = False  # also runs outside gdb in `python -m gdbext`, without starting gdb
    tool = ""  # the name under which agents get it (`python -m gdbext mcp`); "": they do not
    tool_summary = ""  # of a tool, instead of the help's first line
    tool_operand = ""  # of a tool, instead of `operand`: words in small letters before it are fixed
    letters = False  # takes py-spy's -s for its children
    starts = False  # what stands behind -- is a program that it starts
    gdb_only = False  # acts on gdb's own inferiors: `python -m gdbext` has no use for it
    fields = Fields()  # of its JSON answer (render/fields.py)

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
            self._prepare(session, args)
            with log.during(getattr(args, "debug", False)), seldom_collected():
                return self._read(session, args, run)
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

    def _read(self, session: Session, args: Args, run: Callable[[], Answer]) -> Answer:
        """The answer of `run`, from a copy or from the running process."""
        cannot, still = "", getattr(args, STILL.key, False)
        if still or self.whole and not args.unstopped:
            try:
                return session.still(self, args, run)
            except UnstoppableError as e:
                if still:
                    raise
                cannot = str(e)
        try:
            answer = retry(run, lambda: session.moving, Budget(), errors=(FaultError, LayoutError, NotFoundError))
            if cannot:
                answer.partial.append(cannot)
            return answer
        except ContradictionError as e:
            return self._of_one_moment(session, args, run, e)

    def _prepare(self, session: Session, args: Args) -> None:
        if getattr(args, SUBPROCESSES.key, False):
            args.operand_text = session.with_children(args.operand_text)
        if getattr(args, UNSTOPPED.key, False):
            session.stop_nothing(self)

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

    @classmethod
    def own_words(cls) -> list[str]:
        """The words of its own that the operand may begin with: `check` of `[block N | check]`."""
        first = [each.split()[0] for each in cls.operand.strip("[]").split("|") if each.strip()]
        return [word for word in first if word.islower() and word[0] != "-"]

    def complete(self, session: Session, text: str) -> list[str]:
        """Further words for the operand."""
        return self.own_words()

    # ---- the rest is for the doors -------------------------------------------------------------------------------
    @classmethod
    def all_options(cls) -> list[Option]:
        on = [ON] if cls.takes_target else [ON_OPERAND] if "WHAT" in cls.operand else []
        acts = cls.resumes or cls.gdb_only or cls.watches or cls.copies
        still = [STILL] if cls.takes_target and not acts else []
        reads = on and not (cls.resumes or cls.gdb_only) and all(o.name != UNSTOPPED.name for o in cls.options)
        several = [SUBPROCESSES_S if cls.letters else SUBPROCESSES] if "WHAT..." in cls.operand else []
        return [*cls.options, *on, *several, *still, *[UNSTOPPED] * bool(reads), JSON, FULL_PATHS, DEBUG]

    @classmethod
    def help(cls, columns: int = 0) -> str:
        """The text that `help` shows, with lines of at most so many columns; 0: as gdb wants it, the summary in one line."""
        doc = clean(cls.__doc__ or "")
        operand = cls.operand or ("[WHAT]" if cls.takes_target else "")
        usage = f"Usage: {cls.name} [OPTION]... {operand}".rstrip()
        lines = []
        for o in cls.all_options():
            head = f"  -{o.name}" + ("" if o.kind == "flag" else f" {o.metavar}")
            lines += [f"{head:<22}{o.told}"] if len(head) < 22 else [head, " " * 22 + o.told]
        summary, _, body = doc.partition("\n")
        parts = [usage, *lines, *(["", body.strip("\n").rstrip()] if body.strip() else [])]
        rest = fitted("\n".join(parts), columns or HELP_COLUMNS)
        return f"{fitted(summary, columns) if columns else summary}\n\n{rest}"

    @classmethod
    def parse(cls, line: str) -> Args:
        """gdb-style arguments: options first, or after the operand where no bracket or string is open; `--` ends them."""
        options = cls.all_options()
        values = {o.key: (list(o.default) if isinstance(o.default, list) else o.default) for o in options}
        rest = take_options(cls, line.strip(), options, values, bool(cls.operand))
        for cut in trailing(rest, options):
            trial = {k: (list(v) if isinstance(v, list) else v) for k, v in values.items()}
            try:
                if take_options(cls, rest[cut:].strip(), options, trial, False) == "":
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
                if OPTION.match(word) and not matching(word, options):
                    raise unknown_option(cls, word, " ".join(words[i + 1 :]), options)
            rest = without_options(cls, rest, options, values)
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
