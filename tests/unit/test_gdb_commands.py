"""No text becomes a gdb command: every command that the pack executes is a literal, or made by `access.cli_gdb.command`."""

import ast
import importlib
import os
import re
import sys
import types

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACK = os.path.join(ROOT, "gdbext")
CALLS = {"execute", "command"}  # gdb.execute, CudaGdb.execute; command(template, ...)


def literal(node):
    if isinstance(node, ast.IfExp):
        return literal(node.body) and literal(node.orelse)
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    return "\n" not in node.value or node.value.startswith("define hook-")


def called(node):
    return getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""


def literals_of(tree, name):
    """Whether a name stands for tuples of literals, and nothing else is ever assigned to it."""
    values = [n.value for n in ast.walk(tree) if isinstance(n, ast.Assign) for t in n.targets if getattr(t, "id", "") == name]
    return bool(values) and all(isinstance(v, ast.Tuple) and all(map(literal, v.elts)) for v in values)


def offences(text):
    """Line numbers of the calls that give gdb anything but a literal, the result of `command`, or a wrapper's own `template`."""
    tree = ast.parse(text)
    wrappers = {
        id(call)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name == "execute"
        for call in ast.walk(function)
        if called(call) == "command" and isinstance(call.args[0], ast.Name) and call.args[0].id == "template"
    }
    listed = {  # the variable of a loop over a tuple of literals
        loop.target.id
        for loop in ast.walk(tree)
        if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) and isinstance(loop.iter, ast.Name)
        if literals_of(tree, loop.iter.id)
    }
    found = []
    for node in ast.walk(tree):
        if called(node) not in CALLS or not node.args or id(node) in wrappers:
            continue
        first = node.args[0]
        if isinstance(first, ast.Name) and first.id in listed:
            continue
        if not literal(first) and not (called(node) == "execute" and called(first) == "command"):
            found.append(node.lineno)
    return found


def sources():
    """(path, text) of every Python file of the pack and its scripts."""
    for top in (PACK, os.path.join(ROOT, "scripts")):
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                if not name.endswith((".pyc", ".json")):
                    with open(path, encoding="utf-8") as f:
                        text = f.read()
                    if name.endswith(".py") or text.startswith("#!/usr/bin/env python3"):
                        yield path, text


def gdb_scripts():
    """(path, Python text) of each python block in the scripts of gdb's own language."""
    for name in sorted(os.listdir(os.path.join(ROOT, "gdbinit.d"))):
        with open(os.path.join(ROOT, "gdbinit.d", name), encoding="utf-8") as f:
            text = f.read()
        for block in re.findall(r"^ *python\n(.*?)\n *end$", text, re.M | re.S):
            yield name, block
        for line in re.findall(r"^ *(?:python|py|pi) +(\S.*)$", text, re.M):
            yield name, line


def test_each_command_is_a_literal_or_made_by_the_one_helper():
    found, looked = {}, 0
    for path, text in [*sources(), *gdb_scripts()]:
        looked += text.count("gdb.execute(")
        wrong = offences(text) if any(call + "(" in text for call in CALLS) else []
        if wrong:
            found[os.path.relpath(path, ROOT)] = wrong
    assert looked > 20 and len(list(gdb_scripts())) >= 2 and not found


@pytest.mark.parametrize(
    "text",
    [
        "gdb.execute('file ' + quoted(path))",
        "gdb.execute(f'file {path}')",
        "gdb.execute(line, to_string=True)",
        "gdb.execute(command(line))",
        "gdb.execute(command(f'file {path}'))",
        "device.execute('cuda kernel %d' % number)",
        "gdb.execute('echo a\\nshell id')",
        "for one in names: gdb.execute(one)",
    ],
)
def test_the_rule_sees_what_it_should(text):
    assert offences(text) == [1]


@pytest.fixture
def cli(monkeypatch):
    monkeypatch.setitem(sys.modules, "gdb", types.ModuleType("gdb"))
    monkeypatch.delitem(sys.modules, "gdbext.access.cli_gdb", raising=False)
    yield importlib.import_module("gdbext.access.cli_gdb")  # anew, also where the package still has the one of another test
    del sys.modules["gdbext.access.cli_gdb"]


def test_control_characters_are_refused_and_quotes_escaped(cli):
    from gdbext.errors import GdbextError

    assert cli.command("file {}", cli.quoted('/a b/"c"\\d')) == 'file "/a b/\\"c\\"\\\\d"'
    assert cli.command("inferior {}", 3) == "inferior 3"
    for bad in (
        "/x\nshell id\n",
        "/x\rshell id",
        "/x\x00",
        "/x\x85",
        "/x\u2028",
        "/x\x1b[2J",
        b"/\xff".decode("utf-8", "surrogateescape"),
    ):
        with pytest.raises(GdbextError) as e:
            cli.command("file {}", cli.quoted(bad))
        assert str(e.value).isprintable() and str(e.value).isascii()
