"""`vllm serve` itself, with random weights and the plugin of faults (faults/vllm_faults.py). Started by scripts/tools/engines.py
in vLLM's environment.

    serve_http.py --model FOLDER --ready FILE [--tp N] [--replicas N] [--servers N] [--blocks N] [--faults FOLDER]

Writes FILE, one JSON object with the pid of `vllm serve` and its port, once it answers.
"""

import argparse
import importlib.metadata
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = 1024


def write_tokenizer(folder):
    """A tokenizer of made-up words, which structured output needs."""
    words = {**{f"w{i}": i for i in range(3, WORDS)}, "<unk>": 0, "<s>": 1, "</s>": 2}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"}
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        json.dump({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}, f)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "unk_token": "<unk>"}, f)


def write_distribution(folder, name, version, entry_points=""):
    """What pip would have left of an installed distribution."""
    info = os.path.join(folder, f"{name}-{version}.dist-info")
    os.makedirs(info)
    with open(os.path.join(info, "METADATA"), "w") as f:
        f.write(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    with open(os.path.join(info, "entry_points.txt"), "w") as f:
        f.write(entry_points)


def write_plugin(folder):
    write_distribution(folder, "vllm_faults", "1", "[vllm.general_plugins]\nfaults = vllm_faults:put_in\n")
    given = importlib.metadata.packages_distributions()["vllm"]
    if "vllm" not in given:  # that of CPUs has a name of its own; its command line asks for the version of "vllm"
        write_distribution(folder, "vllm", importlib.metadata.version(given[0]) + "+cpu")


def command(options, port):
    line = [sys.executable, os.path.join(os.path.dirname(sys.executable), "vllm"), "serve", options.model]
    line += ["--load-format", "dummy", "--max-model-len", "512", "--enforce-eager", "--dtype", "float32", "--block-size", "32"]
    line += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "subject"]
    line += ["--tensor-parallel-size", str(options.tp), "--distributed-executor-backend", "mp"]
    line += ["--data-parallel-size", str(options.replicas), "--api-server-count", str(options.servers)]
    line += ["--num-gpu-blocks-override", str(options.blocks), "--middleware", "vllm_faults.middleware"]
    transfer = {"kv_connector": "NeverDelivers", "kv_connector_module_path": "vllm_faults", "kv_role": "kv_both"}
    return [*line, "--kv-transfer-config", json.dumps(transfer)]


def answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--ready", required=True)
    parser.add_argument("--faults", required=True)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=9)
    options = parser.parse_args()
    plugins = os.path.join(os.path.dirname(options.ready), "plugins")
    write_tokenizer(options.model)
    write_plugin(plugins)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    paths = [plugins, os.path.join(HERE, "faults"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "GDBEXT_FAULTS": options.faults}
    server = subprocess.Popen(command(options, port), env=env)
    while not answers(port):
        if server.poll() is not None:
            sys.exit(server.returncode)
        time.sleep(0.5)
    with open(options.ready + ".new", "w") as f:
        json.dump({"pid": server.pid, "port": port}, f)
    os.replace(options.ready + ".new", options.ready)
    if server.wait() == -signal.SIGKILL:  # a test did that: what it leaves behind stays until this program ends
        signal.pause()
    sys.exit(server.returncode)


if __name__ == "__main__":
    main()
