"""Which outputs of two records of a step belong together.

In two records of one program, outputs of the same name do. But an engine and a plain program of transformers, or another
program, divide the same model into different modules. Such outputs are paired as follows:

- A layer that packs several layers of the other side is compared with their outputs put together (qkv_proj, gate_up_proj,
  SiluAndMul).
- A decoder layer that returns its hidden states and the residual apart counts as their sum.
- A layer that returns its bias or attention's weights in addition to the tensor counts as that tensor.
- [1, T, H] is [T, H].

Outputs without a counterpart are left over. Needs numpy.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

from . import arrays
from .dtypes import DTYPES
from .layer_records import NOTHING, Record

Row = Dict[str, Any]
Pieces = List[Tuple[Record, Row]]  # of one output: one for each rank that has it
Key = Tuple[str, int, str]  # path, call, output
PACKED = {  # a layer of an engine -> the layers of transformers that it packs, in the order of its output
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
    "qkv": ("query", "key", "value"),
}
GATED = re.compile("AndMul$")  # vLLM's and SGLang's activations that multiply by the other half of gate_up_proj
NORM = re.compile("Norm$")
PRINCIPAL = ("", "[0]", ".last_hidden_state", "['last_hidden_state']")  # a module's main output, among others
MAX_HEAD = 3  # components before the layers that two models may have different


class Side:
    """One side of a comparison: the records of one step, one for each rank."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = list(records)
        self.rows: dict[Key, Pieces] = {}
        for record in self.records:
            for row in record.rows:
                self.rows.setdefault((row["path"], row["call"], row["output"]), []).append((record, row))


class Pair(NamedTuple):
    """An output of both sides. `key`: its name. `made`: None or {side: "a" or "b", how, outputs: the names of those from which
    that side's output was made}."""

    key: Key
    left: Pieces
    right: Pieces
    made: Row | None


class Made(Record):
    """An output that no module returned: made from the values of several rows of a record."""

    def __init__(self, record: Record, rows: Sequence[Row], make: Callable[[list[arrays.Source]], arrays.Source]) -> None:
        super().__init__(record.path, record.head, [])
        self.record, self.parts, self.make = record, rows, make

    def values(self, row: Row) -> arrays.Source | None:
        """The `Source` of the made values, None where the parts' were not saved."""
        sources = [self.record.values(part) for part in self.parts]
        found = [source for source in sources if source is not None]
        return self.make(found) if len(found) == len(sources) else None


# ---- one output out of several -----------------------------------------------------------------------------------------
def _read(source: arrays.Source) -> Any:
    return source.read(tuple(slice(0, n) for n in source.shape))


def _numbers(source: arrays.Source) -> Any:
    return source.numbers(tuple(slice(0, n) for n in source.shape)).astype("float64")


def _source(values: Any, dtype: Any, name: str) -> arrays.Source:
    return arrays.Source(values.shape, dtype, name, lambda box: values[box])


def _concatenated(sources: list[arrays.Source]) -> arrays.Source:
    import numpy

    return _source(numpy.concatenate([_read(s) for s in sources], -1), sources[0].dtype, sources[0].name)


def _sum(sources: list[arrays.Source]) -> arrays.Source:
    return _source(_numbers(sources[0]) + _numbers(sources[1]), DTYPES["float64"], sources[0].name)


def _product(sources: list[arrays.Source]) -> arrays.Source:
    return _source(_numbers(sources[0]) * _numbers(sources[1]), DTYPES["float64"], sources[0].name)


MAKE = {"concatenated": _concatenated, "sum": _sum, "product": _product}


def _made(parts: Sequence[Pieces], how: str) -> Pieces | None:
    """The pieces of an output that is made from others, rank by rank; None where their shapes do not fit."""
    found: Pieces = []
    for together in zip(*parts):
        record, rows = together[0][0], [row for _, row in together]
        shapes = [row["shape"] for row in rows]
        if any(not shape or shape[:-1] != shapes[0][:-1] or row["hash"] is None for shape, row in zip(shapes, rows)):
            return None
        if how != "concatenated" and any(shape != shapes[0] for shape in shapes):
            return None
        row = {**rows[0], **dict.fromkeys(set(NOTHING) - {"dtype"}), "shard": None, "hash": "+".join(r["hash"] for r in rows)}
        row["shape"] = [*shapes[0][:-1], sum(s[-1] for s in shapes)] if how == "concatenated" else shapes[0]
        row.update({name: sum(r[name] or 0 for r in rows) if how == "concatenated" else 0 for name in ("nan", "inf")})
        if how == "concatenated" and all(isinstance(r["min"], (int, float)) for r in rows):
            mean = sum(r["mean"] * r["shape"][-1] for r in rows) / row["shape"][-1]
            row.update(min=min(r["min"] for r in rows), max=max(r["max"] for r in rows), mean=mean)
        found.append((Made(record, rows, MAKE[how]), row))
    return found


