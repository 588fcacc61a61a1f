"""What each rule and each reader of waits is worth: drawn situations put to llm-hang by the whole pack, and again with one of
them switched off.

  python3 scripts/tools/ablation.py [-only REGEX] [-o FILE] [SEED [COUNT]]
  python3 scripts/tools/ablation.py [-only REGEX] [-o FILE] -kept DIR    of snapshots: no machine is too loaded for these

COUNT situations of each of the three families of tests/gdb/subjects/situations.py from SEED. Prints, as the table of
docs/ablation.md, in how many situations the verdict, the end of the chain or the evidence is another one without it. A situation
of which the whole pack says two different things counts for nothing, and what a reader turns must turn twice. A rule is taken out
of the order and the same facts are judged again; a reader gives nothing, and the situation is looked at again."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import importlib
import inspect
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [ROOT, os.path.join(ROOT, "tests"), os.path.join(ROOT, "scripts")]

from harness.heartbeats import asleep  # noqa: E402
from harness.situations import Stage, end_named, judge  # noqa: E402

from gdbext.verdict.rules import ORDER  # noqa: E402
from tools.environments import existing  # noqa: E402

SEED, COUNT, WAIT = 5300, 12, 0.6  # situations 530000000 and on, never looked at


def nothing(*words: Any, **more: Any) -> None:
    return None


def never(*words: Any, **more: Any) -> bool:
    return False


def always(*words: Any, **more: Any) -> bool:
    return True


def none_of_them(*words: Any, **more: Any) -> List[Any]:
    return []


def as_found(facts: Any, found: Any) -> Any:
    return found


class Reader(NamedTuple):
    """A reader of waits. `off`: [(module below gdbext, function, what it is instead)]; `files`: what could go with it."""

    off: List[Tuple[str, str, Callable[..., Any]]]
    files: List[str]


READERS: Dict[str, Reader] = {
    "loops that only ask": Reader(
        [("cpython.poll_loops", "of_frames", nothing)],
        ["cpython/poll_calls", "cpython/poll_files", "cpython/poll_loops", "cpython/poll_tasks"]
        + ["cpython/poll_values", "cpython/poll_walk", "stacks/polls"],
    ),
    "locks taken in a function's text": Reader([("cpython.locks", "acquired", none_of_them)], []),
    "who could end a wait, by what it reaches": Reader([("stacks.givers", "may_end", always)], ["stacks/givers"]),
    "work without an effect": Reader([("observe.effects", "of_thread", nothing)], ["observe/effects"]),
    "waits of library functions": Reader([("cpython.primitive_states", "find", nothing)], ["cpython/primitive_states"]),
    "worker processes of pools": Reader([("stacks.process_pools", "edge", nothing)], ["stacks/process_pools"]),
    "the GIL": Reader([("stacks.gil_waits", "edge_of", nothing)], ["stacks/gil_waits"]),
    "import locks": Reader([("stacks.import_lock", "edge_of", nothing)], ["stacks/import_lock"]),
    "native locks": Reader([("stacks.native_waits", "other", nothing)], ["stacks/native_waits"]),
    "locks of musl": Reader([("stacks.musl_locks", "owner", nothing)], ["stacks/musl_locks"]),
    "locks of buffered files": Reader([("stacks.io_locks", "buffered_owner", nothing)], ["stacks/io_locks"]),
    "locks of SQLite": Reader([("stacks.sqlite_locks", "waits", never)], ["stacks/sqlite_locks"]),
    "semaphores of processes": Reader([("stacks.ipc_locks", "semaphore_at", nothing)], []),
    "locked files": Reader([("stacks.ipc_locks", "locked_descriptor", nothing)], []),
    "owners in shared memory": Reader(
        [("stacks.shared_memory", "holders_of_semaphore", nothing), ("stacks.shared_memory", "owner_of_mutex", nothing)],
        ["stacks/shared_memory"],
    ),
    "ends of pipes and sockets, by thread": Reader([("stacks.file_ends", "read", nothing)], ["stacks/file_ends"]),
    "threads that the end of the program waits for": Reader([("stacks.ending", "shutdown_edge", nothing)], ["stacks/ending"]),
    "inherited ends of pipes": Reader([("verdict.heirs", "inherited", never)], ["verdict/heirs"]),
    "locks that are taken in turn": Reader([("verdict.turns", "taken_in_turn", never)], ["verdict/turns"]),
    "the gate: who is at work is not accused": Reader([("verdict.gate", "judged", as_found)], ["verdict/gate"]),
}


class Said(NamedTuple):
    """`how`: right, unknown, imprecise or WRONG; `end` as `Outcome.end`."""

    verdict: str
    culprits: List[str]
    how: str
    end: str
    evidence: List[str]


class Turned(NamedTuple):
    """What is another one without an idea, in one situation: "" or how it was and is."""

    idea: str
    verdict: str
    end: str
    evidence: str


def name_of(rule: Any) -> str:
    return f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}"


def files_of(idea: str) -> List[str]:
    return READERS[idea].files if idea in READERS else []


def lines_of(idea: str) -> int:
    """Lines of the modules that could go with an idea; of a rule those of its function."""
    found = 0
    for name in files_of(idea):
        with open(os.path.join(ROOT, "gdbext", name + ".py"), encoding="utf-8") as f:
            found += sum(1 for _ in f)
    for rule in ORDER:
        if name_of(rule) == idea:
            found += len(inspect.getsourcelines(rule)[0])
    return found


def switch_off(idea: str) -> None:
    """In a process of its own: the functions of a reader give nothing, under each name by which a module has them."""
    for module, name, instead in READERS[idea].off:
        real = getattr(importlib.import_module(f"gdbext.{module}"), name)
        for other in [m for key, m in list(sys.modules.items()) if key.startswith("gdbext") and m is not None]:
            for key, value in list(vars(other).items()):
                if value is real:
                    setattr(other, key, instead)


def in_fork(work: Callable[[], Any]) -> Any:
    """What `work` gives, done in a fork of this process. None where it failed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as f:
                f.write(json.dumps(work()))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as f:
        text = f.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else None


