"""Fields of answers, each declared once.

From a declaration follow the JSON of an object (`Fields.data`), the check of what another machine sends (`Fields.shape`), how the
answers of several machines become one (answers/each_node.py), the JSON schema, the rows of docs/json.md, and the table for
people, on one machine and on many."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

from .text import Style, escape, table

JOIN, SUM, FAILURES, KEEP = "join", "sum", "failures", "keep"
NUMBER, TEXT, REAL, FLAG = (int, None), (str, None), (int, float, None), (bool, None)
VALUE = (int, float, str, None)  # also NaN and the infinities, which are texts in JSON
NUMBERS = (int, float, NUMBER, (float, None), REAL, VALUE)  # the kinds of a column that is aligned to the right
LEFT_OUT: Any = object()  # the value of a field that an object has not
_WORDS = {str: "text", int: "number", float: "number", bool: "bool", dict: "object", list: "list", None: "null"}
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", list: "array", None: "null"}


class Field(NamedTuple):
    """One field.

    * `kind`: as `jsonline.expect` takes it, with `Fields` for an object: `int`, `(str, None)`, `[Fields]`, `(Fields, None)`
    * `means`: for docs/json.md and the schema; '' where the name says it
    * `unit`: "bytes", "seconds"; '' for none
    * `read`: its value, of the object that is shown; None: the attribute of its name
    * `must`: an answer of another machine without it is damaged; every other one may be lacking there: releases differ
    * `merge`: over machines: JOIN, a list of all with `node` in each; SUM; FAILURES, joined to those that could not be asked;
      KEEP, as its machine says; '' where the command makes it anew, or leaves it out
    * `digits`: to which it is rounded
    * `default`: its value where `Fields.of` is given none; without it the field is left out then
    * `private`: users' content, which an answer has only with -show-content
    * `lines`: its text keeps its line breaks; every other text that is read is escaped whole
    * `head`: its column, '' for none; one of numbers is aligned to the right. In it stands the value as text, or what `cell`
      makes of the value, or `draw` of the whole row of JSON
    * `spare`: which columns go first where there is no room, from 1; 0: it stays
    * `short`: where there is no room its cells are cut in their middle, and a row stays a line
    """

    name: str
    kind: Any
    means: str = ""
    unit: str = ""
    read: Callable[[Any], Any] | None = None
    must: bool = False
    merge: str = ""
    head: str = ""
    cell: Callable[[Any], str] | None = None
    draw: Callable[[Any, Style], str] | None = None
    spare: int = 0
    short: bool = False
    digits: int | None = None
    default: Any = LEFT_OUT
    lines: bool = False
    private: bool = False

    @property
    def told(self) -> str:
        """What docs and schemas say of it."""
        return ", ".join(filter(None, (self.means, self.unit, "with -show-content" if self.private else "")))

    def text(self, row: Mapping[str, Any], style: Style) -> str:
        """Its cell in a row of JSON; '' where the row lacks it."""
        if self.draw is not None:
            return self.draw(row, style)
        value = row.get(self.name)
        if value is None:
            return ""
        return self.cell(value) if self.cell is not None else escape(str(value))


def each(kind: Any, names: str, **more: Any) -> tuple[Field, ...]:
    """Fields of one kind whose names say all; `more`: what else they have in common."""
    return tuple(Field(name, kind, **more) for name in names.split())


def or_none(name: str) -> Callable[[Any], Any]:
    """A `read`: null for '' and 0, which stand for none."""
    return lambda one: getattr(one, name) or None


class Fields:
    """The fields of an object, in the order of its JSON. `shape`: the name under which docs/json.md and the schemas describe it
    once for all; an object that holds others of its own shape has one. `rest`: the kind of what has a name of its own."""

    def __init__(self, *fields: Field, shape: str = "", rest: Any = ()) -> None:
        self.named, self.rest = shape, rest
        self._hold(fields)

    def _hold(self, fields: tuple[Field, ...]) -> None:
        self.fields, self.names = fields, {one.name for one in fields}
        self._reads = [(f.name, f.read or attrgetter(f.name), f.digits, "\n" if f.lines else "") for f in fields]
        self.columns = [one for one in fields if one.head]
        self.right = {one.head for one in self.columns if one.kind in NUMBERS}
        self.spare = [one.head for one in sorted(self.columns, key=lambda one: one.spare) if one.spare]

    def add(self, *fields: Field) -> None:
        """More fields, which hold objects of this very shape."""
        self._hold((*self.fields, *fields))

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def data(self, source: Any) -> dict[str, Any]:
        """The JSON of an object, without what it has not."""
        found = {}
        for name, read, digits, kept in self._reads:
            value = read(source)
            if value is LEFT_OUT:
                continue
            if type(value) is str:
                value = escape(value, keep=kept) if not value.isprintable() else value
            elif digits is not None and value is not None:
                value = round(value, digits)
            found[name] = value
        return found

    def of(self, **values: Any) -> dict[str, Any]:
        """The JSON of values that are known already, defaults for the others. `KeyError`: one that is not declared."""
        found = {
            name: value for name, value in ((f.name, values.pop(f.name, f.default)) for f in self.fields) if value is not LEFT_OUT
        }
        if values:
            raise KeyError(f"not declared: {', '.join(values)}")
        for f in self.fields:
            value = found.get(f.name)
            if type(value) is str and not f.lines and not value.isprintable():
                found[f.name] = escape(value, keep="\n")
            elif f.digits is not None and isinstance(value, float):
                found[f.name] = round(value, f.digits)
        return found

    @property
    def shape(self) -> dict[str, Any]:
        """What `jsonline.expect` holds another machine's JSON to."""
        found: dict[str, Any] = _shape(self, ())
        return found

    @property
    def answer_shape(self) -> dict[str, Any]:
        """The same of a whole answer."""
        return {**self.shape, "partial?": [str]}

    def merging(self, *how: str) -> Fields:
        """Those that merge in one of these ways."""
        return Fields(*(one for one in self.fields if one.merge in how))

    def picked(self, names: str) -> Fields:
        """Those of these names."""
        return Fields(*(one for one in self if one.name in names.split()))

    def needing(self, names: str) -> Fields:
        """The same, of which another machine's answer must have these."""
        return Fields(*(one._replace(must=one.must or one.name in names.split()) for one in self), shape=self.named)

    def grid(self, rows: Sequence[Mapping[str, Any]], style: Style) -> tuple[list[str], list[list[str]]]:
        """Rows of JSON as heads and rows of cells. Those of several machines begin with their `node`."""
        cells = [[escape(str(row.get("node", ""))), *(one.text(row, style) for one in self.columns)] for row in rows]
        return ["node", *(one.head for one in self.columns)], cells

    def table(self, rows: Sequence[Mapping[str, Any]], style: Style) -> str:
        """Rows of JSON as a table; a column that is empty in all of them is left out."""
        head, cells = self.grid(rows, style)
        return table(cells, head, style, self.right, self.spare, [one.head for one in self.columns if one.short])

    def schema(self, known: dict[str, Any]) -> dict[str, Any]:
        """The JSON schema of the object. Further fields may come: it is open. Shapes with a name go into `known`."""
        made = {f.name: {**_schema(f.kind, known), **({"description": f.told} if f.told else {})} for f in self.fields}
        more = {"additionalProperties": _schema(self.rest, known)} if self.rest != () else {}
        return {"type": "object", "properties": made, **more}

    def shapes(self, known: dict[str, Fields] | None = None) -> dict[str, Fields]:
        """{name: fields} of the shapes with a name that its objects have."""
        known = {} if known is None else known
        for kind in [*(f.kind for f in self.fields), self.rest]:
            inner, _ = _inner(kind)
            if inner is not None and inner.named not in known:
                known.update({inner.named: inner} if inner.named else {})
                inner.shapes(known)
        return known

    def rows(self, path: str = "", seen: tuple[Fields, ...] = ()) -> Iterator[tuple[str, str, str]]:
        """(path, type in words, meaning) of each field, an object's own fields after it: `ranks[].pid`. Those of a shape that has
        a name, or stood before, are left out."""
        done = [*seen]
        rest = (Field("*", self.rest),) if self.rest != () else ()
        for f in (*self.fields, *rest):
            yield path + f.name, _words(f.kind), f.told
            inner, many = _inner(f.kind)
            if inner is not None and not inner.named and inner not in done:
                yield from inner.rows(f"{path}{f.name}{'[]' * many}.", tuple(done))
                done.append(inner)


