"""The answers, with their values, of every reading command on 40 drawn subjects, live and from a snapshot of each; and what
differs between two such records. A change that is to change no answer is held by it.

  python3 scripts/tools/goldens.py record DIR [-root ROOT] [-like DIR0] [-only REGEX] [-at-once N]
      asks the pack in ROOT (this tree); DIR/NAME.json are the answers, DIR/NAME.*.core the snapshots. -like: the snapshots are
      those of DIR0, byte for byte, and only the live subjects are started again. The subjects are this tree's own
  python3 scripts/tools/goldens.py compare DIR0 DIR [-noise DIR1] [-snapshots] [-v]
      every value that differs, exit status 1 if there are any. Pids, addresses, times are put into an order of their own
      first; values that differ between DIR0 and DIR1 too, two records of one tree, are passed over and counted

A first record, then for each step: record NEW -like BASE, compare BASE NEW -noise BASE2. Five minutes on two processors.
The environment of tests must be there (scripts/test gdb -k nothing makes it); subjects that lack something are named.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [ROOT, os.path.join(ROOT, "tests"), os.path.join(ROOT, "scripts")]

from harness.heartbeats import asleep  # noqa: E402
from harness.situations import Stage  # noqa: E402
from harness.subjects import SUBJECTS, spawned  # noqa: E402

from tools.environments import existing  # noqa: E402
from tools.get_releases import fetched  # noqa: E402

# Seeds of the three families of situations: drawn once, written down.
SITUATIONS = [f"{family}{4700100 + number}" for family in ("", "f", "g") for number in range(8)]
# {name: (words after the folder of subjects, environment, more command lines)}; lines name fields of what the subject says.
OBJECTS = (
    "pyprint {request}",
    "pyprint {request} -full",
    "pyprint __main__:first",
    "pytensor {matrix}",
    "pytensor {matrix} -slice 1:,::2",
    "pytensor {matrix} -stats -hist -bins 3",
    "pytensor {matrix} -compare {matrix}",
    "llm-addr {request}",
    "llm-addr {data}",
    "pyheap -path {request}",
    "pyheap -type Request",
)
KV = ("llm-kv block 1", "llm-kv request req-a", "llm-kv request r0", "llm-kv free", "llm-kv map", "llm-request req-a -sampling")
NAMED: Dict[str, Tuple[List[str], str, Tuple[str, ...]]] = {
    "everything": (["everything.py"], "vllm", OBJECTS),
    "tasks": (["tasks.py", "python"], "", ()),
    "tasks-uvloop": (["tasks.py", "uvloop"], "vllm", ()),
    "exceptions": (["exceptions.py"], "", ()),
    "lockgraph": (["lockgraph.py"], "", ()),
    "stacks": (["py_stacks.py"], "", ()),
    "expressions": (["py_expressions.py", "47", "80"], "", ("pyprint {expressions}",)),
    "plain-code": (["py_plain_code.py", "47"], "", ("pyprint {expressions}",)),
    "tensor-expressions": (["tensor_expressions.py"], "vllm", ("pyprint {expressions}",)),
    "library-objects": (["py_library_objects.py"], "", ("pyprint {objects}",)),
    "vllm-0.24": (["vllm_release.py", "vllm", "0.24.0"], "vllm", KV),
    "vllm-0.12": (["vllm_release.py", "vllm", "0.12.0", "hybrid"], "vllm", KV),
    "sglang-0.5.9": (["sglang_release.py", "sglang", "0.5.9"], "vllm", KV),
    "requests": (["requests_vllm.py", "5"], "", KV),
    "chain-3": (["wait_chains.py", "3"], "", ()),
    "chain-11": (["wait_chains.py", "11"], "", ()),
}
LIVE = (
    "llm-hang -wait 0.5 {on}",
    "llm-stacks {on}",
    "llm-memory {on}",
    "llm-top -once -interval 0.3 {on}",
    "pythreads -samples 3 -on {on}",
)
FILES = (  # what they write is not looked at
    "llm-report {folder}/report.html {on} -wait 0",
    "llm-record -for 0.3 -o {folder}/a.record {on}",
    "llm-snapshot {on} -o {folder}/again.core",
)
BOTH = (
    "pybt -all -locals",
    "llm-bt -all",
    "llm-bt -locals",
    "pythreads",
    "pyframe 1",
    "pyup",
    "pylist",
    "pylocals",
    "pyexc -locals",
    "pytasks -all -locals",
    "pyprint [1, 'a', 2.5, {{'k': (1,)}}]",
    "pytensors",
    "pyheap",
    "llm-kernels",
    "llm-addr 0x10",
    "llm-kv",
    "llm-kv check",
    "llm-requests",
    "llm-locks {on}",
    "llm-hang -wait 0.5 {on}",
    "llm-stacks {on}",
)
MOST = 20  # expressions and objects of a subject that says more
PLAIN = ("llm", "llm guide", "llm-gpucore -setup")  # of no process

_DRIVER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from gdbext.commands import table
from gdbext.setup import outside
from gdbext.session.session import Session
for line in sys.stdin:
    name, _, rest = json.loads(line).partition(" ")
    try:
        status, out, err = outside.perform(table.load(name), rest, Session())
        said = {"status": status, "said": out or err}
    except Exception as e:
        said = {"status": -1, "said": f"{type(e).__name__}: {e}"}
    print(json.dumps(said), flush=True)
"""
# Fields whose values are times, sizes or samples: they differ from look to look.
MOVES = frozenset(
    "pauses seconds paused age cpu rss held waited captured changes samples bytes disk_bytes cost time took rate sizes parts"
    " state swap total_bytes left_out_bytes before after looks counters".split()
)
IDS = frozenset("pid tid ppid ns_pid owner_pid handle ident holder".split())
_FOLDERS = re.compile(r"/[\w./-]*/(gdbext-(stage|goldens)-|tmp)\w+(/tmp\w+)?")
_WORDS = re.compile(r"0x[0-9a-f]{5,}|\d+\.\d+|\d+")


