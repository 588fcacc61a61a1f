"""scripts/run-on-gpu, whose results are there however it ends."""

import json
import os
import subprocess
import sys
import tarfile

from harness.gdb_run import ROOT

SLOW = "import time\n\n\ndef test_fast():\n    pass\n\n\ndef test_slow():\n    time.sleep(600)\n"


def test_what_a_cut_off_run_did_is_packed(tmp_path):
    (tmp_path / "test_slow.py").write_text(SLOW)
    out = str(tmp_path / "out")
    tar = str(tmp_path / "all.tgz")
    words = [
        sys.executable,
        "-m",
        "tools.run_on_gpu",
        out,
        "--tar",
        tar,
        "--seconds",
        "40",
        "--workers",
        "0",
        str(tmp_path / "test_slow.py"),
    ]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "scripts")}, timeout=200)
    assert done.returncode == 124
    with tarfile.open(tar) as archive:
        log = archive.extractfile("out/pytest.log").read().decode()
        names = archive.getnames()
    assert "test_fast PASSED" in log and "KeyboardInterrupt" in log
    assert {"out/machine.txt", "out/engines"} <= set(names)


def test_each_test_of_the_gpu_has_a_line(tmp_path):
    out = str(tmp_path / "out")
    words = [sys.executable, "-m", "tools.run_on_gpu", out, "--workers", "0", "tests/gpu/test_sglang.py"]
    subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "scripts")}, timeout=300, check=True)
    with open(os.path.join(out, "results.jsonl")) as f:
        rows = [json.loads(line) for line in f]
    assert len(rows) == 2 and all(row["test"].startswith("tests/gpu/test_sglang.py::") and row["outcome"] for row in rows)
