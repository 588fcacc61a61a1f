"""The verdict of llm-hang on some processes."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Callable, Sequence

from ..access import files
from ..access.snapshot import YEAR_9999, apart
from ..answers import each_node, wait_tree
from ..answers.hang import ANSWER, hang_data
from ..answers.hang_nodes import judged as facts_judged
from ..answers.hang_text import hang_lines
from ..answers.places import closing
from ..bundle import format as bundles
from ..bundle import paths
from ..engines.processes import ProcessRef
from ..errors import GdbextError
from ..render import html, jsonline
from ..render.text import PLAIN, Style
from ..verdict.examine import Examination, examine
from ..verdict.kinds import QUIET

if TYPE_CHECKING:
    from ..engines.targets import Targets

TOGETHER = 20.0  # seconds between the files of machines whose watches asked one another


class Verdict:
    """Why some processes hang, or that they do not: what `llm-hang` answers.

    * `kind`: `"lock-cycle"`, `"busy"`, `"unknown"` ... (docs/verdicts.md); `meaning`: the same in words; `sentence`: one that
      names program, process and line
    * `culprits`: places, `{host, label, pid, tid, name}` as far as they are known; `victims`: the labels of those that only wait
    * `evidence`: sentences; `tree`: the waits, from what they end at (docs/json.md); `next`: what to type next
    * `partial`: why that is not the whole truth; `pauses`: `[{pid, seconds}]` for which processes were stopped
    * `data`: all fields of `llm-hang -json` (docs/json.md)"""

    def __init__(self, data: dict[str, Any], partial: Sequence[str], last: Callable[[Style], list[str]]) -> None:
        self.data, self.partial, self._last = data, list(dict.fromkeys(partial)), last
        self.kind: str = data["verdict"]
        self.meaning: str = data["meaning"]
        self.sentence: str = data["sentence"]
        self.tree: list[dict[str, Any]] = data["tree"]
        self.next: list[str] = data["next"]
        self.culprits: list[dict[str, Any]] = data["culprits"]
        self.evidence: list[str] = data["evidence"]
        self.victims: list[str] = data["victims"]
        self.pauses: list[dict[str, Any]] = data["pauses"]

    @classmethod
    def of(cls, found: Examination) -> Verdict:
        """Of an examination."""
        seen, data = found.seen, hang_data(found)
        names = {s.pid: s.name for s in seen}
        partial = [f"{s.name}: {reason}" for s in seen for reason in s.partial]
        partial += apart(s.view.target for s in seen if s.view is not None and not s.view.live)
        if data["failed"]:
            partial.append(f"{data['ranks_read']} of {data['ranks_total']} processes")
        return cls(data, partial, lambda style: closing(data, names, style))

    @classmethod
    def of_machines(cls, answers: Sequence[tuple[str, Any]], failed: list[dict[str, Any]]) -> Verdict:
        """Of the facts of several machines, `(node, answer of llm-hang --facts)` each."""
        found, machines, data, partial = facts_judged(answers, failed)
        data["pauses"] = [one for _, answer in answers for one in _pauses(answer.get("facts"))]
        data["hosts"] = len(machines)
        return cls(data, partial, lambda style: closing(data, {}, style))

    @property
    def hung(self) -> bool | None:
        """Whether something is wrong; None where that is not known ("unknown")."""
        return None if self.kind == "unknown" else self.kind not in QUIET

    def text(self, style: Style = PLAIN, verbose: bool = False) -> str:
        """As `llm-hang` prints it, on one screen; `verbose`: all of it."""
        return "\n".join(hang_lines(self.data, style, verbose) + self._last(style))

    def end_with(self, line: str) -> None:
        """Adds a last line to the text."""
        last = self._last
        self._last = lambda style: [*last(style), style.dim(line)]

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Verdict {self.kind}: {self.sentence}>"

    def _repr_html_(self) -> str:
        """Its text and the graph of its waits, for a notebook."""
        return f"<pre>{html.text(self.text())}</pre>{wait_tree.svg(self.tree)}"


def judged(found: Sequence[ProcessRef], targets: Targets, seconds: float) -> Verdict:
    """Watches processes for `seconds` without stopping them, copies each in a pause of milliseconds, and judges what was seen. Of
    whole bundles and boxes what was seen when they were made is judged, of several together."""
    return of_bundles(found) or Verdict.of(examine(found, targets, seconds))


def of_bundles(found: Sequence[ProcessRef]) -> Verdict | None:
    """The verdict on bundles and boxes; None where `found` has other processes, or not all of a bundle that has memory."""
    named: dict[str, set[str]] = {}
    for one in found:
        file = paths.split(one.core)[0] if one.pid is None else ""
        if not paths.is_bundle(file):
            return None
        named.setdefault(file, set()).add(one.core)
    opened, failed = _opened(list(named))
    if not opened or any(named[b.path] - {b.path} not in (set(), set(map(b.path_of, b.with_memory()))) for b in opened):
        return None
    if len(named) > 1 and any(bundles.FACTS in one.names for one in opened):
        return _together(opened, failed)
    if len(opened) > 1 and all(one.with_memory() for one in opened):
        return None
    told = [_told(one) for one in opened]
    first = next((one for one in told if one.kind not in QUIET), told[0])
    alone = [f"{len(told)} files, each judged by itself when it was made: they do not all hold what one verdict needs"]
    first.partial = [*first.partial, *(one["reason"] for one in failed), *(alone if len(told) > 1 else [])]
    return first


def _opened(files: Sequence[str]) -> tuple[list[bundles.Bundle], list[dict[str, Any]]]:
    """-> (the bundles and boxes, the `failed` of those that cannot be opened); `GdbextError` where none can."""
    opened, failed, first = [], [], None
    for file in files:
        try:
            opened.append(bundles.open_bundle(file))
        except GdbextError as e:
            first = first or e
            failed.append({"label": os.path.basename(file), "pid": None, "reason": str(e)})
    if first is not None and not opened:
        raise first
    return opened, failed


def _pauses(facts: Any) -> list[dict[str, Any]]:
    """The pauses in one machine's facts; what is none is left out."""
    told = facts.get("pauses") if isinstance(facts, dict) else None
    kinds: dict[str, Any] = {"pid": int, "seconds": (int, float), "woken": int}
    rows = [
        {key: one[key] for key, kind in kinds.items() if isinstance(one.get(key), kind)}
        for one in (told if isinstance(told, list) else ())
        if isinstance(one, dict)
    ]
    return [one for one in rows if "pid" in one and "seconds" in one]