class Subject(NamedTuple):
    """`truth`: what it says of itself; `pids` are looked at together; `lines` are asked of it besides."""

    name: str
    truth: Dict[str, Any]
    pids: List[int]
    lines: List[str]


class Driver:
    """A process of the pack in `root` that answers one command line after the other."""

    def __init__(self, root: str) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        words = [sys.executable, "-c", _DRIVER, root]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**clean, "COLUMNS": "130"}
        )

    def ask(self, line: str) -> Dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline()
        if not said:
            raise OSError(f"the pack died of {line!r}")
        return dict(json.loads(said))

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def python_of(environment: str) -> Optional[str]:
    return existing(environment) if environment else sys.executable


def same_addresses() -> None:
    """In a subject that is about to be started: as `setarch -R` does."""
    ctypes.CDLL(None).personality(0x0040000)  # ADDR_NO_RANDOMIZE


@contextlib.contextmanager
def named(name: str) -> Iterator[Subject]:
    """A subject of NAMED, while it lives. ValueError: what it lacks."""
    words, environment, lines = NAMED[name]
    python, words = python_of(environment), list(words)
    if python is None:
        raise ValueError(f"no environment {environment}")
    if words[1:] and words[1] in ("vllm", "sglang"):
        folder = fetched(words[1]).get(words[2])
        if folder is None:
            raise ValueError(f"{words[1]} {words[2]} is not here: scripts/get-releases")
        words[1] = folder
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    argv, env = [python, os.path.join(SUBJECTS, words[0]), *words[1:]], {**clean, "PYTHONHASHSEED": "0"}
    with spawned(
        argv, ready="{", stderr=subprocess.DEVNULL, env=env, preexec_fn=same_addresses, start_new_session=True
    ) as process:
        truth = json.loads(process.said)
        truth.setdefault("pid", process.pid)
        yield Subject(name, truth, [process.pid], list(dict.fromkeys(filled(lines, truth))))


def of_engine(name: str) -> bool:
    """Whether a subject has imported an engine: a heap of 200,000 objects takes half a minute for each question."""
    return NAMED.get(name, (["", ""], "", ()))[0][1:2] in (["vllm"], ["sglang"])


def filled(lines: Tuple[str, ...], truth: Dict[str, Any]) -> Iterator[str]:
    """Lines about what the subject says: a list gives a line for each item."""
    for line in lines:
        if "{expressions}" in line:
            said = truth.get("expressions") or [text for text in truth if text != "pid"]
            for item in said[:MOST]:
                yield line.format(expressions=item if isinstance(item, str) else item[0])
        elif "{objects}" in line:
            for item in truth["objects"][:MOST]:
                yield line.format(objects=f"0x{item[1]:x}" if isinstance(item[1], int) else item[1])
        else:
            yield line.format(**truth)


@contextlib.contextmanager
def situation(stage: Stage, words: str) -> Iterator[Subject]:
    needs = stage.needs(words)
    if not os.path.exists(stage.path(needs)):
        raise ValueError(f"no server for {needs}")
    with stage.lived(needs, words) as truth:
        yield Subject(words, truth, [truth["pid"], *truth["pids"], *truth["others"]], [])


def questions(on: List[str], lines: Tuple[str, ...], more: List[str]) -> List[str]:
    """Command lines about pids or snapshots: what names no {on} is asked of the first, so is `more`."""
    places = {"on": " ".join(on), "folder": "{folder}"}
    found = [line.format(**places) if "{on}" in line else f"{line.format(**places)} -on {on[0]}" for line in lines]
    return found + [f"{line} -on {on[0]}" for line in more]


