"""Says what of the newest vLLM, SGLang, torch and CPython no longer fits. It installs nothing and needs no engine: minutes.

  scripts/try-newest [vllm|sglang|torch|cpython]...      default: all four

Engines: the names that the readers use (every word of a string in gdbext/engines/NAME) are looked for in the sources of the
release that the tests run and of the newest one; a name that the newest one has lost is told, with the places that use it.
torch: the newest minor has a row in gdbext/layouts. CPython: whether the minor after the newest known one is to be had.
Exit status: 0 where all fits, 1 where something does not, 2 where a newest release could not be had."""

from __future__ import annotations

import ast
import collections
import glob
import os
import re
import subprocess
import sys
import tempfile

from . import environments
from .environments import environment
from .get_releases import download, unpack
from .prepare_tests import MINORS, ROOT, get_python
from .say import Failed, say

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{3,}")  # shorter ones are everywhere
FITS, DOES_NOT, NOT_HAD = 0, 1, 2


def newest(package: str) -> str:
    """The newest release of a package that pip knows of."""
    words = [environment("tests"), "-m", "pip", "index", "versions", package]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    found = re.match(rf"{re.escape(package)} \((\S+)\)", done.stdout)
    if not found:
        raise Failed(f"{package}: pip knows no release: {(done.stderr.strip() or 'no answer').splitlines()[-1]}")
    return found[1].partition("+")[0]


def tested(engine: str) -> str:
    """The release that the tests run: the pin of the environment."""
    steps, _ = environments.ENVIRONMENTS[engine]
    (version,) = set(re.findall(rf"'{engine}(?:-cpu)?==([\d.]+)'", repr(steps)))
    return version


def used(folder: str) -> dict[str, list[str]]:
    """{word: [file:line, ...]} of the strings in the modules of a folder, docstrings aside."""
    found = collections.defaultdict(list)
    for path in sorted(glob.glob(os.path.join(folder, "**", "*.py"), recursive=True)):
        with open(path, encoding="utf-8") as f:
            tree = ast.parse(f.read())
        told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
                if not re.search(r"\s", node.value):  # a sentence names nothing
                    for word in WORD.findall(node.value):
                        found[word].append(f"{os.path.relpath(path, ROOT)}:{node.lineno}")
    return dict(found)


def names(folder: str) -> set[str]:
    """Every word of the sources below a folder."""
    found = set()
    for path in glob.glob(os.path.join(folder, "**", "*.py"), recursive=True):
        with open(path, encoding="utf-8", errors="replace") as f:
            found.update(WORD.findall(f.read()))
    return found


def names_of(engine: str, version: str) -> set[str]:
    """The words of a release's sources, which are not kept: tests go by the releases that are in the cache folder."""
    with tempfile.TemporaryDirectory() as scratch:
        home = os.path.join(scratch, "sources")
        if not unpack(download(f"{engine}-{version}", scratch), engine, home):
            raise Failed(f"{engine} {version} holds no .py of a package {engine}")
        return names(home)


def lost(words: dict[str, list[str]], before: set[str], now: set[str]) -> dict[str, list[str]]:
    """Those of `words` that one release has and the next one has not."""
    return {word: places for word, places in sorted(words.items()) if word in before and word not in now}


def try_engine(engine: str) -> int:
    version, before = newest(engine), tested(engine)
    if version == before:
        say(f"{engine} {version}: the newest is what the tests run")
        return FITS
    words = used(os.path.join(ROOT, "gdbext", "engines", engine))
    gone = lost(words, *(names_of(engine, one) for one in (before, version)))
    say(f"{engine} {version} (the tests run {before}): {len(gone)} of {len(words)} names are gone")
    for word, places in gone.items():
        say(f"    {word}: {', '.join(places[:5])}")
    return DOES_NOT if gone else FITS


def try_torch() -> int:
    version, status = newest("torch"), FITS
    minor = ".".join(version.split(".")[:2])
    for name, script in (("torch", "make-torch-layouts"), ("torch_allocator", "make-torch-allocator-layouts")):
        with open(os.path.join(ROOT, "gdbext", "layouts", name + ".json"), encoding="utf-8") as f:
            known = f'"{minor}"' in f.read()
        said = "has a row" if known else f"has no row: run scripts/{script} {version}"
        say(f"torch {version}: {minor} {said} in layouts/{name}.json")
        status = status if known else DOES_NOT
    return status


def try_cpython() -> int:
    following = "%d.%d" % (MINORS[-1][0], MINORS[-1][1] + 1)
    try:
        get_python(following)
    except Failed as e:
        say(f"CPython {following}: not to be had yet ({e})")
        return FITS
    say(f"CPython {following} is to be had and has no table: CONTRIBUTING.md, A CPython minor")
    return DOES_NOT


TRY = {
    "vllm": lambda: try_engine("vllm"),
    "sglang": lambda: try_engine("sglang"),
    "torch": try_torch,
    "cpython": try_cpython,
}


def main(words: list[str]) -> int:
    if words[:1] in (["-h"], ["--help"]):
        print((__doc__ or "").strip())
        return 0
    unknown = [word for word in words if word not in TRY]
    if unknown:
        raise Failed(f"{unknown[0]!r} is none of {', '.join(TRY)}")
    statuses = []
    for name in words or TRY:
        try:
            statuses.append(TRY[name]())
        except Failed as e:
            say(f"{name}: could not be tried: {e}")
            statuses.append(NOT_HAD)
    return max(statuses)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as e:
        sys.exit(f"try-newest: {e}")
