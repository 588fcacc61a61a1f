"""Python expressions, answered by reading memory: paths, items, slices, comparisons, arithmetic, any/all (docs/architecture.md).

Python's own `ast` parses them, and this module walks the tree; nothing of the process runs. A value is an `Object` of the
process, an `Adapter` or a plain Python value. Operations that would run code (calls, properties that compute, `__getitem__` of
Python classes) are refused by name. resolution.py decides which frame's names count.
"""

from __future__ import annotations

import ast
import re
import types as python_types
import warnings
from collections.abc import Set
from typing import Any, Iterator, Mapping

from .. import log
from ..errors import FaultError, GdbextError, NotFoundError
from . import arithmetic, containers, expression_calls, hiding, plain_code, spending, value_attributes, values
from .adapters import Adapter
from .frames import PyFrame
from .objects import Object
from .runtime import Runtime
from .values import NoneOperand

plain_code.register()

MAX_STEPS = 5_000_000
_MAKES = (ast.BinOp, ast.UnaryOp, ast.Call, ast.List, ast.Tuple, ast.Set, ast.Dict)  # their results are new objects
_MODULE = re.compile(r"(?<![\w.])([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")


def evaluate(
    rt: Runtime | None,
    text: str,
    frame: PyFrame | None = None,
    *,
    last: Any = None,
    names: Mapping[str, Any] | None = None,
    private: Set[str] = frozenset(),
) -> Any:
    """The value of `text`: an `Object`, an `Adapter` or a plain Python value.

    `frame`: whose names count; `last`: the value of `$py`; `names`: plain values that come before all others; `private`: the
    names whose content is not to be told (hiding.py; a `Hidden` stands for it). Raises `GdbextError` with one line; a name that
    only an outer frame has is a `NotFoundError` that names that frame.
    """
    return Evaluator(rt, text, frame, last, names, private).run()


def condition(
    rt: Runtime | None,
    text: str,
    frame: PyFrame | None = None,
    *,
    names: Mapping[str, Any] | None = None,
    private: Set[str] = frozenset(),
) -> bool:
    """Whether `text` holds. It does not where an operation on text, a container or a number meets None instead. It may ask for
    content; but an error tells none."""
    try:
        return values.truth(evaluate(rt, text, frame, names=names))
    except NoneOperand as e:
        log.passed_over(e)
        return False
    except FaultError:
        raise
    except GdbextError:
        if private and isinstance(evaluate(rt, text, frame, names=names, private=private), hiding.Hidden):
            raise GdbextError("it cannot be evaluated; the reason may tell private content") from None
        raise