def recorded(driver: Driver, subject: Subject, folder: str, like: str) -> Dict[str, Any]:
    """{"truth", "pids", "live": {line: answer}, "snapshot": {line: answer, text}} of one subject."""
    cores = [os.path.join(like, f"{subject.name}.{number}.core") for number in range(len(subject.pids))]
    whole = " -heap" if subject.name in NAMED else ""
    with tempfile.TemporaryDirectory(prefix="gdbext-goldens-") as scratch:
        if like == folder:
            for pid, core in zip(subject.pids, cores):
                driver.ask(f"llm-snapshot {pid}{whole} -force -o {core} -json")
        pids = [str(pid) for pid in subject.pids]
        live, snapshot = {}, {}
        both = tuple(line for line in BOTH if line != "pyheap" or subject.name in NAMED and not of_engine(subject.name))
        for line in questions(pids, (*LIVE, *both), subject.lines):
            live[line] = driver.ask(line + " -json")
        for line in questions(pids, FILES, []):
            live[line] = driver.ask(line.format(folder=scratch) + " -json")
        cores = [core for core in cores if os.path.exists(core)]
        for line in questions(cores, both, subject.lines) if cores else ():
            short = line.replace(like + os.sep, "")
            snapshot[short] = driver.ask(line + " -json")
            if not any(line.startswith(one) for one in subject.lines):
                snapshot[short + " (text)"] = driver.ask(line)
        for said in snapshot.values():
            said["said"] = said["said"].replace(like + os.sep, "")
    return {"truth": subject.truth, "pids": subject.pids, "live": live, "snapshot": snapshot}


def record(folder: str, root: str, like: str, only: str, at_once: int) -> int:
    """Writes DIR/NAME.json of each subject. -> how many subjects could not be asked"""
    os.makedirs(folder, exist_ok=True)
    began, lacking = time.monotonic(), []
    names = [name for name in [*SITUATIONS, *NAMED] if re.search(only, name)]
    with tempfile.TemporaryDirectory(prefix="gdbext-stage-") as place, contextlib.ExitStack() as stack:
        torch = existing("vllm")
        if torch:
            os.environ["GDBEXT_TEST_TORCH_PYTHON"] = torch
        os.environ["PYTHONHASHSEED"] = "0"
        stage = Stage(place, sys.executable, begin=same_addresses)
        drawn = [name for name in names if name not in NAMED]
        if drawn:
            stack.enter_context(stage.server(""))
        for needs in sorted({stage.needs(words) for words in drawn} - {""}):
            server = stage.server(needs)
            if server is not None:
                stack.enter_context(server)

        def one(name: str) -> None:
            driver = Driver(root)
            try:
                with named(name) if name in NAMED else situation(stage, name) as subject:
                    for pid in subject.pids:
                        asleep(pid, seconds=0.3)
                    time.sleep(0.3)
                    found = recorded(driver, subject, folder, like)
                with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
                    json.dump(found, f, indent=1)
                print(
                    f"{time.monotonic() - began:5.0f} s  {name}: {len(found['live'])} live, {len(found['snapshot'])} kept",
                    flush=True,
                )
            except (OSError, ValueError, KeyError, AssertionError) as e:
                lacking.append(name)
                print(f"{name}: left out: {type(e).__name__}: {str(e)[:200]}", flush=True)
            finally:
                driver.close()

        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            list(pool.map(one, names))
    driver = Driver(root)
    plain = {line: driver.ask(line) for line in PLAIN}
    driver.close()
    with open(os.path.join(folder, "plain.json"), "w", encoding="utf-8") as f:
        json.dump({"truth": {}, "pids": [], "live": {}, "snapshot": plain}, f, indent=1)
    return len(lacking)


class Names:
    """Ids and addresses in the order in which an answer has them."""

    def __init__(self) -> None:
        self.known: Dict[str, str] = {}

    def of(self, kind: str, value: str) -> str:
        return self.known.setdefault(value, f"{kind}{len(self.known)}")

    def word(self, found: "re.Match[str]") -> str:
        word = found[0]
        if word.startswith("0x"):
            return self.of("@", word)
        return self.of("#", word) if word in self.known or len(word) > 3 and "." not in word else "N"


def steady(value: Any, live: bool, names: Names, key: str = "") -> Any:
    """An answer without what moves: of a live process ids, addresses and numbers in texts go by their order; times and samples
    are left out of both."""
    if isinstance(value, dict):
        return {k: steady(v, live, names, k) for k, v in value.items() if k not in MOVES or not live and k == "state"}
    if isinstance(value, list):
        return [steady(item, live, names, key) for item in value]
    if live and isinstance(value, str):
        return _WORDS.sub(names.word, _FOLDERS.sub("FOLDER", value))
    if live and key in IDS and isinstance(value, int):
        return names.of("#", str(value))
    return "N" if live and isinstance(value, float) else value