def aligned(left: Pieces, right: Pieces) -> tuple[Pieces, Pieces]:
    """Both sides with the same number of dimensions. One side may have a batch before its tokens: [B, T, …] against [N, …]. Of
    the N, the first B * T count (an engine pads behind them)."""
    shapes = [side[0][1]["shape"] for side in (left, right)]
    if None in shapes or abs(len(shapes[0]) - len(shapes[1])) != 1 or min(map(len, shapes)) < 1:
        return left, right
    batched, flat = sorted(shapes, key=len, reverse=True)
    count = min(batched[0] * batched[1], flat[0])
    if batched[0] > 1 and batched[0] * batched[1] != flat[0]:
        return left, right  # a padded batch: which rows count is not known
    one, other = (
        [_flattened(record, row, count, len(row["shape"]) == len(batched)) for record, row in side] for side in (left, right)
    )
    return one, other


def _flattened(record: Record, row: Row, count: int, batched: bool) -> tuple[Record, Row]:
    """A piece whose first dimension is reduced to its first `count` tokens."""
    shape = row["shape"]
    tokens, rest = (shape[0] * shape[1], shape[2:]) if batched else (shape[0], shape[1:])
    flat = [count, *rest]
    if not batched and tokens == count:
        return record, row

    def make(sources: list[arrays.Source]) -> arrays.Source:
        values = _read(sources[0]).reshape([tokens, *rest])[:count]
        return _source(values, sources[0].dtype, sources[0].name)

    changed = {**row, "shape": flat}
    if tokens != count:
        changed.update(hash=f"{row['hash']}[:{count}]", **dict.fromkeys(("min", "max", "mean")), nan=0, inf=0)
    return Made(record, [row], make), changed


# ---- which belong together ---------------------------------------------------------------------------------------------
def heads(a: Side, b: Side) -> tuple[str, str]:
    """The prefixes of each side's paths without which most paths match: ("", "") where they match as they are, "model." where one
    side's model is inside the other's."""
    sides = [{key[0] for key in side.rows if key[0]} for side in (a, b)]

    def candidates(paths: set[str]) -> list[str]:
        found = {""}
        for path in paths:
            words = re.split(r"\.\d+(?:\.|$)", path)[0].split(".")
            found |= {".".join(words[:n]) + "." for n in range(1, min(MAX_HEAD, len(words)) + 1)}
        return sorted(found, key=len)

    def cut(paths: set[str], head: str) -> set[str]:
        return {path[len(head) :] for path in paths if path.startswith(head)}

    every = [(x, y) for x in candidates(sides[0]) for y in candidates(sides[1])]
    return max(every, key=lambda pair: (len(cut(sides[0], pair[0]) & cut(sides[1], pair[1])), -len(pair[0]) - len(pair[1])))