def _together(opened: Sequence[bundles.Bundle], failed: list[dict[str, Any]]) -> Verdict:
    """One verdict on what several bundles and boxes hold, as on their machines. `failed`: those that could not be opened; one
    that holds only what a watch had in memory joins them."""
    hosts = [str(one.manifest.get("node") or one.path) for one in opened]
    count = Counter(hosts)
    names = [host if count[host] == 1 else one.path for host, one in zip(hosts, opened)]
    answers = []
    for name, one in zip(names, opened):
        if bundles.FACTS in one.names:
            answers.append((name, {"facts": one.json(bundles.FACTS)}))
        else:
            failed.append(
                {"label": name, "pid": None, "reason": f"{one.path}: it was written without a verdict: it holds no facts"}
            )
    found = Verdict.of_machines(answers, failed)
    places = {each_node.place_of(name): one for name, one in zip(names, opened)}
    found.data["next"] = found.next = [
        step for node, one in places.items() for step in _next_in(one, {c["pid"] for c in _accused(found.data, node)})
    ]
    moments = [at for at in map(_moment, opened) if at]
    spread = max(moments, default=0.0) - min(moments, default=0.0)
    if spread >= TOGETHER:
        found.partial.append(f"the files were made {spread:.0f} s apart: what one shows may have changed before the next")
    found.end_with(
        _seen(min(moments, default=0.0), f"the {len(opened)} files were" if opened[1:] else f"the {opened[0].kind} was")
    )
    return found


def _seen(at: float, what: str) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at)) if at else "at a time that is not known"
    return f"seen {when}, when {what} made"


def _accused(data: dict[str, Any], node: str | None = None) -> list[dict[str, Any]]:
    return [c for v in data["verdicts"] for c in v["culprits"] if node is None or c.get("node") == node]


def _next_in(bundle: bundles.Bundle, accused: set[Any]) -> list[str]:
    """What to type next about the accused: their pids are others' by now."""
    return [f"pybt -all -on {bundle.path_of(one)}" for one in bundle.with_memory() if one.pid in accused]


def _moment(bundle: bundles.Bundle) -> float:
    """When a bundle was made, in seconds since the epoch; 0.0 where it does not say."""
    at = bundle.manifest.get("time")
    return float(at) if isinstance(at, (int, float)) and at is not True and 0 < at < YEAR_9999 else 0.0


def _told(bundle: bundles.Bundle) -> Verdict:
    """What llm-hang answered when a bundle or box was made; `GdbextError` where that is damaged."""
    name = bundles.HANG if bundles.HANG in bundle.names else bundles.VERDICT
    data = each_node.escaped(bundle.json(name))
    try:
        jsonline.expect(data, ANSWER.answer_shape, name)
        partial = [str(one) for one in data.get("partial") or ()]
        data = {key: value for key, value in data.items() if key not in ("schema", "partial", "unproven")}
        names = {one.pid: one.label for one in bundle.processes if one.pid is not None}
        data["next"] = _next_in(bundle, {c["pid"] for c in _accused(data)})
        found = Verdict(data, partial, lambda style: closing(data, names, style))
        found.end_with(_seen(_moment(bundle), f"the {bundle.kind} was"))
        found.text(), found.text(verbose=True), found._repr_html_()  # what cannot be shown is found here, as damage
        return found
    except ValueError as e:
        raise GdbextError(f"{bundle.path}: damaged: {e}") from None
    except (*files.DAMAGE, OSError) as e:
        raise GdbextError(f"{bundle.path}: damaged: {name} cannot be shown: {type(e).__name__} {e}") from None
