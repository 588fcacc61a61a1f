"""The answers of several machines, one after the other: where a command's merged answer begins."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Sequence

from ..errors import GdbextError
from ..render.fields import FAILURES, JOIN, NUMBER, SUM, TEXT, Field, Fields
from ..render.jsonline import expect
from ..render.text import escape

FAILED = Fields(
    Field("label", TEXT, must=True), Field("pid", NUMBER, must=True), Field("reason", str, must=True), shape="failure"
)


def nodes(*about: Field) -> Field:
    """The field `nodes` of an answer over several machines, with what it says `about` each."""
    state = Field("state", str, "`read` or `failed`")
    return Field("nodes", [Fields(Field("node", str), state, Field("reason", TEXT), *about)], "over several machines")


def place_of(name: str) -> str:
    """A machine's name as its places have it in `node`."""
    return escape(name.partition(":")[2] or name)


def escaped(value: Any) -> Any:
    """JSON with all texts escaped, so that no text that was read can harm a terminal."""
    if isinstance(value, dict):
        return {escape(key): escaped(one) for key, one in value.items()}
    if isinstance(value, list):
        return [escaped(one) for one in value]
    return escape(value) if isinstance(value, str) else value


def sound(
    answers: Sequence[tuple[str, Any]],
    expected: dict[str, Any],
    failed: list[dict[str, Any]],
    take: Callable[[str, Any], None] = lambda node, answer: None,
) -> Iterator[tuple[str, str, Any]]:
    """(name of a machine, the same as its places have it in `node`, its answer) of each machine whose answer is as `expected`
    (`jsonline.expect`), and that `take` (of its place and answer) takes. Any other machine is named in `failed`; `GdbextError` at
    the end where none is left."""
    left = 0
    for name, answer in answers:
        try:
            if "error" in answer:
                raise GdbextError(str(answer["error"]))
            expect(answer, expected)
            node = place_of(name)
            take(node, answer)
        except (GdbextError, ValueError) as e:
            failed.append({"label": name, "pid": None, "reason": str(e)})
            continue
        left += 1
        yield name, node, answer
    if not left:
        raise GdbextError("; ".join(f"{f['label']}: {f['reason']}" for f in failed))


def merged(
    fields: Fields,
    answers: Sequence[tuple[str, Any]],
    failed: list[dict[str, Any]],
    about: Callable[[Any], dict[str, Any]],
    take: Callable[[str, Any], None] = lambda node, answer: None,
) -> tuple[dict[str, Any], list[str]]:
    """-> (one answer by what each of `fields` says of merging, with `node` in each item of a list, `nodes` and `failed`; why that
    is not all). `about`: what `nodes` says of a machine, of its answer. An answer that is not as `fields` say, or that `take`
    refuses, is named in `failed`; `GdbextError` where none is left."""
    data: dict[str, Any] = {f.name: 0 if f.merge == SUM else [] for f in fields.merging(JOIN, SUM)}
    partial, nodes = [], []
    for name, node, answer in sound(answers, fields.answer_shape, failed, take):
        for f in fields.merging(SUM):
            data[f.name] += answer.get(f.name, 0)
        for f in fields.merging(JOIN, FAILURES):
            into = failed if f.merge == FAILURES else data[f.name]
            into += [{**one, "node": node} for one in answer.get(f.name, ())]
        partial += [f"{name}: {escape(reason)}" for reason in answer.get("partial", ())]
        nodes.append({"node": escape(name), **about(answer)})
    partial += [f"{f['label']}: {escape(f['reason'])}" for f in failed if "node" not in f]
    return {**data, "nodes": nodes, "failed": failed}, partial
