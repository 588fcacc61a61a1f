"""A new release that renames one attribute: what the pack then says of vLLM's own scheduler at work is the same, is null, or is
said to be missing (subjects/renames.py)."""

import pytest
from harness import renames
from harness.releases import vllm_of

from gdbext.access.proc import ProcTarget
from gdbext.engines import absences, kv_view, registry
from gdbext.kvcache import invariants


@pytest.fixture(scope="module")
def children(forked, torch_python):
    """{name: pid of the process in which it has another name}"""
    wanted = ["-", *renames.drawn(renames.names("vllm")), *KNOWN]
    with forked("vllm_release.py", *vllm_of("installed", torch_python), "renamed", ",".join(dict.fromkeys(wanted))) as said:
        yield said["names"]


KNOWN = ("num_computed_tokens", "null_block", "num_free_blocks", "hits", "waiting", "block_size")  # once zeros, or an accusation


def test_a_renamed_attribute_gives_no_false_number(children):
    assert renames.faults(children, [name for name in children if name != "-"]) == []


def test_what_is_not_there_is_named_and_its_rules_are_not_judged(children):
    target = ProcTarget(children["null_block"])
    cache = kv_view.View(target).cache()
    report = invariants.check(cache)
    target.close()
    assert cache.notes == ["BlockPool.null_block is not there"] and report.violations == []
    assert [(one.what, one.why) for one in report.not_compared] == [
        ("null-block", "not judged: BlockPool.null_block is not there")
    ]
    assert "null-block" not in report.rules and "leaked" in report.rules


def test_a_release_newer_than_each_that_was_tried_says_so():
    found = absences.Absences(registry.SPECS["vllm"], "0.99.1")
    found.found["Request", "num_computed_tokens"] = None
    newest = ".".join(map(str, registry.SPECS["vllm"].kv_newest))
    assert found.notes() == [f"vllm 0.99.1 is newer than what was tried ({newest}): Request.num_computed_tokens is not there"]
    assert found.unjudged() == {"table-short": "Request.num_computed_tokens"}
