"""Chains of waits (`verdict.chains`) as JSON and as text."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Sequence

from ..render.fields import Field, Fields
from ..render.text import escape, shorten
from ..verdict.states import End
from ..verdict.walk import Chain
from .places import PLACE, node_text

SHOWN, MAX_TEXT = 10, 200
_END = (
    Field("place", (PLACE, None), must=True),
    Field("state", str, "[its meanings](verdicts.md#chains)", must=True),
    Field("why", str, must=True),
)
CHAIN = Fields(
    Field("waiter", PLACE, must=True),
    Field("waits_for", str, must=True),
    Field("through", [Fields(Field("place", PLACE, must=True), Field("waits_for", str, must=True))], must=True),
    Field("end", Fields(*_END, Field("any_of", [Fields(*_END)], "the ends, where any of several could end the wait")), must=True),
    Field("count", int, "so many wait alike"),
    Field("also", [PLACE], "some of these", must=True),
    Field("rests", bool, "a pool's worker without work"),
)


def chains_data(chains: Iterable[Chain], place: Callable[[Any], dict[str, Any]]) -> list[dict[str, Any]]:
    """The JSON of llm-hang's `chains`; `place(node)` gives a node's."""

    def end_data(end: End) -> dict[str, Any]:
        found = place(end.node if end.node is not None else (str(end.pid), None)) if end.node is not None or end.pid else None
        if found is not None and end.pid:
            found["pid"] = end.pid
        data: dict[str, Any] = {"place": found, "state": end.state, "why": escape(end.why)}
        if end.any_of:
            data["any_of"] = [end_data(one) for one in end.any_of]
        return data

    def chain_data(chain: Chain) -> dict[str, Any]:
        waiter = place(chain.waiter)
        if chain.request:
            waiter["request"] = escape(chain.request)
        return {
            "waiter": waiter,
            "waits_for": escape(chain.waits_for),
            "through": [{"place": place(node), "waits_for": escape(text)} for node, text in chain.through],
            "end": end_data(chain.end),
            "count": chain.count,
            "also": [place(node) for node in chain.also],
            "rests": chain.rests,
        }

    return [chain_data(chain) for chain in chains]


def chain_lines(chains: Sequence[dict[str, Any]], style: Any, nodes: dict[Any, Any], most: int = SHOWN) -> list[str]:
    """The chains, a line each, without those of idle helpers."""
    shown = [one for one in chains if not one["rests"]]
    lines = [_line(one, style, nodes) for one in shown[:most]]
    if len(shown) > most and most:
        lines.append(style.dim(f"and {len(shown) - most} chains more (-json has them)"))
    return lines


def _line(one: dict[str, Any], style: Any, nodes: dict[Any, Any]) -> str:
    links = [(one["waiter"], one["waits_for"]), *((link["place"], link["waits_for"]) for link in one["through"])]
    end = one["end"]
    said = " -> ".join(f"{_who(place, nodes)} waits for {shorten(text, MAX_TEXT)}" for place, text in links if text)
    who = _who(end["place"], nodes) if end["place"] is not None else ""
    why = shorten(end["why"], MAX_TEXT)
    last = f"{who} {style.name(end['state'])}" if who else style.name(end["state"])
    alike = f" ({one['count']} alike)" if one["count"] > 1 else ""
    title = str(style.dim("chain: "))
    return title + (f"{said}{alike} -> " if said else "") + last + (f": {why}" if why else "")


def _who(place: dict[str, Any], nodes: dict[Any, Any]) -> str:
    if place.get("request"):
        return f"request {place['request']}"
    if place.get("tid"):
        return str(node_text((place["label"], place["tid"]), nodes))
    label = str(place["label"])
    return f"{label} task {place['task']}" if place.get("task") else label
