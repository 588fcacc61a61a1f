"""pylog, pytrace: print at a line or around a function, and go on."""

from __future__ import annotations

import re
from typing import Any

from ..answers.breakpoints import BREAKPOINT, SET, set_text
from ..errors import GdbextError
from ..render.files import own_folder
from ..render.text import Style
from ..session.command import CONTENT, Answer, Args, Command, Option, UsageError
from ..session.gdb_only import (
    ATTACHED,
    COUNT,
    DELETE,
    PENDING,
    breakpoint_doubts,
    check_condition,
    deleted,
    labels_of_attached,
    refuse_typos,
    require_gdb,
)
from ..session.session import Session

LIMIT = Option("limit", "int", "says nothing more after N lines", 0, metavar="N")
EVERY = Option("every", "int", "says something of the first pass and then of every Nth only", 1, metavar="N")
FOR = Option("for", "float", "says nothing more S seconds after the first pass, and frees the debug registers", 0.0, metavar="S")


MAX_CALLS = 1000  # that -calls follows where -limit does not say


def recorded(log: Any) -> Answer:
    """What was said so far, for a command without operand."""
    events = list(log.events)

    def text(style: Style) -> str:
        lines = [
            f"{log.clock(e['time'])} {e['tid']} {style.file(e['file'].rpartition('/')[2])}:{e['line']}  {e['text']}"
            for e in events
        ]
        return "\n".join(lines) or "nothing was logged yet"

    return Answer(SET.of(events=events), text)


def _pace(command: str, log: Any, args: Args) -> Any:
    seconds = getattr(args, "for")
    if args.every < 1 or args.limit < 0 or seconds < 0:
        raise UsageError(f"{command}: -every is 1 or more, -limit and -for are 0 or more")
    return log.Pace(args.json, args.limit, args.every, seconds, args.show_content)


def _set(session: Session, args: Args, point: Any) -> Answer:
    processes = require_gdb(session, "follow").processes(labels_of_attached(session), args.on or "")
    if not args.pending:
        refuse_typos(session, point.where, processes)
    point.set_in(processes)
    data = BREAKPOINT.of(**point.data())
    notes = breakpoint_doubts(session, processes) + getattr(point, "without_results", [])
    return Answer(SET.of(breakpoints=[data], events=[]), lambda style: set_text(data, style), notes)


class PyLog(Command):
    """Print a line whenever Python reaches a place, and go on (R). Nobody edits the program; nothing is written to it.

    WHERE is as pybreak takes it. The text's {expressions} are read from memory when the line is about to run; {{ is a brace.
    -json prints each event as one line of JSON. Without WHERE: what was said so far (the last 10,000 events). delete N removes
    it. Each pass costs the thread about a millisecond: a place that is reached ten thousand times a second slows down.
    What becomes of the process if gdb is killed meanwhile: help pybreak.

        (gdb) pylog scheduler.py:412 "{len(self.running)} running, first {self.running[0].request_id}"
        pylog 1: vllm/v1/core/sched/scheduler.py:412  Scheduler.schedule  (1 debug register)
        (gdb) continue
        12:04:31.207 4242 scheduler.py:412  8 running, first 'req-7-a3f1'
    """

    name = "pylog"
    group = "break"
    fields = SET
    operand = '[WHERE "text {expr}" [if COND]]'
    takes_target = False
    resumes = True
    gdb_only = True
    options = [ATTACHED, COUNT, PENDING, DELETE, LIMIT, EVERY, FOR, CONTENT]

    def run(self, session: Session, args: Args) -> Answer:
        if args.delete:
            return deleted(session, self.name, args.operand_text)
        log = require_gdb(session, "pylog")
        if not args.operand_text:
            return recorded(log)
        found = re.match(r"(\S+)\s+(['\"])(.*)\2(?:\s+if\s+(.*))?$", args.operand_text, re.S)
        if not found:
            raise UsageError('pylog: takes a place and a quoted text: pylog scheduler.py:412 "{len(self.running)} running"')
        where, _, template, condition = found.groups()
        parts = log.parse_template(template)
        for part in parts:
            if isinstance(part, tuple):
                check_condition(part[0], self.name, "expression")
        check_condition(condition or "", self.name)
        point = log.Logpoint(
            require_gdb(session, "pybreak").Where(where),
            template,
            condition or "",
            args.count,
            args.on or "",
            pace=_pace(self.name, log, args),
        )
        return _set(session, args, point)


