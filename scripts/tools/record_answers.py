"""The fields of the JSON answers of every reading command over a fixed set of subjects. goldens.py has values.

  PYTHONPATH=scripts python3 -m tools.record_answers -o tests/answers/fields.json   adds to them (-root: of another checkout)

GDBEXT_TEST_TORCH_PYTHON names an interpreter with torch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from typing import Any, Dict, Iterator, List, Tuple

from .get_releases import fetched

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [ROOT, os.path.join(ROOT, "tests")]

from harness.command_lines import all_of  # noqa: E402

Recorded = Dict[str, Dict[str, List[str]]]
SUBJECTS = os.path.join(ROOT, "tests", "gdb", "subjects")
RELEASE = "0.24.0"  # of vLLM, whose scheduler the engine's stand-in runs

# Commands about the Python subject; {pid}, {on} (the pid, then its snapshot), {request}, {matrix}, {data} are filled in.
LIVE, BOTH, KV = (all_of(which) for which in ("live", "both", "kv"))
CURE = "a command that refuses a core has a row with `live` instead of `both`: ROWS of tests/harness/command_lines.py"
_DRIVER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from gdbext.commands import table
from gdbext.setup import outside
try:
    from gdbext.session.session import Session
except ImportError:
    from gdbext.commands.session import Session
for line in json.load(sys.stdin):
    name, _, rest = line.partition(" ")
    status, out, err = outside.perform(table.load(name), rest + " -json", Session())
    print(out or json.dumps({"error": err}), flush=True)
"""


def answers(root: str, lines: List[str]) -> List[Dict[str, Any]]:
    """What the pack in `root` answers to each command line, as JSON."""
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER, root], input=json.dumps(lines), stdout=subprocess.PIPE, text=True, env=clean, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def fields(value: Any, path: str = "") -> Iterator[Tuple[str, str]]:
    """(path, type) of every field of an answer; the items of a list share one path, `threads[].tid`."""
    kind = {bool: "bool", int: "number", float: "number", str: "text", type(None): "null", list: "list", dict: "object"}[
        type(value)
    ]
    if path:
        yield path, kind
    if isinstance(value, dict):
        for key, item in value.items():
            yield from fields(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for item in value:
            yield from fields(item, path + "[]")


@contextlib.contextmanager
def subject(python: str, *words: str) -> Iterator[Dict[str, Any]]:
    """What a subject says of itself in JSON, while it lives."""
    process = subprocess.Popen([python, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        said = next(json.loads(line) for line in process.stdout if line.startswith("{"))
        yield {"pid": process.pid, **said}
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def commands(python: str) -> Iterator[List[Tuple[str, str]]]:
    """[(pattern, command line)] of all commands, while their subjects live."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gdbext-answers-"))
        truth = stack.enter_context(subject(python, os.path.join(SUBJECTS, "everything.py")))
        core = os.path.join(folder, "subject.core")
        (said,) = answers(ROOT, [f"llm-snapshot {truth['pid']} -heap -o {core}"])
        assert said["snapshots"], said
        found = [(line, line.format(folder=folder, **truth)) for line in LIVE]
        for name, on in (("live", truth["pid"]), ("snapshot", core)):
            found += [(f"{name}: {line}", line.format(on=on, **truth)) for line in BOTH]
        release = fetched("vllm").get(RELEASE)
        if release is not None:
            engine = stack.enter_context(subject(python, os.path.join(SUBJECTS, "vllm_release.py"), release, RELEASE))
            found += [(line, line.format(**engine)) for line in KV]
        yield found


def record(python: str, root: str = ROOT) -> Recorded:
    """{command: {path of a field: [types]}} of the pack in `root`."""
    found: Recorded = {}
    with commands(python) as lines:
        for (name, _), answer in zip(lines, answers(root, [line for _, line in lines])):
            assert "error" not in answer, f"{name}: {answer['error']}; {CURE}"
            kinds: Dict[str, set] = {}
            for path, kind in fields(answer):
                kinds.setdefault(path, set()).add(kind)
            found[name] = {path: sorted(kind) for path, kind in sorted(kinds.items())}
    return found


def joined(recorded: Recorded, found: Recorded) -> Recorded:
    """What is recorded, and what is found beside it: an answer of today that lacks a field or a type proves nothing."""
    both = {name: dict(kinds) for name, kinds in recorded.items()}
    for name, kinds in found.items():
        known = both.setdefault(name, kinds)
        for path, some in kinds.items():
            if path in known or path != "partial[]":  # an answer may be whole
                known[path] = sorted({*known.get(path, ()), *some})
    return both


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", metavar="FILE", required=True, help="add the fields of the answers to it")
    parser.add_argument("-root", metavar="ROOT", default=ROOT, help="the checkout that answers")
    parser.add_argument("-python", default=os.environ.get("GDBEXT_TEST_TORCH_PYTHON", sys.executable), help="has torch")
    options = parser.parse_args()
    found = record(options.python, os.path.abspath(options.root))
    if os.path.exists(options.o):
        with open(options.o) as f:
            found = joined(json.load(f), found)
    with open(options.o, "w") as f:
        for text in json.dumps(found, sort_keys=True).replace('}, "', '},\n"').splitlines():
            f.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
