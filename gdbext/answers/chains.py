"""Chains of waits (`verdict.chains`) as JSON."""

from __future__ import annotations

from typing import Any, Callable, Iterable

from ..render.fields import LEFT_OUT, Field, Fields
from ..render.text import escape
from ..verdict.states import End
from ..verdict.walk import Chain
from .places import PLACE

END = Fields(
    Field("place", (PLACE, None), must=True),
    Field("state", str, "[its meanings](verdicts.md#chains)", must=True),
    Field("why", str, must=True),
    shape="chain-end",
)
END.add(Field("any_of", ([END], None), "the ends, where any of several could end the wait"))
CHAIN = Fields(
    Field("waiter", PLACE, must=True),
    Field("waits_for", str, must=True),
    Field("through", [Fields(Field("place", PLACE, must=True), Field("waits_for", str, must=True))], must=True),
    Field("end", END, must=True),
    Field("count", int, "so many wait alike"),
    Field("also", [PLACE], "some of these", must=True),
    Field("rests", bool, "a pool's worker without work"),
    shape="chain",
)


def chains_data(chains: Iterable[Chain], place: Callable[[Any], dict[str, Any]]) -> list[dict[str, Any]]:
    """The JSON of llm-hang's `chains`; `place(node)` gives a node's."""

    def end_data(end: End) -> dict[str, Any]:
        found = place(end.node if end.node is not None else (str(end.pid), None)) if end.node is not None or end.pid else None
        if found is not None and end.pid:
            found["pid"] = end.pid
        any_of = [end_data(one) for one in end.any_of] if end.any_of else LEFT_OUT
        return END.of(place=found, state=end.state, why=escape(end.why), any_of=any_of)

    def chain_data(chain: Chain) -> dict[str, Any]:
        waiter = place(chain.waiter)
        if chain.request:
            waiter["request"] = escape(chain.request)
        return CHAIN.of(
            waiter=waiter,
            waits_for=escape(chain.waits_for),
            through=[{"place": place(node), "waits_for": escape(text)} for node, text in chain.through],
            end=end_data(chain.end),
            count=chain.count,
            also=[place(node) for node in chain.also],
            rests=chain.rests,
        )

    return [chain_data(chain) for chain in chains]