def said(truth: Dict[str, Any], answer: Dict[str, Any]) -> Said:
    strangers = set(map(str, truth["others"]))
    one = next(v for v in answer["verdicts"] if not strangers.issuperset(v["group"]))
    one = {**one, **(one["if_it_lasts"] or {})}  # of a snapshot: what it would be if what was seen once lasted
    culprits = sorted(str(c.get("tid") or c["label"]) for c in one["culprits"])
    evidence = sorted({re.sub(r"\d+(\.\d+)?", "N", line) for line in one["evidence"]})
    return Said(one["verdict"], culprits, judge(truth, one), end_named(truth, answer["chains"]), evidence)


def asked(truth: Dict[str, Any], on: str, idea: str = "") -> Optional[Said]:
    """What llm-hang says of a situation, with an idea switched off. `on`: its pids, or its snapshots."""

    def work() -> Said:
        from harness.answers import answer

        if idea:
            switch_off(idea)
        return said(truth, answer(f"llm-hang {on} -wait {WAIT} -json"))

    found = in_fork(work)
    return Said(*found) if found else None


def judged(truth: Dict[str, Any], on: str, rules: List[str]) -> Dict[str, List[Any]]:
    """{rule: [verdict, culprits, how, evidence]} of one look, judged without each; "" with all of them."""

    def work() -> Dict[str, Any]:
        from harness.answers import answer

        from gdbext.verdict import examine
        from gdbext.verdict import judge as judging

        real, kept = examine.judge, []
        examine.judge = lambda seen: kept.append(seen) or real(seen)  # type: ignore[func-returns-value]
        answer(f"llm-hang {on} -wait {WAIT} -json")

        def without(rule: str) -> List[Any]:
            judging.ORDER = tuple(one for one in ORDER if name_of(one) != rule)
            strangers = set(map(str, truth["others"]))
            verdicts = [v for v in real(kept[-1]) if not strangers.issuperset(v.processes)]
            one = verdicts[0]
            culprits = sorted(str(tid) for _, tid in one.culprits)
            evidence = sorted({re.sub(r"\d+(\.\d+)?", "N", line) for line in one.evidence})
            return [one.kind, culprits, "", evidence]

        return {rule: in_fork(lambda rule=rule: without(rule)) for rule in ["", *rules]}

    return in_fork(work) or {}


