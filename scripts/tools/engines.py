"""Real engines with random weights, for the demo and the tests: started, kept busy with requests, and ended without a trace."""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from .environments import environment
from .say import Failed, Progress, why_it_failed
from .share import WEIGHT, weigh
from .supervise import descendants

HERE = os.path.dirname(os.path.abspath(__file__))
SHARE = os.environ.get("GDBEXT_ENGINE_SHARE", "nice quota")  # see share.py; "none" for neither
SCRIPTS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tests", "engines")

CONFIG = {  # a Llama that computes a token in milliseconds on one core; the engines fill it with random weights
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "vocab_size": 1024,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}


def cores_for(ranks):
    """One core for each rank, as the engines want them: "0|1". On fewer cores than ranks they share."""
    allowed = sorted(os.sched_getaffinity(0))
    return "|".join(str(allowed[i % len(allowed)]) for i in range(ranks))


def _environ(**more):
    # what a user's shell sets for another Python would break this one
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON") and k not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    return {
        **kept,
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        "GDBEXT_ENGINE_SHARE": SHARE,
        **more,
    }


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Engine:
    """A running engine. `pid`: the process that a user would have started; `folder`: its model, log and what it writes; `share`:
    in words, what it leaves to others.

    Use it in a `with` statement: at its end every process that came of the engine has ended, whatever happened.
    """

    def __init__(self, name, argv, env, folder):
        self.name, self.folder = name, folder
        self.log = os.path.join(folder, "log")
        self.ready_file = os.path.join(folder, "ready")
        with open(self.log, "ab") as log:
            # a session of its own: Ctrl-C on the terminal reaches us, and we end the engine in good order
            self._supervisor = subprocess.Popen(
                [sys.executable, os.path.join(HERE, "supervise.py"), *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                cwd=folder,
                start_new_session=True,
            )
        line = self._supervisor.stdout.readline()
        pid, _, self.share = line.decode().strip().partition(" ")
        if not pid.isdigit():
            self.stop()
            raise Failed(f"{name} did not start; what its log says:\n{why_it_failed(self.log)}")
        self.pid = int(pid)
        weigh(self.pid, 1.0)

    def wait_ready(self, timeout=600.0, what=None):
        """Until it has answered (requests are in flight, unless it was asked to rest); what the engine said of itself then.
        `Failed` when it ends or takes too long."""
        progress = Progress(what or f"starting {self.name}")
        while True:
            try:
                with open(self.ready_file) as f:
                    said = json.load(f)
                weigh(self.pid, WEIGHT)
                progress.done("ready" + (f" (for the machine's sake: {self.share})" if self.share else ""))
                return said
            except (FileNotFoundError, ValueError):
                pass
            if self._supervisor.poll() is not None:
                raise Failed(
                    f"{self.name} ended with status {self._supervisor.returncode} while it started; what its "
                    f"log says:\n{why_it_failed(self.log, 25)}"
                )
            if progress.elapsed > timeout:
                raise Failed(
                    f"{self.name} was not ready after {timeout:.0f} s; what its log says:\n{why_it_failed(self.log, 25)}"
                )
            time.sleep(0.2)
            progress.tick(f"{len(self.pids())} processes")

    def pids(self):
        """Every living process of the engine."""
        return descendants(self._supervisor.pid)

    def titles(self):
        """{pid: title} as /proc/PID/cmdline shows it, up to the first NUL of a set title."""
        found = {}
        for pid in self.pids():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    found[pid] = f.read().split(b"\0")[0].decode("utf-8", "replace")
            except OSError:
                continue
        return found

    def answered(self):
        """(tokens, requests) that it has answered since it was ready."""
        with open(self.ready_file + ".tokens", "rb") as f:
            return struct.unpack("<QQ", f.read(16))

    def finished(self):
        """The ids of the requests that it has answered."""
        with open(self.ready_file + ".finished") as f:
            return f.read().split()

    def alive(self):
        return self._supervisor.poll() is None

    def stop(self):
        """End every process of the engine and remove its folder. May be called again."""
        supervisor = self._supervisor
        if supervisor.poll() is None:
            left = descendants(supervisor.pid)
            try:
                supervisor.stdin.close()
            except BrokenPipeError:
                pass
            try:
                supervisor.wait(timeout=30)
            except subprocess.TimeoutExpired:  # it was stopped or starved: do its work
                for pid in left:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                supervisor.kill()
                supervisor.wait()
        supervisor.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()


def _folder(name, config=None):
    folder = tempfile.mkdtemp(prefix=f"gdbext-{name}-")
    os.mkdir(os.path.join(folder, "model"))
    with open(os.path.join(folder, "model", "config.json"), "w") as f:
        json.dump(config or CONFIG, f)
    return folder


def _kept_cache(python, folder):
    """Where vLLM keeps what it finds out about its model classes, in a process of its own that imports all of vLLM: beside the
    environment, or in `folder` where that may not be written."""
    above = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    return os.path.join(above if os.access(above, os.W_OK) else folder, "vllm-cache")


def start_vllm(tp=2, python=None, env=(), args=(), under=(), replicas=1, config=None, script="serve_vllm.py"):
    """Real vLLM on CPU, not ready yet. `env`: more environment variables, `args`: more arguments for serve_vllm.py, `under`:
    words of a program that starts it, `replicas`: how many engines share the requests (data parallel), `config`: another model's
    than `CONFIG`, `script`: of tests/engines, another one than serve_vllm.py with the same arguments."""
    python = python or environment("vllm")
    folder = _folder("vllm", config)
    environ = _environ(
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_CPU_OMP_THREADS_BIND=cores_for(tp * replicas),
        VLLM_NO_USAGE_STATS="1",
        TORCHDYNAMO_DISABLE="1",  # it would want a C++ compiler
        VLLM_CACHE_ROOT=_kept_cache(python, folder),
        VLLM_CONFIG_ROOT=os.path.join(folder, "config"),
        **dict(env),
    )
    argv = [
        *under,
        python,
        os.path.join(SCRIPTS, script),
        "--tp",
        str(tp),
        "--replicas",
        str(replicas),
        "--model",
        os.path.join(folder, "model"),
        "--ready",
        os.path.join(folder, "ready"),
        *args,
    ]
    return Engine("vLLM", argv, environ, folder)


def start_sglang(tp=2, python=None, env=(), args=(), config=None, script="serve_sglang.py"):
    """Real SGLang on CPU, not ready yet; the arguments are as for `start_vllm`."""
    python = python or environment("sglang")
    folder = _folder("sglang", config)
    environ = _environ(SGLANG_USE_CPU_ENGINE="1", TORCHDYNAMO_DISABLE="1", OMP_NUM_THREADS="1", **dict(env))
    if tp > 1:
        environ["SGLANG_CPU_OMP_THREADS_BIND"] = cores_for(tp)
    argv = [
        python,
        os.path.join(SCRIPTS, script),
        "--tp",
        str(tp),
        "--model",
        os.path.join(folder, "model"),
        "--ready",
        os.path.join(folder, "ready"),
        "--port",
        str(free_port()),
        *args,
    ]
    return Engine("SGLang", argv, environ, folder)


START = {"vllm": start_vllm, "sglang": start_sglang}
