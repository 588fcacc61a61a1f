"""Which test files a change touches, for `scripts/test -changed [REVISION]`: what differs from REVISION (HEAD), and what git does
not know yet.

A test file is touched by what it imports, and what that imports, in functions too: its harness, the pack, the scripts. It is
also touched by what it names in a string: a module ("gdbext.stacks.prefetch"), a command ("llm-stacks", which loads its module
and what that imports), a file by its name ("titled.py", "security.md"). Who starts the pack or gdb, itself or by its harness,
depends on both of its doors; who names a fixture of its folder's conftest.py, on what that imports. Tests of unit that walk
through folders look through all sources: they run for every change.

In doubt all tests run: for a change of what all tests share (`SHARED`), of a file that is neither Python nor a page and that no
test names, and of one that was removed."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess

from .prepare_tests import ROOT
from .say import Failed

PARTS = ("unit", "gdb")
NONE = "no test is touched"  # begins the line that says so
SHARED = re.compile(
    r"(.*/)?conftest\.py|pyproject\.toml|setup\.py|\.github/.*|gdbext/layouts/.*|gdbext/(errors|log|package)\.py|scripts/test|"
    r"scripts/tools/(run_tests|beside|share|prepare_tests|environments|own_pids|changed|system|say|__init__)\.py|"
    r"tests/harness/(__init__|gdb_run|failures|samples)\.py"
)
NOBODYS = re.compile(r"LICENSE|\.gitignore|tests/(engines|gpu|arm)/.*")  # of no file of `PARTS`
DOORS = ("gdbext/__main__.py", "gdbext/init.py", "gdbext/setup/outside.py", "gdbext/setup/inside.py")
LAZY = "gdbext/__init__.py"  # every file imports it, few use the library whose modules it loads by their names
LIBRARY = re.compile(r"gdbext\.(attach|open|ranks|selected)\b")
STARTS = re.compile(r"-m gdbext|init\.py|\"-m\", \"gdbext\"")
FIXTURE = re.compile(r"^@pytest\.fixture.*\ndef (\w+)", re.M)
WALKS = re.compile(r"os\.walk|ls-files|glob\.glob")  # in unit: those of gdb walk through other folders
ALL_COMMANDS = "load_all()"
BY_NAME = {  # modules that load others by names that stand nowhere whole: where those lie
    **dict.fromkeys(("gdbext/engines/registry.py", "gdbext/engines/spec.py"), ("gdbext/engines/",)),
    "gdbext/session/gdb_only.py": ("gdbext/control/",),
}
WORDS = re.compile(r"[\w.-]+")
WORD = re.compile(r"\w+")


def listed() -> list[str]:
    """The project's files, by their paths below the repository."""
    return _git("ls-files", "-co", "--exclude-standard")


def differing(revision: str) -> tuple[set[str], set[str]]:
    """-> (files that are new or other than at `revision`, files that are gone)"""
    gone = set(_git("diff", "--name-only", "--diff-filter=D", "--no-renames", revision))
    new = {*_git("diff", "--name-only", "--no-renames", revision), *_git("ls-files", "-o", "--exclude-standard")}
    return new - gone, gone


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", "-C", ROOT, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise Failed(f"-changed asks git: {done.stderr.strip().splitlines()[-1]}")
    return [line for line in done.stdout.splitlines() if line]