class Pairing:
    """Finds the pairs of two sides. `pairs`: in the order of `a`. `only_a`, `only_b`: the names of outputs without a
    counterpart."""

    def __init__(self, a: Side, b: Side) -> None:
        self.sides = (a, b)
        self.groups: list[dict[tuple[str, int], dict[str, Key]]] = []  # (path without its head, call) -> {output: key}
        for one, head in zip(self.sides, heads(a, b)):
            groups: dict[tuple[str, int], dict[str, Key]] = {}
            for key in one.rows:
                path = key[0][len(head) :] if key[0].startswith(head) else key[0]
                groups.setdefault((path, key[1]), {})[key[2]] = key
            self.groups.append(groups)
        self.parents = [{path.rpartition(".")[0] for path, _ in groups} for groups in self.groups]
        self.places = {key: n for n, key in enumerate(a.rows)}
        self.carried = [self._carried(side) for side in (0, 1)]
        self.used: list[set[Key]] = [set(), set()]
        self.found: list[tuple[int, Pair]] = []
        for name in self.groups[0]:
            if name in self.groups[1]:
                self._same_path(name)
        for side in (0, 1):
            for name in self.groups[side]:
                self._packed(side, name)
        self.pairs = [pair for _, pair in sorted(self.found, key=lambda item: item[0])]
        self.only_a, self.only_b = (self._left(side) for side in (0, 1))

    def _left(self, side: int) -> list[str]:
        used = {key[:2] for key in self.used[side]}
        left = [key for key in self.sides[side].rows if key not in self.used[side]]
        return list(dict.fromkeys(key[0] + (key[2] if key[:2] in used else "") for key in left))

    def _carried(self, side: int) -> dict[tuple[str, int], list[Row]]:
        """{(path, call): outputs of the norms directly in that module}, of norms that also return the residual."""
        found: dict[tuple[str, int], list[Row]] = {}
        for (path, call), group in self.groups[side].items():
            if set(group) == {"[0]", "[1]"}:
                first, second = (self._row(side, group[output]) for output in ("[0]", "[1]"))
                if NORM.search(first["type"]) and first["shape"] == second["shape"]:
                    found.setdefault((path.rpartition(".")[0], call), []).append(first)
        return found

    def _lacks_residual(self, side: int, name: tuple[str, int]) -> bool:
        """Whether a module with such norms returns neither two tensors, as a norm does, nor the output of one of them. SGLang's
        decoder layers leave the residual to the next norm, in an object or elsewhere."""
        norms, group = self.carried[side].get(name, []), self.groups[side][name]
        hashes = {self._row(side, key)["hash"] for key in group.values()}
        return bool(norms) and set(group) != {"[0]", "[1]"} and hashes.isdisjoint(norm["hash"] for norm in norms)

    def _add(self, key: Key, mine: Sequence[Key], others: Sequence[Key], made: Row | None, pieces: tuple[Pieces, Pieces]) -> None:
        self.used[0].update(mine)
        self.used[1].update(others)
        self.found.append((max(self.places[k] for k in mine), Pair(key, *pieces, made)))

    def _same_path(self, name: tuple[str, int]) -> None:
        """Pairs the outputs of the modules of one path."""
        one, other = groups = [dict(side[name]) for side in self.groups]
        kinds = [self._row(side, next(iter(groups[side].values())))["type"] for side in (0, 1)]
        if self._lacks_residual(0, name) != self._lacks_residual(1, name):
            return
        if self._residual(0, name) != self._residual(1, name):
            side = 0 if self._residual(0, name) else 1
            whole = next((groups[1 - side][output] for output in PRINCIPAL if output in groups[1 - side]), None)
            if whole is not None and self._make(side, [groups[side]["[0]"], groups[side]["[1]"]], "sum", whole):
                return
        if len({bool(GATED.search(kind)) for kind in kinds}) > 1:
            return
        rows = self.sides[0].rows, self.sides[1].rows
        for output in [output for output in one if output in other]:
            keys = one.pop(output), other.pop(output)
            self._add(keys[0], keys[:1], keys[1:], None, (rows[0][keys[0]], rows[1][keys[1]]))
        if not any(output in PRINCIPAL for output in set(groups[0]) ^ set(self.groups[0][name])):
            left, right = (next((group[output] for output in PRINCIPAL if output in group), None) for group in groups)
            if left is not None and right is not None:
                self._add(left, [left], [right], None, (rows[0][left], rows[1][right]))

    def _row(self, side: int, key: Key) -> Row:
        return self.sides[side].rows[key][0][1]

    def _residual(self, side: int, name: tuple[str, int]) -> bool:
        """Whether a module with submodules returns two tensors of one shape: hidden states, and the residual to be added."""
        group = self.groups[side][name]
        if set(group) != {"[0]", "[1]"} or name[0] not in self.parents[side]:
            return False
        first, second = (self._row(side, key) for key in group.values())
        return bool(first["shape"]) and first["shape"] == second["shape"] and first["dtype"] == second["dtype"]

    def _packed(self, side: int, name: tuple[str, int]) -> None:
        """Pairs a layer that packs several layers of the other side."""
        path, call = name
        group, (above, _, last) = self.groups[side][name], path.rpartition(".")
        whole = next((group[output] for output in PRINCIPAL if output in group), None)
        if whole is None or whole in self.used[side]:
            return
        others, above = self.groups[1 - side], above and above + "."
        if last in PACKED:
            names, how = [above + part for part in PACKED[last]], "concatenated"
        elif GATED.search(self._row(side, whole)["type"]):
            names, how = [path, above + PACKED["gate_up_proj"][1]], "product"
        else:
            return
        parts = [
            next((others[n, call][output] for output in PRINCIPAL if output in others.get((n, call), ())), None) for n in names
        ]
        if None not in parts:
            self._make(1 - side, [part for part in parts if part is not None], how, whole)

    def _make(self, side: int, parts: list[Key], how: str, whole: Key) -> bool:
        """Pairs `whole` of the other side with the output made from `parts` of this one. -> whether they fit together."""
        pieces = _made([self.sides[side].rows[key] for key in parts], how)
        if pieces is None:
            return False
        made = {"side": "ab"[side], "how": how, "outputs": [key[0] + key[2] for key in parts]}
        other = self.sides[1 - side].rows[whole]
        if side == 0:
            self._add(whole, parts, [whole], made, (pieces, other))
        else:
            self._add(whole, [whole], parts, made, (other, pieces))
        return True