def objects(value: Any, kind: Any, wanted: tuple[Fields, ...]) -> Iterator[dict[str, Any]]:
    """The objects in JSON of that `kind` whose fields are among `wanted`."""
    for one in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(one, list) and isinstance(value, list):
            for item in value:
                yield from objects(item, one[0], wanted)
        elif isinstance(one, Fields) and isinstance(value, dict):
            if one in wanted:
                yield value
            for f in one:
                yield from objects(value.get(f.name), f.kind, wanted)


# Of every answer. The last three stand in one that a copy was read for, or that is of several machines and not merged.
EVERY = Fields(
    Field("partial", [str], "why the answer is not the whole truth; empty when it is"),
    Field("no_permission", str, "where processes may not be read: which, and the line that mends it"),
    Field("unproven", [str], "engines whose readers were tried on stand-ins alone"),
    *each([dict], "pauses nodes failed"),
)


def answer_schema(command: str, fields: Fields) -> dict[str, Any]:
    """The JSON schema of a command's whole answer."""
    own = [one for one in EVERY if one.name not in fields.names]
    every = Fields(Field("schema", str), *own, *fields)
    known: dict[str, Any] = {}
    found = every.schema(known)
    found["properties"]["schema"] = {"const": command + "/1"}
    return {**found, "required": ["schema", "partial"], **({"$defs": known} if known else {})}


