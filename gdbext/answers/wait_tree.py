"""The waits of llm-hang as one tree: at its roots the ends of all chains, beneath each node those that wait for it, each thread
once. As JSON, as text and as an SVG graph."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Sequence

from ..render import html
from ..render.fields import Field, Fields
from ..render.text import shorten
from .places import PLACE, name

SHOWN, MAX_TEXT = 12, 150  # lines of the tree, and characters of a text in it
NODE = Fields(
    Field("place", (PLACE, None), "null: nobody who is known", must=True),
    Field("state", str, "of a root, as of a [chain's end](verdicts.md#chains); '' of one that waits", must=True),
    Field("why", str, "of a root", must=True),
    Field("waits_for", str, "what the node above could give", must=True),
    Field("alike", int, "how many wait just so", must=True),
    Field("culprit", bool, must=True),
    shape="node",
)
NODE.add(
    Field("children", [NODE], "nodes that wait for this one; of a `ring` its members, in the order of their waits", must=True)
)


def tree_of(chains: Iterable[dict[str, Any]], culprits: Iterable[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """The roots, nodes of `NODE`'s fields, from `chains_data`'s chains and the places of the culprits."""
    made = _Tree(culprits)
    for chain in chains:
        if not chain["rests"]:
            made.add(chain)
    return [root for root in made.roots if root["children"] or _key(root["place"]) not in made.listed]


class _Tree:
    def __init__(self, culprits: Iterable[dict[str, Any]]) -> None:
        self.roots: list[dict[str, Any]] = []
        self.nodes: dict[Any, dict[str, Any]] = {}
        self.accused = {_key(place) for place in culprits}
        self.siblings: dict[Any, list[dict[str, Any]]] = {}
        self.listed: set[Any] = set()  # the places that the root of several names

    def add(self, chain: dict[str, Any]) -> None:
        end = chain["end"]
        links = [(chain["waiter"], chain["waits_for"]), *((link["place"], link["waits_for"]) for link in chain["through"])]
        links = [(place, text) for place, text in links if text]
        keys = [_key(place) for place, _ in links]
        if end["state"] == "ring" and _key(end["place"]) in keys:
            at = keys.index(_key(end["place"]))
            above = self._ring(links[at:], keys[at:])
            links = links[:at]
        elif keys and keys[-1] in self.nodes:
            above = self.nodes[keys[-1]]
        else:
            above = self._end(end)
        for place, text in reversed(links):
            above = self._node(place, text, above)
        if links and _key(above["place"]) == keys[0]:
            above["alike"] = max(above["alike"], chain["count"])
            for key in map(_key, chain["also"]):
                one = self.nodes.setdefault(key, above)
                if one is not above and not (one["children"] or one["culprit"] or one["state"]):
                    self.siblings[key].remove(one)
                    self.nodes[key] = above

    def _ring(self, links: Sequence[tuple[Any, str]], keys: Sequence[Any]) -> dict[str, Any]:
        """The first member of a ring. Its members stand beneath its root in the order of their waits; those of a second ring
        through a known member beneath the one that they wait for."""
        known = next((at for at, key in enumerate(keys) if key in self.nodes), None)
        if known is None:
            root = self._new(None, ("ring", frozenset(keys)), "", self.roots)
            root["state"] = "ring"
            root["why"] = (
                "each waits for the next, the last for the first" if len(links) > 1 else "it waits for what it has itself"
            )
            return [self._node(place, text, root) for place, text in links][0]
        above = self.nodes[keys[known]]
        for back in range(1, len(keys)):
            above = self._node(*links[known - back], above)
        return self.nodes[keys[0]]

    def _end(self, end: dict[str, Any]) -> dict[str, Any]:
        why = end["why"]
        if end.get("any_of"):
            several = list({_key(one["place"]): one for one in _ends(end) if one["place"] is not None}.values())
            self.listed |= {_key(one["place"]) for one in several}
            why = end["why"][:7] + "; ".join(f"{name(one['place'])} {one['state']}".strip() for one in several)
        key = _key(end["place"]) if end["place"] is not None else (end["state"], why)
        found = self.nodes.get(key) or self._new(end["place"], key, "", self.roots)
        if not found["state"] and not found["waits_for"]:
            found["state"], found["why"] = end["state"], why
        return found

    def _node(self, place: dict[str, Any], text: str, above: dict[str, Any]) -> dict[str, Any]:
        key = _key(place)
        return self.nodes.get(key) or self._new(place, key, text, above["children"])

    def _new(self, place: dict[str, Any] | None, key: Any, text: str, siblings: list[dict[str, Any]]) -> dict[str, Any]:
        made = NODE.of(place=place, state="", why="", waits_for=text, alike=1, culprit=key in self.accused, children=[])
        self.nodes[key], self.siblings[key] = made, siblings
        siblings.append(made)
        return made


def _ends(end: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The ends of several, and of several among them."""
    for one in end["any_of"]:
        yield from _ends(one) if one.get("any_of") else (one,)


