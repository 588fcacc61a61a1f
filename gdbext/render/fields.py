"""Fields of answers, each declared once.

From a declaration follow the JSON of an object (`Fields.data`), the check of what another machine sends (`Fields.shape`), how the
answers of several machines become one (answers/each_node.py), the JSON schema, the rows of docs/json.md, and the table for
people, on one machine and on many."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

from .text import Style, escape, table

JOIN, SUM, FAILURES, KEEP = "join", "sum", "failures", "keep"
NUMBER, TEXT, REAL = (int, None), (str, None), (int, float, None)
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
    * `head`: its column, '' for none; one of numbers is aligned to the right. In it stands the value as text, or what `cell`
      makes of the value, or `draw` of the whole row of JSON
    * `spare`: which columns go first where there is no room, from 1; 0: it stays
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
    digits: int | None = None

    @property
    def told(self) -> str:
        """What docs and schemas say of it."""
        return ", ".join(filter(None, (self.means, self.unit)))

    def text(self, row: Mapping[str, Any], style: Style) -> str:
        """Its cell in a row of JSON; '' where the row lacks it."""
        if self.draw is not None:
            return self.draw(row, style)
        value = row.get(self.name)
        if value is None:
            return ""
        return self.cell(value) if self.cell is not None else escape(str(value))

    def value(self, source: Any) -> Any:
        """Its value for an object."""
        found = self.read(source) if self.read is not None else getattr(source, self.name)
        return found if self.digits is None or found is None else round(found, self.digits)


class Fields:
    """The fields of an object, in the order of its JSON. `shape`: the name under which docs/json.md describes it once for all."""

    def __init__(self, *fields: Field, shape: str = "") -> None:
        self.named = shape
        self.fields, self.names = fields, {one.name for one in fields}
        self.columns = [one for one in fields if one.head]
        self.right = {one.head for one in self.columns if one.kind in (int, NUMBER, REAL)}
        self.spare = [one.head for one in sorted(self.columns, key=lambda one: one.spare) if one.spare]

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def data(self, source: Any) -> dict[str, Any]:
        """The JSON of an object."""
        return {f.name: f.value(source) for f in self.fields}

    @property
    def shape(self) -> dict[str, Any]:
        """What `jsonline.expect` holds another machine's JSON to."""
        return {f.name + ("" if f.must else "?"): _shape(f.kind) for f in self.fields}

    def merging(self, *how: str) -> Fields:
        """Those that merge in one of these ways."""
        return Fields(*(one for one in self.fields if one.merge in how))

    def grid(self, rows: Sequence[Mapping[str, Any]], style: Style) -> tuple[list[str], list[list[str]]]:
        """Rows of JSON as heads and rows of cells. Those of several machines begin with their `node`."""
        cells = [[escape(str(row.get("node", ""))), *(one.text(row, style) for one in self.columns)] for row in rows]
        return ["node", *(one.head for one in self.columns)], cells

    def table(self, rows: Sequence[Mapping[str, Any]], style: Style) -> str:
        """Rows of JSON as a table; a column that is empty in all of them is left out."""
        head, cells = self.grid(rows, style)
        return table(cells, head, style, self.right, self.spare)

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the object. Further fields may come: it is open."""
        made = {f.name: {**_schema(f.kind), **({"description": f.told} if f.told else {})} for f in self.fields}
        return {"type": "object", "properties": made}

    def rows(self, path: str = "", seen: tuple[Fields, ...] = ()) -> Iterator[tuple[str, str, str]]:
        """(path, type in words, meaning) of each field, an object's own fields after it: `ranks[].pid`. Those of a shape that has
        a name, or stood before, are left out."""
        done = [*seen]
        for f in self.fields:
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


def answer_schema(command: str, fields: Fields) -> dict[str, Any]:
    """The JSON schema of a command's whole answer."""
    every = Fields(
        Field("schema", str),
        Field("partial", [str], "why the answer is not the whole truth; empty when it is"),
        *fields,
    )
    found = every.schema()
    found["properties"]["schema"] = {"const": command + "/1"}
    return {**found, "required": ["schema", "partial"]}


def _shape(kind: Any) -> Any:
    if isinstance(kind, Fields):
        return kind.shape
    if isinstance(kind, list):
        return [_shape(kind[0])]
    return tuple(map(_shape, kind)) if isinstance(kind, tuple) else kind


def _schema(kind: Any) -> dict[str, Any]:
    if isinstance(kind, Fields):
        return kind.schema()
    if isinstance(kind, list):
        return {"type": "array", "items": _schema(kind[0])}
    if not isinstance(kind, tuple):
        return {"type": _TYPES[kind]}
    several = [_schema(one) for one in kind]
    if all(set(one) == {"type"} for one in several):
        return {"type": [one["type"] for one in several]}
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
