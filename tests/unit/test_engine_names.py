"""No engine's name stands outside gdbext/engines and the catalogue of kernels: what another room wants to know of an engine it
asks the spec.

Examples in help texts and docstrings may name engines, and comments may."""

import ast
import os
import re
from types import SimpleNamespace

import pytest

from gdbext.engines import FOLDERS, registry
from gdbext.engines.registry import ENGINES, SPECS

PACK = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + "/gdbext"
NAMES = {word for spec in ENGINES for word in (spec.name, spec.display, *spec.packages)}
HELP = {  # texts for people: since which release of which engine an invariant holds; what agents are told
    "kvcache/rules.py",
    "agents/server.py",
    "agents/skill.py",
}
PATTERN = re.compile("|".join(rf"(?<![a-z]){re.escape(name)}(?![a-z])" for name in sorted(NAMES)), re.IGNORECASE)


def sources():
    for folder, folders, names in os.walk(PACK):
        folders[:] = [f for f in folders if f != "__pycache__" and os.path.join(folder, f) != f"{PACK}/engines"]
        for name in names:
            if name.endswith(".py") and os.path.relpath(os.path.join(folder, name), PACK) not in HELP:
                yield os.path.relpath(os.path.join(folder, name), PACK)


def texts(tree):
    """(line, text) of every string and name in a module's code, docstrings (`__doc__ =` too) left out."""
    docs = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docs.add(first.value)
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__doc__" for t in node.targets):
            docs.update(n for n in ast.walk(node.value) if isinstance(n, ast.Constant))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs:
            yield node.lineno, node.value
        for field in ("id", "attr", "name", "arg", "module"):
            if isinstance(getattr(node, field, None), str):
                yield getattr(node, "lineno", 0), getattr(node, field)


@pytest.mark.sources
def test_no_engine_is_named():
    files, named = sorted(sources()), []
    for relative in files:
        with open(os.path.join(PACK, relative), encoding="utf-8") as f:
            source = f.read()
        if PATTERN.search(source):  # also in a comment or a docstring, which may
            named += [
                f"{relative}:{line}: {text.strip()[:80]!r}" for line, text in texts(ast.parse(source)) if PATTERN.search(text)
            ]
    assert len(files) > 200
    assert not named, "ask the spec (gdbext/engines/registry.py) instead of naming an engine:\n" + "\n".join(named)


def test_names_in_code_are_found():
    """The test itself: what it looks for it finds, what it leaves out it leaves out."""
    code = 'def f(vllm_ranks):\n    "vLLM"\n    return "is it SGLang?", x.vllm\n'
    found = sorted(text for _, text in texts(ast.parse(code)) if PATTERN.search(text))
    assert found == ["is it SGLang?", "vllm", "vllm_ranks"]


def test_the_list_of_engines_is_the_folders():
    folders = {f for f in os.listdir(f"{PACK}/engines") if os.path.exists(f"{PACK}/engines/{f}/__init__.py")}
    assert set(FOLDERS) == folders and len(FOLDERS) == len(ENGINES) == len(SPECS)
    for folder, spec in zip(FOLDERS, ENGINES):
        assert (
            spec.name == folder.replace("_", "-")
            and spec.display
            and spec.packages
            and type(spec).__module__.endswith(f"{folder}.spec")
        )


def test_help_says_of_each_engine_whether_its_reader_is_proven(monkeypatch):
    def spec(display, unproven, classes=()):
        return SimpleNamespace(display=display, unproven=unproven, kv_module="kv", kv_classes=classes, kv_releases=f"{display} 1")

    specs = [spec("Old", False), spec("New", True), spec("Native", True, ("X",)), spec("Tried", False, ("Y",))]
    monkeypatch.setattr(registry, "ENGINES", specs)
    said = registry.kv_releases()
    assert said == "Old 1, New 1 (unproven), Tried by debug information, Native by debug information (unproven)"
