"""Situations drawn by a fixed seed: llm-hang may say "unknown", but never that a hung one is at work or at rest, and
never accuse the wrong one. `scripts/tools/situations.py SEED COUNT` draws others; docs/verdicts.md has the matrix."""

from harness import situations

SEED, COUNT = 4242, 24


def test_nobody_is_accused_wrongly_and_nothing_hung_is_called_well():
    found = list(situations.run(range(SEED, SEED + COUNT)))
    print("\n".join(situations.matrix(found)))
    assert not [o for o in found if o.how == "WRONG"]
    assert sum(o.how == "right" for o in found) >= COUNT // 2, found