def syntax_tree(text: str) -> ast.Expression:
    """As `ast.parse`, with its errors, and without the warnings that Python prints of code that is about to change its meaning
    (`1if x else 2`)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, mode="eval")


def parsed(text: str) -> ast.expr | None:
    """The syntax tree of an expression; None for text that does not parse."""
    try:
        return syntax_tree(_prepare(text.strip())).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def last_name(text: str) -> str:
    """The name under which an expression's value stands: `x.rid` -> "rid", `d["k"][0]` -> "k", `d["req-1"]` -> "d"; '' where
    there is none."""
    node: Any = parsed(text)
    while isinstance(node, ast.Subscript):
        key = getattr(index_node(node), "value", None)
        if isinstance(key, str) and key.isidentifier():
            return key
        node = node.value
    return str(getattr(node, "attr", "") or getattr(node, "id", ""))


def free_names(text: str) -> set[str]:
    """The names of an expression that a frame has to give; empty for one that does not parse."""
    tree = parsed(text)
    if tree is None:
        return set()
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name)]
    bound = {n.id for n in names if isinstance(n.ctx, ast.Store)} | {"__py__", "__module__"}
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return {n.id for n in names} - bound - (called & set(expression_calls.FUNCTIONS))


class Evaluator:
    """One expression and its surroundings; see `evaluate`."""

    def __init__(
        self,
        rt: Runtime | None,
        text: str,
        frame: PyFrame | None,
        last: Any,
        names: Mapping[str, Any] | None,
        private: Set[str] = frozenset(),
    ) -> None:
        self.rt, self.frame, self.last, self.private = rt, frame, last, private
        self.source = _prepare(text.strip())
        self.steps = self.done = 0  # nodes that were begun, nodes that have a value
        self.scopes: list[Any] = [names] if names else []
        if not self.source:
            raise GdbextError("no expression given")

    def run(self) -> Any:
        """The value; `GdbextError` with one line where there is none. A `Hidden` where either would tell private content."""
        with hiding.expression(self.private) as told:
            try:
                found = self._run()
            except FaultError:
                raise
            except GdbextError as e:
                if not told.met:
                    raise
                log.passed_over(hiding.PrivateError(type(e).__name__))  # not its text
        return hiding.Hidden() if told.met else found

    def _run(self) -> Any:
        try:
            tree = syntax_tree(self.source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
            raise GdbextError(f"cannot parse the expression {self.shown(self.source)!r}: {getattr(e, 'msg', e)}") from None
        try:
            with spending.expression():
                found = self.operand(tree.body)
        except RecursionError:
            raise GdbextError("the expression is nested too deeply") from None
        except (TypeError, ValueError, ArithmeticError, IndexError, KeyError, AttributeError, MemoryError) as e:
            raise GdbextError(f"cannot evaluate {self.shown(self.source)!r}: {type(e).__name__}: {e}") from None
        if isinstance(found, python_types.GeneratorType):
            raise GdbextError("a generator gives values one by one: put it into any(…), all(…), sum(…), or brackets")
        return found

    def shown(self, source: str) -> str:
        """Source text with modules and `$py` as the user wrote them."""
        return re.sub(r"__module__\['([^']*)', '([^']*)'\]", r"\1:\2", source).replace("__py__", "$py")

    def text_of(self, node: ast.AST) -> str:
        """The part of the expression that a node stands for."""
        return self.shown(ast.get_source_segment(self.source, node) or "it")

    # ---- nodes ---------------------------------------------------------------------------------------------------
    def value(self, node: ast.AST) -> Any:
        """The value of one node."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise GdbextError(f"the expression takes more than {MAX_STEPS} steps: narrow it down")
        method = getattr(self, "_" + type(node).__name__.lower(), None)
        if method is None:
            raise GdbextError(f"{type(node).__name__} is not something that can be answered by reading memory")
        found = method(node)
        self.done += 1
        return spending.made(found) if isinstance(node, _MAKES) else found

    def operand(self, node: ast.AST) -> Any:
        """As `value`. But a hexadecimal number alone, in a call, or before `.` or `[`, is the address of an object."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and self.source[node.col_offset :][:2].lower() == "0x":
            if node.value > 4096 and self.rt is not None:
                obj = self.rt.object(node.value)
                _ = obj.type  # raises when no object is there
                return hiding.under("_", obj)
        return self.value(node)

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        for scope in reversed(self.scopes):
            if node.id in scope:
                return scope[node.id]
        if node.id == "__py__":
            if self.last is None:
                raise GdbextError("$py holds nothing yet: it is the result of the last pyprint or pytensor")
            return hiding.under("_", hiding.revealed(self.last))
        if self.frame is None:
            raise GdbextError(f"no Python frame is selected, so the name {node.id} means nothing; use module:name or an address")
        found = in_frame(self.frame, node.id)
        if found is None:
            raise NotFoundError(_missing(self.frame, node.id))
        return hiding.under(node.id, found)

    def _attribute(self, node: ast.Attribute) -> Any:
        base = self.operand(node.value)
        if not isinstance(base, (Object, Adapter)):
            try:
                return value_attributes.attribute(base, node.attr)
            except NotFoundError:
                what = self.text_of(node.value)
                raise GdbextError(
                    f"{what} is the plain value {spending.brief(base, 80)}: it has no attribute {node.attr}"
                ) from None
        return value_attributes.attribute(base, node.attr)

    def _module_global(self, node: ast.AST) -> Any:
        module, name = ast.literal_eval(node)
        if self.rt is None:
            raise GdbextError(f"{module}:{name} needs a process with Python")
        contents = self.rt.module(module)
        if contents is None:
            import difflib  # where a name is wrong

            close = difflib.get_close_matches(module, [m for m in self.rt.modules() if m != module], 3)
            hint = f"; did you mean {', '.join(close)}?" if close else ""
            raise NotFoundError(f"no module {module} is imported there{hint}")
        try:
            return hiding.under(name, contents.item(name))
        except NotFoundError:
            raise NotFoundError(f"the module {module} has no global {name}") from None

    def _subscript(self, node: ast.Subscript) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id == "__module__":
            return self._module_global(index_node(node))
        base = self.operand(node.value)
        key = self._key(index_node(node))
        found = containers.item(base, key)
        return spending.made(found) if isinstance(key, slice) else found

    def _key(self, node: Any) -> Any:
        if isinstance(node, ast.Slice):
            parts = [None if p is None else values.plain(self.value(p)) for p in (node.lower, node.upper, node.step)]
            return slice(*parts)
        if isinstance(node, ast.Tuple):
            return tuple(self._key(part) for part in node.elts)
        if type(node).__name__ == "ExtSlice":  # Python 3.8's ast
            return tuple(self._key(getattr(part, "value", part)) for part in node.dims)
        return self.value(node)

    def _list(self, node: ast.List) -> list[Any]:
        return [self.value(e) for e in node.elts]

    def _tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self.value(e) for e in node.elts)

    def _set(self, node: ast.Set) -> set[Any]:
        return {values.plain(self.value(e)) for e in node.elts}

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        if None in node.keys:
            raise GdbextError("** is not something that can be answered by reading memory")
        return {values.plain(self.value(k)): self.value(v) for k, v in zip(node.keys, node.values) if k is not None}

    def _boolop(self, node: ast.BoolOp) -> Any:
        value = None
        for part in node.values:
            value = self.value(part)
            if values.truth(value) != isinstance(node.op, ast.And):
                return value
        return value

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        return arithmetic.unary(type(node.op).__name__, self.value(node.operand))

    def _binop(self, node: ast.BinOp) -> Any:
        return arithmetic.arithmetic(type(node.op).__name__, self.value(node.left), self.value(node.right))

    def _ifexp(self, node: ast.IfExp) -> Any:
        return self.value(node.body if values.truth(self.value(node.test)) else node.orelse)

    def _compare(self, node: ast.Compare) -> bool:
        left = self.value(node.left)
        for op, right_node in zip(node.ops, node.comparators):
            right = self.value(right_node)
            if not containers.holds(type(op).__name__, left, right):
                return False
            left = right
        return True

    # ---- calls and comprehensions --------------------------------------------------------------------------------
    def _call(self, node: ast.Call) -> Any:
        def arguments() -> tuple[list[Any], dict[str, Any]]:
            if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
                raise GdbextError("* and ** are not unpacked here")
            return [self.operand(a) for a in node.args], {k.arg: self.value(k.value) for k in node.keywords if k.arg is not None}

        if isinstance(node.func, ast.Attribute):
            owner = self.operand(node.func.value)
            return expression_calls.method(owner, node.func.attr, *arguments(), self.text_of(node.func))
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in expression_calls.FUNCTIONS or self._is_shadowed(name):
            known = ", ".join(sorted(expression_calls.FUNCTIONS))
            raise GdbextError(f"{self.text_of(node.func)}(…) would run code in the process; only {known} work on memory alone")
        return expression_calls.function(self.rt, self.frame, name, *arguments())

    def _is_shadowed(self, name: str) -> bool:
        """Whether the frame has a name of its own where a built-in function is meant."""
        if any(name in scope for scope in self.scopes):
            return True
        found = in_frame(self.frame, name, builtins=False) if self.frame is not None else None
        return found is not None and not found.isa("builtin_function_or_method", "type")

    def _generatorexp(self, node: ast.GeneratorExp) -> Iterator[Any]:
        return self._comprehended(node.elt, node.generators, 0)

    def _listcomp(self, node: ast.ListComp) -> list[Any]:
        return list(self._comprehended(node.elt, node.generators, 0))

    def _setcomp(self, node: ast.SetComp) -> set[Any]:
        return {values.plain(v) for v in self._comprehended(node.elt, node.generators, 0)}

    def _dictcomp(self, node: ast.DictComp) -> dict[Any, Any]:
        pair = ast.Tuple(elts=[node.key, node.value], ctx=ast.Load())
        return {values.plain(k): v for k, v in self._comprehended(pair, node.generators, 0)}

    def _comprehended(self, element: ast.AST, generators: list[ast.comprehension], depth: int) -> Iterator[Any]:
        if depth == len(generators):
            spending.take(spending.ITEM)
            yield self.value(element)
            return
        part = generators[depth]
        for member in values.members(self.value(part.iter)):
            spending.take(1)  # the time counts, also where no member passes a test
            scope: dict[str, Any] = {}
            self._bind(part.target, member, scope)
            self.scopes.append(scope)
            try:
                if all(values.truth(self.value(test)) for test in part.ifs):
                    yield from self._comprehended(element, generators, depth + 1)
            finally:
                self.scopes.remove(scope)

    def _bind(self, target: ast.AST, value: Any, scope: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            found = list(values.members(value))
            if len(found) != len(target.elts):
                raise GdbextError(f"cannot unpack {len(found)} values into {len(target.elts)} names")
            for part, member in zip(target.elts, found):
                self._bind(part, member, scope)
        else:
            raise GdbextError("only names can be bound here")


def index_node(node: ast.Subscript) -> Any:
    """The key's node; Python 3.8's ast wraps it."""
    return node.slice.value if type(node.slice).__name__ == "Index" else node.slice  # type: ignore[attr-defined]


def _prepare(text: str) -> str:
    """`$py` and `module:name` become plain names and calls that `ast` can parse; strings, slices and the pairs of a dict stay as
    they are."""
    out: list[str] = []
    colons: list[bool] = []  # of each open bracket, whether a colon in it is one of Python's own
    i, quote = 0, ""
    while i < len(text):
        c = text[i]
        if quote:
            if c == "\\" and i + 1 < len(text):
                out.append(text[i : i + 2])
                i += 2
                continue
            if c == quote:
                quote = ""
        elif c in "'\"":
            quote = c
        elif c in "([{":
            before = next((part.rstrip()[-1] for part in reversed(out) if part.strip()), "")
            colons.append(c == "{" or c == "[" and (before.isidentifier() or before.isdigit() or before in tuple("])}'\"")))
        elif c in ")]}":
            del colons[-1:]
        elif text.startswith("$py", i) and not text[i + 3 : i + 4].isidentifier():
            out.append("__py__")
            i += 3
            continue
        elif not any(colons[-1:]):
            found = _MODULE.match(text, i)
            if found and (i == 0 or not (text[i - 1].isidentifier() or text[i - 1].isdigit() or text[i - 1] == ".")):
                out.append(f"__module__[{found.group(1)!r}, {found.group(2)!r}]")
                i = found.end()
                continue
        out.append(c)
        i += 1
    return "".join(out)


def in_frame(frame: PyFrame, name: str, builtins: bool = True) -> Object | None:
    """The value of a name in a frame, or None: locals and cells, then globals, then builtins. `NotFoundError` for a variable of
    the frame that is not set."""
    for known, value in frame.locals():
        if known == name:
            if value is None:
                raise NotFoundError(f"{name} is a variable of {frame.function} that is not set at line {frame.line}")
            return value
    for space in (frame.globals, frame.builtins) if builtins else (frame.globals,):
        try:
            found: Object = space().item(name)
            return found
        except NotFoundError as e:
            log.passed_over(e)
            continue
        except GdbextError as e:
            log.passed_over(e)
            break
    return None


def _missing(frame: PyFrame, name: str) -> str:
    for other in frame.stack[frame.level + 1 :]:
        if any(n == name and v is not None for n, v in other.locals()):
            return (
                f"{name} is not in the selected frame {frame.function}, but in frame {other.level}, {other.function}: "
                f"select it with `pyframe {other.level}` or add -any"
            )
    names = [n for n, v in frame.locals() if v is not None]
    import difflib  # where a name is wrong

    close = difflib.get_close_matches(name, names, 3)
    hint = f"did you mean {', '.join(close)}?" if close else f"it has {', '.join(names[:16]) or 'no variables'}"
    return f"there is no name {name} in {frame.function} (line {frame.line}); {hint}"
