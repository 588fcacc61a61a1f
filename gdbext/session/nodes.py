"""Commands on other machines: `-on TP0@ssh:HOST`, `llm-stacks pod/NS/NAME slurm:JOB`. The user's own programs (transports.py)
carry the pack there and run it from memory. Their answers are merged here."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Callable

from .. import log
from ..access.background import background_thread
from ..access.files import JSON_SIZE, Budget, json_of
from ..errors import GdbextError
from ..render import progress
from ..render.text import Style, beneath, escape
from .command import Answer, Args, Command, UsageError, matching
from .transports import LABELLED, LIKE_NODE, NODE, USAGE, command_line, nodes_of

LIMIT = 120.0  # seconds for a node
FACTS = "--facts"  # the word by which a node is asked for what it sees, at the moment at which all others are
AT_ONCE = 32
MOST, MOST_OF_ALL = 64 << 20, 256 << 20  # bytes that one node, and all together, may answer
MOST_LINES = 1 << 18  # that one node may answer: each is an object here
LINGER = (
    1.0  # seconds for which the end of its output is waited for once its program has ended: another process may have its ends
)
LOOK = 0.2  # seconds between two looks at that
MOST_SAID = 64 << 10  # bytes of the error output of a node's program
BEGINNING = 1 << 15  # bytes of its output in which it, or each task of a job, says how far it is


def plan(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """[(node, the command's words there)] for a command line that names nodes; [] for one that names none. `GdbextError` where
    one word names both a node and something else."""
    found = {}
    for number, word in enumerate(words):
        whole = NODE.fullmatch(word)
        if whole:
            found[number] = whole
        elif LIKE_NODE.search(word) and " " not in word:
            raise GdbextError(f"{word!r} names no node: {USAGE}")
    whole_too = {node["node"] for node in found.values() if not node["what"]}
    twice = [f"{word['what']}@{word['node']}" for word in found.values() if word["what"] and word["node"] in whole_too]
    if twice:
        raise GdbextError(f"{twice[0]} is a part of what is named as a whole beside it: name one of the two")
    planned = []
    for place in dict.fromkeys(node["node"] for node in found.values()):  # each is asked once, for all that is named there
        there: list[str] = []
        for other, word in enumerate(words):
            node = found.get(other)
            if node is None:
                there.append(word)
            elif node["node"] == place and node["what"]:
                there.append(node["what"])
            elif there and there[-1].lstrip("-") == "on":
                there.pop()
        planned.append((place, there))
    return planned


def without_nodes(words: Sequence[str]) -> list[str]:
    """The words of a command line that name no node: what is asked of all of them."""
    found: list[str] = []
    for word in words:
        if not NODE.fullmatch(word):
            found.append(word)
        elif found and found[-1].lstrip("-") == "on":
            found.pop()
    return found


READY, GO, BEGUN = "ready", "go", "begun"
NEEDS, HAS = "needs-pack", "has-pack"  # node_start.py
READY_IN = 60.0  # seconds after which those that are ready begin without the others


def all_are_ready() -> None:
    """On a node: reports that the pack is here, waits for the message that it is on all other nodes too, and reports that."""
    print(READY, flush=True)
    sys.stdin.readline()
    print(BEGUN, flush=True)


class Start:
    """The moment at which all nodes begin: when each has reported that it is ready, or has failed, or after READY_IN seconds.
    `told`: {node: when it was told to begin}; `heard`: {node: when it, or the last task of a job, reported that}, both on the
    monotonic clock."""

    def __init__(self, count: int) -> None:
        self._waiting, self._lock, self._go = count, threading.Lock(), threading.Event()
        self.told: dict[str, float] = {}
        self.heard: dict[str, float] = {}

    def arrived(self) -> None:
        """One of the nodes is ready, or will never be."""
        with self._lock:
            self._waiting -= 1
            if self._waiting <= 0:
                self._go.set()

    def wait(self, node: str) -> None:
        """Returns when it is time to tell a node."""
        self._go.wait(READY_IN)
        self.told[node] = time.monotonic()

    def moments(self, node: str) -> dict[str, float | None]:
        """`told`: seconds after the first node at which this one was told to begin; `way`: seconds until its report of that."""
        told, heard = self.told.get(node), self.heard.get(node)
        if told is None:
            return {"told": None, "way": None}
        return {"told": told - min(self.told.values()), "way": heard - told if heard is not None else None}


class Pack:
    """The pack that nodes are given, and the words with which their python3 takes it."""

    def __init__(self) -> None:
        import hashlib
        import pkgutil

        from .. import archive

        self.data = archive.made()
        self._program = (pkgutil.get_data("gdbext.session", "node_start.py") or b"").decode()
        self._sum = hashlib.sha256(self.data).hexdigest()

    def words(self, node: str, words: Sequence[str]) -> list[str]:
        """The command line on a node."""
        return ["python3", "-c", self._program, str(len(self.data)), self._sum, "offered" if offered(node) else "sent", *words]


def offered(node: str) -> bool:
    """Whether a node is asked first whether it has the pack: a job's or cluster's nodes get it all at once."""
    return node.partition(":")[0] not in LABELLED


class Talk:
    """What a node's program is told, and what it says before its answer. `start`: the moment at which all begin together."""

    def __init__(self, node: str, pack: Pack, start: Start | None) -> None:
        self.node, self._pack, self._start = node, pack, start
        self._asked, self._has, self._ready, self._begun = threading.Event(), False, False, 0
        if not offered(node):
            self._asked.set()

    def give(self, pipe: Any) -> None:
        """Writes the pack where the node needs it, and the word to begin when it is time."""
        try:
            with pipe:
                self._asked.wait()
                if not self._has:
                    pipe.write(self._pack.data)
                    pipe.flush()
                if self._start is not None:
                    self._start.wait(self.node)
                    pipe.write(f"{GO}\n".encode())
        except OSError as e:
            log.note("a node took the pack no further: %s", e)

    def heard(self, beginning: bytes) -> None:
        """Takes in the beginning of what it has said so far."""
        said = [line.rpartition(b" ")[2].decode("ascii", "replace") for line in beginning.split(b"\n")[:-1]]
        words, begun = set(said), said.count(BEGUN)
        self._has = self._has or bool({HAS, READY} & words)
        if {HAS, NEEDS, READY} & words:
            self._asked.set()
        if self._start is not None and READY in words:
            self._arrived(self._start)
        if self._start is not None and begun > self._begun:
            self._begun, self._start.heard[self.node] = begun, time.monotonic()

    def ended(self) -> None:
        """It says no more."""
        self._asked.set()
        if self._start is not None:
            self._arrived(self._start)

    def _arrived(self, start: Start) -> None:
        if not self._ready:
            self._ready = True
            start.arrived()


class Room:
    """The bytes that all nodes' answers together may still take."""

    def __init__(self, left: int = MOST_OF_ALL) -> None:
        self.left, self._lock = left, threading.Lock()

    def take(self, count: int) -> bool:
        with self._lock:
            self.left -= count
            return self.left >= 0


def ask(
    node: str, words: Sequence[str], pack: Pack, limit: float = LIMIT, room: Room | None = None, start: Start | None = None
) -> list[tuple[str, str]]:
    """[(name, text)] of a node's answers, one for each task of a job, under the node's name in the command. `start`: the moment
    at which it begins with all others. `GdbextError` where there is no answer, or where it exceeds `limit` seconds, MOST bytes or
    the `room` for all."""
    import subprocess

    line, talk = command_line(node, pack.words(node, words)), Talk(node, pack, start)
    try:
        child = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as e:
        talk.ended()
        raise GdbextError(f"{line[0]}: {e.strerror}") from None
    try:
        background_thread(talk.give, child.stdin)
        out, err = _read(child, limit, room or Room(), talk)
        status = child.wait(limit)  # or it has closed its ends
    except subprocess.TimeoutExpired:
        raise GdbextError(f"no answer in {limit:g} s") from None
    finally:
        talk.ended()
        child.kill()
        child.wait()
        for pipe in (child.stdout, child.stderr):
            pipe.close()  # type: ignore[union-attr]
    text, complaints = (
        out.decode("utf-8", "replace"),
        log.pass_on(err.decode("utf-8", "replace"), bool({"-debug", "--debug"} & set(words))),
    )
    parts: dict[str, list[str]] = {}
    kind, said_before = node.partition(":")[0], {HAS, NEEDS} | ({READY, BEGUN} if start is not None else set())
    for row in text.rstrip("\n").split("\n") if text else ():  # what else ends lines begins no other node's answer
        if row.rpartition(" ")[2] in said_before:
            continue
        label = LABELLED[kind].match(row) if kind in LABELLED else None
        if label is None and kind in LABELLED:
            complaints += "\n" + row  # of the program that carries it
            continue
        name = f"{node} task {label[1]}" if label and kind == "slurm" else node + label[1] if label else node
        parts.setdefault(name, []).append(row[label.end() :] if label else row)
    answers = [(name, "\n".join(rows)) for name, rows in parts.items()]
    if not answers or status not in (0, 3) and not any(_json_line(said) for _, said in answers):
        last = complaints.strip().splitlines() or [f"{line[0]}: exit status {status}"]
        raise GdbextError(last[-1])
    return answers


def _read(child: Any, limit: float, room: Room, talk: Talk) -> tuple[bytes, bytes]:
    """-> (standard output, the end of standard error) of a program, counted as they arrive. Once it has ended, what another
    process writes to its ends (ssh's shared connection) is not waited for."""
    import selectors
    import subprocess

    end, kept = time.monotonic() + limit, {child.stdout: bytearray(), child.stderr: bytearray()}
    out, lines, quiet = kept[child.stdout], 0, 0.0
    with selectors.DefaultSelector() as waiting:
        for pipe in kept:
            waiting.register(pipe, selectors.EVENT_READ)
        while waiting.get_map():
            ready = waiting.select(max(min(end - time.monotonic(), LOOK), 0))
            now = time.monotonic()
            if now >= end:
                raise subprocess.TimeoutExpired(child.args, limit)
            if child.poll() is not None:
                quiet = quiet or now
                if now > quiet + (LINGER if child.stdout.fileno() in waiting.get_map() else LOOK):
                    break
            for key, _ in ready:
                quiet = 0.0 if key.fileobj is child.stdout else quiet
                part = os.read(key.fd, 1 << 16)
                if not part:
                    waiting.unregister(key.fileobj)
                    continue
                before = len(out)
                kept[key.fileobj] += part
                lines += part.count(b"\n") if key.fileobj is child.stdout else 0
                if before < BEGINNING and key.fileobj is child.stdout:
                    talk.heard(bytes(out[:BEGINNING]))
                del kept[child.stderr][:-MOST_SAID]
                if key.fileobj is child.stdout and (len(out) > MOST or not room.take(len(part))):
                    room.take(-len(out))
                    raise GdbextError(
                        f"too long an answer: {MOST >> 20} MiB are read of a node, {MOST_OF_ALL >> 20} of all nodes"
                    )
                if lines > MOST_LINES:
                    room.take(-len(out))
                    raise GdbextError(f"too long an answer: {MOST_LINES:,} lines are read of a node")
    return bytes(out), bytes(kept[child.stderr])


def of_line(command: type[Command], args: Args) -> list[tuple[str, list[str]]]:
    """`plan` of a line that was typed in gdb, where an expression is not split into words: nodes are in -on, or among the
    operand's names of processes."""
    operands = args.operand_text.split() if command.completion == "what" else [args.operand_text] * bool(args.operand_text)
    if not (
        NODE.fullmatch(args.on or "")
        if command.takes_target
        else command.completion == "what" and any(map(NODE.fullmatch, operands))
    ):
        return []
    words: list[str] = []
    for option in command.all_options():
        value = getattr(args, option.key)
        if value != option.default:
            for one in value if option.repeat else [value]:
                words += ["-" + option.name] if option.kind == "flag" else ["-" + option.name, str(one)]
    return plan([*words, *operands])


def run(command: type[Command], args: Args, planned: Sequence[tuple[str, list[str]]]) -> Answer:
    """The answers of all nodes as one. The command merges them where it can, otherwise they follow one another. A node that does
    not answer is named in `failed`; `GdbextError` where none does."""
    if command.gdb_only or command.resumes:
        raise UsageError(f"{command.name} acts on gdb's own inferiors: run gdb there   (gdbext.pyz gdb prints what it sources)")
    own = getattr(command, "merged_options", ())  # of the merged answer: this machine's
    for option in command.all_options():
        if (
            not option.for_agents
            and option.name not in ("show-content", "unstopped", "debug", *own)
            and getattr(args, option.key) != option.default
        ):
            raise UsageError(f"{command.name}: -{option.name} is for this machine, not for another")
    merge = getattr(command, "merge", None) if getattr(command, "merges", lambda args: True)(args) else None
    failed: list[dict[str, Any]] = []
    planned, as_json = single(planned, failed), args.json or merge is not None
    more = getattr(command, "node_words", ()) if merge is not None else ()
    lines = [(node, [command.name, *["--json"] * as_json, *more, *_without(command, words, own)]) for node, words in planned]
    limit = LIMIT + getattr(command, "node_seconds", lambda args: 0.0)(args)
    answers = answers_of(lines, as_json, failed, limit, len(planned) if more else AT_ONCE)
    found: Answer = merge(command(), args, answers, failed) if merge is not None else beside(answers, failed)
    found.data = {
        **found.data,
        "nodes": _states(found.data, {node for node, _ in planned} | {one["label"] for one in failed} | set(dict(answers))),
    }
    return found


def answers_of(
    lines: Sequence[tuple[str, list[str]]],
    as_json: bool,
    failed: list[dict[str, Any]],
    limit: float = LIMIT,
    at_once: int = AT_ONCE,
) -> list[tuple[str, Any]]:
    """[(name, its answer as JSON or text)] of single nodes, each asked the command line beside it. Where those have the word
    FACTS all begin in one moment. A node that does not answer is added to `failed`; `GdbextError` where none does."""
    pack, room = Pack(), Room()
    budget = Budget("the nodes' answers", JSON_SIZE, seconds=10 * LIMIT)
    start = Start(len(lines)) if any(FACTS in words for _, words in lines) else None
    texts: list[tuple[str, str, str]] = []  # (node, name, what it answered)
    for node, result in _asked(lines, lambda node, line: ask(node, line, pack, limit, room, start), at_once):
        if isinstance(result, GdbextError):
            failed.append({"label": node, "pid": None, "reason": str(result)})
        else:
            texts += [(node, name, text) for name, text in result]
    read: dict[str, Any] = {}
    schema = f"{lines[0][1][0]}/"
    for node, name, text in sorted(texts, key=lambda one: len(one[2])):  # the small ones first: no node takes the others' room
        try:
            read[name] = _answer(schema, text, budget) if as_json else text
            if start is not None:
                read[name]["moments"] = start.moments(node)
        except GdbextError as e:
            failed.append({"label": name, "pid": None, "reason": str(e)})
    answers = [(name, read[name]) for _, name, _ in texts if name in read]
    if not answers:
        raise GdbextError("; ".join(f"{f['label']}: {f['reason']}" for f in failed))
    return answers


def _states(data: dict[str, Any], names: set[str]) -> list[dict[str, Any]]:
    """The `nodes` of an answer, each with its state: those that were read, then those of `names` that were not."""
    found = [{"state": "read", "reason": None, **one} for one in data.get("nodes", ())]
    lost = [f for f in data.get("failed", ()) if f["label"] in names]
    return found + [{"node": escape(f["label"]), "state": "failed", "reason": f["reason"], "processes": 0} for f in lost]


def single(planned: Sequence[tuple[str, list[str]]], failed: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """The plan with single nodes in the place of words that name many. A word that names none is added to `failed`; `GdbextError`
    where none is left, or where a node is to be asked for two things."""
    found: dict[str, list[str]] = {}
    for node, words in planned:
        try:
            single = nodes_of(node)
        except GdbextError as e:
            failed.append({"label": node, "pid": None, "reason": str(e)})
            continue
        for one in single:
            if found.setdefault(one, words) != words:
                raise GdbextError(f"{one} is among {node}, and named for something else beside it: name it once")
    if not found:
        raise GdbextError("; ".join(f["reason"] for f in failed))
    return list(found.items())


def _asked(
    planned: Sequence[tuple[str, list[str]]], ask_one: Callable[[str, list[str]], list[tuple[str, str]]], at_once: int
) -> list[tuple[str, list[tuple[str, str]] | GdbextError]]:
    """[(node, its answers, or why there is none)] in the order of the plan. On a terminal a line says which are still awaited."""
    import concurrent.futures

    def result(node: str, words: list[str]) -> list[tuple[str, str]] | GdbextError:
        try:
            return ask_one(node, words)
        except GdbextError as e:
            return e

    with concurrent.futures.ThreadPoolExecutor(min(at_once, len(planned))) as pool, progress.line(sys.stderr) as put:
        asked = {pool.submit(result, node, words): node for node, words in planned}
        left = set(asked)
        while left:
            _, left = concurrent.futures.wait(left, progress.EVERY)
            names = [node for one, node in asked.items() if one in left]
            if names:
                put(f"{len(names)} of {len(asked)} awaited: " + ", ".join(names))
        return [(node, one.result()) for one, node in asked.items()]


def _without(command: type[Command], words: Sequence[str], own: Sequence[str]) -> list[str]:
    """The words for a node: without -json and the options of the merged answer."""
    found, skip, options = [], False, command.all_options()
    for word in words:
        known = [o for o in matching(word, options) if o.name in own] if own and word.startswith("-") else []
        if not skip and word not in ("-json", "--json") and not known:
            found.append(word)
        skip = bool(known) and known[0].kind != "flag" and not skip
    return found


def _json_line(text: str) -> str:
    """The line of a text that is JSON of the pack; "" where there is none. A login shell may say something before and after."""
    return next((row for row in reversed(text.split("\n")) if row.lstrip().startswith("{")), "")


def _answer(schema: str, text: str, budget: Any) -> Any:
    """The JSON of a node's answer; `GdbextError` where it is no answer of this command, or of another release's."""
    no_answer, wanted = "what it answered is no answer of gdbext", schema + "1"
    try:
        found = json_of((_json_line(text) or text).encode(), budget.path, budget)
    except ValueError as e:
        raise GdbextError(no_answer + (f" ({e})" if re.search("deeply|finite|digits", str(e)) else "")) from None
    said = str(found.get("schema", "")) if isinstance(found, dict) else ""
    if not said.startswith(schema):
        raise GdbextError(no_answer)
    if said != wanted:
        raise GdbextError(f"it answered as {said[:80]}, this gdbext reads {wanted}: another release of gdbext runs there")
    return found


def beside(answers: Sequence[tuple[str, Any]], failed: list[dict[str, Any]]) -> Answer:
    """Answers that are not merged: `{nodes: [{node, answer}], failed}`. As text they follow one another, indented below the
    node's name in the command, so that no node's text can look like another's."""
    partial = [f"{f['label']}: {f['reason']}" for f in failed]

    def text(style: Style) -> str:
        return "\n".join(style.title(name) + "\n" + beneath(said) for name, said in answers)

    return Answer({"nodes": [{"node": name, "answer": said} for name, said in answers], "failed": failed}, text, partial)
