"""The checks that need no test: formatting, ruff's rules, and mypy. They take seconds; scripts/test runs them first, and
pre-commit before each commit. What they check and how strictly stands in pyproject.toml."""

from __future__ import annotations

import os
import subprocess
import time

from .say import say

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHECKS = {
    "ruff format": ["ruff", "format", "--check", "."],
    "ruff check": ["ruff", "check", "--output-format", "concise", "."],
    "mypy": ["mypy"],
}


FIX = "-fix"  # the only word that lint takes
FIXES = [["ruff", "format", "."], ["ruff", "check", "--fix", "--exit-zero", "--quiet", "."]]


def fix(python: str) -> None:
    """Formats, and mends what ruff can."""
    for words in FIXES:
        subprocess.run([python, "-m", *words], cwd=ROOT, stdin=subprocess.DEVNULL, check=False)


def run(python: str) -> dict[str, int]:
    """Runs each check with the tools of the interpreter `python`, shows what they print. -> {check: exit status}"""
    found = {}
    for name, words in CHECKS.items():
        say(f"\n==== lint: {name}")
        start = time.monotonic()
        found[name] = subprocess.run([python, "-m", *words], cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode
        say(f"{name}: {'passed' if found[name] == 0 else 'FAILED'} in {time.monotonic() - start:.1f} s")
    return found