def turned(truth: Dict[str, Any], on: str, ideas: List[str]) -> Tuple[str, List[Turned]]:
    """(how the whole pack does, or why the situation does not count; what each idea turns)."""
    whole, again = asked(truth, on), asked(truth, on)
    if whole is None or again is None:
        return "left out: no answer", []
    if whole[:4] != again[:4]:
        return "unsteady", []
    found = []
    by_rules = judged(truth, on, [idea for idea in ideas if idea not in READERS])
    before = by_rules.get("")
    for idea in ideas:
        if idea in READERS:
            now = asked(truth, on, idea)
            if now is not None and differ(whole, again, now) != ("", "", ""):
                then = asked(truth, on, idea)
                now = then if then is not None and then[:4] == now[:4] else again
            found.append(Turned(idea, *(differ(whole, again, now) if now is not None else ("failed", "", ""))))
        elif before is not None and by_rules.get(idea) is not None:
            other = by_rules[idea]
            verdict = f"{before[0]} -> {other[0]}" if before[:2] != other[:2] else ""
            found.append(Turned(idea, verdict, "", "other" if before[3] != other[3] else ""))
    return whole.how, found


def differ(whole: Said, again: Said, now: Said) -> Tuple[str, str, str]:
    """How a verdict, a chain's end, the evidence differ; evidence only where two looks of the whole pack have the same."""
    verdict = f"{whole.how} {whole.verdict} -> {now.how} {now.verdict}" if whole[:2] != now[:2] else ""
    end = f"{whole.end or 'not named'} -> {now.end or 'not named'}" if whole.end != now.end else ""
    return verdict, end, "other" if whole.evidence == again.evidence != now.evidence else ""


Tried = Tuple[str, str, List[Turned]]  # a situation's words, how the whole pack does, what is turned


def lived(stage: Stage, needs: str, words: str, ideas: List[str]) -> Tried:
    """Of a situation that is lived; one that cannot be ends none of the others."""
    try:
        if not os.path.exists(stage.path(needs)):
            return words, f"left out: no server for {needs}", []
        with stage.lived(needs, words) as truth:
            asleep(truth["pid"], seconds=0.3)
            time.sleep(0.2)
            return (words, *turned(truth, " ".join(map(str, [truth["pid"], *truth["pids"], *truth["others"]])), ideas))
    except Exception as e:
        return words, f"left out: {type(e).__name__}: {e}", []


def kept(path: str, ideas: List[str]) -> Tried:
    """Of the snapshots of a situation that goldens.py has recorded."""
    words = os.path.basename(path)[: -len(".json")]
    with open(path, encoding="utf-8") as f:
        truth = json.load(f)["truth"]
    cores = [f"{path[: -len('.json')]}.{number}.core" for number in range(1 + len(truth["pids"]) + len(truth["others"]))]
    return (words, *turned(truth, " ".join(core for core in cores if os.path.exists(core)), ideas))


def run_kept(folder: str, ideas: List[str], at_once: int) -> Iterator[Tried]:
    paths = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.endswith(".json"):
            with open(path, encoding="utf-8") as f:
                paths += [path] if "right" in json.load(f)["truth"] else []
    with concurrent.futures.ProcessPoolExecutor(at_once, multiprocessing.get_context("fork")) as pool:
        for job in concurrent.futures.as_completed([pool.submit(kept, path, ideas) for path in paths]):
            yield job.result()


