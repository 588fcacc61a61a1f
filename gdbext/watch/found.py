"""What an examination found, and its sentences without what names a request. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Collection, Sequence

SHORT_ID = 6  # characters of a request's id that may be any number's


@dataclass
class Verdict:
    """What an examination found: `data` as of llm-hang, `page` and `text` for people; `quiet`: nothing is wrong. For a box:
    `members` of it by name, `memory`: those that are open files, `processes`: their entries in its manifest. `more`: where
    the waits end, of one without a culprit. `ids`: of requests, which no event names; `parts`: the verdicts on groups of
    processes, the gravest first. `fill`: makes what only a box needs, once one is written. -> why a part of it is missing"""

    data: dict[str, Any]
    page: str = ""
    text: Sequence[str] = ()
    quiet: bool = False
    members: dict[str, bytes] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    processes: list[dict[str, Any]] = field(default_factory=list)
    ids: Sequence[str] = ()
    parts: Sequence[tuple[frozenset[int], Verdict]] = ()
    fill: Callable[[Verdict], list[str]] | None = None
    more: str = ""

    def complete(self) -> list[str]:
        """Makes what only a box needs. -> why a part of it is missing"""
        fill, self.fill = self.fill, None
        return fill(self) if fill is not None else []

    def of(self, pids: Collection[int]) -> Verdict:
        """The gravest part that is about any of these processes; the whole where none is."""
        return next((part for group, part in self.parts if group.intersection(pids)), self)

    def blaming(self, label: str, pid: int, sentence: str) -> Verdict:
        """The same, in which one process alone has crashed, whose death was seen to be the first: others ended because of it."""
        parts = [(group, part.blaming(label, pid, sentence) if pid in group else part) for group, part in self.parts]
        if self.kind != "crashed" or parts and pid not in parts[0][0]:
            return replace(self, parts=parts)
        culprit = {"label": label, "pid": pid, "tid": None}
        return replace(self, data={**self.data, "culprits": [culprit], "sentence": sentence}, parts=parts)

    @property
    def kind(self) -> str:
        """The verdict's name."""
        return str(self.data["verdict"])

    def signature(self, engine: str) -> tuple[Any, ...]:
        """The same for the same stall of an engine."""
        blamed = sorted((c.get("pid") or 0, c.get("tid") or 0) for c in self.data["culprits"])
        return self.kind, tuple(blamed) or (engine, without_numbers(self.data["sentence"]))


def without_numbers(text: str) -> str:
    """The same for sentences that differ in seconds and counts alone; digits of names stay."""
    return re.sub(r"(?<![\w-])\d+(\.\d+)?", "#", text)


def without_ids(text: str, ids: Sequence[str]) -> str:
    """A sentence in which no request is named: `request #1` stands for the first of `ids`. Of ids as short as a count only those
    after the word "request" are known as such."""
    for number, name in sorted(enumerate(ids, 1), key=lambda one: -len(one[1])):
        before = r"(?:\brequest )?(?<![\w-])" if len(name) >= SHORT_ID else r"\brequest "
        text = re.sub(f"{before}{re.escape(name)}(?![\\w-])", f"request #{number}", text) if name else text
    return text
