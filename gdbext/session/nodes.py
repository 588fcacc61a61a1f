"""Commands on other machines: `-on TP0@ssh:HOST`, `llm-stacks pod/NS/NAME slurm:JOB`. The user's own kubectl, ssh and srun carry
the pack there, into memory alone, and run it. Their answers are merged here.

Every command line is a list of words: no shell of ours sees a name. ssh joins its words for the shell on the other machine, so it
gets them quoted."""

from __future__ import annotations

import os
import re
import selectors
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from .. import archive, log
from ..access.background import background_thread
from ..access.files import JSON_SIZE, Budget, json_of
from ..errors import GdbextError
from ..render.text import Style, beneath
from .command import Answer, Args, Command, UsageError, matching

NAME = r"[A-Za-z0-9][\w.-]*"
NODE = re.compile(rf"(?:(?P<what>.*?)@)?(?P<node>pod/{NAME}/{NAME}(?:/{NAME})?|ssh:(?:{NAME}@)?{NAME}|slurm:\d[\w.+]*)")
LIMIT = 120.0  # seconds for a node
FACTS = "--facts"  # the word by which a node is asked for what it sees, at the moment at which all others are
AT_ONCE = 32
MOST, MOST_OF_ALL = 64 << 20, 256 << 20  # bytes that one node, and all together, may answer
MOST_SAID = 64 << 10  # bytes of the error output of a node's program
# Reads the pack from standard input into memory and becomes it: nothing is written to a disk there.
START = (
    "import os, sys\n"
    "size, data = int(sys.argv[1]), b''\n"
    "while len(data) < size:\n"
    "    part = sys.stdin.buffer.read(size - len(data))\n"
    "    if not part: sys.exit('the pack did not arrive whole')\n"
    "    data += part\n"
    "f = os.memfd_create('gdbext.pyz', 0)\n"
    "open(f, 'wb', closefd=False).write(data)\n"
    "os.execv(sys.executable, [sys.executable, '/proc/self/fd/%d' % f] + sys.argv[2:])\n"
)


