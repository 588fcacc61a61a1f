"""The contract's Python expressions, answered by reading memory: paths, items, slices, comparisons, arithmetic, any/all.

Parsed by Python's own `ast` and walked here; nothing from the process runs. A value is an `Object` of the process or a plain Python
value. What would need running code (calls, properties, `__getitem__` of Python classes) is refused by name.
"""

import ast
import operator
import re

from ..errors import FaultError, GdbextError, NotFoundError
from .objects import MAX_ITEMS, Object
from .thirdparty import numpy_objects
from .types import DICT, LIST, STR, TUPLE, TYPE

MAX_STEPS = 5_000_000
_MODULE = re.compile(r"(?<![\w.])([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")
_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_ORDER = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}
_UNARY = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}
_FUNCTIONS = ("len", "type", "any", "all", "id", "min", "max", "sum")


def evaluate(rt, text, frame=None, outer=(), last=None, names=None):
    """The value of `text`: an `Object` or a plain Python value.

    `frame`: the `PyFrame` whose names count; `outer`: frames to take a name from that `frame` lacks (`-any`), nearest first;
    `last`: the value of `$py`; `names`: plain values that come before all others. Raises `GdbextError` with one line; a name that only an outer frame has is an error that
    names that frame.
    """
    return _Evaluator(rt, text, frame, outer, last, names).run()