def flat(value: Any, path: str = "") -> Iterator[Tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flat(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from flat(item, f"{path}[{number}]")
    else:
        yield path, value


def answered(folder: str, name: str) -> Dict[str, Dict[str, Any]]:
    """{line: {path: value}} of a subject; a line names its subject's processes by their number."""
    with open(os.path.join(folder, name + ".json"), encoding="utf-8") as f:
        said = json.load(f)
    found = {}
    for part in ("live", "snapshot"):
        for line, answer in said[part].items():
            names = Names()
            for number, pid in enumerate(said["pids"]):
                line = re.sub(rf"\b{pid}\b", f"P{number}", line)
                names.known[str(pid)] = f"P{number}"
            line = re.sub(r"0x[0-9a-f]{5,}", "@", line) if part == "live" else line
            value = answer["said"]
            if value.startswith("{"):
                value = json.loads(value)
            found[f"{part}: {line}"] = dict(flat(steady({"status": answer["status"], "answer": value}, part == "live", names)))
    return found


def different(one: Dict[str, Any], other: Dict[str, Any]) -> Iterator[Tuple[str, str]]:
    """(path, how it differs) of two answers."""
    for path in {**one, **other}:
        if path not in other:
            yield path, f"is gone (was {str(one[path])[:120]})"
        elif path not in one:
            yield path, f"is new: {str(other[path])[:120]}"
        elif one[path] != other[path]:
            was, now = str(one[path]), str(other[path])
            alike = len(os.path.commonprefix([was, now]))
            begin = max(alike - 40, 0) if alike > 60 else 0  # of long texts the place where they part
            yield path, f"{was[begin : begin + 160]} -> {now[begin : begin + 160]}"


def moved(path: str, moves: Tuple[str, ...]) -> bool:
    return any(path == one or path.startswith((one + ".", one + "[")) for one in moves)


def moving(one: Dict[str, Any], other: Dict[str, Any]) -> Tuple[str, ...]:
    """What paths begin with whose values differ between two answers; of a list of another length all its items."""
    found = [path for path, _ in different(one, other)]
    return tuple(path if path in one and path in other else re.sub(r"\[\d+\][^\[]*$", "", path) for path in found)


def compare(base: str, new: str, noise: str, snapshots: bool, verbose: bool) -> int:
    """Prints what differs. -> how many answers do"""
    listed = sorted(name[:-5] for name in os.listdir(base) if name.endswith(".json"))
    answers, wrong, passed, alone = 0, 0, 0, 0
    kinds: collections.Counter[str] = collections.Counter()
    for name in listed:
        if not os.path.exists(os.path.join(new, name + ".json")):
            print(f"{name}: not in {new}")
            wrong += 1
            continue
        was, now = answered(base, name), answered(new, name)
        again = answered(noise, name) if noise and os.path.exists(os.path.join(noise, name + ".json")) else {}
        alone += len(was.keys() ^ now.keys())
        for line in [line for line in was if line in now]:
            if snapshots and line.startswith("live"):
                continue
            answers += 1
            moves = moving(was[line], again[line]) if line in again else ()
            found = list(different(was[line], now[line]))
            real = [(path, how) for path, how in found if not moved(path, moves)]
            passed += len(found) - len(real)
            if real:
                wrong += 1
                kinds[line.split(" ")[1]] += 1
                for path, how in real[: None if verbose else 4]:
                    print(f"{name}: {line}: {path}: {how}")
                if len(real) > 4 and not verbose:
                    print(f"{name}: {line}: and {len(real) - 4} more values")
    print(
        f"{len(listed)} subjects, {answers} answers, {wrong} differ; {passed} values that move in one tree too were passed over"
    )
    print(f"{alone} questions were asked in one of them alone")
    print(", ".join(f"{name} {count}" for name, count in kinds.most_common()))
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("record")
    one.add_argument("folder")
    one.add_argument("-root", default=ROOT)
    one.add_argument("-like", default="")
    one.add_argument("-only", default="")
    one.add_argument("-at-once", type=int, default=2)
    two = parts.add_parser("compare")
    two.add_argument("base")
    two.add_argument("new")
    two.add_argument("-noise", default="")
    two.add_argument("-snapshots", action="store_true")
    two.add_argument("-v", action="store_true")
    o = parser.parse_args()
    if o.part == "record":
        folder, like = os.path.abspath(o.folder), os.path.abspath(o.like or o.folder)
        return 1 if record(folder, os.path.abspath(o.root), like, o.only, o.at_once) else 0
    return 1 if compare(o.base, o.new, o.noise, o.snapshots, o.v) else 0


if __name__ == "__main__":
    sys.exit(main())