def plan(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """[(node, the command's words there)] for a command line that names nodes; [] for one that names none. `GdbextError` where
    one word names both a node and something else."""
    found = {}
    for number, word in enumerate(words):
        whole = NODE.fullmatch(word)
        if whole:
            found[number] = whole
        elif re.search(r"(?:^|[@,=])(?:pod/|ssh:|slurm:)\S", word) and " " not in word:
            raise GdbextError(
                f"{word!r} names no node: [WHAT@]pod/NAMESPACE/NAME[/CONTAINER], ssh:[USER@]HOST or slurm:JOB, one a word"
            )
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


def command_line(node: str, words: Sequence[str]) -> list[str]:
    """The command line that runs `words` on a node, with its standard input."""
    kind = re.match(r"pod|ssh|slurm", node)
    if kind is None:
        raise GdbextError(f"{node}: no node")
    if kind[0] == "pod":
        _, namespace, name, *container = node.split("/")
        return ["kubectl", "exec", "-i", "-n", namespace, name, *(["-c", *container] if container else []), "--", *words]
    if kind[0] == "ssh":
        quoted = " ".join(shlex.quote(word) for word in words)
        return ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", node[len("ssh:") :], quoted]
    job = node[len("slurm:") :]
    return ["srun", "--overlap", f"--jobid={job}", "--ntasks-per-node=1", "--label", *words]


READY, GO, BEGUN = "ready", "go", "begun"
READY_IN = 60.0  # seconds after which those that are ready begin without the others


def all_are_ready() -> None:
    """On a node: reports that the pack is here, waits for the message that it is on all other nodes too, and reports that."""
    print(READY, flush=True)
    sys.stdin.readline()
    print(BEGUN, flush=True)


class Start:
    """The moment at which all nodes begin: when each has reported that it is ready, or has failed, or after READY_IN seconds.
    `told`: {node: when it was told to begin}; `heard`: {node: when it reported that}, both on the monotonic clock."""

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

    def moments(self, node: str) -> dict[str, float | None]:
        """`told`: seconds after the first node at which this one was told to begin; `way`: seconds until its report of that."""
        told, heard = self.told.get(node), self.heard.get(node)
        if told is None:
            return {"told": None, "way": None}
        return {"told": told - min(self.told.values()), "way": heard - told if heard is not None else None}

    def give(self, node: str, pipe: Any, pack: Any) -> None:
        """Writes the pack, and the word to begin when it is time."""
        try:
            with pipe:
                pipe.write(pack)
                pipe.flush()
                self._go.wait(READY_IN)
                self.told[node] = time.monotonic()
                pipe.write(f"{GO}\n".encode())
        except OSError as e:
            log.note("a node took the pack no further: %s", e)


class Room:
    """The bytes that all nodes' answers together may still take."""

    def __init__(self, left: int = MOST_OF_ALL) -> None:
        self.left, self._lock = left, threading.Lock()

    def take(self, count: int) -> bool:
        with self._lock:
            self.left -= count
            return self.left >= 0


def ask(
    node: str, words: Sequence[str], pack: bytes, limit: float = LIMIT, room: Room | None = None, start: Start | None = None
) -> list[tuple[str, str]]:
    """[(name, text)] of a node's answers, one for each task of a job, under the node's name in the command. `start`: the moment
    at which it begins with all others. `GdbextError` where there is no answer, or where it exceeds `limit` seconds, MOST bytes or
    the `room` for all."""
    line = command_line(node, ["python3", "-c", START, str(len(pack)), *words])
    try:
        child = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as e:
        if start is not None:
            start.arrived()
        raise GdbextError(f"{line[0]}: {e.strerror}") from None
    try:
        if start is not None:
            background_thread(start.give, node, child.stdin, pack)
        else:
            background_thread(_give, child.stdin, pack)
        out, err = _read(child, limit, room or Room(), start, node)
        status = child.wait(limit)  # it has closed its ends
    except subprocess.TimeoutExpired:
        raise GdbextError(f"no answer in {limit:g} s") from None
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdout, child.stderr):
            pipe.close()  # type: ignore[union-attr]
    text, complaints = (
        out.decode("utf-8", "replace"),
        log.pass_on(err.decode("utf-8", "replace"), bool({"-debug", "--debug"} & set(words))),
    )
    parts: dict[str, list[str]] = {}
    for row in text.splitlines():
        if start is not None and row.rpartition(" ")[2] in (READY, BEGUN):
            continue
        task = re.match(r"\s*(\d{1,9}): ?", row) if node.startswith("slurm:") else None
        parts.setdefault(f"{node} task {task[1]}" if task else node, []).append(row[task.end() :] if task else row)
    if not parts or status not in (0, 3) and not text.startswith("{"):
        said = complaints.strip().splitlines() or [f"{line[0]}: exit status {status}"]
        raise GdbextError(said[-1])
    return [(name, "\n".join(rows)) for name, rows in parts.items()]


def _give(pipe: Any, pack: Any) -> None:
    """Writes the pack to a program that may not read it."""
    try:
        with pipe:
            pipe.write(pack)
    except OSError:
        pass


def _read(child: Any, limit: float, room: Room, start: Start | None = None, node: str = "") -> tuple[bytes, bytes]:
    """-> (standard output, the end of standard error) of a program, counted as they arrive. `start` gets its first lines."""
    try:
        return _read_all(child, limit, room, start, node)
    finally:
        if start is not None and not getattr(child, "is_ready", False):
            start.arrived()


