"""On real hardware: the engines' compiled kernels compute. In a kit's libraries one GPU architecture's code alone is left."""

import json
import os
import subprocess

import pytest
from harness.gpu_engine import SUBJECTS
from tools.gpu_kit import needs
from tools.say import Failed


@pytest.mark.parametrize("name, operators", [("vllm", {"rms_norm", "flash_attn_3"}), ("sglang", {"rmsnorm"})])
def test_they_say_what_torch_says(name, operators):
    try:
        python, folder = needs.engine(name)
    except Failed as e:
        pytest.skip(str(e))
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    words = [python, os.path.join(SUBJECTS, "operators.py"), name]
    done = subprocess.run(words, env={**environ, "PYTHONPATH": folder}, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    errors = json.loads(done.stdout.splitlines()[-1])
    assert set(errors) == operators and max(errors.values()) < 0.02, errors
