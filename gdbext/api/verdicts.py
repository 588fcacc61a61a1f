"""The verdict of llm-hang on some processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Sequence

from ..access.snapshot import apart
from ..answers import wait_tree
from ..answers.hang import hang_data
from ..answers.hang_nodes import judged as facts_judged
from ..answers.hang_text import hang_lines
from ..answers.places import closing
from ..engines.processes import ProcessRef
from ..render import html
from ..render.text import PLAIN, Style
from ..verdict.examine import Examination, examine
from ..verdict.kinds import QUIET

if TYPE_CHECKING:
    from ..engines.targets import Targets


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
        data["pauses"] = [one for _, answer in answers for one in (answer.get("facts") or {}).get("pauses", ())]
        data["hosts"] = len(machines)
        return cls(data, partial, lambda style: closing(data, {}, style))

    @property
    def hung(self) -> bool | None:
        """Whether something is wrong; None where that is not known ("unknown")."""
        return None if self.kind == "unknown" else self.kind not in QUIET

    def text(self, style: Style = PLAIN, verbose: bool = False) -> str:
        """As `llm-hang` prints it, on one screen; `verbose`: all of it."""
        return "\n".join(hang_lines(self.data, style, verbose) + self._last(style))

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Verdict {self.kind}: {self.sentence}>"

    def _repr_html_(self) -> str:
        """Its text and the graph of its waits, for a notebook."""
        return f"<pre>{html.text(self.text())}</pre>{wait_tree.svg(self.tree)}"


def judged(found: Sequence[ProcessRef], targets: Targets, seconds: float) -> Verdict:
    """Watches processes for `seconds` without stopping them, copies each in a pause of milliseconds, and judges what was seen."""
    return Verdict.of(examine(found, targets, seconds))