def _key(place: dict[str, Any] | None) -> Any:
    if place is None:
        return None
    thread = place.get("tid") or place.get("task") or place.get("request") or place["pid"]
    return place.get("node", ""), place["pid"], place.get("label") if not place["pid"] else "", thread


def _one_process(roots: Iterable[dict[str, Any]]) -> bool:
    places = [node["place"] for _, _, node in _walk(roots) if node["place"] is not None]
    return len({(place.get("node"), place["pid"]) for place in places}) == 1


def _walk(nodes: Iterable[dict[str, Any]], stem: str = "", depth: int = 0) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """`(what is drawn before its line, its depth, node)` of each node, from the roots down."""
    nodes = list(nodes)
    for number, node in enumerate(nodes, 1):
        last = number == len(nodes)
        yield (stem + ("└ " if last else "├ ") if depth else ""), depth, node
        yield from _walk(node["children"], stem + ("  " if last or not depth else "│ ") if depth else "", depth + 1)


def words(node: dict[str, Any], alone: bool = False) -> str:
    """A node's line without its name."""
    if node["waits_for"]:
        alike = f" (and {node['alike'] - 1} more like it)" if node["alike"] > 1 else ""
        return f"waits for {shorten(node['waits_for'], MAX_TEXT)}{alike}"
    place, why = node["place"], "" if node["why"] == f"it is {node['state']}" else node["why"]
    if place is not None and place.get("tid"):  # evidence begins with its name
        for known in (
            f"{place['label']} thread {place['tid']} ({place.get('name', '')}) ",
            f"{place['label']} thread {place['tid']} ",
        ):
            why = why[len(known) :] if why.startswith(known) else why
    return str(node["state"]) + (f": {shorten(why, MAX_TEXT)}" if why else "")


def tree_lines(roots: Sequence[dict[str, Any]], style: Any, most: int = SHOWN) -> list[str]:
    """The tree as text, `most` lines of it at most; 0: all."""
    alone = _one_process(roots)
    drawn = list(_walk(roots))
    lines = []
    for stem, _, node in drawn if not 0 < most < len(drawn) else drawn[: most - 1]:
        who = name(node["place"], alone)
        said = words(node)
        if node["culprit"]:
            who = style.name(who)
        lines.append(f"  {stem}{who} {said}" if who else f"  {stem}{said}")
    if len(lines) < len(drawn):
        lines.append(style.dim(f"  and {len(drawn) - len(lines)} more (-v)"))
    return lines


ROW, INDENT, WIDTH = 26, 24, 1100  # pixels


def svg(roots: Sequence[dict[str, Any]]) -> str:
    """The tree as an SVG graph for a page: an arrow from each node to the one that it waits for, the culprits marked."""
    alone = _one_process(roots)
    parts, above = [], {}
    drawn = list(_walk(roots))
    for row, (_, depth, node) in enumerate(drawn):
        x, y = 12 + INDENT * depth, 18 + ROW * row
        above[depth] = x, y
        if depth:
            to_x, to_y = above[depth - 1]
            parts.append(f'<path d="M{x - 4} {y - 4}H{to_x + 4}V{to_y + 6}" fill="none" stroke="#888" marker-end="url(#to)"/>')
        who, said = html.text(name(node["place"], alone)), html.text(words(node))
        kind = "bad" if node["culprit"] else "who"
        parts.append(f'<text x="{x}" y="{y}" fill="currentColor"><tspan class={kind}>{who}</tspan> {said}</text>')
    head = '<defs><marker id="to" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    head += '<path d="M0 0 8 4 0 8z" fill="#888"/></marker></defs><style>.bad{fill:#b00020}.who{fill:#06c}</style>'
    size = f'viewBox="0 0 {WIDTH} {18 + ROW * len(drawn)}" width="{WIDTH}"'
    return f'<svg {size} font-family="monospace" font-size="13">{head}{"".join(parts)}</svg>'