class PyTrace(Command):
    """Print the calls of a Python function with arguments and results, and go on (R). Nothing is written to the process.

    FUNCTION is as pybreak takes it. A call takes one debug register, each of the function's returns another; where they do not
    suffice, calls are shown without results. A call that ends by an exception shows no result. Without FUNCTION: what was said so
    far. delete N removes it. What becomes of the process if gdb is killed meanwhile: help pybreak.

    -calls follows every call of some modules (and of those inside them) in the selected thread, indented. It takes one register,
    and the thread stops for about a millisecond at each Python call and return, also at those of other modules: so it
    ends after 1,000 calls, or what -limit and -for say, and the thread runs at full speed again.

        (gdb) pytrace Scheduler.get_num_unfinished_requests
        pytrace 1: vllm/v1/core/sched/scheduler.py:1480  Scheduler.get_num_unfinished_requests  (1 debug register)
        (gdb) continue
        12:04:31.207 4242 scheduler.py:1480  -> Scheduler.get_num_unfinished_requests(self=<…Scheduler object at 0x7f…>)
        12:04:31.209 4242 scheduler.py:1480  <- Scheduler.get_num_unfinished_requests = 8  (1.62 ms)

        (gdb) pytrace -calls vllm.v1.core -for 2
    """

    name = "pytrace"
    group = "break"
    fields = SET
    operand = "[FUNCTION [if COND] | -calls MODULE...]"
    takes_target = False
    resumes = True
    gdb_only = True
    options = [
        Option("calls", help="the operands are modules, whose calls are all followed in the selected thread"),
        ATTACHED,
        COUNT,
        PENDING,
        DELETE,
        LIMIT,
        EVERY,
        FOR,
        CONTENT,
    ]

    def run(self, session: Session, args: Args) -> Answer:
        if args.delete:
            return deleted(session, self.name, args.operand_text)
        log = require_gdb(session, "pylog")
        if args.calls:
            return self._follow(session, args, log)
        if not args.operand_text:
            return recorded(log)
        where, condition = require_gdb(session, "pybreak").split(args.operand_text)
        if where.line is not None:
            raise GdbextError("takes a function, not a line: pylog prints at a line")
        check_condition(condition, self.name)
        return _set(session, args, log.Tracepoint(where, condition, args.count, args.on or "", pace=_pace(self.name, log, args)))

    def _follow(self, session: Session, args: Args, log: Any) -> Answer:
        modules = args.operand_text.replace(",", " ").split()
        if not modules or not all(re.fullmatch(r"[^\W\d][\w.]*", name) for name in modules):
            raise UsageError("pytrace: -calls takes names of modules: pytrace -calls package.core package.worker")
        if args.on or args.count != 1 or args.every != 1:
            raise UsageError("pytrace: -calls follows the selected thread; -on, -count and -every do not go with it")
        tracing = require_gdb(session, "call_tracing")
        process, stop = tracing.selected(labels_of_attached(session))
        if not args.pending:
            tracing.refuse_unknown(modules, process.rt)
        args.limit = args.limit or MAX_CALLS
        point = tracing.CallTrace(modules, pace=_pace(self.name, log, args))
        point.follow(process, stop)
        data = BREAKPOINT.of(**point.data())
        text = f"pytrace {point.number}: every call of {' '.join(modules)} in thread {point.tid}  (1 debug register)"
        return Answer(SET.of(breakpoints=[data], events=[]), text)


class LlmSave(Command):
    """Write tensors to files whenever Python reaches a place, and go on (R). Nothing is written to the process.

    Each NAME=EXPR is a tensor in the frame that is about to run; every pass (-every N: every Nth) writes DIR/NAME-PID-NUMBER.pt
    for each, which torch.load reads. WHERE is as pybreak takes it. The rank is stopped while its tensors are written: some 1 GB
    in a second. GPU memory cannot be read from here. delete N removes it.

        (gdb) llm-save hidden=hidden_states res=residual -at llama.py:312 -every 10 -limit 5 -o /tmp/hidden
        llm-save 1: vllm/model_executor/models/llama.py:312  LlamaDecoderLayer.forward  (1 debug register)
        (gdb) continue
        12:04:31.207 4242 llama.py:312  hidden = hidden_states: [8, 4096] bfloat16, 66048 bytes in /tmp/…-000001.pt
    """

    name = "llm-save"
    group = "break"
    fields = SET
    operand = "NAME=EXPR..."
    takes_target = False
    resumes = True
    gdb_only = True
    options = [
        Option("at", "str", "the place, as pybreak takes it", metavar="WHERE"),
        Option("o", "str", "the folder for the files; it is made with the first of them where it is not there", metavar="DIR"),
        Option("if", "str", "only where this is true", "", metavar="COND"),
        ATTACHED,
        PENDING,
        DELETE,
        LIMIT,
        EVERY,
        FOR,
    ]

    def run(self, session: Session, args: Args) -> Answer:
        if args.delete:
            return deleted(session, self.name, args.operand_text)
        named = [re.match(r"([A-Za-z_]\w*)=(.+)$", word) for word in _words(args.operand_text)]
        pairs = [(found.group(1), found.group(2)) for found in named if found is not None]
        if not named or len(pairs) < len(named) or not args.at or not args.o:
            raise UsageError(
                "llm-save: takes names and expressions, a place and a folder: llm-save q=query k=key -at attention.py:80 -o DIR"
            )
        for _, expression in pairs:
            check_condition(expression, self.name)
        condition = getattr(args, "if")
        check_condition(condition, self.name)
        folder = own_folder(args.o, "-o")  # made with the first file
        log, pybreak = require_gdb(session, "pylog"), require_gdb(session, "pybreak")
        args.show_content = False
        pace = _pace(self.name, log, args)
        return _set(session, args, log.Savepoint(pybreak.Where(args.at), pairs, folder, condition, args.on or "", pace=pace))


def _words(text: str) -> list[str]:
    """`a=x[1, 2] b=y` -> ["a=x[1, 2]", "b=y"]: cut before each NAME= that stands outside brackets."""
    cuts = [m.start() for m in re.finditer(r"(?:(?<=\s)|^)[A-Za-z_]\w*=(?!=)", text) if _open(text[: m.start()]) == 0]
    if not cuts or cuts[0]:
        return [text]
    return [text[a:b].strip() for a, b in zip(cuts, cuts[1:] + [len(text)])]


def _open(text: str) -> int:
    return sum(c in "([{" for c in text) - sum(c in ")]}" for c in text)