def _shape(kind: Any, above: tuple[Fields, ...]) -> Any:
    if isinstance(kind, Fields):
        inner = (*above, kind)
        return dict if kind in above else {f.name + ("" if f.must else "?"): _shape(f.kind, inner) for f in kind}
    if isinstance(kind, list):
        return [_shape(kind[0], above)]
    return tuple(_shape(one, above) for one in kind) if isinstance(kind, tuple) else kind


def _schema(kind: Any, known: dict[str, Any]) -> dict[str, Any]:
    if isinstance(kind, Fields):
        if not kind.named:
            return kind.schema(known)
        if kind.named not in known:
            known[kind.named] = {}
            known[kind.named] = kind.schema(known)
        return {"$ref": f"#/$defs/{kind.named}"}
    if isinstance(kind, list):
        return {"type": "array", "items": _schema(kind[0], known)}
    if not isinstance(kind, tuple):
        return {"type": _TYPES[kind]}
    several = [_schema(one, known) for one in kind]
    if all(set(one) == {"type"} for one in several):
        return {"type": list(dict.fromkeys(one["type"] for one in several))}
    return {"anyOf": several}


def _words(kind: Any) -> str:
    if isinstance(kind, tuple):
        return " or ".join(dict.fromkeys(map(_words, kind)))
    if isinstance(kind, list):
        return f"list of {_words(kind[0])}s" if not isinstance(kind[0], (list, tuple)) else f"list of ({_words(kind[0])})"
    return (f"*{kind.named}*" if kind.named else "object") if isinstance(kind, Fields) else _WORDS[kind]


def _inner(kind: Any) -> tuple[Fields | None, int]:
    """The fields of the objects that a field holds, and how many lists deep these are."""
    if isinstance(kind, Fields):
        return kind, 0
    for one in kind if isinstance(kind, (tuple, list)) else ():
        inner, many = _inner(one)
        if inner is not None:
            return inner, many + isinstance(kind, list)
    return None, 0
