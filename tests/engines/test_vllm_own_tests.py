"""vLLM's own tests of its scheduler and KV cache: after each, llm-kv check and llm-requests are asked of what it left behind, and
compared with what the objects themselves say. A sample of half a minute; with GDBEXT_TEST_LONG all of tests/v1/core."""

import json
import os
import subprocess
import sys

import pytest
from tools.environments import existing
from tools.get_vllm_tests import fetch
from tools.say import Failed

pytestmark = pytest.mark.drawn(1, group="engines of one file", unit="vllm_own_tests")
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LONG = bool(os.environ.get("GDBEXT_TEST_LONG"))
SEED = os.environ.get("GDBEXT_TEST_SEED", "3")  # of the order; a failure names it
SECONDS = "0" if LONG else "30"  # from the first test on
FILES = ("test_scheduler.py", "test_deferred_block_free.py")  # of the sample
# Tests that take blocks by hand, give the pool blocks of their own, or take entries out of its map: what is found there is so.
BY_HAND = {
    "test_cow_retentions_deferred_until_copy_step_processed": "ref-above-owners",
    "test_cache_blocks": "hash-entry",
    "test_cache_blocks_multi_group": "hash-entry",
    "test_eagle_with_sliding_window": "hash-missing",
    "test_different_block_size": "hash-missing",
    "test_sliding_window_possible_cached_prefix": "hash-entry",
    "test_sliding_window_cache_hit_with_finer_hash_alignment": "hash-entry",
}


@pytest.fixture(scope="module")
def looks(running, tmp_path_factory):
    """What was found after each test: see vllm_own_tests/run.py. An engine that runs would take half of the time."""
    running.stop()
    python = existing("vllm")
    if not python:
        pytest.skip("no environment for vllm: run scripts/test engines, which makes it")
    try:
        tests = os.path.join(fetch(), "tests")
    except Failed as e:
        pytest.skip(str(e))
    folder = tmp_path_factory.mktemp("own")
    os.symlink(tests, folder / "tests")
    results = folder / "looks"
    asker = [sys.executable, os.path.join(HERE, "vllm_own_tests", "ask.py"), ROOT, os.path.join(ROOT, "tests", "harness")]
    words = [os.path.dirname(os.path.dirname(pytest.__file__)), json.dumps(asker), SECONDS, SEED, str(results)]
    tests = ["tests/v1/core"] if LONG else [f"tests/v1/core/{name}" for name in FILES]
    done = subprocess.run(
        [python, os.path.join(HERE, "vllm_own_tests", "run.py"), *words, *tests],
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    found = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    assert found, done.stdout[-3000:]
    return found


def test_nothing_sound_is_called_broken(looks):
    broken = {
        look["test"]: [(v["rule"], v["detail"]) for v in look["check"]["violations"]]
        for look in looks
        if look["check"] and not look["check"]["ok"]
    }
    names = {name: name.rpartition("::")[2].partition("[")[0] for name in broken}
    found = {name: [one for one in said if one[0] != BY_HAND.get(names[name])] for name, said in broken.items()}
    assert {name: said for name, said in found.items() if said} == {}, SEED
    assert [look["error"] for look in looks if look["error"]] == []


def test_requests_are_those_of_the_scheduler(looks):
    for look in looks:
        if look["requests"] is not None and "requests" in look["said"]:
            keys = ("status", "computed_tokens", "prompt_tokens", "output_tokens")
            found = {r["request_id"]: [r[key] for key in keys] for r in look["requests"]}
            assert found == look["said"]["requests"], (SEED, look["test"])
    assert any(look["said"].get("requests") for look in looks), [look["test"] for look in looks]