def last_name(text):
    """The name that an expression's value stands under: `x.rid` -> "rid", `d["k"][0]` -> "k", `f` -> "f"; '' where there is none."""
    try:
        node = ast.parse(_prepare(text.strip()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    while isinstance(node, ast.Subscript):
        key = getattr(node.slice, "value", node.slice)
        if isinstance(getattr(key, "value", key), str):
            return getattr(key, "value", key)
        node = node.value
    return getattr(node, "attr", "") or getattr(node, "id", "")


class _Evaluator:
    def __init__(self, rt, text, frame, outer, last, names=None):
        self.rt, self.frame, self.outer, self.last = rt, frame, list(outer), last
        self.source = _prepare(text.strip())
        self.steps, self.scopes = 0, [names] if names else []
        if not self.source:
            raise GdbextError("no expression given")

    def run(self):
        try:
            tree = ast.parse(self.source, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
            raise GdbextError(f"cannot parse the expression {self.source!r}: {getattr(e, 'msg', e)}") from None
        try:
            node = tree.body
            return self._address(node) or self._value(node)
        except RecursionError:
            raise GdbextError("the expression is nested too deeply") from None
        except (TypeError, ValueError, ZeroDivisionError, OverflowError, IndexError, KeyError) as e:
            raise GdbextError(f"cannot evaluate {self.source!r}: {type(e).__name__}: {e}") from None

    # ---- nodes ---------------------------------------------------------------------------------------------------
    def _value(self, node):
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise GdbextError(f"the expression takes more than {MAX_STEPS} steps: narrow it down")
        method = getattr(self, "_" + type(node).__name__.lower(), None)
        if method is None:
            raise GdbextError(f"{type(node).__name__} is not something that can be answered by reading memory")
        return method(node)

    def _address(self, node):
        """A hexadecimal number where an object is meant (alone, or before `.` or `[`) is an object's address."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and self.source[node.col_offset :][:2].lower() == "0x":
            if node.value > 4096:
                obj = self.rt.object(node.value)
                obj.type  # raises when no object is there
                return obj
        return None

    def _constant(self, node):
        return node.value

    def _name(self, node):
        for scope in reversed(self.scopes):
            if node.id in scope:
                return scope[node.id]
        if node.id == "__py__":
            if self.last is None:
                raise GdbextError("$py holds nothing yet: it is the result of the last pyprint or pytensor")
            return self.last
        return self._lookup(node.id)

    def _lookup(self, name):
        if self.frame is None:
            raise GdbextError(f"no Python frame is selected, so the name {name} means nothing; use module:name or an address")
        found = _in_frame(self.frame, name)
        if found is not None:
            return found
        for frame in self.outer:
            found = _in_frame(frame, name, only_local=True)
            if found is not None:
                return found
        raise NotFoundError(_missing(self.frame, name))

    def _attribute(self, node):
        base = self._address(node.value) or self._value(node.value)
        if not isinstance(base, Object):
            raise GdbextError(f"{ast_text(self.source, node.value)} is the plain value {base!r}: it has no attribute {node.attr}")
        if base.isa("module"):
            contents = self.rt.object(self.rt.target.u64(base.address + self.rt.layout["module.md_dict"]))
            try:
                return contents.item(node.attr)
            except NotFoundError:
                raise NotFoundError(f"the module {ast_text(self.source, node.value)} has no {node.attr}") from None
        if numpy_objects.is_array(base) and node.attr in ("shape", "strides", "dtype", "size", "ndim"):
            array = numpy_objects.read_array(base)
            return len(array.shape) if node.attr == "ndim" else getattr(array, node.attr)
        return base.attr(node.attr)

    def _module_global(self, node):
        module, name = ast.literal_eval(node)
        contents = self.rt.module(module)
        if contents is None:
            import difflib

            close = difflib.get_close_matches(module, list(self.rt.modules()), 3)
            raise NotFoundError(
                f"no module {module} is imported there{'; did you mean ' + ', '.join(close) + '?' if close else ''}"
            )
        try:
            return contents.item(name)
        except NotFoundError:
            raise NotFoundError(f"the module {module} has no global {name}") from None

    def _subscript(self, node):
        if isinstance(node.value, ast.Name) and node.value.id == "__module__":
            return self._module_global(node.slice.value if type(node.slice).__name__ == "Index" else node.slice)
        base = self._address(node.value) or self._value(node.value)
        index = node.slice
        if type(index).__name__ == "Index":  # Python 3.8's ast
            index = index.value
        if isinstance(index, ast.Slice):
            parts = [None if p is None else self._plain(p) for p in (index.lower, index.upper, index.step)]
            return self._sliced(base, slice(*parts))
        key = self._value(index)
        if not isinstance(base, Object):
            return base[self._as_plain(key)]
        if numpy_objects.is_array(base):
            return numpy_objects.item(base, self._as_plain(key))
        if base.type.flags & STR:
            return base.string()[self._as_plain(key)]
        if isinstance(key, Object) and not base.type.flags & DICT:
            key = key.plain()
        if isinstance(key, Object):
            return self._item_by_object(base, key)
        return base.item(key)

    def _item_by_object(self, base, key):
        try:
            return base.item(key.plain())
        except NotFoundError:
            raise
        except GdbextError:
            for k, v in base.items():
                if k.address == key.address:
                    return v
            raise NotFoundError(f"the {base.type_name} at {base.address:#x} does not have that key") from None

    def _sliced(self, base, part):
        if not isinstance(base, Object):
            return base[part]
        if base.type.flags & STR:
            return base.string()[part]
        if numpy_objects.is_array(base):
            return numpy_objects.values(base)[part]
        if base.type.flags & (LIST | TUPLE):
            return [self.rt.object(a) for a in base.element_addresses()[part]]
        if base.isa("array.array"):
            whole = range(base.len())[part]
            low, high = (min(whole[0], whole[-1]), max(whole[0], whole[-1]) + 1) if whole else (0, 0)
            if high - low > MAX_ITEMS:
                raise GdbextError(f"a slice of {high - low} elements is more than is read at once ({MAX_ITEMS})")
            numbers = base.array_numbers(low, high)[1]
            return [numbers[i - low] for i in whole]
        raise GdbextError(f"the {base.type_name} at {base.address:#x} cannot be sliced by reading memory")

    def _list(self, node):
        return [self._value(e) for e in node.elts]

    def _tuple(self, node):
        return tuple(self._value(e) for e in node.elts)

    _set = _list

    def _boolop(self, node):
        value = None
        for part in node.values:
            value = self._value(part)
            if truth(value) != isinstance(node.op, ast.And):
                return value
        return value

    def _unaryop(self, node):
        if isinstance(node.op, ast.Not):
            return not truth(self._value(node.operand))
        return _UNARY[type(node.op)](self._plain(node.operand))

    def _binop(self, node):
        work = _ARITHMETIC.get(type(node.op))
        if work is None:
            raise GdbextError("this operator cannot be answered by reading memory")
        left, right = self._plain(node.left), self._plain(node.right)
        if isinstance(node.op, (ast.Pow, ast.LShift)) and isinstance(right, int) and right > 100_000:
            raise GdbextError("that number would be too large")
        if isinstance(node.op, ast.Mult) and any(isinstance(v, (str, bytes, tuple, list)) for v in (left, right)):
            raise GdbextError("only numbers are multiplied here")
        return work(left, right)

    def _ifexp(self, node):
        return self._value(node.body if truth(self._value(node.test)) else node.orelse)

    def _compare(self, node):
        left = self._value(node.left)
        for op, right_node in zip(node.ops, node.comparators):
            right = self._value(right_node)
            if not self._holds(op, left, right):
                return False
            left = right
        return True

    def _holds(self, op, left, right):
        if isinstance(op, (ast.Is, ast.IsNot)):
            same = _identical(left, right)
            return same if isinstance(op, ast.Is) else not same
        if isinstance(op, (ast.Eq, ast.NotEq)):
            return self._equal(left, right) == isinstance(op, ast.Eq)
        if isinstance(op, (ast.In, ast.NotIn)):
            return self._contains(right, left) == isinstance(op, ast.In)
        return _ORDER[type(op)](self._as_plain(left), self._as_plain(right))

    def _equal(self, left, right):
        if isinstance(left, Object) and isinstance(right, Object) and left.address == right.address:
            return True
        try:
            return self._as_plain(left) == self._as_plain(right)
        except GdbextError:
            pass
        try:
            return _deep(left) == _deep(right)
        except GdbextError:
            if isinstance(left, Object) and isinstance(right, Object):
                raise GdbextError("equality of these objects needs their own code; compare fields, or use `is`") from None
            return False  # an object of the process and a plain value of another type

    def _contains(self, container, value):
        if isinstance(container, Object) and container.type.flags & STR:
            container = container.string()
        if isinstance(container, str):
            return self._as_plain(value) in container
        return any(self._equal(member, value) for member in self._each(container))

    def _call(self, node):
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords:
            what = ast_text(self.source, node.func)
            raise GdbextError(f"{what}(…) would run code in the process; only {', '.join(_FUNCTIONS)} work on memory alone")
        name = node.func.id
        if len(node.args) != 1:
            raise GdbextError(f"{name}() takes one argument here")
        value = self._address(node.args[0]) or self._value(node.args[0])
        if name == "type":
            return self.rt.object(value.type.address) if isinstance(value, Object) else type(value).__name__
        if name == "id":
            if not isinstance(value, Object):
                raise GdbextError("id() needs an object of the process")
            return value.address
        if name == "len":
            if isinstance(value, Object):
                return numpy_objects.read_array(value).shape[0] if numpy_objects.is_array(value) else value.len()
            return len(value)
        if name in ("any", "all"):
            return {"any": any, "all": all}[name](truth(v) for v in self._each(value))
        return {"min": min, "max": max, "sum": sum}[name](self._as_plain(v) for v in self._each(value))

    def _generatorexp(self, node):
        return self._comprehended(node, 0)

    def _listcomp(self, node):
        return list(self._comprehended(node, 0))

    def _comprehended(self, node, depth):
        if depth == len(node.generators):
            yield self._value(node.elt)
            return
        part = node.generators[depth]
        for member in self._each(self._value(part.iter)):
            scope = {}
            self._bind(part.target, member, scope)
            self.scopes.append(scope)
            try:
                if all(truth(self._value(test)) for test in part.ifs):
                    yield from self._comprehended(node, depth + 1)
            finally:
                self.scopes.remove(scope)

    def _bind(self, target, value, scope):
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            members = list(self._each(value))
            if len(members) != len(target.elts):
                raise GdbextError(f"cannot unpack {len(members)} values into {len(target.elts)} names")
            for part, member in zip(target.elts, members):
                self._bind(part, member, scope)
        else:
            raise GdbextError("only names can be bound here")

    # ---- help ----------------------------------------------------------------------------------------------------
    def _each(self, value):
        if not isinstance(value, Object):
            return value
        if numpy_objects.is_array(value):
            return numpy_objects.values(value)
        if value.isa("array.array"):
            return self._sliced(value, slice(None))
        if value.type.flags & STR:
            return value.string()
        if value.type.flags & TYPE and "_member_map_" in self.rt.type(value.address).namespace:
            return [v for _, v in value.attr("_member_map_").items()]
        return value.elements()

    def _plain(self, node):
        return self._as_plain(self._value(node))

    def _as_plain(self, value):
        if not isinstance(value, Object):
            if isinstance(value, (list, tuple)):
                return type(value)(self._as_plain(v) for v in value)
            return value
        return value.plain()


def truth(value):
    """What Python's `bool()` of a value read from the process is; `GdbextError` where only its own code could tell."""
    if not isinstance(value, Object):
        return bool(value)
    try:
        return bool(value.plain())
    except GdbextError:
        pass
    try:
        return value.len() > 0
    except FaultError:
        raise
    except GdbextError:
        if value.type.is_heap and (value.type.lookup("__bool__") or value.type.lookup("__len__")):
            raise GdbextError(
                f"whether the {value.type_name} at {value.address:#x} counts as true is up to its own code; compare a field"
            ) from None
        return True


def _deep(obj, depth=4):
    """A plain value for containers of plain values, for comparison."""
    if isinstance(obj, (list, tuple)):
        return type(obj)(_deep(o, depth - 1) for o in obj)
    if not isinstance(obj, Object):
        return obj
    try:
        return obj.plain()
    except GdbextError:
        if not depth:
            raise
    if obj.type.flags & LIST:
        return [_deep(o, depth - 1) for o in obj.elements()]
    if obj.type.flags & TUPLE:
        return tuple(_deep(o, depth - 1) for o in obj.elements())
    if obj.type.flags & DICT:
        return {k.plain(): _deep(v, depth - 1) for k, v in obj.items()}
    if obj.isa("set", "frozenset"):
        return {o.plain() for o in obj.elements()}
    raise GdbextError(f"the {obj.type_name} at {obj.address:#x} has no plain value")


def _identical(left, right):
    if isinstance(left, Object) and isinstance(right, Object):
        return left.address == right.address
    for a, b in ((left, right), (right, left)):
        if isinstance(a, Object) and (b is None or isinstance(b, bool)):
            try:
                return a.plain() is b
            except GdbextError:
                return False
    return left is right


def _prepare(text):
    """`$py` and `module:name` become plain names and calls that `ast` can parse; strings and slices stay as they are."""
    out, i, depth, quote = [], 0, 0, ""
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
        elif c == "[":
            depth += 1
        elif c == "]":
            depth -= 1
        elif text.startswith("$py", i) and not text[i + 3 : i + 4].isidentifier():
            out.append("__py__")
            i += 3
            continue
        elif depth == 0:
            found = _MODULE.match(text, i)
            if found and (i == 0 or not (text[i - 1].isidentifier() or text[i - 1].isdigit() or text[i - 1] == ".")):
                out.append(f"__module__[{found.group(1)!r}, {found.group(2)!r}]")
                i = found.end()
                continue
        out.append(c)
        i += 1
    return "".join(out)


def ast_text(source, node):
    """The part of the expression that a node stands for, with modules as the user wrote them."""
    text = ast.get_source_segment(source, node) or "it"
    return re.sub(r"__module__\['([^']*)', '([^']*)'\]", r"\1:\2", text).replace("__py__", "$py")


def _in_frame(frame, name, only_local=False):
    """The value of a name in a frame, or None: locals and cells, then globals, then builtins."""
    for known, value in frame.locals():
        if known == name:
            if value is None:
                raise NotFoundError(f"{name} is a variable of {frame.function} that is not set at line {frame.line}")
            return value
    if only_local:
        return None
    for space in (frame.globals(), frame.builtins()):
        try:
            return space.item(name)
        except NotFoundError:
            continue
        except GdbextError:
            break
    return None


def _missing(frame, name):
    import difflib

    for other in frame.stack[frame.level + 1 :]:
        if any(n == name and v is not None for n, v in other.locals()):
            return (
                f"{name} is not in the selected frame {frame.function}, but in frame {other.level}, {other.function}: "
                f"select it with `pyframe {other.level}` or add -any"
            )
    names = [n for n, v in frame.locals() if v is not None]
    close = difflib.get_close_matches(name, names, 3)
    hint = f"did you mean {', '.join(close)}?" if close else f"it has {', '.join(names[:16]) or 'no variables'}"
    return f"there is no name {name} in {frame.function} (line {frame.line}); {hint}"
