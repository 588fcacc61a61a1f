"""Stalls planted in engines of two ranks with vLLM's own scheduler, while `gdbext watch` follows them: each is told, the right
process is blamed, and the engine goes on. scripts/tools/bench_watch.py plants as many as one likes, and in real engines."""

import contextlib
import os
import random

import pytest
from harness import planted
from harness.releases import vllm_of

SEED = os.environ.get("GDBEXT_TEST_SAMPLE") or "1"
LONG = bool(os.environ.get("GDBEXT_TEST_LONG"))
NEEDS_ROOT = ("disk", "frozen", "memory")
HERE = [kind for kind in planted.KINDS if os.geteuid() == 0 or kind not in NEEDS_ROOT]


@pytest.mark.parametrize("turn", range(7 if LONG else 1))
def test_a_planted_stall_is_told_and_the_engine_goes_on(torch_python, tmp_path, turn):
    """One of those that heal and one death; in a long run 105 of every kind."""
    draw, release = random.Random(f"{SEED} {turn}"), vllm_of("installed", torch_python)
    lasting = [kind for kind in HERE if kind not in (*planted.ENDS, *(() if LONG else NEEDS_ROOT))]
    kinds = draw.sample(lasting, len(lasting)) if LONG else [draw.choice(lasting)]
    with contextlib.ExitStack() as stack:
        ranks = planted.Ranks(stack, torch_python, release)
        watch = planted.Watched(tmp_path, 3.0, map(str, ranks.pids.values()))
        stack.callback(watch.end)
        watch.follows(ranks.pids.values())
        cases = []
        for kind in [*kinds, draw.choice(planted.ENDS if LONG else ["killed"])]:
            assert ranks.moves(), "it made no steps before"
            who = "core" if kind in planted.INSIDE else draw.choice(["Worker_TP0", "Worker_TP1"])
            cases.append(planted.watched(watch, ranks, kind, who))
        print("\n".join(planted.table(cases)), watch.log(), sep="\n")
        assert not [case for case in cases if case.how in ("WRONG", "none") or case.harm], cases
        assert all(case.recovered for case in cases[:-1]) and cases[-1].how == "right", cases
