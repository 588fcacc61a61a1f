"""The checks that need no test: formatting, ruff's rules, and mypy. They take seconds; scripts/test runs them first, and
pre-commit before each commit. What they check stands in pyproject.toml; functions with too many branches, and names that are
private to another module, are counted for each file in known_lint.json, which only shrinks: `lint -fix` lowers it."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import time
from typing import Dict

from .say import say

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHECKS = {
    "ruff format": ["ruff", "format", "--check", "."],
    "ruff check": ["ruff", "check", "--output-format", "concise", "."],
    "mypy": ["mypy"],
}
KNOWN = os.path.join(ROOT, "scripts", "tools", "known_lint.json")
COUNTED = ("C901", "SLF001")

FIX = "-fix"  # the only word that lint takes
FIXES = [["ruff", "format", "."], ["ruff", "check", "--fix", "--exit-zero", "--quiet", "."]]

Counts = Dict[str, Dict[str, int]]  # {rule: {file: how often}}


def counted(python: str) -> tuple[Counts, dict[tuple[str, str], list[str]]]:
    """How often each file breaks each of COUNTED, and where: {(rule, file): lines}."""
    words = ["ruff", "check", "--select", ",".join(COUNTED), "--exit-zero", "--output-format", "json", "gdbext", "scripts"]
    done = subprocess.run([python, "-m", *words], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    where: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for one in json.loads(done.stdout):
        file = os.path.relpath(one["filename"], ROOT)
        where[one["code"], file].append(f"{file}:{one['location']['row']}: {one['code']} {one['message']}")
    found: Counts = {rule: {} for rule in COUNTED}
    for (rule, file), lines in sorted(where.items()):
        found[rule][file] = len(lines)
    return found, where


def known() -> Counts:
    with open(KNOWN, encoding="utf-8") as f:
        return dict(json.load(f))


def more(found: Counts, before: Counts) -> list[tuple[str, str]]:
    """(rule, file) that is broken more often than is known."""
    return [(rule, file) for rule in found for file, count in found[rule].items() if count > before.get(rule, {}).get(file, 0)]


def fewer(found: Counts, before: Counts) -> Counts:
    """What is known, without what is mended: no count is higher than before."""
    return {
        rule: {file: min(count, found[rule][file]) for file, count in files.items() if found.get(rule, {}).get(file)}
        for rule, files in before.items()
    }


def write(counts: Counts) -> None:
    with open(KNOWN, "w", encoding="utf-8") as f:
        json.dump(counts, f, indent=1, sort_keys=True)
        f.write("\n")


def known_only(python: str) -> int:
    """Says what is broken more often than is known. -> exit status"""
    found, where = counted(python)
    before = known()
    new = more(found, before)
    for one in new:
        print("\n".join(where[one]) + f"\n  {before.get(one[0], {}).get(one[1], 0)} of these are known")
    lower = fewer(found, before) != before
    if lower:
        print("fewer than scripts/tools/known_lint.json lists: scripts/test lint -fix lowers it")
    return 1 if new or lower else 0


def fix(python: str) -> None:
    """Formats, and mends what ruff can."""
    for words in FIXES:
        subprocess.run([python, "-m", *words], cwd=ROOT, stdin=subprocess.DEVNULL, check=False)
    write(fewer(counted(python)[0], known()))


def run(python: str) -> dict[str, int]:
    """Runs each check with the tools of the interpreter `python`, shows what they print. -> {check: exit status}"""
    found = {}
    for name in (*CHECKS, "branches and private names"):
        say(f"\n==== lint: {name}")
        start = time.monotonic()
        if name in CHECKS:
            words = [python, "-m", *CHECKS[name]]
            found[name] = subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode
        else:
            found[name] = known_only(python)
        say(f"{name}: {'passed' if found[name] == 0 else 'FAILED'} in {time.monotonic() - start:.1f} s")
    return found
