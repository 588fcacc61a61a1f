"""Runs tests of vLLM's own and, after each, asks of what it left behind: run.py PYTEST-PACKAGES ASK-WORDS SECONDS SEED TEST...

It runs in the environment that has vLLM, in a folder that holds its `tests`. pytest is imported from PYTEST-PACKAGES, a folder at
the end of the path. ASK-WORDS (JSON) start ask.py, which answers in lines. Tests run in the order that SEED shuffles until
SECONDS have passed since the first began; 0: all of them.

A line of JSON for each root (Scheduler, KVCacheManager or BlockPool, each the outermost) that a test made, as soon as the test
has ended: {"test", "outcome", "kind", "said": what is true of it, "check", "requests", "error"}."""

import itertools
import json
import os
import random
import subprocess
import sys
import time

packages, ask_words, seconds, seed, results, *tests = sys.argv[1:]
sys.path.insert(0, os.getcwd())
sys.path.append(packages)
import pytest  # noqa: E402  (from `packages`)

# A configuration that vLLM's tests name by a hub's id, which is a folder's path too. Any one of its architecture will do: no test
# computes with a model.
OPT = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "hidden_size": 64,
    "ffn_dim": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "word_embed_proj_dim": 64,
    "vocab_size": 50272,
    "max_position_embeddings": 16384,
    "torch_dtype": "float16",
}
QWEN = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 50272,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
MODELS = {"facebook/opt-125m": OPT, "facebook/opt-350m": OPT, "Qwen/Qwen3-0.6B": QWEN}
KINDS = ("Scheduler", "KVCacheManager", "BlockPool")


class Asker:
    """`ask.py`: a question and its answer are a line each."""

    def __init__(self):
        words = json.loads(ask_words)
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


class Plugin:
    def __init__(self):
        self.asker, self.made, self.begun, self.outcome = Asker(), [], 0.0, ""
        self.out = open(results, "w", buffering=1)

    def watch(self, cls):
        """Keeps each object of a class, from now on."""
        begin, made = cls.__init__, self.made

        def __init__(self, *args, **kwargs):
            begin(self, *args, **kwargs)
            made.append(self)

        cls.__init__ = __init__

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        from vllm.v1.core.block_pool import BlockPool
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.core.sched.scheduler import Scheduler

        for cls in (Scheduler, KVCacheManager, BlockPool):
            self.watch(cls)
        if float(seconds):
            random.Random(int(seed)).shuffle(items)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if call.when == "call":
            self.outcome = report.outcome
            if call.excinfo is None or not call.excinfo.errisinstance(ImportError):
                self.look(item)
        elif report.outcome == "failed":
            self.outcome = "failed"
        return report

    def pytest_runtest_setup(self, item):
        self.begun = self.begun or time.monotonic()
        if float(seconds) and time.monotonic() - self.begun > float(seconds):
            pytest.skip("its time is over")
        self.made.clear()

    def look(self, item):
        for root in outermost(self.made):
            kind = next(c.__name__ for c in type(root).__mro__ if c.__name__ in KINDS)
            if kind == "Scheduler" and not all(type(r).__name__ == "Request" for r in root.requests.values()):
                continue  # a mock stands in for a request
            line = {"test": item.nodeid, "outcome": self.outcome, "kind": kind, "said": said(root, kind)}
            line.update(self.asker.ask(pid=os.getpid(), address=hex(id(root))))
            self.out.write(json.dumps(line, default=str) + "\n")  # a test may put a mock in any place
        self.made.clear()


def outermost(made):
    """Those that are no part of another."""
    parts = set()
    for one in made:
        manager = getattr(one, "kv_cache_manager", None)
        parts.update(map(id, (manager, getattr(manager or one, "block_pool", None))))
        coordinator = getattr(manager or one, "coordinator", None)
        parts.add(id(getattr(coordinator, "block_pool", None)))
    return [one for one in made if id(one) not in parts]


def said(root, kind):
    """What is true of a root: its blocks, and of a Scheduler its requests."""
    manager = root.kv_cache_manager if kind == "Scheduler" else root
    pool = root if kind == "BlockPool" else getattr(manager, "block_pool", None)
    found = {}
    if hasattr(pool, "num_gpu_blocks"):
        found.update(blocks=pool.num_gpu_blocks, free=pool.get_num_free_blocks())
    if kind == "Scheduler":
        found["requests"] = {
            name: [r.status.name, r.num_computed_tokens, r.num_prompt_tokens, r.num_output_tokens]
            for name, r in itertools.islice(root.requests.items(), 1000)
        }
    return found


def main():
    for name, config in MODELS.items():
        os.makedirs(name, exist_ok=True)
        with open(os.path.join(name, "config.json"), "w") as f:
            json.dump(config, f)
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line", "-W", "ignore", "--rootdir=."]
    options.append("--continue-on-collection-errors")
    return pytest.main([*options, *tests], plugins=[Plugin()])


if __name__ == "__main__":
    sys.exit(main())