def run(situations: List[str], ideas: List[str], at_once: int) -> Iterator[Tried]:
    torch = existing("vllm")
    if torch:
        os.environ["GDBEXT_TEST_TORCH_PYTHON"] = torch
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stage = Stage(folder, sys.executable)
        stack.enter_context(stage.server(""))
        drawn = [(stage.needs(words), words) for words in situations]
        for needs in sorted({needs for needs, _ in drawn} - {""}):
            server = stage.server(needs)
            if server is not None:
                stack.enter_context(server)
        pool = stack.enter_context(concurrent.futures.ProcessPoolExecutor(at_once, multiprocessing.get_context("fork")))
        jobs = [pool.submit(lived, stage, needs, words, ideas) for needs, words in drawn]
        for job in concurrent.futures.as_completed(jobs):
            yield job.result()


def table(ideas: List[str], found: List[Tried]) -> List[str]:
    """Lines of the Markdown table, what turns least first."""
    rows = []
    for idea in ideas:
        own = [(words, t) for words, _, all_of in found for t in all_of if t.idea == idea]
        verdicts = [f"{words}: {t.verdict}" for words, t in own if t.verdict]
        ends = [f"{words}: {t.end}" for words, t in own if t.end]
        evidence = sum(bool(t.evidence) for _, t in own)
        kind = "reader" if idea in READERS else "rule"
        rows.append((len(verdicts), len(ends), evidence, f"| {kind} | {idea} | {lines_of(idea)} |", verdicts[:1] or ends[:1]))
    lines = ["| | switched off | lines | verdicts | chains' ends | evidence | such as |", "|---|---|---:|---:|---:|---:|---|"]
    for verdicts, ends, evidence, head, example in sorted(rows, key=lambda row: row[:3]):
        lines.append(f"{head} {verdicts or ''} | {ends or ''} | {evidence or ''} | {example[0] if example else ''} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", nargs="?", type=int, default=SEED)
    parser.add_argument("count", nargs="?", type=int, default=COUNT)
    parser.add_argument("-only", default="")
    parser.add_argument("-kept", metavar="DIR", help="the snapshots of the situations that goldens.py recorded there")
    parser.add_argument("-at-once", type=int, default=2)
    parser.add_argument("-o", metavar="FILE", help="append the table to FILE too")
    o = parser.parse_args()
    ideas = [idea for idea in [*READERS, *map(name_of, ORDER)] if re.search(o.only, idea)]
    situations = [f"{family}{o.seed * 100000 + number}" for number in range(o.count) for family in ("", "f", "g")]
    what = f"snapshots of {o.kept}" if o.kept else f"seed {o.seed}, {len(situations)} situations"
    print(f"{what}, {len(ideas)} rules and readers", flush=True)
    found, began = [], time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what lives the situations ends too
    for words, how, turns in run_kept(o.kept, ideas, o.at_once) if o.kept else run(situations, ideas, o.at_once):
        found.append((words, how, turns))
        said_of = ", ".join(f"{t.idea}: {t.verdict or t.end}" for t in turns if t.verdict or t.end)
        print(f"{time.monotonic() - began:4.0f} s  {words}: {how}; {said_of or 'nothing turns it'}", flush=True)
    counted = [how for _, how, turns in found if turns]
    lines = [
        f"{'Snapshots' if o.kept else f'Seed {o.seed}'}: {len(found)} situations, {len(counted)} of them counted: "
        + ", ".join(f"{counted.count(how)} {how}" for how in sorted(set(counted))),
        "",
        *table(ideas, found),
    ]
    print("\n".join(lines))
    if o.o:
        with open(o.o, "a", encoding="utf-8") as f:
            f.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