class Sources:
    """The project's Python files: what each imports and names."""

    def __init__(self, paths: list[str], read=None) -> None:
        self.paths = paths
        self.modules = {name: path for path in paths if path.endswith(".py") for name in _names(path)}
        self.by_name: dict[str, list[str]] = {}
        for path in paths:
            self.by_name.setdefault(os.path.basename(path), []).append(path)
        self._read = read or _text
        table = "gdbext/commands/help.txt"
        found = re.findall(r"^=== (\S+) \S+ (\w+)\.\w+", self._read(table), re.M) if table in paths else []
        self.commands = {name: f"gdbext/commands/{module}.py" for name, module in found}

    @functools.lru_cache(maxsize=None)  # noqa: B019  (one for a run)
    def needs(self, path: str) -> frozenset[str]:
        """The files that one file imports, or names where it belongs to the tests."""
        text, found = self._read(path), set()
        if path == LAZY:
            return frozenset()
        tree = ast.parse(text, path)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found.update(self._modules(alias.name for alias in node.names))
            elif isinstance(node, ast.ImportFrom):
                base = _absolute(path, node)
                found.update(self._modules([base, *(f"{base}.{alias.name}" for alias in node.names)]))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(self._modules([node.value]))
                if path.startswith("tests/") and len(node.value) < 100_000:
                    found.update(self._named(node.value))
        return frozenset((found | self._unwritten(path, text)) - {path})

    def _unwritten(self, path: str, text: str) -> set[str]:
        """Files that a file needs though it does not name them."""
        found = set()
        for folder in BY_NAME.get(path, ()):
            found.update(one for one in self.paths if one.startswith(folder) and one.endswith(".py"))
        if path.startswith("tests/") and ALL_COMMANDS in text:
            found.update(self.commands.values())
        if path.startswith(("tests/", "docs/")) and LIBRARY.search(text):
            found.update(one for one in self.paths if one.startswith("gdbext/api/"))
        if path.startswith("tests/") and (STARTS.search(text) or "gdb_path" in text):
            found.update(door for door in DOORS if door in self.paths)
        conftest = f"{os.path.dirname(path)}/conftest.py"
        if conftest in self.paths and set(FIXTURE.findall(self._read(conftest))) & set(WORD.findall(text)):
            found.add(conftest)
        return found

    def _modules(self, names) -> set[str]:
        """The files of modules, with the packages that they are in."""
        found = set()
        for name in names:
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                found.update(filter(None, [self.modules.get(".".join(parts[:end]))]))
        return found

    def _named(self, text: str) -> set[str]:
        """What a string of a test names: commands, and files."""
        found = set()
        for word in WORDS.findall(text):
            word = word.strip(".-")
            if word in self.commands:
                found.add(self.commands[word])
            elif "." in word:
                found.update(self.by_name.get(word, ()))
        return found

    @functools.lru_cache(maxsize=None)  # noqa: B019
    def all_needs(self, path: str) -> frozenset[str]:
        """`needs`, and what those need."""
        found, left = {path}, [path]
        while left:
            one = left.pop()
            fresh = self.needs(one) - found if one.endswith(".py") else ()
            found.update(fresh)
            left += fresh
        return frozenset(found)

    def tests(self) -> list[str]:
        """The test files of `PARTS`."""
        return [path for path in self.paths if re.fullmatch(rf"tests/({'|'.join(PARTS)})/test_\w+\.py", path)]

    def walks(self, path: str) -> bool:
        """Whether a test file looks through all sources."""
        return path.startswith("tests/unit/") and bool(WALKS.search(self._read(path)))


def _text(path: str) -> str:
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def _names(path: str) -> list[str]:
    """The names by which a file is imported: gdbext's own, and those of scripts/tools and tests/harness on their paths."""
    dotted = path[:-3].replace("/", ".")
    dotted = dotted[: -len(".__init__")] if dotted.endswith(".__init__") else dotted
    return [dotted.partition(".")[2]] if dotted.startswith(("scripts.", "tests.")) else [dotted]


def _absolute(path: str, node: ast.ImportFrom) -> str:
    package = _names(path)[0].split(".")
    package = package if path.endswith("__init__.py") else package[:-1]
    base = package[: len(package) - node.level + 1] if node.level else []
    return ".".join(base + (node.module.split(".") if node.module else []))


def choose(sources: Sources, new: set[str], gone: set[str]) -> tuple[dict[str, str], str]:
    """-> ({test file: why it is touched}, '') or ({}, why all tests run)."""
    if gone:
        return {}, f"{min(gone)} was removed"
    for path in sorted(new):
        if SHARED.fullmatch(path):
            return {}, f"all tests share {path}"
    tests = sources.tests()
    found: dict[str, str] = {}
    reached: set[str] = set()
    for test in tests:
        needs = sources.all_needs(test)
        reached |= needs
        hit = sorted(needs & new, key=lambda path: (path != test, path))
        if hit:
            found[test] = "itself" if hit[0] == test else hit[0]
        elif new and sources.walks(test):
            found[test] = "it looks through all sources"
    for path in sorted(new - reached):
        if not path.endswith((".py", ".md")) and not NOBODYS.fullmatch(path):
            return {}, f"no test names {path}"
    return found, ""


def words(revision: str) -> tuple[list[str], list[str]]:
    """-> (the test files that a change since `revision` touches, lines that say why; the first of them how many). Without files:
    all tests are to run, or none are touched, as the first line says."""
    new, gone = differing(revision)
    if not new and not gone:
        return [], [f"{NONE}: nothing differs from {revision}"]
    sources = Sources(listed())
    found, why = choose(sources, new, gone)
    if why:
        return [], [f"all tests run: {why}"]
    count = len(sources.tests())
    if not found:
        return [], [f"{NONE}: none needs {', '.join(sorted(new)[:5])}"]
    return [os.path.join(ROOT, test) for test in found], [
        f"{len(found)} of {count} test files are touched:",
        *(f"  {test}: {why}" for test, why in found.items()),
    ]
