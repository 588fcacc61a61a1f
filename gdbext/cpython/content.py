"""Hides users' prompts and tokens in the value of an expression: only their length is shown, whatever path leads to them."""

from __future__ import annotations

import ast
import re
from collections.abc import Set
from typing import Any, Iterator

from .. import log
from ..errors import GdbextError
from .expressions import free_names, index_node, last_name, parsed
from .hiding import Hidden
from .objects import Object
from .privacy import content_length, is_content, is_number, is_secret, is_text, says_nothing
from .reprs import Repr
from .types import TUPLE

# The interpreter's and CUDA's own messages, which quote names of code, never users' data.
HARMLESS = re.compile(
    r"|\d+|[\w ]*index out of range|[\w ]*by zero|maximum recursion depth exceeded[\w ]*|name '\w+' is not defined|"
    r"No module named '[\w.]+'|"
    r"('[\w.]+' object|module '[\w.]+') has no attribute '\w+'|'[\w.]+' object is not \w+|CUDA (error|out of memory)[^\"']*"
)
_OF_NUMBERS = {"real", "imag", "numerator", "denominator"}  # attributes that give a number itself
_PICKING = ("min", "max", "sum", "next")  # functions whose number is one of many, or can be: sum(x[1:2])
_METHODS = ("min", "max", "item")  # of tensors and arrays, as well


def hides_message(private: Set[str], message: str | None) -> bool:
    """Whether an exception's message may hold a user's content, so that it is counted, not shown. `message`: None where only code
    of Python could give it"""
    return bool(private) and (message is None or HARMLESS.fullmatch(message) is None)


def counted(text: str) -> str:
    """What stands for a text that is not shown."""
    return f"<{len(text)} characters, private: -show-content shows them>"


def names_in(text: str) -> set[str]:
    """Every name, attribute and key that an expression mentions."""
    tree = parsed(text)
    found: set[str] = set()
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def evaluated(repr_: Repr, text: str, value: Any) -> str:
    """The text of a value that `expressions.evaluate` gave with the private names of `repr_`: what tells content is `Hidden`."""
    if isinstance(value, Hidden):
        return value.text(repr_, 0)
    if repr_.private and not free_names(text) and is_unnamed(text) and is_content(value) and content_length(value):
        return repr_.count(value)  # of an address alone
    return repr_.named(last_name(text), value)


def shown(repr_: Repr, text: str, value: Any) -> str:
    """The text of a value that was not evaluated, to which the expression `text` leads. Content is counted, not shown, in two
    cases: the expression mentions a private name of `repr_` or the name of a secret, or no name tells what the value is (an
    address, `$py`, a name that says nothing)."""
    if repr_.private and content_length(value):
        names = names_in(text)
        if names & repr_.private or any(is_secret(name, value) for name in names) or is_unnamed(text) and is_content(value):
            return repr_.count(value)
    if repr_.private and (is_number(value) or isinstance(value, dict)) and _takes_an_item(text, repr_.private):
        return repr_.count(value)  # one token of many
    return repr_.named(last_name(text), value)


def shown_result(repr_: Repr, function: str, value: Any) -> str:
    """The text of a function's result. A function's name does not tell what it returns. So lists of numbers are counted, as under
    a name that says nothing. One value, or a tuple of a few, is shown as under the function's name."""
    return shown(repr_, function if is_text(value) or is_number(value) or _is_record(value) else "result", value)


def _is_record(value: Any) -> bool:
    """Whether a value is a tuple of at most four numbers, texts, bools and Nones."""
    try:
        if not isinstance(value, Object) or not value.type.flags & TUPLE or value.len() > 4:
            return False
        items = [value.item(i) for i in range(value.len())]
        return all(is_text(item) or item.isa("int", "float", "NoneType") for item in items)
    except GdbextError as e:
        log.passed_over(e)
        return False


def is_unnamed(text: str) -> bool:
    """Whether no name in an expression tells what its value is."""
    if last_name(text) or free_names(text):
        return any(map(says_nothing, _last_names(parsed(text))))
    return "$py" in text or "0x" in text


def _takes_an_item(text: str, private: Set[str]) -> bool:
    """Whether an expression picks an item, by number or by `max(…)`, out of a value that as a whole would be counted. `len(…)`
    reveals no item."""
    tree = parsed(text)
    todo: list[ast.AST] = [tree] if tree is not None else []
    while todo:
        node = todo.pop()
        called = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        method = getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
        if called == "len":
            continue
        if (called in _PICKING or method in _METHODS) and any(
            n in private or says_nothing(n) for n in _last_names(node) - {called} - _bound_in(node)
        ):
            return True
        if isinstance(node, ast.Subscript) and not _own_name(node):
            inner: ast.AST = node
            while isinstance(inner, ast.Subscript) and not _own_name(inner):
                inner = inner.value
            name = _own_name(inner)
            if not name or name in private or says_nothing(name):
                return True
        todo.extend(ast.iter_child_nodes(node))
    return False


def _bound_in(tree: ast.AST) -> set[str]:
    """The names that the comprehensions of an expression bind to items."""
    return {
        name.id
        for node in ast.walk(tree)
        if isinstance(node, ast.comprehension)
        for name in ast.walk(node.target)
        if isinstance(name, ast.Name)
    }


def _last_names(tree: ast.AST | None) -> set[str]:
    """The last name of every path in an expression: `a.b + c["d"][0]` -> b, d. For a method's call also its owner's name:
    `a.b.tolist()` -> b, tolist.

    A path counts only if it can say something about the value. It does not where the expression takes only its length, or only an
    attribute of its items: `len(a), [x.b for x in c]` -> b.
    """
    nodes = list(_made_of(tree)) if tree is not None else []
    methods = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    found, inner = [], set()
    for node in nodes:
        name = _own_name(node)
        if name:
            found.append((node, name))
            while id(node) not in methods and isinstance(node, (ast.Attribute, ast.Subscript)):
                node = node.value
                inner.add(id(node))
                if _own_name(node):
                    break
    return {name for node, name in found if id(node) not in inner}


def _made_of(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that make up the value of an expression, as for `_last_names`."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "len":
        return
    if not isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _made_of(child)
        return
    items = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    conditions = [condition for each in node.generators for condition in each.ifs]
    themselves = _bound_in(node) | _OF_NUMBERS
    items_themselves = any(_last_names(part) & themselves for part in items + conditions)
    for part in items + conditions + ([each.iter for each in node.generators] if items_themselves else []):
        yield from _made_of(part)


def _own_name(node: ast.AST) -> str:
    """The name that a step of a path adds; '' for an index, a key that is no name, or anything else."""
    if isinstance(node, ast.Subscript):
        key = getattr(index_node(node), "value", "")
        return key if isinstance(key, str) and key.isidentifier() else ""
    return str(getattr(node, "attr", "") or getattr(node, "id", ""))
