"""The findings of a check of the rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model import Values
from ..rules import FREE_COUNT, LEAKED, ROW_SHARED, SLOT_SHARED, SLOTS_LOST, STRAY_LINKS, STRUCTURE, Rule

LIMIT = 20  # findings of one rule that are listed; the rest are counted


@dataclass
class Violation:
    """A broken rule, by name.

    `evidence`: the values that show it; in a real fault they do not change. `at_rest`: it is a fault only where the values stand
    still. `more`: how many further findings of the same rule are not listed. `follows`: {rule that this fault alone explains: how
    often}.
    """

    rule: str
    detail: str
    block: int | None = None
    request_id: str | None = None
    pool: str = ""
    rank: str = ""
    evidence: str = ""
    at_rest: bool = False
    place: str = ""  # which of several values of one request
    more: int = 0
    follows: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for one fault that is found twice."""
        return self.rule, self.block, self.request_id, self.pool, self.rank, self.place


@dataclass
class Report:
    """The result of a check.

    - `violations`: broken rules, the first fault first; `transient`: those that a half-done update may explain.
    - `changed`: rules that were broken at each reading, by values that never stood still: neither a fault nor sound.
    - `rules`: names of the checked rules; `blocks`: how many were checked; `held`: `{pool: blocks referenced by no request}`.
    - `compared`: of each rank, the parts that were compared with the scheduler; `not_compared`: the other parts, and why.
    """

    violations: list[Violation]
    transient: list[Violation]
    blocks: int
    held: dict[str, int]
    rules: list[str]
    compared: list[Compared] = field(default_factory=list)
    not_compared: list[LeftOut] = field(default_factory=list)
    changed: list[Violation] = field(default_factory=list)
    values: Values | None = None  # the result of checking the blocks' values
    middle: str = ""  # where it, or a worker, stands in the middle of an update

    @property
    def ranks(self) -> list[str]:
        """The ranks whose block tables were compared."""
        return [one.label for one in self.compared if one.tables]


@dataclass
class Compared:
    """How much of a rank was compared with the scheduler: block tables, their rows of requests that the scheduler has, blocks in
    these rows, requests with compared counts, slots of the last step.

    Of a worker whose step is known also with itself: `places`: slots of which it is known whose token they are; `gathered`: rows
    that attention reads; `copies`: values that it keeps twice; `tokens`, `sampling`: requests of which they were compared.
    `without`: those of which nothing was compared."""

    label: str
    tables: int = 0
    rows: int = 0
    blocks: int = 0
    counts: int = 0
    slots: int = 0
    places: int = 0
    gathered: int = 0
    copies: int = 0
    tokens: int = 0
    sampling: int = 0
    without: list[str] = field(default_factory=list)


@dataclass
class LeftOut:
    """A part that was not compared: the rank or pool, the part, and why."""

    label: str
    what: str
    why: str


class Findings:
    """Collects findings and the checked rules. `pool` and `rank`: those of the findings that are added now."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.checked: dict[str, None] = {}  # an ordered set
        self.left_out: list[LeftOut] = []
        self.pool = self.rank = ""

    def checks(self, *rules: Rule) -> None:
        """Notes that the rules are checked, whether or not they are broken."""
        self.checked.update(dict.fromkeys(rule.name for rule in rules))

    def leave_out(self, label: str, what: str, why: str) -> None:
        """Notes a part that is not compared."""
        self.left_out.append(LeftOut(label, what, why))

    def add(
        self,
        rule: Rule,
        detail: str,
        block: int | None = None,
        request_id: str | None = None,
        *,
        evidence: str | None = None,
        at_rest: bool = False,
        place: str = "",
    ) -> None:
        """Adds one finding; beyond `LIMIT` of a rule in a pool it is only counted. `evidence`: the part of the detail that does
        not change in a real fault, if that is not all of it."""
        same = [v for v in self.violations if (v.rule, v.pool, v.rank) == (rule.name, self.pool, self.rank)]
        if len(same) >= LIMIT:
            same[-1].more += 1
        else:
            told_by = detail if evidence is None else evidence
            self.violations.append(Violation(rule.name, detail, block, request_id, self.pool, self.rank, told_by, at_rest, place))


def fold(found: list[Violation]) -> list[Violation]:
    """Counts findings under the one that explains them, and takes them out of the list.

    A broken free queue explains unreachable blocks, a wrong counter and stray links. A row of two requests explains the slots
    that the two seem to share.
    """
    rows = next((v for v in found if v.rule == ROW_SHARED.name), None)
    if rows is not None:
        _follow(found, rows, [v for v in found if v.rule in (SLOT_SHARED.name, SLOTS_LOST.name)])
    structure = {rule.name for rule in STRUCTURE}
    for pool in {v.pool for v in found}:
        root = next((v for v in found if v.pool == pool and v.rule in structure), None)
        if root is not None:
            derived = (FREE_COUNT.name, LEAKED.name, STRAY_LINKS.name)
            _follow(found, root, [v for v in found if v.pool == pool and v.rule in derived])
    return found


def _follow(found: list[Violation], root: Violation, derived: list[Violation]) -> None:
    for v in derived:
        root.follows[v.rule] = root.follows.get(v.rule, 0) + 1 + v.more
        found.remove(v)
