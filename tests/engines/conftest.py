"""Real engines for tests: `vllm` and `sglang` are running engines (scripts/tools/engines.py) with tensor parallel 2 and requests
in flight. An engine is started when a test first asks for it and kept for the next; only one runs at a time.

Every process of an engine can say its own Python stacks: `truth(pid)`, a context manager (see subject/sitecustomize.py).
"""

import contextlib
import json
import os
import signal
import time

import pytest
from harness import failures
from harness.served import Served
from tools.engines import START
from tools.environments import existing

SUBJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subject")

SLIDING = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "vocab_size": 1024,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 64,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "query_pre_attn_scalar": 32,
}


class Running:
    """The one engine that runs, by name and how it was started."""

    def __init__(self, folder):
        self.folder, self.name, self.engine = folder, None, None

    def begin(self, name, **how):
        """Starts it without waiting until it is ready. `how`: arguments of its function in `START`."""
        if self.name == (name, how) and self.engine.alive():
            return
        self.stop()
        if not existing(name):
            pytest.skip(f"no environment for {name}: run scripts/test engines, which makes it")
        env = {"PYTHONPATH": SUBJECT, "GDBEXT_TRUTH": self.folder, "SGLANG_TORCH_PROFILER_DIR": self.folder}
        self.engine = START[name](**{**how, "env": {**env, **how.get("env", {})}})
        self.name, self.engine.said = (name, how), None

    def get(self, name, **how):
        """The engine, ready."""
        self.begin(name, **how)
        self.engine.said = self.engine.said or self.engine.wait_ready()
        return self.engine

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


@pytest.fixture(autouse=True)
def fresh_after_a_failure(request):
    """An engine in which a test failed is ended: the next test gets another one."""
    manager = request.getfixturevalue("running") if "running" in request.fixturenames else None
    yield
    if manager and failures.has_failed(request.node):
        manager.stop()


@pytest.fixture
def vllm(running):
    return running.get("vllm")


@pytest.fixture
def vllm_v2(running):
    """vLLM with the model runner that GPUs get, V2 (subject/model_runner_v2.py): some 16 steps a second."""
    return running.get("vllm", tp=1, env={"VLLM_USE_V2_MODEL_RUNNER": "1"}, args=("--requests", "3"))


@pytest.fixture
def sglang(running):
    return running.get("sglang")


@pytest.fixture
def sglang_overlap(running):
    """SGLang whose scheduler processes the result of a step while the next one is computed, as it does on GPUs; one rank."""
    return running.get("sglang", tp=1, args=("--requests", "3", "--overlap"))


@pytest.fixture(scope="session")
def faults(tmp_path_factory):
    return str(tmp_path_factory.mktemp("faults"))


@pytest.fixture
def served(running, faults):
    """`vllm serve` with a pool of a few blocks, and faults that come with the files in the folder `faults`."""
    if not os.listdir(faults):
        open(os.path.join(faults, "small-pool"), "w").close()
    return Served(running.get("vllm", tp=1, script="serve_http.py", args=("--faults", faults)), faults)


def _with_faults(running, requests, *args):
    faults = os.path.join(running.folder, "faults")
    os.makedirs(faults, exist_ok=True)
    args = ("--text", "--context", "8192", "--requests", str(requests), "--faults", faults, *args)
    engine = running.get("sglang", tp=1, args=args)
    engine.faults = faults
    return engine


@pytest.fixture
def sglang_text(running):
    """SGLang with a tokenizer, one rank, and requests that bring their faults with them (subject/sglang_faults.py). What a test
    puts in, it takes out again; `faults` is the folder."""
    return _with_faults(running, 2, "--events")


@pytest.fixture
def sglang_workers(running):
    """As `sglang_text`, with two tokenizer workers and their router."""
    return _with_faults(running, 4, "--workers", "2")


@pytest.fixture
def replicas(running):
    """Two engines of one vLLM (data parallel 2), a model with sliding-window layers, and a pool that is too small for the four
    requests of each."""
    return running.get("vllm", tp=1, replicas=2, config=SLIDING, args=("--blocks", "20"))


@pytest.fixture
def truth(running):
    """`with truth(pid) as threads:` parks the process: its Python threads stand still, holding or waiting for the GIL, while the
    block runs. threads: {tid: [[function, file, line], ...]} innermost first, as the process itself saw it in a signal handler;
    the handler's own frames are on top of the main thread's and say so by the file sitecustomize.py."""

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

    parked.folder = running.folder  # where PID.do is looked for
    return parked


def pytest_collection_modifyitems(items):
    """vLLM's tests first, then those of vLLM started otherwise, then SGLang's: each engine starts once. SGLang starts while the
    tests run that need its modules alone. What an engine does not survive comes last."""
    items.sort(
        key=lambda item: (
            any("sglang" in name for name in (*item.fixturenames, item.name)),
            "maker" not in item.fixturenames,
            "replicas" in item.fixturenames,
            "vllm_v2" in item.fixturenames,
            "served" in item.fixturenames,
            "engine" in item.fixturenames,
            "sglang_overlap" in item.fixturenames,
            "sglang_text" in item.fixturenames,
            "sglang_workers" in item.fixturenames,
            any(word in item.name for word in ("dead_worker", "ended_task")),
            "rested" in item.fixturenames,
        )
    )