def _read_all(child: Any, limit: float, room: Room, start: Start | None, node: str) -> tuple[bytes, bytes]:
    end, kept = time.monotonic() + limit, {child.stdout: bytearray(), child.stderr: bytearray()}
    out = kept[child.stdout]
    with selectors.DefaultSelector() as waiting:
        for pipe in kept:
            waiting.register(pipe, selectors.EVENT_READ)
        while waiting.get_map():
            left = end - time.monotonic()
            ready = waiting.select(left) if left > 0 else []
            if not ready:
                raise subprocess.TimeoutExpired(child.args, limit)
            for key, _ in ready:
                part = os.read(key.fd, 1 << 16)
                if not part:
                    waiting.unregister(key.fileobj)
                    continue
                kept[key.fileobj] += part
                if start is not None and not getattr(child, "is_ready", False) and READY.encode() + b"\n" in bytes(out[:4096]):
                    child.is_ready = True
                    start.arrived()
                if start is not None and node not in start.heard and BEGUN.encode() + b"\n" in bytes(out[:4096]):
                    start.heard[node] = time.monotonic()
                del kept[child.stderr][:-MOST_SAID]
                if key.fileobj is child.stdout and (len(out) > MOST or not room.take(len(part))):
                    room.take(-len(out))
                    raise GdbextError(
                        f"too long an answer: {MOST >> 20} MiB are read of a node, {MOST_OF_ALL >> 20} of all nodes"
                    )
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
            and option.name not in ("show-content", "debug", *own)
            and getattr(args, option.key) != option.default
        ):
            raise UsageError(f"{command.name}: -{option.name} is for this machine, not for another")
    import concurrent.futures

    merge, failed = getattr(command, "merge", None) if getattr(command, "merges", lambda args: True)(args) else None, []
    texts: list[tuple[str, str]] = []
    pack, as_json, room = archive.made(), args.json or merge is not None, Room()
    budget = Budget("the nodes' answers", JSON_SIZE, seconds=10 * LIMIT)
    more = getattr(command, "node_words", ()) if merge is not None else ()
    start = Start(len(planned)) if FACTS in more else None
    limit = LIMIT + getattr(command, "node_seconds", lambda args: 0.0)(args)
    with concurrent.futures.ThreadPoolExecutor(len(planned) if more else min(AT_ONCE, len(planned))) as pool:
        asked = []
        for node, words in planned:
            line = [command.name, *["--json"] * as_json, *more, *_without(command, words, own)]
            asked.append((node, pool.submit(ask, node, line, pack, limit, room, start)))
        for node, one in asked:
            try:
                texts += one.result()
            except GdbextError as e:
                failed.append({"label": node, "pid": None, "reason": str(e)})
    read: dict[str, Any] = {}
    for name, text in sorted(texts, key=lambda one: len(one[1])):  # the small ones first: no node takes the others' room
        try:
            read[name] = _answer(command, text, budget) if as_json else text
            if start is not None:
                read[name]["moments"] = start.moments(name.partition(" task ")[0])
        except GdbextError as e:
            failed.append({"label": name, "pid": None, "reason": str(e)})
    answers = [(name, read[name]) for name, _ in texts if name in read]
    if not answers:
        raise GdbextError("; ".join(f"{f['label']}: {f['reason']}" for f in failed))
    if merge is not None:
        merged: Answer = merge(command(), args, answers, failed)
        return merged
    return beside(answers, failed)


def _without(command: type[Command], words: Sequence[str], own: Sequence[str]) -> list[str]:
    """The words for a node: without -json and the options of the merged answer."""
    found, skip, options = [], False, command.all_options()
    for word in words:
        known = [o for o in matching(word, options) if o.name in own] if own and word.startswith("-") else []
        if not skip and word not in ("-json", "--json") and not known:
            found.append(word)
        skip = bool(known) and known[0].kind != "flag" and not skip
    return found


def _answer(command: type[Command], text: str, budget: Any) -> Any:
    """The JSON of a node's answer; `GdbextError` where it is no answer of this command."""
    no_answer = "what it answered is no answer of gdbext"
    try:
        found = json_of(text.encode(), budget.path, budget)
    except ValueError as e:
        raise GdbextError(no_answer + (f" ({e})" if "deeply" in str(e) else "")) from None
    if not isinstance(found, dict) or not str(found.get("schema", "")).startswith(command.name + "/"):
        raise GdbextError(no_answer)
    return found


def beside(answers: Sequence[tuple[str, Any]], failed: list[dict[str, Any]]) -> Answer:
    """Answers that are not merged: `{nodes: [{node, answer}], failed}`. As text they follow one another, indented below the
    node's name in the command, so that no node's text can look like another's."""
    partial = [f"{f['label']}: {f['reason']}" for f in failed]

    def text(style: Style) -> str:
        return "\n".join(style.title(name) + "\n" + beneath(said) for name, said in answers)

    return Answer({"nodes": [{"node": name, "answer": said} for name, said in answers], "failed": failed}, text, partial)
