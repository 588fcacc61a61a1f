"""Real engines for tests: `vllm` and `sglang` are running engines (scripts/lib/engines.py) with tensor parallel 2 and requests in
flight. An engine is started when a test first asks for it and kept for the next; only one runs at a time.

Every process of an engine can say its own Python stacks: `truth(pid)`, a context manager (see subject/sitecustomize.py).
"""

import contextlib
import json
import os
import signal
import time

import pytest

from lib.engines import START
from lib.environments import existing

SUBJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subject")


class Running:
    """The one engine that runs, by name."""

    def __init__(self, folder):
        self.folder, self.name, self.engine = folder, None, None

    def get(self, name):
        if self.name == name and self.engine.alive():
            return self.engine
        self.stop()
        if not existing(name):
            pytest.skip(f"no environment for {name}: run scripts/test engines, which makes it")
        engine = START[name](env={"PYTHONPATH": SUBJECT, "GDBEXT_TRUTH": self.folder, "SGLANG_TORCH_PROFILER_DIR": self.folder})
        self.name, self.engine = name, engine
        engine.said = engine.wait_ready()
        return engine

    def stop(self):
        if self.engine:
            self.engine.stop()
        self.name = self.engine = None


@pytest.fixture(scope="session")
def running(tmp_path_factory):
    """The manager of the one engine, for tests that start or stop engines themselves."""
    manager = Running(str(tmp_path_factory.mktemp("truth")))
    yield manager
    manager.stop()


@pytest.fixture
def vllm(running):
    return running.get("vllm")


@pytest.fixture
def sglang(running):
    return running.get("sglang")


@pytest.fixture
def truth(running):
    """`with truth(pid) as threads:` parks the process: its Python threads stand still, holding or waiting for the GIL, while the block
    runs. threads: {tid: [[function, file, line], ...]} innermost first, as the process itself saw it in a signal handler; the
    handler's own frames are on top of the main thread's and say so by the file sitecustomize.py."""

    @contextlib.contextmanager
    def parked(pid, timeout=300):
        said, go = (os.path.join(running.folder, f"{pid}.{kind}") for kind in ("json", "go"))
        if not os.path.exists(go):
            os.mkfifo(go)
        if os.path.exists(said):
            os.remove(said)
        os.kill(pid, signal.SIGUSR2)
        end = time.monotonic() + timeout
        while not os.path.exists(said):
            assert time.monotonic() < end, f"process {pid} did not run its signal handler within {timeout} s"
            time.sleep(0.01)
        try:
            with open(said) as f:
                yield {int(tid): frames for tid, frames in json.load(f).items()}
        finally:
            with open(go, "wb") as f:  # opening waits for the parked reader
                f.write(b"x")

    return parked


def pytest_collection_modifyitems(items):
    """vLLM's tests first, then SGLang's: each engine starts once. What an engine does not survive comes last."""
    items.sort(key=lambda item: ("sglang" in item.fixturenames or "sglang" in item.name, "dead_worker" in item.name))
